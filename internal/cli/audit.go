package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/outbound/exports"
	"github.com/postrider/postrider/internal/platform/audit"
)

const auditUsage = `use one of
  postrider audit list [--team TEAM] [--limit N]
  postrider audit export [--team TEAM] [--format csv|ndjson] [--formulas keep|quote] [--output FILE] [--force]
each with [--from TIME] [--to TIME] [--action A] [--actor-id ID] [--target-id ID]
Without --team, the commands show entries that belong to no team: actions of users without a team, and operator commands
that are not about one team. TEAM is an id or an exact name; put names with spaces in quotes`

// readAudit runs the commands that read the audit log.
func readAudit(ctx context.Context, e *env, args []string) error {
	return runVerb(ctx, e, "audit", auditUsage, []verb{{"list", 0, listAudit}, {"export", 0, func(f *flag.FlagSet) action {
		return exportAuditOf(f, false)
	}}}, args)
}

// auditFlags adds the flags that select audit log entries.
func auditFlags(flags *flag.FlagSet) *audit.Filter {
	f := &audit.Filter{}
	spanFlags(flags, &f.From, &f.To)
	flags.StringVar(&f.Action, "action", "", "only this action, such as domain.created")
	flags.StringVar(&f.ActorID, "actor-id", "", "only actions of the key, user or connected app with this `id`")
	flags.StringVar(&f.Target, "target-id", "", "only actions on the object with this `id`")
	return f
}

func exportAuditOf(flags *flag.FlagSet, teamNeeded bool) action {
	f := auditFlags(flags)
	return writeExport(flags, teamNeeded, func(_ context.Context, s *exports.Service, teamID string) (*exports.Export,
		error) {
		return s.Audit(teamID, *f), nil
	})
}

func listAudit(flags *flag.FlagSet) action {
	f := auditFlags(flags)
	team := flags.String("team", "", teamFlag+"; by default, entries that belong to no team")
	limit := flags.Int("limit", 100, "number of entries, newest first; 0: all")
	return func(ctx context.Context, e *env, n *node.Node, _ []string) error {
		if *limit < 0 {
			return errors.New("--limit must be a number of entries, or 0 for all")
		}
		teamID := ""
		if *team != "" {
			t, err := n.Teams.Find(ctx, *team)
			if err != nil {
				return err
			}
			teamID = t.ID
		}
		w := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "time\taction\tby\ttarget\tdetail\tfrom")
		shown := 0
		for after := ""; ; {
			some, next, err := n.Audit.Part(ctx, teamID, *f, after)
			if err != nil {
				return err
			}
			for _, x := range some {
				if *limit > 0 && shown == *limit {
					return w.Flush()
				}
				shown++
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", x.At.Format("2006-01-02 15:04:05"), x.Action,
					printable(x.ActorKind+" "+cmp.Or(x.ActorName, x.ActorID)), printable(x.Target), printable(x.Detail),
					printable(x.Address))
			}
			if next == "" {
				return w.Flush()
			}
			after = next
		}
	}
}

// printable replaces unprintable characters, because the text comes from users and could contain terminal escape
// sequences. An empty string becomes "-".
func printable(text string) string {
	return orDash(strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)))
}

// acts maps commands to their actions in the audit log. Commands that manage users are not listed, because the users
// service writes their audit entries. The command "emails delete" is not listed, because its action depends on the kind
// of email.
var acts = map[string]string{
	"teams create":    "team.created",
	"teams rename":    "team.renamed",
	"teams suspend":   "team.suspended",
	"teams resume":    "team.resumed",
	"teams limit":     "team.limited",
	"teams retention": "team.retention_changed",
	"teams delete":    "team.deleted",
	"keys create":     "api_key.created",
	"keys delete":     "api_key.deleted",
	"emails erase":    "address.erased",
	"jobs retry":      "job.retried",
}

// recorded returns a context that makes services record changes in the audit log as made by the given command.
func recorded(ctx context.Context, command string) context.Context {
	return audit.With(ctx, audit.Entry{ActorKind: string(teams.SystemActor), Action: acts[command], Detail: "command"})
}
