package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/erasure"
)

const emailsUsage = `use one of
  postrider emails delete ID --team TEAM   (a received email; of a sent one its content)
  postrider emails erase ADDRESS [--team TEAM] [--suppressions] [--dry-run]
TEAM is an id or an exact name; names with spaces are given in quotes`

// manageEmails runs the operator's commands that delete emails.
func manageEmails(ctx context.Context, e *env, args []string) error {
	return runVerb(ctx, e, "emails", emailsUsage, []verb{{"delete", 1, deleteEmail}, {"erase", 1, eraseAddress}}, args)
}

func deleteEmail(flags *flag.FlagSet) action {
	team := flags.String("team", "", "the team whose email it is, by its id or its exact name")
	return func(ctx context.Context, e *env, n *node.Node, words []string) error {
		if *team == "" {
			return errors.New("say whose email: --team TEAM, by its id or its exact name; `postrider teams list` shows them")
		}
		return withTeam(ctx, n, *team, func(t teams.Team) error {
			emailID := strings.ToLower(words[0])
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
				return fmt.Errorf("%w; what is listed is done, and running this again goes on", err)
			}
		}
		if *dryRun {
			fmt.Fprintln(e.out, "nothing was changed: this was a dry run")
		}
		return nil
	}
}

// scope returns the scope of one team, or with "" of all teams.
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
