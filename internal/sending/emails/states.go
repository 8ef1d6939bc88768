package emails

import (
	"context"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// Recorded updates the states of emails and recipients after events. The event recorder calls Recorded for all events.
// If there are several events for one email or recipient, only the event with the highest rank is written, because the
// others would change nothing.
func (s *Service) Recorded(ctx context.Context, tx *db.Tx, all []events.Event) error {
	const few = 16
	if len(all) <= few {
		advance(ctx, tx, all)
		return nil
	}
	for _, ofOne := range byEmail(all) { // grouped by email, because advance compares each event with all others
		advance(ctx, tx, ofOne)
	}
	return nil
}

// byEmail groups events by email and preserves their order. Events without an email are left out.
func byEmail(all []events.Event) [][]events.Event {
	var groups [][]events.Event
	index := map[string]int{} // index of the group for each email
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
			e.Type == events.EmailCanceled && !unmailed(e) {
			continue // queued and scheduled are set when the email is inserted, and canceled is set when a user cancels it
		}
		if !outranked(all, i, rankOf(e), true) {
			advanceRecipients(ctx, tx, e, to)
		}
		if !outranked(all, i, rankOf(e), false) {
			advanceEmail(ctx, tx, e, to)
		}
	}
}

// rankOf returns the rank of the state that results from an event, or 0 for an event without a state.
func rankOf(e *events.Event) int {
	if _, withheld := e.Data.(*events.Delayed); withheld {
		return rankWithheld
	}
	return rank[stateOf[e.Type]]
}

// isTrackingState reports whether a state is the result of an open or a click. Opens and clicks change the state only
// of delivered emails, so they never make a delivery event redundant.
func isTrackingState(to State) bool { return to == Opened || to == Clicked }

// outranked reports whether another event for the same email makes event i redundant. If sameRecipient is true,
// outranked compares only events for the same recipient.
func outranked(all []events.Event, i, r int, sameRecipient bool) bool {
	for k := range all {
		e := &all[k]
		to := stateOf[e.Type]
		if unmailed(e) || e.EmailID != all[i].EmailID || sameRecipient && e.Recipient != all[i].Recipient ||
			isTrackingState(to) && !isTrackingState(stateOf[all[i].Type]) {
			continue
		}
		if other := rankOf(e); other > r || other == r && k < i {
			return true
		}
	}
	return false
}
