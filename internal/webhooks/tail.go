package webhooks

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/events"
)

// Render returns the message that endpoints are told of an event: its id and its payload. Both are empty for an event that no endpoint
// is told of.
func (s *Service) Render(ctx context.Context, tx *db.Tx, e *events.Event) (id, payload string, err error) {
	if !slices.Contains(Types(), e.Type) {
		return "", "", nil
	}
	w := writer{s: s}
	payload, _, err = w.payload(ctx, tx, e)
	if err != nil || payload == "" {
		return "", "", err
	}
	return messageID(e.ID), payload, nil
}

// Sign sets the headers by which a receiver knows a message; key is a secret without its prefix, decoded.
func Sign(h http.Header, messageID string, at time.Time, payload string, key []byte) {
	sign(h, messageID, at, payload, key)
}

// CheckEvents reads the names of events as an endpoint's list has them.
func CheckEvents(names []string) ([]events.Type, error) { return checkEvents(names) }
