package forwards

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

var _ events.Listener = (*Service)(nil)

// Recorded counts what happens to forwarded emails at their rules. The event recorder calls it for every event.
func (s *Service) Recorded(ctx context.Context, tx *db.Tx, all []events.Event) error {
	for i := range all {
		if all[i].ForwardRule == "" {
			continue
		}
		if err := s.recorded(ctx, tx, &all[i]); err != nil {
			return fmt.Errorf("count an event of a forwarded email: %w", err)
		}
	}
	return nil
}

func (s *Service) recorded(ctx context.Context, tx *db.Tx, e *events.Event) error {
	r := Rule{ID: e.ForwardRule, TeamID: e.TeamID}
	switch e.Type {
	case events.EmailDelivered:
		countSuccess(ctx, tx, r.TeamID, r.ID)
	case events.EmailBounced:
		why, permanent := "the message bounced", true
		if b, ok := e.Data.(*events.Bounce); ok {
			permanent = b.Type == "Permanent"
			why = "the message bounced: " + b.Message
			if len(b.DiagnosticCode) > 0 {
				why = "the message bounced: " + b.DiagnosticCode[0]
			}
		}
		return s.failed(ctx, tx, &r, why, permanent)
	case events.EmailComplained:
		return s.failed(ctx, tx, &r, "the owner of the address reported a message as spam", false)
	case events.EmailFailed:
		return s.failed(ctx, tx, &r, "the message could not be sent", false)
	case events.EmailSuppressed:
		countStopped(ctx, tx, r.TeamID, r.ID, "the address is on the team's suppression list", tx.Now())
	}
	return nil
}

// failed counts a failure of a rule. If the rule has only failed for failingFor, failed switches it off and enqueues a
// notice to its team.
func (s *Service) failed(ctx context.Context, tx *db.Tx, r *Rule, why string, permanent bool) error {
	off, err := countFailed(ctx, tx, r.TeamID, r.ID, why, permanent, tx.Now(), tx.Now().Add(-failingFor))
	if err != nil || !off {
		return err
	}
	rule, err := ruleByID(ctx, tx.Reader, r.TeamID, r.ID)
	if err != nil {
		return err
	}
	to := rule.Address
	if to == "" {
		to = rule.HideURL().URL // a notice is an email to several members
	}
	name, err := domainName(ctx, tx.Reader, r.TeamID, rule.DomainID)
	if err != nil {
		return err
	}
	return s.p.Notify(ctx, tx, r.TeamID, "A forwarding rule was switched off",
		fmt.Sprintf("The rule that forwards mail for %s@%s to %s has only failed for three days, so that it was switched "+
			"off. The last reason: %s.\n\nReceived mail is still stored. Correct the rule's target or the problem there, and "+
			"switch the rule on again on the page of the domain.\n", rule.Local, name, to, why))
}
