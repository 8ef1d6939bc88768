package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/imports"
	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/outbound/privacy"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/outbound/requestlog"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/approvals"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

const emailsUsage = `use one of
  postrider emails delete ID --team TEAM   (a received email; of a sent one its content)
  postrider emails erase ADDRESS [--team TEAM] [--suppressions] [--dry-run]
TEAM is an id or an exact name; names with spaces are given in quotes`

// manageEmails runs the operator's commands that delete emails.
func manageEmails(ctx context.Context, e *env, args []string) error {
	return runVerb(ctx, e, "emails", emailsUsage, []verb{{"delete", 1, deleteEmail}, {"erase", 1, eraseAddress}}, args)
}

// openMail opens what a command needs to delete emails with their files.
func (n *node) openMail(ctx context.Context) (err error) {
	if n.blobs, err = blob.Open(ctx, n.c.BlobURL); err != nil {
		return fmt.Errorf("open blob_url: %w", err)
	}
	n.emails = emails.New(emails.Config{}, emails.Parts{DB: n.db, Queue: n.queue, Blobs: n.blobs, Teams: n.teams})
	n.receiving = receiving.New(receiving.Config{}, receiving.Parts{DB: n.db, Blobs: n.blobs, Emails: n.emails,
		Teams: n.teams, Log: n.log})
	n.automations = automations.New(automations.Parts{DB: n.db, Queue: n.queue, Log: n.log,
		Contacts: contacts.New(n.db, &events.Recorder{}, nil)})
	return nil
}

func deleteEmail(flags *flag.FlagSet) action {
	team := flags.String("team", "", "the team whose email it is, by its id or its exact name")
	return func(ctx context.Context, e *env, n *node, words []string) error {
		if *team == "" {
			return errors.New("say whose email: --team TEAM, by its id or its exact name; `postrider teams list` shows them")
		}
		if err := n.openMail(ctx); err != nil {
			return err
		}
		return n.withTeam(ctx, *team, func(t teams.Team) error {
			emailID := strings.ToLower(words[0])
			as := func(action string) context.Context {
				return audit.With(ctx, audit.Entry{Action: action, Target: emailID})
			}
			err := n.receiving.Delete(as("received_email.deleted"), t.ID, emailID)
			if err == nil {
				_, err = fmt.Fprintln(e.out, "deleted a received email")
				return err
			}
			if fault.KindOf(err) != fault.NotFound {
				return err
			}
			if err := n.emails.DeleteContent(as("email.content_deleted"), t.ID, emailID); err != nil {
				return err
			}
			_, err = fmt.Fprintln(e.out, "deleted the content of a sent email")
			return err
		})
	}
}

// leftHints say how to erase what an erasure left.
var leftHints = map[erasure.Left]string{
	erasure.LeftSoon:  ": run this again in a few minutes",
	erasure.LeftLater: ": cancel them, or run this again afterwards",
	erasure.LeftKept:  ": --suppressions deletes them too",
}

func eraseAddress(flags *flag.FlagSet) action {
	team := flags.String("team", "", "erase it in this team alone, by its id or its exact name")
	dryRun := flags.Bool("dry-run", false, "say what would be erased, and erase nothing")
	suppressed := flags.Bool("suppressions", false, "take it off the suppression lists too, and forget that it "+
		"unsubscribed: it can be mailed again then")
	return func(ctx context.Context, e *env, n *node, words []string) error {
		a, err := erasure.Parse(words[0])
		if err != nil {
			return err
		}
		scope, err := n.scope(ctx, *team)
		if err != nil {
			return err
		}
		if err := n.openMail(ctx); err != nil {
			return err
		}
		scope.DryRun, scope.Refusals = *dryRun, *suppressed
		for _, x := range n.addressErasers() {
			found, err := x.Erase(ctx, a, scope)
			for _, c := range found {
				fmt.Fprintf(e.out, "%6d %s%s\n", c.N, c.Kind, leftHints[c.Left])
			}
			if err != nil {
				return fmt.Errorf("%w; what is listed is done, and running this again goes on", err)
			}
		}
		if *dryRun {
			fmt.Fprintln(e.out, "nothing was changed: this was a dry run")
		}
		return nil
	}
}

// addressErasers erase an address, each from what one package stores. Contacts come late, so that an erasure that is
// interrupted still finds the contact whose it is.
func (n *node) addressErasers() []erasure.Eraser {
	return []erasure.Eraser{
		{Name: "sent emails", Erase: n.emails.EraseAddress},
		{Name: "received emails", Erase: n.receiving.EraseAddress},
		{Name: "approvals", Erase: func(ctx context.Context, a erasure.Address, s erasure.Scope) (erasure.Report, error) {
			return approvals.EraseAddress(ctx, n.db, a, s)
		}},
		{Name: "webhooks", Erase: func(ctx context.Context, a erasure.Address, s erasure.Scope) (erasure.Report, error) {
			return webhooks.EraseAddress(ctx, n.db, a, s)
		}},
		{Name: "request log", Erase: func(ctx context.Context, a erasure.Address, s erasure.Scope) (erasure.Report, error) {
			return requestlog.EraseAddress(ctx, n.db, a, s)
		}},
		{Name: "broadcasts", Erase: func(ctx context.Context, a erasure.Address, s erasure.Scope) (erasure.Report, error) {
			return broadcasts.EraseAddress(ctx, n.db, a, s)
		}},
		{Name: "automations", Erase: n.automations.EraseAddress},
		{Name: "imports", Erase: func(ctx context.Context, a erasure.Address, s erasure.Scope) (erasure.Report, error) {
			return imports.EraseAddress(ctx, n.db, a, s)
		}},
		{Name: "contacts", Erase: func(ctx context.Context, a erasure.Address, s erasure.Scope) (erasure.Report, error) {
			return contacts.EraseAddress(ctx, n.db, a, s, s.Refusals)
		}},
		{Name: "suppressions", Erase: func(ctx context.Context, a erasure.Address, s erasure.Scope) (erasure.Report, error) {
			if !s.Refusals {
				return nil, nil
			}
			return suppressions.EraseAddress(ctx, n.db, a, s)
		}},
	}
}

// receivedFrom reads what a team received from an address, for the export of all that is stored about it.
func (n *node) receivedFrom(ctx context.Context, teamID string, a erasure.Address, after string) (
	[]privacy.ReceivedPart, string, error) {
	some, next, err := n.receiving.BatchFrom(ctx, teamID, a, after)
	var parts []privacy.ReceivedPart
	for _, e := range some {
		parts = append(parts, privacy.ReceivedPart{ID: e.ID, CreatedAt: privacy.Stamp(e.CreatedAt), From: e.From, To: e.To,
			Subject: e.Subject})
	}
	return parts, next, err
}

// broadcastsTo reads what became of an address in a team's broadcasts, for the same export.
func (n *node) broadcastsTo(ctx context.Context, teamID string, a erasure.Address, after string) (
	[]privacy.BroadcastPart, string, error) {
	some, next, err := n.broadcasts.RecipientsWithAddress(ctx, teamID, a, after)
	var parts []privacy.BroadcastPart
	for _, r := range some {
		parts = append(parts, privacy.BroadcastPart{BroadcastID: r.BroadcastID, EmailID: r.EmailID, State: r.State,
			Reason: r.Reason, BounceType: r.BounceType, Variant: r.Variant, Opens: r.Opens, Clicks: r.Clicks})
	}
	return parts, next, err
}

// runsOf reads the runs of automations of a contact, for the same export.
func (n *node) runsOf(ctx context.Context, teamID, contactID, after string) ([]privacy.RunPart, string, error) {
	some, next, err := n.automations.RunsOfContact(ctx, teamID, contactID, after)
	json := func(text string) jsontext.Value { return jsontext.Value(cmp.Or(text, "null")) }
	var parts []privacy.RunPart
	for _, r := range some {
		p := privacy.RunPart{ID: r.ID, AutomationID: r.AutomationID, Automation: r.Automation, Status: string(r.Status),
			Reason: string(r.Reason), Event: r.Event, Payload: json(r.Payload), Received: json(r.Received),
			CreatedAt: privacy.Stamp(r.CreatedAt), Steps: []privacy.RunStepPart{}}
		if !r.EndedAt.IsZero() {
			p.EndedAt = privacy.Stamp(r.EndedAt)
		}
		for _, step := range r.Steps {
			of := privacy.RunStepPart{Key: step.Key, Status: string(step.Status), Output: step.Output,
				StartedAt: privacy.Stamp(step.StartedAt)}
			if step.Failure != nil {
				of.Reason = step.Failure.Reason
			}
			p.Steps = append(p.Steps, of)
		}
		parts = append(parts, p)
	}
	return parts, next, err
}

// scope returns the scope of one team, or with "" of all teams.
func (n *node) scope(ctx context.Context, team string) (s erasure.Scope, err error) {
	if team != "" {
		t, err := n.teams.Find(ctx, team)
		audit.Team(ctx, t.ID)
		return erasure.Scope{Teams: []string{t.ID}}, err
	}
	s.All = true
	for after := ""; ; {
		some, err := n.teams.List(ctx, after, listStep)
		if err != nil || len(some) == 0 {
			return s, err
		}
		for _, t := range some {
			s.Teams, after = append(s.Teams, t.ID), t.ID
		}
	}
}
