package webhooks

import (
	"context"
	"slices"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// Render returns the message id and payload of an event as endpoints would receive them. Both results are empty if the
// event type has no webhook message.
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

// CheckEvents parses the event types in an endpoint's list.
func CheckEvents(names []string) ([]events.Type, error) { return checkEvents(names) }
