package node

import (
	"cmp"
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/accounts/savedfilters"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/imports"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/outbound/forwards"
	"github.com/postrider/postrider/internal/outbound/privacy"
	"github.com/postrider/postrider/internal/outbound/requestlog"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/sending/approvals"
	"github.com/postrider/postrider/internal/sending/suppressions"
	"github.com/postrider/postrider/internal/sending/templates"
)

// AddressErasers returns a function that erases an address for each package that stores addresses. Contacts are erased
// near the end, so that a retried erasure still finds the contact with the address.
func (n *Node) AddressErasers() []erasure.Eraser {
	return []erasure.Eraser{
		{Name: "sent emails", Erase: n.Emails.EraseAddress},
		{Name: "received emails", Erase: n.Receiving.EraseAddress},
		{Name: "forwards", Erase: func(ctx context.Context, a erasure.Address, s erasure.Scope) (erasure.Report, error) {
			return forwards.EraseAddress(ctx, n.DB, a, s)
		}},
		{Name: "approvals", Erase: func(ctx context.Context, a erasure.Address, s erasure.Scope) (erasure.Report, error) {
			return approvals.EraseAddress(ctx, n.DB, a, s)
		}},
		{Name: "webhooks", Erase: func(ctx context.Context, a erasure.Address, s erasure.Scope) (erasure.Report, error) {
			return webhooks.EraseAddress(ctx, n.DB, a, s)
		}},
		{Name: "request log", Erase: func(ctx context.Context, a erasure.Address, s erasure.Scope) (erasure.Report, error) {
			return requestlog.EraseAddress(ctx, n.DB, a, s)
		}},
		{Name: "audit log", Erase: func(ctx context.Context, a erasure.Address, s erasure.Scope) (erasure.Report, error) {
			return audit.EraseAddress(ctx, n.DB, a, s)
		}},
		{Name: "names", Erase: n.eraseFromNames},
		{Name: "saved filters", Erase: func(ctx context.Context, a erasure.Address, s erasure.Scope) (erasure.Report, error) {
			return savedfilters.EraseAddress(ctx, n.DB, a, s)
		}},
		{Name: "broadcasts", Erase: func(ctx context.Context, a erasure.Address, s erasure.Scope) (erasure.Report, error) {
			return broadcasts.EraseAddress(ctx, n.DB, a, s)
		}},
		{Name: "automations", Erase: n.Automations.EraseAddress},
		{Name: "imports", Erase: func(ctx context.Context, a erasure.Address, s erasure.Scope) (erasure.Report, error) {
			return imports.EraseAddress(ctx, n.DB, a, s)
		}},
		{Name: "contacts", Erase: func(ctx context.Context, a erasure.Address, s erasure.Scope) (erasure.Report, error) {
			return contacts.EraseAddress(ctx, n.DB, a, s, s.Refusals)
		}},
		{Name: "suppressions", Erase: func(ctx context.Context, a erasure.Address, s erasure.Scope) (erasure.Report, error) {
			if !s.Refusals {
				return nil, nil
			}
			return suppressions.EraseAddress(ctx, n.DB, a, s)
		}},
	}
}

// eraseFromNames replaces an address in names that members of the teams gave to resources.
func (n *Node) eraseFromNames(ctx context.Context, a erasure.Address, s erasure.Scope) (found erasure.Report,
	err error) {
	for _, t := range []erasure.Texts{broadcasts.ErasableTexts, automations.ErasableTexts, segments.ErasableTexts,
		templates.ErasableTexts, imports.ErasableTexts} {
		some, err := t.Erase(ctx, n.DB, a, s)
		found.Merge(some)
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

// receivedFrom returns the emails that a team has received from an address, for exports of personal data.
func (n *Node) receivedFrom(ctx context.Context, teamID string, a erasure.Address, after string) (
	[]privacy.ReceivedPart, string, error) {
	some, next, err := n.Receiving.BatchFrom(ctx, teamID, a, after)
	var parts []privacy.ReceivedPart
	for _, e := range some {
		parts = append(parts, privacy.ReceivedPart{ID: e.ID, CreatedAt: privacy.FormatTime(e.CreatedAt),
			From: e.From, To: e.To,
			Subject: e.Subject})
	}
	return parts, next, err
}

// broadcastsTo returns the entries for an address in the recipient lists of a team's broadcasts, for exports of
// personal data.
func (n *Node) broadcastsTo(ctx context.Context, teamID string, a erasure.Address, after string) (
	[]privacy.BroadcastPart, string, error) {
	some, next, err := n.Broadcasts.RecipientsWithAddress(ctx, teamID, a, after)
	var parts []privacy.BroadcastPart
	for _, r := range some {
		parts = append(parts, privacy.BroadcastPart{BroadcastID: r.BroadcastID, EmailID: r.EmailID, State: r.State,
			Reason: r.Reason, BounceType: r.BounceType, Variant: r.Variant, Opens: r.Opens, Clicks: r.Clicks})
	}
	return parts, next, err
}

// runsOf returns a contact's automation runs, for exports of personal data.
func (n *Node) runsOf(ctx context.Context, teamID, contactID, after string) ([]privacy.RunPart, string, error) {
	some, next, err := n.Automations.RunsOfContact(ctx, teamID, contactID, after)
	json := func(text string) jsontext.Value { return jsontext.Value(cmp.Or(text, "null")) }
	var parts []privacy.RunPart
	for _, r := range some {
		p := privacy.RunPart{ID: r.ID, AutomationID: r.AutomationID, Automation: r.Automation, Status: string(r.Status),
			Reason: string(r.Reason), Event: r.Event, Payload: json(r.Payload), Received: json(r.Received),
			CreatedAt: privacy.FormatTime(r.CreatedAt), Steps: []privacy.RunStepPart{}}
		if !r.EndedAt.IsZero() {
			p.EndedAt = privacy.FormatTime(r.EndedAt)
		}
		for _, step := range r.Steps {
			of := privacy.RunStepPart{Key: step.Key, Status: string(step.Status), Output: step.Output,
				StartedAt: privacy.FormatTime(step.StartedAt)}
			if step.Failure != nil {
				of.Reason = step.Failure.Reason
			}
			p.Steps = append(p.Steps, of)
		}
		parts = append(parts, p)
	}
	return parts, next, err
}
