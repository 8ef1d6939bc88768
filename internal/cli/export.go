package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/outbound/exports"
	"github.com/postrider/postrider/internal/outbound/requestlog"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

// exportCommand writes lists of a team's data to a file or to standard output. It may run beside a node.
func exportCommand() command {
	const where = " Without --output, the data goes to standard output."
	return command{use: "export", group: groupEmail, source: ofNode, short: "export a team's data as CSV or NDJSON",
		long:    "Writes a list of a team's data as CSV or NDJSON." + where + " " + teamWord,
		example: "postrider export contacts --team Acme --output contacts.csv",
		sub: []command{
			{use: "contacts", short: "export the contacts of a team, or of a segment",
				long:    "Writes the contacts of a team, or of one segment, with their properties." + where,
				example: "postrider export contacts --team Acme --output contacts.csv",
				define:  beside("export contacts", exportContacts)},
			{use: "emails", short: "export the sent emails of a team that match filters",
				long:    "Writes the sent emails of a team that match all of the given filters." + where,
				example: "postrider export emails --team Acme --status bounced --format ndjson",
				define:  beside("export emails", exportEmails)},
			{use: "suppressions", short: "export the suppression list of a team",
				long:    "Writes the addresses to which a team's emails are not sent, with the reasons." + where,
				example: "postrider export suppressions --team Acme --origin bounce",
				define:  beside("export suppressions", exportSuppressions)},
			{use: "logs", short: "export the request log of a team",
				long:    "Writes the API requests of a team that match all of the given filters." + where,
				example: "postrider export logs --team Acme --status 4xx --from 2026-01-31",
				define:  beside("export logs", exportLogs)},
			{use: "audit", short: "export the audit log of a team",
				long:    "Writes the entries of a team's audit log that match all of the given filters." + where,
				example: "postrider export audit --team Acme --from 2026-01-01",
				define:  beside("export audit", exportAudit)},
		}}
}

func exportContacts(flags *pflag.FlagSet) action {
	segment := flags.String("segment", "", "only the contacts of the segment with this `id`")
	return writeExport(flags, true, func(ctx context.Context, s *exports.Service, teamID string) (*exports.Export, error) {
		return s.Contacts(ctx, teamID, strings.ToLower(*segment))
	})
}

func exportEmails(flags *pflag.FlagSet) action {
	filter := emailFilterFlags(flags)
	return writeExport(flags, true, func(_ context.Context, s *exports.Service, teamID string) (*exports.Export, error) {
		f, err := filter()
		return s.Emails(teams.System(teamID), f), err
	})
}

func exportSuppressions(flags *pflag.FlagSet) action {
	origin := flags.String("origin", "", "only suppressions with this `origin`: bounce, complaint, or manual (the API "+
		"or the dashboard)")
	oneOf(flags, "origin", "bounce", "complaint", "manual")
	return writeExport(flags, true, func(_ context.Context, s *exports.Service, teamID string) (*exports.Export, error) {
		return s.Suppressions(teamID, suppressions.Origin(*origin)), nil
	})
}

func exportLogs(flags *pflag.FlagSet) action {
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

func exportAudit(flags *pflag.FlagSet) action { return exportAuditOf(flags, true) }

// spanFlags adds the flags --from and --to.
func spanFlags(flags *pflag.FlagSet, from, to *time.Time) {
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
func writeExport(flags *pflag.FlagSet, teamNeeded bool, choose func(ctx context.Context, s *exports.Service,
	teamID string) (
	*exports.Export, error)) action {
	team := flags.String("team", "", teamFlag)
	format := flags.String("format", "csv", "`format` of the data: csv or ndjson")
	oneOf(flags, "format", "csv", "ndjson")
	formulas := flags.String("formulas", "keep",
		"keep or quote: quote prefixes an apostrophe to CSV values that a spreadsheet would run as formulas")
	oneOf(flags, "formulas", "keep", "quote")
	output := flags.String("output", "", "`file` to write")
	force := flags.Bool("force", false, "replace the file if it exists")
	return func(ctx context.Context, e *env, n *node.Node, _ []string) error {
		if e.json {
			if flags.Changed("format") && *format != "ndjson" {
				return usageError("--json means --format ndjson; leave one of them out")
			}
			*format = "ndjson"
		}
		o, err := exports.ParseOptions(*format, *formulas)
		if err != nil {
			return err
		}
		if *team == "" && teamNeeded {
			return errNoTeam
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
			err = writeWhole(*output, func(f *os.File) error { return writeParts(ctx, f, x, o) })
			if err != nil || !e.json {
				return err
			}
			return encode(e.out, struct {
				File string `json:"file"`
			}{*output})
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
