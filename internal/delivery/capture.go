package delivery

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/blob"
	"github.com/postrider/postrider/internal/domains"
	"github.com/postrider/postrider/internal/id"
)

const (
	captured    = "captured/"
	capturedMax = 1000 // kept; older ones are shown no more
)

// Captured is a message that would have been sent.
type Captured struct {
	ID      string   `json:"id"`
	EmailID string   `json:"email_id"`
	From    string   `json:"from"` // envelope
	To      []string `json:"to"`   // envelope
	Size    int      `json:"size"`
}

// capture keeps a message instead of sending it. It counts as delivered.
func (s *Service) capture(ctx context.Context, t *try, sign domains.Signing, msg [][]byte) error {
	raw := bytes.Join(msg, nil)
	c := Captured{ID: id.New(), EmailID: t.o.ID, From: s.returnPath(t.o.ID, sign), To: t.o.To, Size: len(raw)}
	envelope, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode envelope: %w", err)
	}
	for key, content := range map[string][]byte{captured + c.ID + ".eml": raw, captured + c.ID + ".json": envelope} {
		if _, err := s.Blobs.Put(ctx, key, bytes.NewReader(content)); err != nil {
			return fmt.Errorf("keep captured message: %w", err)
		}
	}
	v := verdict{host: "captured", reply: "250 2.0.0 captured as " + c.ID, conversation: "The message was kept and not sent; see the outbox.\n"}
	for _, a := range t.o.To {
		v.recipients = append(v.recipients, recipient{address: a, class: delivered})
	}
	return s.record(ctx, t, v)
}

// Outbox lists captured messages, newest first.
func (s *Service) Outbox(ctx context.Context) ([]Captured, error) {
	ids, err := s.capturedIDs(ctx)
	if err != nil {
		return nil, err
	}
	var all []Captured
	for _, x := range ids {
		r, err := s.Blobs.Get(ctx, captured+x+".json")
		if err != nil {
			return nil, fmt.Errorf("read captured message: %w", err)
		}
		var c Captured
		err = json.UnmarshalRead(r, &c)
		r.Close()
		if err != nil {
			return nil, fmt.Errorf("read captured message: %w", err)
		}
		all = append(all, c)
	}
	return all, nil
}

// CapturedMessage opens a captured message as it would have been sent. Whoever asked closes it.
func (s *Service) CapturedMessage(ctx context.Context, messageID string) (io.ReadCloser, error) {
	return s.Blobs.Get(ctx, captured+messageID+".eml")
}

// capturedIDs are the newest messages first. Ids sort by time.
func (s *Service) capturedIDs(ctx context.Context) ([]string, error) {
	var ids []string
	err := s.Blobs.List(ctx, captured, func(f blob.Info) error {
		if x, ok := strings.CutSuffix(strings.TrimPrefix(f.Key, captured), ".json"); ok {
			ids = append(ids, x)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list captured messages: %w", err)
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	return ids[:min(len(ids), capturedMax)], nil
}
