package delivery

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/sending/emails"
)

const (
	capturedPrefix = "captured/"
	capturedMax    = 1000 // stored messages
)

// CapturedMessage is a message that the capture transport stored instead of sending.
type CapturedMessage struct {
	ID      string    `json:"id"`
	EmailID string    `json:"email_id"`
	TeamID  string    `json:"team_id"`
	From    string    `json:"from"` // envelope
	To      []string  `json:"to"`   // envelope
	Size    int       `json:"size"`
	At      time.Time `json:"at"`
}

// outbox stores each captured message as two blobs: the message exactly as it would have been sent, and its envelope.
// The outbox writes the envelope last, and only messages with an envelope are listed.
type outbox struct {
	blobs *blob.Store

	mu     sync.Mutex
	stored []string // message ids, oldest first; nil until the blobs are first listed
}

// store stores a message instead of sending it. The recipients of the message count as delivered.
func (b *outbox) store(ctx context.Context, o *emails.Outgoing, env smtpclient.Envelope,
	msg [][]byte) (outcome, error) {
	raw := bytes.Join(msg, nil)
	c := CapturedMessage{ID: id.New(), EmailID: o.ID, TeamID: o.TeamID, From: env.From, To: env.To, Size: len(raw),
		At: time.Now().UTC()}
	envelope, err := json.Marshal(c)
	if err != nil {
		return outcome{}, fmt.Errorf("encode an envelope: %w", err)
	}
	if _, err := b.blobs.Put(ctx, capturedPrefix+c.ID+".eml", bytes.NewReader(raw)); err != nil {
		return outcome{}, fmt.Errorf("store a captured message: %w", err)
	}
	if _, err := b.blobs.Put(ctx, capturedPrefix+c.ID+".json", bytes.NewReader(envelope)); err != nil {
		return outcome{}, fmt.Errorf("store a captured envelope: %w", err)
	}
	if err := b.prune(ctx, c.ID); err != nil {
		return outcome{}, err
	}
	a := answer{stage: smtpclient.StageFinal, reply: smtpclient.Reply{Code: 250, Enhanced: "2.0.0", Text: "captured as " +
		c.ID, Local: true}}
	return outcome{host: "outbox", answers: repeatAnswer(a, len(env.To)),
		conversation: "* kept in the outbox and not sent\n"}, nil
}

// prune adds a new message to the stored ids and deletes the oldest messages if there are more than capturedMax.
func (b *outbox) prune(ctx context.Context, newest string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stored == nil {
		var err error
		if b.stored, err = b.ids(ctx); err != nil {
			return err
		}
	} else {
		b.stored = append(b.stored, newest)
	}
	for len(b.stored) > capturedMax {
		for _, part := range []string{".json", ".eml"} {
			if err := b.blobs.Delete(ctx, capturedPrefix+b.stored[0]+part); err != nil {
				return fmt.Errorf("remove an old captured message: %w", err)
			}
		}
		b.stored = b.stored[1:]
	}
	return nil
}

// ids returns the ids of the stored messages, oldest first. The alphabetical order of message ids is chronological.
func (b *outbox) ids(ctx context.Context) ([]string, error) {
	ids := []string{}
	err := b.blobs.List(ctx, capturedPrefix, func(f blob.Info) error {
		if x, ok := strings.CutSuffix(strings.TrimPrefix(f.Key, capturedPrefix), ".json"); ok {
			ids = append(ids, x)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list captured messages: %w", err)
	}
	slices.Sort(ids)
	return ids, nil
}

func (b *outbox) envelope(ctx context.Context, captureID string) (c CapturedMessage, err error) {
	r, err := b.blobs.Get(ctx, capturedPrefix+captureID+".json")
	if err != nil {
		return c, fmt.Errorf("read a captured envelope: %w", err)
	}
	defer r.Close()
	if err := json.UnmarshalRead(r, &c); err != nil {
		return c, fmt.Errorf("read captured envelope %s: %w", captureID, err)
	}
	return c, nil
}

// Outbox returns up to 1,000 captured messages, newest first.
func (s *Service) Outbox(ctx context.Context) ([]CapturedMessage, error) {
	ids, err := s.outbox.ids(ctx)
	if err != nil {
		return nil, err
	}
	slices.Reverse(ids)
	all := make([]CapturedMessage, 0, min(len(ids), capturedMax))
	for _, x := range ids[:min(len(ids), capturedMax)] {
		c, err := s.outbox.envelope(ctx, x)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// OpenCaptured returns a reader for a captured message, exactly as it would have been sent. OpenCaptured returns
// blob.ErrNotFound if no message has this id. The caller must close the returned reader.
func (s *Service) OpenCaptured(ctx context.Context, captureID string) (io.ReadCloser, error) {
	if !id.Valid(captureID) {
		return nil, blob.ErrNotFound
	}
	return s.p.Blobs.Get(ctx, capturedPrefix+captureID+".eml")
}
