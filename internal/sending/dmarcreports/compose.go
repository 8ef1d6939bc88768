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
)

// errUnwritable means that a report cannot be written, now or later.
var errUnwritable = errors.New("the report cannot be written")

// compose returns the email with a report (RFC 9990 section 3.5), and the address of its recipient. The result is nil
// if the report counts no messages.
func (s *Service) compose(ctx context.Context, x report, target string) (raw []byte, to string, err error) {
	rows, err := s.rows(ctx, x)
	if err != nil || len(rows) == 0 {
		return nil, "", err
	}
	address, err := message.ParseAddress(target)
	if err != nil {
		return nil, "", fmt.Errorf("%w: the target is not an address: %w", errUnwritable, err)
	}
	submitter, begin := s.c.From.Domain, db.Time(x.day).UTC()
	h := dmarcrpt.Header{Org: submitter, Email: s.c.From.Addr(), ID: x.id + "@" + submitter, Begin: begin,
		End: begin.Add(day - time.Second), Generator: s.c.Generator, Policy: x.published.Policy}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if err := errors.Join(dmarcrpt.Write(z, h, slices.Values(rows)), z.Close()); err != nil {
		return nil, "", fmt.Errorf("%w: %w", errUnwritable, err)
	}
	name := fmt.Sprintf("%s!%s!%d!%d!%s.xml.gz", submitter, x.domain, h.Begin.Unix(), h.End.Unix(), x.id)
	// The ids are the same for each try, so that a receiver recognizes a second copy.
	m := message.Message{ID: "<" + h.ID + ">", Date: s.c.Now(), From: s.c.From, To: []message.Address{address},
		Subject: fmt.Sprintf("Report Domain: %s Submitter: %s Report-ID: <%s>", x.domain, submitter, h.ID),
		Headers: []message.Field{{Name: "Auto-Submitted", Value: "auto-generated"}},
		Text: fmt.Sprintf("The attached file is the DMARC aggregate report (RFC 9990) of %s about messages from %s that it "+
			"received on %s (UTC).\n\nThe TXT record at _dmarc.%[2]s asks for these reports.\n", submitter, x.domain,
			begin.Format(time.DateOnly)),
		Attachments: []message.Attachment{{Filename: name, ContentType: "application/gzip", Content: packed.Bytes()}}}
	if raw, err = m.Compose(); err != nil {
		return nil, "", fmt.Errorf("%w: compose the email: %w", errUnwritable, err)
	}
	return raw, address.Addr(), nil
}
