package emails

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// Recorded advances the states of emails and recipients. The recorder calls it for every event. If all holds several
// events of one email or recipient, only the one with the highest rank is written, because the others change nothing.
func (s *Service) Recorded(ctx context.Context, tx *db.Tx, all []events.Event) error {
	const few = 16
	if len(all) <= few {
		advance(ctx, tx, all)
		return nil
	}
	for _, part := range byEmail(all) { // because advance compares each event with all others
		advance(ctx, tx, part)
	}
	return nil
}

// byEmail divides events by their emails, in order. Those of no email are left out.
func byEmail(all []events.Event) [][]events.Event {
	var parts [][]events.Event
	place := map[string]int{}
	for i := range all {
		emailID := all[i].EmailID
		if emailID == "" {
			continue
		}
		at, ok := place[emailID]
		if !ok {
			at = len(parts)
			place[emailID] = at
			parts = append(parts, nil)
		}
		parts[at] = append(parts[at], all[i])
	}
	return parts
}

func advance(ctx context.Context, tx *db.Tx, all []events.Event) {
	for i := range all {
		e := &all[i]
		to, ok := stateOf[e.Type]
		if !ok || e.EmailID == "" || e.Type == events.EmailQueued || e.Type == events.EmailScheduled ||
			e.Type == events.EmailCanceled {
			continue // Queued and scheduled are written with the email; Cancel sets its state itself.
		}
		if !outranked(all, i, rank[to], true) {
			advanceRecipients(ctx, tx, e, to)
		}
		if !outranked(all, i, rank[to], false) {
			advanceEmail(ctx, tx, e, to)
		}
	}
}

// isTrackingState reports whether a state is by opens and clicks. These advance only what was delivered, so they make no event
// of a delivery redundant.
func isTrackingState(to State) bool { return to == Opened || to == Clicked }

// outranked reports whether another event of the same email makes event i redundant. With sameRecipient, only events of
// the same recipient are compared.
func outranked(all []events.Event, i, r int, sameRecipient bool) bool {
	for k := range all {
		e := &all[k]
		to := stateOf[e.Type] // rank 0 if the event has no state
		if unmailed(e) || e.EmailID != all[i].EmailID || sameRecipient && e.Recipient != all[i].Recipient ||
			isTrackingState(to) && !isTrackingState(stateOf[all[i].Type]) {
			continue
		}
		if rank[to] > r || rank[to] == r && k < i {
			return true
		}
	}
	return false
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
