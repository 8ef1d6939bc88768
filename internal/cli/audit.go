package cli

import (
	"cmp"
	"context"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/outbound/exports"
	"github.com/postrider/postrider/internal/platform/audit"
)

func auditCommand() command {
	return command{use: "audit", group: groupPeople, source: ofNode, short: "read the audit log",
		long: "Reads the audit log: who changed what, and when. Without --team, the subcommands show the entries that " +
			"belong to no team: actions of users without a team, and commands that are not about one team.",
		example: "postrider audit list --team Acme --from 2026-01-01",
		sub: []command{
			{use: "list", short: "list entries of the audit log, newest first",
				long:    "Lists entries of the audit log, newest first. Without --team, it lists those that belong to no team.",
				example: "postrider audit list --team Acme --action api_key.created",
				define:  beside("audit list", listAudit)},
			{use: "export", short: "write entries of the audit log as CSV or NDJSON",
				long: "Writes entries of the audit log to a file or to standard output. Without --team, it writes those that " +
					"belong to no team.",
				example: "postrider audit export --team Acme --format ndjson --output audit.ndjson",
				define: beside("audit export", func(flags *pflag.FlagSet) action {
					return exportAuditOf(flags, false)
				})},
		}}
}

// auditFlags adds the flags that select audit log entries.
func auditFlags(flags *pflag.FlagSet) *audit.Filter {
	f := &audit.Filter{}
	spanFlags(flags, &f.From, &f.To)
	flags.StringVar(&f.Action, "action", "", "only this action, such as domain.created")
	flags.StringVar(&f.ActorID, "actor-id", "", "only actions of the key, user or connected app with this `id`")
	flags.StringVar(&f.Target, "target-id", "", "only actions on the object with this `id`")
	return f
}

func exportAuditOf(flags *pflag.FlagSet, teamNeeded bool) action {
	f := auditFlags(flags)
	return writeExport(flags, teamNeeded, func(_ context.Context, s *exports.Service, teamID string) (*exports.Export,
		error) {
		return s.Audit(teamID, *f), nil
	})
}

// entryObject is an entry of the audit log in JSON.
type entryObject struct {
	ID        string     `json:"id"`
	At        *time.Time `json:"at"`
	Action    string     `json:"action"`
	ActorKind string     `json:"actor_kind"`
	ActorID   *string    `json:"actor_id"`
	ActorName *string    `json:"actor_name"`
	Target    *string    `json:"target"`
	Detail    *string    `json:"detail"`
	Address   *string    `json:"address"`
}

func listAudit(flags *pflag.FlagSet) action {
	f := auditFlags(flags)
	team := flags.String("team", "", teamFlag+"; by default, entries that belong to no team")
	limit := flags.Int("limit", 100, "number of entries, newest first; 0: all")
	return func(ctx context.Context, e *env, n *node.Node, _ []string) error {
		if *limit < 0 {
			return usageError("--limit must be a number of entries, or 0 for all")
		}
		teamID := ""
		if *team != "" {
			t, err := n.Teams.Find(ctx, *team)
			if err != nil {
				return err
			}
			teamID = t.ID
		}
		l := e.list("time", "action", "by", "target", "detail", "from")
		shown := 0
		for after := ""; ; {
			some, next, err := n.Audit.Part(ctx, teamID, *f, after)
			if err != nil {
				return err
			}
			for _, x := range some {
				if *limit > 0 && shown == *limit {
					return l.end()
				}
				shown++
				l.add(entryObject{x.ID, moment(x.At), x.Action, x.ActorKind, nilIfZero(x.ActorID), nilIfZero(x.ActorName),
					nilIfZero(x.Target), nilIfZero(x.Detail), nilIfZero(x.Address)}, clock(x.At), x.Action,
					printable(x.ActorKind+" "+cmp.Or(x.ActorName, x.ActorID)), printable(x.Target), printable(x.Detail),
					printable(x.Address))
			}
			if next == "" {
				return l.end()
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
	"policy forget":   "tls_policy.forgotten",
	"policy next-key": "mail_key.change_started",

	"policy next-key --cancel": "mail_key.change_canceled",

	"domains rotate-keys": "domain.keys_rotated",
}

// recorded returns a context that makes services record changes in the audit log as made by the given command.
func recorded(ctx context.Context, command string) context.Context {
	return audit.With(ctx, audit.Entry{ActorKind: string(teams.SystemActor), Action: acts[command], Detail: "command"})
}
