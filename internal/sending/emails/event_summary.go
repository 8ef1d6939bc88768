package emails

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// EventSummary returns the summary of an email for inclusion in its events. EventSummary reads through r, so it works
// for an email that was accepted in the current transaction, for example in an event listener.
func EventSummary(ctx context.Context, r db.Reader, teamID, emailID string) (*events.Email, error) {
	e, headers, err := emailWithHeaders(ctx, r, teamID, emailID)
	if err != nil {
		return nil, err
	}
	return e.eventSummary(headers), nil
}

// eventSummary returns the summary of the email for inclusion in its events.
func (e *Email) eventSummary(headers []message.Field) *events.Email {
	b := &events.Email{ID: e.ID, MessageID: e.MessageID, From: e.From, To: e.To, Subject: e.Subject,
		BroadcastID: e.BroadcastID, TemplateID: e.TemplateID, CreatedAt: e.CreatedAt}
	for _, t := range e.Tags {
		b.Tags = append(b.Tags, events.Pair{Name: t.Name, Value: t.Value})
	}
	for _, f := range headers {
		b.Headers = append(b.Headers, events.Pair{Name: f.Name, Value: f.Value})
	}
	return b
}

// EventSummary returns the summary of the email for inclusion in its delivery events.
func (o *Outgoing) EventSummary() (*events.Email, error) {
	e, err := o.row.email()
	if err != nil {
		return nil, err
	}
	headers, err := o.headers(&e)
	if err != nil {
		return nil, err
	}
	return e.eventSummary(headers), nil
}

// headers returns the header fields specified by the sender: first the rendered fields of the shared content, then the
// email's own fields.
func (o *Outgoing) headers(e *Email) ([]message.Field, error) {
	if o.fields != nil {
		return o.fields()
	}
	own, err := db.DecodeList[message.Field](o.body.headers)
	if err != nil {
		return nil, fmt.Errorf("read the headers of email %s: %w", o.ID, err)
	}
	if o.body.shared == nil {
		return own, nil
	}
	return append(o.body.shared.Headers(e.shared.values), own...), nil
}
