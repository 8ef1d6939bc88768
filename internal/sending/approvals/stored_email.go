package approvals

import (
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/sending/emails"
)

// request is the JSON form in which an email is stored.
type request struct {
	From        string          `json:"from"`
	To          []string        `json:"to"`
	Cc          []string        `json:"cc,omitempty"`
	Bcc         []string        `json:"bcc,omitempty"`
	ReplyTo     []string        `json:"reply_to,omitempty"`
	Subject     string          `json:"subject"`
	HTML        *string         `json:"html,omitzero"`
	Text        *string         `json:"text,omitzero"`
	Headers     []message.Field `json:"headers,omitempty"`
	Attachments []file          `json:"attachments,omitempty"`
	Tags        []emails.Tag    `json:"tags,omitempty"`
	ScheduledAt string          `json:"scheduled_at,omitzero"`
	TopicID     string          `json:"topic_id,omitzero"`
}

type file struct {
	Filename    string `json:"filename"`
	ContentType string `json:"content_type"`
	ContentID   string `json:"content_id,omitzero"`
	Content     []byte `json:"content"`
}

// encode returns an email as JSON, without its template; it rejects emails that are larger than maxRequest.
func encode(e *emails.Send) (string, error) {
	r := request{From: e.From, To: e.To, Cc: e.Cc, Bcc: e.Bcc, ReplyTo: e.ReplyTo, Subject: e.Subject, HTML: e.HTML,
		Text: e.Text, Headers: e.Headers, Tags: e.Tags, ScheduledAt: e.ScheduledAt, TopicID: e.TopicID}
	for i, f := range e.Attachments {
		if f.Path != "" {
			return "", fault.Invalidf(fmt.Sprintf("attachments[%d].path", i), "An email that a person approves has its "+
				"files with it, so that they cannot be others by then: give `content` in place of `path`.")
		}
		r.Attachments = append(r.Attachments, file{f.Filename, f.ContentType, f.ContentID, f.Content})
	}
	text, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode an email: %w", err)
	}
	if len(text) > maxRequest {
		return "", fault.Invalidf("attachments", "The email has %d octets in JSON; the limit of those that wait for "+
			"approval is %d. Link to large files instead.", len(text), maxRequest)
	}
	return string(text), nil
}

func decode(text string) (*emails.Send, error) {
	var r request
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, fmt.Errorf("read the email of an approval: %w", err)
	}
	e := &emails.Send{From: r.From, To: r.To, Cc: r.Cc, Bcc: r.Bcc, ReplyTo: r.ReplyTo, Subject: r.Subject, HTML: r.HTML,
		Text: r.Text, Headers: r.Headers, Tags: r.Tags, ScheduledAt: r.ScheduledAt, TopicID: r.TopicID}
	for _, f := range r.Attachments {
		e.Attachments = append(e.Attachments, emails.Upload{Filename: f.Filename, ContentType: f.ContentType,
			ContentID: f.ContentID, Content: f.Content, HasContent: true})
	}
	return e, nil
}
