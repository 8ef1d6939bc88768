package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/erasure"
)

func emailsCommand() command {
	return command{use: "emails", group: groupEmail, source: ofNode,
		short: "list and search emails, delete and erase them",
		long: "Lists the sent emails of a team, deletes the content of emails, and erases all data about an address. " +
			teamWord,
		example: "postrider emails list --team Acme --to example.net --status bounced",
		sub: []command{
			{use: "list", short: "list or search the sent emails of a team, newest first",
				long: "Lists the sent emails of a team that match all of the given filters, newest first. The last line " +
					"says how to continue.",
				example: "postrider emails list --team Acme --subject invoice --created-after 2026-01-31",
				define:  beside("emails list", listEmails)},
			{use: "index", short: "make the search index of a team again",
				long:    "Makes the search index of a team's sent emails again, for example if searches miss emails.",
				example: "postrider emails index --team Acme",
				define:  beside("emails index", indexEmails)},
			{use: "delete ID", short: "delete a received email, or the content of a sent one",
				long: "Deletes a received email, or the texts, headers and attachments of a sent one. The row and the " +
					"events of a sent email stay.",
				example: "postrider emails delete 0190f6a1-0000-7000-8000-00000000000a --team Acme",
				define:  beside("emails delete", deleteEmail)},
			{use: "erase ADDRESS", short: "erase the data about an address",
				long: "Erases the personal data about an address in one team, or in all of them, and prints what was erased. " +
					"Suppressions and unsubscribes stay, unless --suppressions is given. docs/operating/erasing.md lists what is erased.",
				example: "postrider emails erase ann@example.net --dry-run",
				define:  beside("emails erase", eraseAddress)},
		}}
}

func deleteEmail(flags *pflag.FlagSet) action {
	team := flags.String("team", "", "the `team` that has the email, by id or exact name")
	return func(ctx context.Context, e *env, n *node.Node, words []string) error {
		if *team == "" {
			return errNoTeam
		}
		return withTeam(ctx, n, *team, func(t teams.Team) error {
			emailID := strings.ToLower(words[0])
			if !id.Valid(emailID) {
				return fault.NotFoundf("Email not found")
			}
			as := func(action string) context.Context {
				return audit.With(ctx, audit.Entry{Action: action, Target: emailID})
			}
			err := n.Receiving.Delete(as("received_email.deleted"), t.ID, emailID)
			type deleted struct {
				ID      string `json:"id"`
				Deleted string `json:"deleted"`
			}
			if err == nil {
				return e.done(deleted{emailID, "received_email"}, "deleted a received email")
			}
			if fault.KindOf(err) != fault.NotFound {
				return err
			}
			if err := n.Emails.DeleteContent(as("email.content_deleted"), t.ID, emailID); err != nil {
				return err
			}
			return e.done(deleted{emailID, "content"}, "deleted the content of a sent email")
		})
	}
}

// leftHints holds hints for the operator on how to erase data that an erasure did not delete.
var leftHints = map[erasure.Left]string{
	erasure.LeftSoon:  ": run this again in a few minutes",
	erasure.LeftLater: ": cancel them, or run this again afterwards",
	erasure.LeftKept:  ": --suppressions deletes them too",
	// The kind of rows with LeftAlways says why they are left.
}

func eraseAddress(flags *pflag.FlagSet) action {
	team := flags.String("team", "", "erase the address only in this `team`, by id or exact name")
	dryRun := flags.Bool("dry-run", false, "show what would be erased, and erase nothing")
	suppressed := flags.Bool("suppressions", false, "also delete its suppressions and unsubscribes: "+
		"the address can receive email again")
	return func(ctx context.Context, e *env, n *node.Node, words []string) error {
		a, err := erasure.Parse(words[0])
		if err != nil {
			return err
		}
		scope, err := scope(ctx, n, *team)
		if err != nil {
			return err
		}
		scope.DryRun, scope.Refusals = *dryRun, *suppressed
		erased := []erasure.Count{}
		for _, x := range n.AddressErasers() {
			found, err := x.Erase(ctx, a, scope)
			for _, c := range found {
				if erased = append(erased, c); !e.json || err != nil {
					e.note("%6d %s%s", c.N, c.Kind, leftHints[c.Left])
				}
			}
			if err != nil {
				return fmt.Errorf("%w; the listed data is erased; run the command again to continue", err)
			}
		}
		line := ""
		if *dryRun {
			line = "dry run: nothing was erased"
		}
		return e.done(struct {
			DryRun bool            `json:"dry_run"`
			Data   []erasure.Count `json:"data"`
		}{*dryRun, erased}, line)
	}
}

// scope returns the erasure scope of one team, or of all teams if team is "".
func scope(ctx context.Context, n *node.Node, team string) (s erasure.Scope, err error) {
	if team != "" {
		t, err := n.Teams.Find(ctx, team)
		audit.Team(ctx, t.ID)
		return erasure.Scope{Teams: []string{t.ID}}, err
	}
	s.All = true
	for after := ""; ; {
		some, err := n.Teams.List(ctx, after, listStep)
		if err != nil || len(some) == 0 {
			return s, err
		}
		for _, t := range some {
			s.Teams, after = append(s.Teams, t.ID), t.ID
		}
	}
}
