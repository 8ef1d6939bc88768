package emails

import (
	"context"

	"maps"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

// dispatch enqueues the delivery jobs for recipients that are not suppressed: one job per destination or one per
// recipient. For each suppressed recipient, dispatch returns an event. The parameter memory is the estimated amount of
// memory, in bytes, needed to compose the message; see [Delivery].
func (s *Service) dispatch(ctx context.Context, tx *db.Tx, e *Email, memory int64, to []recipient,
	blocked map[string]suppressions.Suppression) (skipped []events.Event) {
	var all []Delivery
	at := map[string]int{} // destination -> index of its delivery job in all
	for _, r := range to {
		if b, ok := blocked[r.Key()]; ok {
			skipped = append(skipped, suppressedEvent(e, r.Addr(), b))
			continue
		}
		if i, ok := at[r.Domain]; ok && !e.onePerRecipient {
			all[i].To = append(all[i].To, r.Addr())
			continue
		}
		at[r.Domain] = len(all)
		j := Delivery{EmailID: e.ID, Domain: r.Domain, To: []string{r.Addr()}, Size: memory,
			Audience: e.ContactID != "" || e.TopicID != "" || e.BroadcastID != ""}
		if e.onePerRecipient {
			j.Ordinal = r.position + 1
		}
		all = append(all, j)
	}
	for _, j := range all {
		j.Only = len(all) == 1
		s.Queue.Insert(ctx, tx, jobs.New{Kind: DeliveryKind, Lane: Lane(j.Domain, e.TeamID, e.bulk), TeamID: e.TeamID,
			Payload: j.Encode()})
	}
	return skipped
}

// suppressedEvent returns the event for a recipient that is skipped because its address is on the suppression list.
func suppressedEvent(e *Email, to string, b suppressions.Suppression) events.Event {
	return events.Event{TeamID: e.TeamID, EmailID: e.ID, DomainID: e.DomainID, BroadcastID: e.BroadcastID,
		Type: events.EmailSuppressed, Recipient: to, OneRecipient: e.only != "", Data: suppressedBy(b)}
}

func suppressedBy(b suppressions.Suppression) *events.Suppressed {
	d := &events.Suppressed{Type: "OnAccountSuppressionList", Reason: "previous_bounce", DiagnosticCode: []string{},
		Message: "The address is on the team's suppression list because an earlier email to it bounced."}
	switch b.Origin {
	case suppressions.Complaint:
		d.Reason = "previous_complaint"
		d.Message = "The address is on the team's suppression list because its owner reported an earlier email as spam."
	case suppressions.Manual:
		d.Message = "The address is on the team's suppression list because it was added by hand (manual)."
	}
	return d
}

// blocking returns the suppressions that prevent an email from being sent. A private email, such as a password reset
// link, is sent despite earlier bounces, because its recipient cannot see that the address is suppressed. Complaints
// and manual entries also block private emails.
func blocking(blocked map[string]suppressions.Suppression, private bool) map[string]suppressions.Suppression {
	if private {
		maps.DeleteFunc(blocked, func(_ string, b suppressions.Suppression) bool {
			return b.Origin == suppressions.Bounce
		})
	}
	return blocked
}
