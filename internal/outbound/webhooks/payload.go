package webhooks

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

// envelope is the JSON body of every message (webhook reference 1).
type envelope struct {
	Type      events.Type `json:"type"`
	CreatedAt isoTime     `json:"created_at"`
	Data      any         `json:"data"`
}

// isoTime is a time that is encoded in ISO 8601 in UTC with milliseconds.
type isoTime time.Time

// MarshalJSON always writes three decimal places of a second.
func (t isoTime) MarshalJSON() ([]byte, error) {
	return time.Time(t).UTC().AppendFormat(nil, `"2006-01-02T15:04:05.000Z"`), nil
}

// offsetTime is a time that is encoded with microseconds and the offset +00:00, like the times in email records.
type offsetTime time.Time

// MarshalJSON always writes six decimal places of a second.
func (t offsetTime) MarshalJSON() ([]byte, error) {
	return time.Time(t).UTC().AppendFormat(nil, `"2006-01-02T15:04:05.000000+00:00"`), nil
}

type header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// emailData is the data object of email events (webhook reference 2). Fields for which the email has no value are
// omitted.
type emailData struct {
	EmailID     string             `json:"email_id"`
	MessageID   string             `json:"message_id"`
	CreatedAt   offsetTime         `json:"created_at"`
	From        string             `json:"from"`
	To          []string           `json:"to"`
	Subject     string             `json:"subject"`
	BroadcastID string             `json:"broadcast_id,omitzero"`
	TemplateID  string             `json:"template_id,omitzero"`
	Tags        map[string]string  `json:"tags,omitempty"`
	Headers     []header           `json:"headers,omitempty"`
	Bounce      *events.Bounce     `json:"bounce,omitzero"`
	Open        *openData          `json:"open,omitzero"` // a Postrider addition
	Click       *clickData         `json:"click,omitzero"`
	Failed      *events.Failed     `json:"failed,omitzero"`
	Delayed     *events.Delayed    `json:"delayed,omitzero"` // a Postrider addition
	Suppressed  *events.Suppressed `json:"suppressed,omitzero"`
}

type openData struct {
	IPAddress string  `json:"ipAddress"`
	Timestamp isoTime `json:"timestamp"`
	UserAgent string  `json:"userAgent"`
	events.Machine
}

type clickData struct {
	IPAddress string  `json:"ipAddress"`
	Link      string  `json:"link"`
	Timestamp isoTime `json:"timestamp"`
	UserAgent string  `json:"userAgent"`
	events.Machine
}

// receivedData is the data object of email.received events (webhook reference 3).
type receivedData struct {
	EmailID     string         `json:"email_id"`
	CreatedAt   isoTime        `json:"created_at"`
	From        string         `json:"from"`
	To          []string       `json:"to"`
	Cc          []string       `json:"cc"`
	Bcc         []string       `json:"bcc"`
	ReceivedFor []string       `json:"received_for"`
	MessageID   string         `json:"message_id"`
	Subject     string         `json:"subject"`
	Attachments []receivedFile `json:"attachments"`
}

type receivedFile struct {
	ID          string  `json:"id"`
	Filename    *string `json:"filename"`
	ContentType string  `json:"content_type"`
	Disposition *string `json:"content_disposition"`
	ContentID   *string `json:"content_id"`
}

// approvalData is the data object of approval events, which are Postrider additions.
type approvalData struct {
	ID          string  `json:"id"`
	Status      string  `json:"status"`
	From        string  `json:"from"`
	Recipients  int     `json:"recipients"`
	Subject     string  `json:"subject"`
	RequestedBy string  `json:"requested_by"`
	Reason      *string `json:"reason"`
	EmailID     *string `json:"email_id"`
	URL         string  `json:"url"`
	CreatedAt   isoTime `json:"created_at"`
	ExpiresAt   isoTime `json:"expires_at"`
}

// contactData is the data object of contact events (webhook reference 4). A contact without segments has no
// audience_id, and empty names are omitted, because the public schema does not allow null in their place.
type contactData struct {
	ID           string   `json:"id"`
	AudienceID   string   `json:"audience_id,omitzero"`
	SegmentIDs   []string `json:"segment_ids"`
	CreatedAt    isoTime  `json:"created_at"`
	UpdatedAt    isoTime  `json:"updated_at"`
	Email        string   `json:"email"`
	FirstName    string   `json:"first_name,omitzero"`
	LastName     string   `json:"last_name,omitzero"`
	Unsubscribed bool     `json:"unsubscribed"`
}

// domainData is the data object of domain events (webhook reference 5).
type domainData struct {
	ID           string       `json:"id"`
	Name         string       `json:"name"`
	Status       string       `json:"status"`
	CreatedAt    isoTime      `json:"created_at"`
	Region       string       `json:"region"`
	Capabilities capabilities `json:"capabilities"`
	Records      []record     `json:"records"`
}

type capabilities struct {
	Sending   string `json:"sending"`
	Receiving string `json:"receiving"`
}

type record struct {
	Record   string `json:"record"`
	Name     string `json:"name"`
	Type     string `json:"type"`
	TTL      string `json:"ttl"`
	Status   string `json:"status"`
	Value    string `json:"value"`
	Priority int    `json:"priority,omitzero"`
}

// suppressionData is the data object of suppression events (webhook reference 6).
type suppressionData struct {
	ID        string  `json:"id"`
	Email     string  `json:"email"`
	Origin    string  `json:"origin"`
	SourceID  *string `json:"source_id"`
	CreatedAt isoTime `json:"created_at"`
}

// transportData is the data object of transport events, which are Postrider additions.
type transportData struct {
	ID       string             `json:"id"`
	Name     string             `json:"name"`
	Mode     string             `json:"mode"`
	Since    isoTime            `json:"since"`
	Problems []transportProblem `json:"problems"`
}

type transportProblem struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// broadcastData is the data object of broadcast.paused events, which are a Postrider addition.
type broadcastData struct {
	ID        string  `json:"id"`
	Name      string  `json:"name"`
	State     string  `json:"state"`
	Reason    string  `json:"reason"`
	Message   string  `json:"message"`
	CreatedAt isoTime `json:"created_at"`
}

// writer builds the payloads for the events of one transaction. The writer reads each email only once.
type writer struct {
	s      *Service
	emails map[string]*events.Email
}

// payload returns the body of an event's message, and the message's chain, within which messages are delivered in
// order. The body is empty if the event's email no longer exists.
func (w *writer) payload(ctx context.Context, tx *db.Tx, e *events.Event) (body, chain string, err error) {
	var data any
	if e.EmailID != "" {
		email, err := w.email(ctx, tx, e)
		if email == nil {
			return "", "", err
		}
		data, chain = emailToData(email, e), e.EmailID
	} else if data, chain = w.other(e); data == nil {
		return "", "", fmt.Errorf("an event %s has data of type %T, which no webhook knows", e.Type, e.Data)
	}
	text, err := json.Marshal(envelope{e.Type, isoTime(e.At), data}, jsontext.AllowInvalidUTF8(true),
		json.Deterministic(true))
	if err != nil {
		return "", "", fmt.Errorf("encode the message of an event %s: %w", e.Type, err)
	}
	return string(text), chain, nil
}

func (w *writer) email(ctx context.Context, tx *db.Tx, e *events.Event) (*events.Email, error) {
	if b := w.emails[e.EmailID]; b != nil {
		return b, nil
	}
	read := e.Email
	if read == nil {
		read = func() (*events.Email, error) { return emails.EventSummary(ctx, tx.Reader, e.TeamID, e.EmailID) }
	}
	b, err := read()
	if fault.KindOf(err) == fault.NotFound {
		return nil, nil // Retention deleted the email, so no message is sent.
	}
	if err != nil {
		return nil, err
	}
	if w.emails == nil {
		w.emails = map[string]*events.Email{}
	}
	w.emails[e.EmailID] = b
	return b, nil
}

func emailToData(b *events.Email, e *events.Event) emailData {
	d := emailData{EmailID: b.ID, MessageID: b.MessageID, CreatedAt: offsetTime(b.CreatedAt), From: b.From, To: b.To,
		Subject: b.Subject, BroadcastID: b.BroadcastID, TemplateID: b.TemplateID}
	if e.Recipient != "" {
		d.To = []string{e.Recipient}
	}
	if len(b.Tags) > 0 {
		d.Tags = map[string]string{}
		for _, t := range b.Tags {
			d.Tags[t.Name] = t.Value
		}
	}
	for _, f := range b.Headers {
		d.Headers = append(d.Headers, header{f.Name, f.Value})
	}
	switch data := e.Data.(type) {
	case *events.Bounce:
		if e.Type == events.EmailBounced {
			d.Bounce = data
		}
	case *events.Open:
		d.Open = &openData{data.IPAddress, isoTime(data.Timestamp), data.UserAgent, data.Machine}
	case *events.Click:
		d.Click = &clickData{data.IPAddress, data.Link, isoTime(data.Timestamp), data.UserAgent, data.Machine}
	case *events.Failed:
		d.Failed = data
	case *events.Delayed:
		d.Delayed = data
	case *events.Suppressed:
		d.Suppressed = data
	}
	return d
}

// other returns the data object of an event that does not concern a sent email, and the chain of the event's subject.
func (w *writer) other(e *events.Event) (data any, chain string) {
	switch d := e.Data.(type) {
	case *events.Received:
		return receivedToData(d), d.ID
	case *events.Contact:
		return contactToData(d), d.ID
	case *events.Broadcast:
		return broadcastData{d.ID, d.Name, "paused", d.Reason, d.Message, isoTime(d.CreatedAt)}, d.ID
	case *events.Approval:
		return approvalData{d.ID, d.State, d.From, d.Recipients, d.Subject, d.By, orNull(d.Reason), orNull(d.EmailID), d.URL,
			isoTime(d.CreatedAt), isoTime(d.ExpiresAt)}, d.ID
	case *events.Transport:
		return transportToData(d), d.DomainID
	case domains.Domain:
		return w.domainToData(&d), d.ID
	case suppressions.Suppression:
		return suppressionData{d.ID, d.Address, string(d.Origin), orNull(d.SourceID), isoTime(d.CreatedAt)}, d.Address
	}
	return nil, ""
}

func receivedToData(d *events.Received) receivedData {
	data := receivedData{EmailID: d.ID, CreatedAt: isoTime(d.CreatedAt), From: d.From, To: d.To, Cc: d.Cc, Bcc: d.Bcc,
		ReceivedFor: d.ReceivedFor, MessageID: d.MessageID, Subject: d.Subject, Attachments: []receivedFile{}}
	for _, f := range d.Attachments {
		data.Attachments = append(data.Attachments, receivedFile{f.ID, orNull(f.Filename), f.ContentType,
			orNull(f.Disposition),
			orNull(f.ContentID)})
	}
	return data
}

func transportToData(d *events.Transport) transportData {
	data := transportData{d.DomainID, d.Name, d.Mode, isoTime(d.Since), []transportProblem{}}
	for _, p := range d.Problems {
		data.Problems = append(data.Problems, transportProblem(p))
	}
	return data
}

func contactToData(d *events.Contact) contactData {
	data := contactData{ID: d.ID, SegmentIDs: d.SegmentIDs, CreatedAt: isoTime(d.CreatedAt),
		UpdatedAt: isoTime(d.UpdatedAt),
		Email:     d.Email, FirstName: d.FirstName, LastName: d.LastName, Unsubscribed: d.Unsubscribed}
	if len(d.SegmentIDs) > 0 {
		data.AudienceID = d.SegmentIDs[0]
	}
	return data
}

func (w *writer) domainToData(d *domains.Domain) domainData {
	data := domainData{ID: d.ID, Name: d.Name, Status: string(d.Status), CreatedAt: isoTime(d.CreatedAt), Region: d.Region,
		Capabilities: capabilities{onOff(d.Sending), onOff(d.Receiving)}, Records: []record{}}
	for _, r := range w.s.p.Domains.Records(d) {
		kind := r.Kind
		if kind == "Receiving" {
			kind = "Receiving MX" // webhooks use a different name than the API (API reference section 10)
		}
		data.Records = append(data.Records, record{kind, r.Name, r.Type, "Auto", string(r.Status), r.Value, r.Priority})
	}
	return data
}

func onOff(b bool) string {
	if b {
		return "enabled"
	}
	return "disabled"
}

// orNull returns nil for an empty string, so that it is encoded as null.
func orNull(text string) *string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	return &text
}
