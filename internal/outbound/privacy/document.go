package privacy

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

// Document is the JSON document with all data about an address. Document does not include other recipients of the same
// emails.
type Document struct {
	Object      string          `json:"object"`
	Email       string          `json:"email"`
	ExportedAt  string          `json:"exported_at"`
	Contact     *ContactPart    `json:"contact" doc:"Null if there is no contact with the address."`
	Suppression *SuppressedPart `json:"suppression" doc:"Null if the address is not suppressed."`
	Emails      []SentPart      `json:"emails" doc:"Emails to the address, newest first."`
	Broadcasts  []BroadcastPart `json:"broadcasts" doc:"The broadcasts whose audience included the address, newest first."`
	Automations []RunPart       `json:"automation_runs" doc:"The runs of the contact, newest first."`
	Received    []ReceivedPart  `json:"received_emails" doc:"Emails from the address, newest first."`
}

// SuppressedPart is the address's suppression.
type SuppressedPart struct {
	ID        string `json:"id"`
	Origin    string `json:"origin"`
	CreatedAt string `json:"created_at"`
}

// SentPart is an email that was sent to the address.
type SentPart struct {
	ID          string       `json:"id"`
	CreatedAt   string       `json:"created_at"`
	From        string       `json:"from"`
	Subject     string       `json:"subject"`
	Kind        string       `json:"kind" enum:"to,cc,bcc"`
	State       string       `json:"state"`
	TopicID     string       `json:"topic_id"`
	BroadcastID string       `json:"broadcast_id"`
	Tags        []emails.Tag `json:"tags"`
	Events      []EventPart  `json:"events" doc:"The events of this recipient and of the email as a whole, oldest first."`
}

// EventPart is an email event.
type EventPart struct {
	Type      string         `json:"type"`
	Data      jsontext.Value `json:"data"`
	CreatedAt string         `json:"created_at"`
}

// BroadcastPart is the outcome of a broadcast for the address.
type BroadcastPart struct {
	BroadcastID string `json:"broadcast_id"`
	EmailID     string `json:"email_id" doc:"Empty if no email was sent to the address."`
	State       string `json:"state"`
	Reason      string `json:"reason" doc:"The reason why no email was sent, or why sending failed."`
	BounceType  string `json:"bounce_type"`
	Variant     int    `json:"variant" doc:"The variant of an A/B test, counted from 0."`
	Opens       int    `json:"opens" doc:"Includes those of bots."`
	Clicks      int    `json:"clicks" doc:"Includes those of bots."`
}

// RunPart is an automation run of the contact that has the address.
type RunPart struct {
	ID           string         `json:"id"`
	AutomationID string         `json:"automation_id"`
	Automation   string         `json:"automation" doc:"The name of the automation."`
	Status       string         `json:"status"`
	Reason       string         `json:"reason" doc:"The reason why the run failed or was canceled."`
	Event        string         `json:"event" doc:"The event that started the run."`
	Payload      jsontext.Value `json:"payload" doc:"The payload of that event."`
	Received     jsontext.Value `json:"received" doc:"The events that its steps waited for, by step key."`
	CreatedAt    string         `json:"created_at"`
	EndedAt      string         `json:"ended_at" doc:"Empty until the run has ended."`
	Steps        []RunStepPart  `json:"steps"`
}

// RunStepPart is the result of one step of an automation run.
type RunStepPart struct {
	Key       string         `json:"key"`
	Status    string         `json:"status"`
	Output    map[string]any `json:"output"`
	Reason    string         `json:"reason" doc:"The reason why the step failed or was skipped."`
	StartedAt string         `json:"started_at"`
}

// ReceivedPart is an email that the team received from the address.
type ReceivedPart struct {
	ID        string   `json:"id"`
	CreatedAt string   `json:"created_at"`
	From      string   `json:"from"`
	To        []string `json:"to"`
	Subject   string   `json:"subject"`
}

// Received reads a batch of a team's received emails from an address, starting after a cursor. Received also returns
// the cursor for the following batch, or "" after the last batch.
type Received func(ctx context.Context, teamID string, a erasure.Address, after string) (some []ReceivedPart,
	next string, err error)

// Broadcasts reads a batch of a team's broadcast results for an address, with the same paging as Received.
type Broadcasts func(ctx context.Context, teamID string, a erasure.Address, after string) (some []BroadcastPart,
	next string, err error)

// Automations reads a batch of the automation runs for one of a team's contacts, with the same paging as Received.
type Automations func(ctx context.Context, teamID, contactID, after string) (some []RunPart, next string, err error)

// Document writes all data that a team has stored about an address as one JSON document. The caller identifies the
// address either directly or by its contact's id. The JSON document is yielded in chunks; each chunk is valid until the
// next chunk is requested. Document reads all of the team's emails and broadcast recipients; for batches without
// matches, chunks contain only white space.
func (s *Service) Document(ctx context.Context, teamID, idOrAddress string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		w := &writer{yield: yield}
		if err := s.write(ctx, w, teamID, idOrAddress); err != nil && !w.stopped {
			yield(nil, err)
		}
	}
}

// writer writes the JSON document in chunks.
type writer struct {
	bytes.Buffer
	yield   func([]byte, error) bool
	stopped bool
}

func (s *Service) write(ctx context.Context, w *writer, teamID, idOrAddress string) error {
	of, err := s.subject(ctx, teamID, idOrAddress)
	if err != nil {
		return err
	}
	contact, err := s.contactPart(ctx, &of)
	if err != nil {
		return err
	}
	suppressed, err := s.suppressedPart(ctx, teamID, of.Key())
	if err != nil {
		return err
	}
	for _, m := range []struct {
		name  string
		value any
	}{{`{"object":`, "contact_export"}, {`,"email":`, of.Key()}, {`,"exported_at":`, FormatTime(s.p.DB.Now())},
		{`,"contact":`, contact}, {`,"suppression":`, suppressed}} {
		w.WriteString(m.name)
		if err := w.value(m.value); err != nil {
			return err
		}
	}
	w.WriteString(",\n\"emails\":[")
	err = items(w, func(after string) ([]SentPart, string, error) { return s.sentParts(ctx, teamID, of.Address, after) })
	if err != nil {
		return err
	}
	w.WriteString("],\n\"broadcasts\":[")
	err = items(w, func(after string) ([]BroadcastPart, string, error) {
		return s.p.Broadcasts(ctx, teamID, of.Address, after)
	})
	if err != nil {
		return err
	}
	w.WriteString("],\n\"automation_runs\":[")
	if of.contact.ID != "" {
		err = items(w, func(after string) ([]RunPart, string, error) {
			return s.p.Automations(ctx, teamID, of.contact.ID, after)
		})
		if err != nil {
			return err
		}
	}
	w.WriteString("],\n\"received_emails\":[")
	err = items(w, func(after string) ([]ReceivedPart, string, error) {
		return s.p.Received(ctx, teamID, of.Address, after)
	})
	if err != nil {
		return err
	}
	w.WriteString("]}\n")
	return w.flush()
}

// items writes a list's items, batch by batch.
func items[T any](w *writer, readBatch func(after string) ([]T, string, error)) error {
	first := true
	for after := ""; ; {
		some, next, err := readBatch(after)
		if err != nil {
			return err
		}
		for i := range some {
			if !first {
				w.WriteByte(',')
			}
			first = false
			w.WriteByte('\n')
			if err := w.value(&some[i]); err != nil {
				return err
			}
		}
		if next == "" {
			return nil
		}
		w.WriteByte('\n') // write at least white space for each batch, so that proxies do not close an idle connection
		if err := w.flush(); err != nil {
			return err
		}
		after = next
	}
}

func (w *writer) value(v any) error {
	err := json.MarshalWrite(&w.Buffer, v, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true),
		json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("encode what is stored about an address: %w", err)
	}
	return nil
}

// flush yields the buffered bytes to the consumer. If the consumer has stopped reading, flush fails.
func (w *writer) flush() error {
	if !w.yield(w.Bytes(), nil) {
		w.stopped = true
		return context.Canceled
	}
	w.Reset()
	return nil
}

func (s *Service) suppressedPart(ctx context.Context, teamID, address string) (*SuppressedPart, error) {
	x, err := s.p.Suppressions.Get(ctx, teamID, address)
	if fault.KindOf(err) == fault.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &SuppressedPart{x.ID, string(x.Origin), FormatTime(x.CreatedAt)}, nil
}

func (s *Service) sentParts(ctx context.Context, teamID string, a erasure.Address, after string) ([]SentPart, string,
	error) {
	some, next, err := s.p.Emails.ListPageTo(ctx, teamID, a, after)
	if err != nil {
		return nil, "", err
	}
	var all []SentPart
	for _, e := range some {
		p := SentPart{ID: e.ID, CreatedAt: FormatTime(e.CreatedAt), From: e.From, Subject: e.Subject, TopicID: e.TopicID,
			BroadcastID: e.BroadcastID, Tags: e.Tags}
		for _, r := range e.Recipients {
			p.Kind, p.State = r.Kind, string(r.State)
		}
		if p.Events, err = s.eventsOf(ctx, teamID, e.ID, a); err != nil {
			return nil, "", fmt.Errorf("read the timeline of email %s: %w", e.ID, err)
		}
		all = append(all, p)
	}
	return all, next, nil
}

// eventsOf returns the events that concern either an email as a whole or the given recipient.
func (s *Service) eventsOf(ctx context.Context, teamID, emailID string, a erasure.Address) ([]EventPart, error) {
	found := []EventPart{}
	for p := (page.Page{}); ; {
		all, more, err := s.p.Emails.Timeline(ctx, teamID, emailID, p)
		if err != nil {
			return nil, err
		}
		for _, x := range all {
			if x.Recipient != "" && !a.Is(x.Recipient) {
				continue
			}
			data := jsontext.Value("null")
			if x.Data != "" {
				data = jsontext.Value(x.Data)
			}
			found = append(found, EventPart{x.Type, data, FormatTime(x.At)})
		}
		if !more || len(all) == 0 {
			return found, nil
		}
		p.After = all[len(all)-1].ID
	}
}

// FormatTime formats a time as the API's lists do.
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.999999+00") }
