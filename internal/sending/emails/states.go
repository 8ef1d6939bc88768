package emails

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// Recorded advances the states of emails and recipients. The recorder calls Recorded for all events. For several events
// of one email or recipient, only the event of the highest rank is written, because the other events would change
// nothing.
func (s *Service) Recorded(ctx context.Context, tx *db.Tx, all []events.Event) error {
	const few = 16
	if len(all) <= few {
		advance(ctx, tx, all)
		return nil
	}
	for _, ofOne := range byEmail(all) { // grouped, because advance compares each event with all others
		advance(ctx, tx, ofOne)
	}
	return nil
}

// byEmail groups events by email and keeps their order. Events without an email are left out.
func byEmail(all []events.Event) [][]events.Event {
	var groups [][]events.Event
	index := map[string]int{} // index of each email's group
	for i := range all {
		emailID := all[i].EmailID
		if emailID == "" {
			continue
		}
		at, ok := index[emailID]
		if !ok {
			at = len(groups)
			index[emailID] = at
			groups = append(groups, nil)
		}
		groups[at] = append(groups[at], all[i])
	}
	return groups
}

func advance(ctx context.Context, tx *db.Tx, all []events.Event) {
	for i := range all {
		e := &all[i]
		to, ok := stateOf[e.Type]
		if !ok || e.EmailID == "" || e.Type == events.EmailQueued || e.Type == events.EmailScheduled ||
			e.Type == events.EmailCanceled {
			continue // the insert sets queued or scheduled, and the canceling code sets canceled
		}
		if !outranked(all, i, rank[to], true) {
			advanceRecipients(ctx, tx, e, to)
		}
		if !outranked(all, i, rank[to], false) {
			advanceEmail(ctx, tx, e, to)
		}
	}
}

// isTrackingState reports whether a state results from opens or clicks. Opens and clicks advance only delivered emails,
// so they never make a delivery event redundant.
func isTrackingState(to State) bool { return to == Opened || to == Clicked }

// outranked reports whether another event of the same email makes event i redundant. If sameRecipient is true,
// outranked compares only events of the same recipient.
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
