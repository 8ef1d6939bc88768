package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/outbound/exports"
	"github.com/postrider/postrider/internal/outbound/requestlog"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

const exportUsage = `use one of
  postrider export contacts --team TEAM     [--segment ID]
  postrider export emails --team TEAM       [--to ADDRESS] [--from ADDRESS] [--subject TEXT] [--status S,S] [--q TEXT]
                                            [--tag NAME[:VALUE]] [--domain-id ID] [--api-key-id ID] [--template-id ID]
                                            [--broadcast-id ID] [--created-after TIME] [--created-before TIME]
  postrider export suppressions --team TEAM [--origin bounce|complaint|manual]
  postrider export logs --team TEAM         [--from TIME] [--to TIME] [--status 4xx] [--method M] [--endpoint PATH]
                                            [--user-agent TEXT] [--api-key-id ID]
  postrider export audit --team TEAM        [--from TIME] [--to TIME] [--action A] [--actor-id ID] [--target-id ID]
each with [--format csv|ndjson] [--formulas keep|quote] [--output FILE] [--force]
TEAM is an id or an exact name; put names with spaces in quotes. Without --output, the data goes to standard
output`

// export writes a list of a team's data to a file or to standard output. The command may run while a node is running.
func export(ctx context.Context, e *env, args []string) error {
	return runVerb(ctx, e, "export", exportUsage, []verb{{"contacts", 0, exportContacts},
		{"emails", 0, exportEmails},
		{"suppressions", 0, exportSuppressions}, {"logs", 0, exportLogs},
		{"audit", 0, exportAudit}}, args)
}

func exportContacts(flags *flag.FlagSet) action {
	segment := flags.String("segment", "", "only the contacts of the segment with this `id`")
	return writeExport(flags, true, func(ctx context.Context, s *exports.Service, teamID string) (*exports.Export, error) {
		return s.Contacts(ctx, teamID, strings.ToLower(*segment))
	})
}

func exportEmails(flags *flag.FlagSet) action {
	filter := emailFilterFlags(flags)
	return writeExport(flags, true, func(_ context.Context, s *exports.Service, teamID string) (*exports.Export, error) {
		f, err := filter()
		return s.Emails(teams.System(teamID), f), err
	})
}

func exportSuppressions(flags *flag.FlagSet) action {
	origin := flags.String("origin", "", "only suppressions from a bounce, a complaint, or the API or dashboard (manual)")
	return writeExport(flags, true, func(_ context.Context, s *exports.Service, teamID string) (*exports.Export, error) {
		return s.Suppressions(teamID, suppressions.Origin(*origin)), nil
	})
}

func exportLogs(flags *flag.FlagSet) action {
	var f requestlog.Filter
	spanFlags(flags, &f.From, &f.To)
	flags.StringVar(&f.Status, "status", "", "only responses with a status class such as 4xx, or a status such as 429")
	flags.StringVar(&f.Endpoint, "endpoint", "", "only paths with this prefix")
	flags.StringVar(&f.UserAgent, "user-agent", "", "only user agents that contain this text, ignoring case")
	flags.StringVar(&f.KeyID, "api-key-id", "", "only requests with the API key that has this id")
	flags.Func("method", "only requests with a method such as POST", func(text string) error {
		f.Method = strings.ToUpper(text)
		return nil
	})
	return writeExport(flags, true, func(_ context.Context, s *exports.Service, teamID string) (*exports.Export, error) {
		return s.Logs(teamID, f), nil
	})
}

func exportAudit(flags *flag.FlagSet) action { return exportAuditOf(flags, true) }

// spanFlags adds the flags --from and --to.
func spanFlags(flags *flag.FlagSet, from, to *time.Time) {
	read := func(dst *time.Time) func(string) error {
		return func(text string) (err error) {
			for _, layout := range []string{time.DateOnly, time.RFC3339} {
				if *dst, err = time.ParseInLocation(layout, text, time.UTC); err == nil {
					return nil
				}
			}
			return errors.New("write a date such as 2026-01-31 or a time such as 2026-01-31T12:00:00Z")
		}
	}
	flags.Func("from", "only at or after this `time`, such as 2026-01-31 or 2026-01-31T12:00:00Z", read(from))
	flags.Func("to", "only before this `time`", read(to))
}

// writeExport adds the flags that all exports share, and returns the action that writes an export. If teamNeeded is
// false and no team is given, the action calls choose with an empty team id.
func writeExport(flags *flag.FlagSet, teamNeeded bool, choose func(ctx context.Context, s *exports.Service,
	teamID string) (
	*exports.Export, error)) action {
	team := flags.String("team", "", "the team, by id or exact name")
	format := flags.String("format", "csv", "csv or ndjson")
	formulas := flags.String("formulas", "keep",
		"quote prefixes an apostrophe to CSV values that a spreadsheet would run as formulas")
	output := flags.String("output", "", "`file` to write")
	force := flags.Bool("force", false, "replace the file if it exists")
	return func(ctx context.Context, e *env, n *node.Node, _ []string) error {
		o, err := exports.ParseOptions(*format, *formulas)
		if err != nil {
			return err
		}
		if *team == "" && teamNeeded {
			return errors.New("--team is missing: give the team's id or exact name; `postrider teams list` shows all teams")
		}
		write := func(t teams.Team) error {
			x, err := choose(ctx, n.Exports, t.ID)
			if err != nil {
				return err
			}
			if err := n.Audit.Write(ctx, audit.Entry{Action: x.Name + ".exported", Target: t.ID}); err != nil {
				return err
			}
			if *output == "" {
				return writeParts(ctx, e.out, x, o)
			}
			if _, err := os.Lstat(*output); !*force && err == nil {
				return fmt.Errorf("%s exists; choose another name, or use --force to replace it", *output)
			}
			return writeWhole(*output, func(f *os.File) error { return writeParts(ctx, f, x, o) })
		}
		if *team == "" {
			return write(teams.Team{})
		}
		return withTeam(ctx, n, *team, write)
	}
}

func writeParts(ctx context.Context, w io.Writer, x *exports.Export, o exports.Options) error {
	for part, err := range x.Batches(ctx, o) {
		if err == nil {
			_, err = w.Write(part)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
