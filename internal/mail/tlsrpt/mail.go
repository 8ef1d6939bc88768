package tlsrpt

import (
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/mail/message"
)

// Mail is the email with a report. The caller signs it by DKIM: mail without a signature of the submitter is ignored
// (RFC 8460 section 3).
type Mail struct {
	From, To message.Address // the domain of From is the submitter
	Domain   string          // the policy domain
	ID       string          // of the message, with its angle brackets
	Date     time.Time
}

// Compose returns the email with a report.
func (m *Mail) Compose(r *Report) ([]byte, error) {
	packed, err := r.Gzip()
	if err != nil {
		return nil, err
	}
	submitter := m.From.Domain
	day := r.Begin.UTC().Format(time.DateOnly)
	out := message.Message{ID: m.ID, Date: m.Date, From: m.From, To: []message.Address{m.To},
		Subject: Subject(submitter, m.Domain, r.ID),
		Headers: []message.Field{{Name: DomainField, Value: m.Domain}, {Name: SubmitterField, Value: submitter},
			{Name: "Auto-Submitted", Value: "auto-generated"}},
		Text: fmt.Sprintf("The attached file is the TLS report (RFC 8460) of %s about connections to the mail hosts of %s "+
			"on %s (UTC).\n\nThe TXT record at %s asks for these reports.\n", submitter, m.Domain, day, RecordName(m.Domain)),
		Attachments: []message.Attachment{{Filename: FileName(submitter, m.Domain, r.Begin, r.End, ""),
			ContentType: MediaTypeGzip, Content: packed}},
		ReportType: ReportType}
	raw, err := out.Compose()
	if err != nil {
		return nil, fmt.Errorf("compose the email with a TLS report: %w", err)
	}
	return raw, nil
}
