package cli

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/erasure"
)

const emailsUsage = `use one of
  postrider emails list --team TEAM [--to ADDRESS] [--subject WORDS] [--status STATES] ...   (newest first)
  postrider emails index --team TEAM   (makes the search index of a team's sent emails again)
  postrider emails delete ID --team TEAM   (a received email, or the content of a sent one)
  postrider emails erase ADDRESS [--team TEAM] [--suppressions] [--dry-run]
TEAM is an id or an exact name; put names with spaces in quotes`

// manageEmails runs the operator's commands for listing, deleting and erasing emails.
func manageEmails(ctx context.Context, e *env, args []string) error {
	return runVerb(ctx, e, "emails", emailsUsage, []verb{{"list", 0, listEmails}, {"index", 0, indexEmails},
		{"delete", 1, deleteEmail}, {"erase", 1, eraseAddress}}, args)
}

func deleteEmail(flags *flag.FlagSet) action {
	team := flags.String("team", "", "the team that has the email, by id or exact name")
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
			if err == nil {
				_, err = fmt.Fprintln(e.out, "deleted a received email")
				return err
			}
			if fault.KindOf(err) != fault.NotFound {
				return err
			}
			if err := n.Emails.DeleteContent(as("email.content_deleted"), t.ID, emailID); err != nil {
				return err
			}
			_, err = fmt.Fprintln(e.out, "deleted the content of a sent email")
			return err
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

func eraseAddress(flags *flag.FlagSet) action {
	team := flags.String("team", "", "erase the address only in this team, by id or exact name")
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
		for _, x := range n.AddressErasers() {
			found, err := x.Erase(ctx, a, scope)
			for _, c := range found {
				fmt.Fprintf(e.out, "%6d %s%s\n", c.N, c.Kind, leftHints[c.Left])
			}
			if err != nil {
				return fmt.Errorf("%w; the listed data is erased; run the command again to continue", err)
			}
		}
		if *dryRun {
			fmt.Fprintln(e.out, "dry run: nothing was erased")
		}
		return nil
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
