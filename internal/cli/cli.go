// Package cli implements the commands of the program.
//
// # Invariants
//
// It alone reads flags, the environment and signals. It builds every part, runs them in one group, and stops them. No
// package below it knows the configuration: each part is given the few values that concern it.
//
// # When it fails
//
// A command returns an error whose text says what to do; Main prints it and returns an exit code other than 0.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os/signal"
	"runtime/debug"
	"syscall"

	_ "time/tzdata" // zones must be known wherever the binary runs
)

// Version is the release that this program was built as: the tag of the source, or a version that names the commit;
// "dev" if the build knows neither, as with `go run`.
var Version = buildVersion(debug.ReadBuildInfo())

func buildVersion(info *debug.BuildInfo, ok bool) string {
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "dev"
	}
	return info.Main.Version
}

// command is one of the program's commands.
type command struct {
	name, summary string
	run           func(ctx context.Context, e *env, args []string) error
}

// env is the environment of a command.
type env struct {
	getenv      func(string) string
	out, errOut io.Writer
}

func commands() []command {
	return []command{
		{"dev", "start everything for development: an embedded store, a captured outbox, a key that works", dev},
		{"serve", "run a node", serve},
		{"migrate", "bring the database up to date", migrate},
		{"teams", "make and manage teams: postrider teams create|list|rename|suspend|resume|limit|retention|delete",
			manageTeams},
		{"keys", "make and manage a team's API keys: postrider keys create|list|delete --team TEAM", manageKeys},
		{"users", "manage people: postrider users list|create|invite|reset|disable|enable|delete", manageUsers},
		{"audit", "read who changed what: postrider audit list|export [--team TEAM]", readAudit},
		{"emails", "delete what is stored of mail: postrider emails delete|erase", manageEmails},
		{"contacts", "import contacts from a CSV file: postrider contacts import FILE", manageContacts},
		{"automations", "run an automation with made-up time: postrider automations simulate FILE", manageAutomations},
		{"export", "write a team's data as CSV or NDJSON: postrider export contacts|emails|suppressions|logs --team TEAM",
			export},
		{"jobs", "show what waits, and retry what gave up: postrider jobs [retry ID]", showJobs},
		{"backup", "copy a running SQLite installation into one file: postrider backup FILE", backup},
		{"listen", "show events while they happen, and pass them on: postrider listen --forward-to URL", listen},
		{"bench", "measure this program on this machine", runBench},
		{"version", "print the version", version},
	}
}

// Main runs a command and returns the exit code.
func Main(args []string, getenv func(string) string, out, errOut io.Writer) int {
	e := &env{getenv: getenv, out: out, errOut: errOut}
	if getenv("GOGC") == "" {
		// The heap is small compared with the data that passes through it: collecting it less often costs some 20 MB and
		// saves some 5% of the processor.
		debug.SetGCPercent(300)
	}
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		usage(out)
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	for _, c := range commands() {
		if c.name != args[0] {
			continue
		}
		switch err := c.run(ctx, e, args[1:]); {
		case err == nil, errors.Is(err, flag.ErrHelp):
			return 0
		default:
			fmt.Fprintf(errOut, "postrider %s: %v\n", c.name, err)
			return 1
		}
	}
	fmt.Fprintf(errOut, "postrider: there is no command %q\n\n", args[0])
	usage(errOut)
	return 2
}

func usage(w io.Writer) {
	fmt.Fprint(w, "Postrider is an email platform that you run yourself.\n\nUsage: postrider COMMAND [flags]\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-11s %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, "\nStart with: postrider dev\nSettings: docs/configuration.md\n")
}

func version(_ context.Context, e *env, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected %q; use: postrider version", args[0])
	}
	_, err := fmt.Fprintln(e.out, "postrider", Version)
	return err
}
