// Package cli implements the commands of the postrider program.
//
// # Invariants
//
// Only this package reads flags, environment variables and signals. Package cli passes the configuration to package
// node, which builds and runs all services.
//
// # Failures
//
// A command returns an error that says how to solve the problem. Main prints the error and returns an exit code other
// than 0.
package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"

	_ "time/tzdata" // time zone data for machines without a time zone database
)

// Version is this program's version: the tag of the source, or a pseudo-version that contains the commit. Builds
// without a tag or commit, such as those made by `go run`, have the version "dev".
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

// env gives a command access to the environment variables and the output streams.
type env struct {
	getenv      func(string) string
	out, errOut io.Writer
}

// apiKey returns the API key given by a flag, or else the API key from the environment. The key from the environment is
// not the flag's default value, because package flag prints default values in help and errors.
func (e *env) apiKey(given string) string {
	return cmp.Or(given, e.getenv("POSTRIDER_API_KEY"), e.getenv("RESEND_API_KEY"))
}

func commands() []command {
	return []command{
		{"dev", "start a node for development: SQLite, an API key, and an outbox that captures all email", dev},
		{"serve", "run a node", serve},
		{"migrate", "apply new database migrations", migrate},
		{"teams", "manage teams: postrider teams create|list|show|members|rename|suspend|resume|limit|retention|delete",
			manageTeams},
		{"keys", "manage a team's API keys: postrider keys create|list|delete --team TEAM", manageKeys},
		{"users", "manage users: postrider users list|create|invite|reset|disable|enable|delete", manageUsers},
		{"audit", "read the audit log: postrider audit list|export [--team TEAM]", readAudit},
		{"explain", "explain the delivery of a sent email: postrider explain ID [--json]", explainEmail},
		{"emails", "delete stored emails and personal data: postrider emails delete|erase", manageEmails},
		{"contacts", "import contacts from a CSV file: postrider contacts import FILE", manageContacts},
		{"automations", "run an automation with simulated time: postrider automations simulate FILE", manageAutomations},
		{"export", "export a team's data as CSV or NDJSON: " +
			"postrider export contacts|emails|suppressions|logs|audit --team TEAM",
			export},
		{"jobs", "show waiting and parked jobs, and retry a parked one: postrider jobs [retry ID]", showJobs},
		{"storage", "show the sizes of the database's tables, and on PostgreSQL their partitions", showStorage},
		{"backup", "copy a running SQLite installation into one file: postrider backup FILE", backup},
		{"listen", "show events as they happen and forward them: postrider listen --forward-to URL", listen},
		{"bench", "measure the performance of this program on this machine", runBench},
		{"version", "print the version", version},
	}
}

// Main runs a command and returns the exit code.
func Main(args []string, getenv func(string) string, out, errOut io.Writer) int {
	e := &env{getenv: getenv, out: out, errOut: errOut}
	if getenv("GOGC") == "" {
		// The live heap is small compared with the allocation rate. Collecting garbage less often uses about 20 MB more
		// memory and saves about 5% of CPU time.
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
		args = args[1:]
		if len(args) == 1 && args[0] == "help" && c.name != "backup" { // a backup may have any file name
			args = []string{"--help"}
		}
		if slices.ContainsFunc(args, isHelp) {
			e.errOut = out // package flag prints help to the stream for errors
		}
		switch err := c.run(ctx, e, args); {
		case err == nil, errors.Is(err, flag.ErrHelp):
			return 0
		default:
			fmt.Fprintf(errOut, "postrider %s: %v\n", c.name, err)
			return 1
		}
	}
	fmt.Fprintf(errOut, "postrider: unknown command %q\n\n", args[0])
	usage(errOut)
	return 2
}

// isHelp reports whether an argument asks for help.
func isHelp(arg string) bool { return arg == "-h" || arg == "-help" || arg == "--help" }

func usage(w io.Writer) {
	fmt.Fprint(w, "Postrider is an email platform that you run yourself.\n\nUsage: postrider COMMAND [flags]\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-11s %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, "\nStart with: postrider dev\nSettings: docs/configuration.md\n")
}

func version(_ context.Context, e *env, args []string) error {
	if len(args) > 0 && isHelp(args[0]) {
		_, err := fmt.Fprintln(e.out, "use: postrider version")
		return err
	}
	if len(args) > 0 {
		return fmt.Errorf("unexpected %q; use: postrider version", args[0])
	}
	_, err := fmt.Fprintln(e.out, "postrider", Version)
	return err
}
