package dmarcreports

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/mail/dmarcrpt"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/dailyreports"
)

// prepare writes a report, and returns the function that sends it as an email (RFC 9990 section 3.5) to an address. The
// function is nil if the report counts no messages.
func (s *Service) prepare(ctx context.Context, x *dailyreports.Report) (func(context.Context, string) error, error) {
	p, err := publishedIn(x)
	if err != nil {
		return nil, err
	}
	rows, err := s.rows(ctx, x.DayDomain, &p.Policy)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	submitter, begin := s.c.From.Domain, db.Time(x.Day).UTC()
	h := dmarcrpt.Header{Org: submitter, Email: s.c.From.Addr(), ID: x.ID + "@" + submitter, Begin: begin,
		End: begin.Add(dailyreports.Day - time.Second), Generator: s.c.Generator, Policy: p.Policy}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if err := errors.Join(dmarcrpt.Write(z, h, slices.Values(rows)), z.Close()); err != nil {
		return nil, fmt.Errorf("%w: %w", dailyreports.ErrUnwritable, err)
	}
	name := fmt.Sprintf("%s!%s!%d!%d!%s.xml.gz", submitter, x.Domain, h.Begin.Unix(), h.End.Unix(), x.ID)
	return func(ctx context.Context, target string) error {
		to, err := message.ParseAddress(target)
		if err != nil {
			return fmt.Errorf("%w: the target is not an address: %w", dailyreports.ErrUnwritable, err)
		}
		m := message.Message{ID: "<" + h.ID + ">", Date: s.c.Now(), From: s.c.From, To: []message.Address{to},
			Subject: fmt.Sprintf("Report Domain: %s Submitter: %s Report-ID: <%s>", x.Domain, submitter, h.ID),
			Headers: []message.Field{{Name: "Auto-Submitted", Value: "auto-generated"}},
			Text: fmt.Sprintf("The attached file is the DMARC aggregate report (RFC 9990) of %s about messages from %s that it "+
				"received on %s (UTC).\n\nThe TXT record at _dmarc.%[2]s asks for these reports.\n", submitter, x.Domain,
				begin.Format(time.DateOnly)),
			Attachments: []message.Attachment{{Filename: name, ContentType: "application/gzip", Content: packed.Bytes()}}}
		raw, err := m.Compose()
		if err != nil {
			return fmt.Errorf("%w: compose the email: %w", dailyreports.ErrUnwritable, err)
		}
		return s.p.Mail(ctx, s.c.From.Addr(), to.Addr(), raw)
	}, nil
}
