// Package cli implements the commands of the postrider program.
//
// # Invariants
//
// Only this package reads flags, environment variables and signals. Package cli passes the configuration to package
// node, which builds and runs all services.
//
// Each command is described once, as a value of type command. Its help, its flags and its completion follow from it.
// Data goes to standard output; errors, notes and logs go to standard error.
//
// # Failures
//
// A command returns an error that says how to solve the problem. Main prints the error and returns exit code 1. An
// error in the arguments is one line that names the nearest known word, and a line that names the command's help; its
// exit code is 2.
package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	_ "time/tzdata" // time zone data for machines without a time zone database
)

// env gives a command access to the environment variables, the output streams and the settings.
type env struct {
	getenv      func(string) string
	environ     func() []string // the same variables as NAME=value
	out, errOut io.Writer
	json        bool // whether the result and errors are JSON
	settings    settings
}

// newEnv returns an env with the given variables, as NAME=value.
func newEnv(environ []string, out, errOut io.Writer) *env {
	return &env{environ: func() []string { return environ }, out: out, errOut: errOut, getenv: func(name string) string {
		for _, v := range environ {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return ""
	}}
}

// apiKey returns the API key given by a flag, or else the API key from the environment. The key from the environment is
// not the flag's default value, because help shows default values.
func (e *env) apiKey(given string) string {
	return cmp.Or(given, e.getenv("POSTRIDER_API_KEY"), e.getenv("RESEND_API_KEY"))
}

// The groups of commands, in the order in which the help shows them.
const (
	groupStart   = "Start and run"
	groupPeople  = "Teams and people"
	groupEmail   = "Email and contacts"
	groupInspect = "Look inside"
	groupSafety  = "Keep it safe"
	groupTools   = "Tools"
)

var groups = []string{groupStart, groupPeople, groupEmail, groupInspect, groupSafety, groupTools}

// commands lists the commands of the program, except for help and completion.
func commands() []command {
	return []command{
		devCommand(), serveCommand(), migrateCommand(), configCommand(),
		teamsCommand(), keysCommand(), usersCommand(), applyCommand(), auditCommand(),
		emailsCommand(), explainCommand(), contactsCommand(), importFromCommand(), automationsCommand(), exportCommand(),
		listenCommand(),
		jobsCommand(), storageCommand(), domainsCommand(), policyCommand(), domainConnectCommand(), doctorCommand(),
		supportCommand(),
		backupCommand(), restoreCommand(), promoteCommand(),
		benchCommand(), versionCommand(),
	}
}

// Main runs a command with the given variables, as NAME=value, and returns the exit code.
func Main(args, environ []string, out, errOut io.Writer) int {
	e := newEnv(environ, out, errOut)
	if e.getenv("GOGC") == "" {
		// The live heap is small compared with the allocation rate. Collecting garbage less often uses about 20 MB more
		// memory and saves about 5% of CPU time.
		debug.SetGCPercent(300)
	}
	// An error in the flags is JSON too.
	e.json = slices.Contains(args, "--json") && !slices.Contains(args, "--")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return e.report(newProgram(e).run(ctx, args))
}

// commandError is an error of a command.
type commandError struct {
	command string // such as "postrider teams create"
	cause   error
}

func (e *commandError) Error() string { return e.command + ": " + e.cause.Error() }
func (e *commandError) Unwrap() error { return e.cause }

// usageError is an error in the arguments of a command.
type usageError string

func (e usageError) Error() string { return string(e) }

func usagef(format string, args ...any) error { return usageError(fmt.Sprintf(format, args...)) }

// report prints an error, and returns the exit code.
func (e *env) report(err error) int {
	if err == nil {
		return 0
	}
	if errors.Is(err, errReported) {
		return exitCode(err)
	}
	_, isUsage := errors.AsType[usageError](err)
	if e.json {
		if err := json.NewEncoder(e.errOut).Encode(describe(err)); err != nil {
			fmt.Fprintln(e.errOut, err)
		}
	} else {
		fmt.Fprintln(e.errOut, err)
	}
	if failed, ok := errors.AsType[*commandError](err); ok && isUsage && !e.json {
		words := strings.Fields(failed.command)
		if words[len(words)-1] == "help" { // the help of help does not list the commands
			words = words[:1]
		}
		fmt.Fprintf(e.errOut, "For help: %s\n", strings.Join(append([]string{words[0], "help"}, words[1:]...), " "))
	}
	return exitCode(err)
}

// exitError is an error with an exit code of its own.
type exitError struct {
	code int
	error
}

func (e *exitError) Unwrap() error { return e.error }

// errReported is the error of a command whose output says what is wrong.
var errReported = errors.New("see the output")

// exitCode returns the exit code for an error.
func exitCode(err error) int {
	if own, ok := errors.AsType[*exitError](err); ok {
		return own.code
	}
	if _, isUsage := errors.AsType[usageError](err); isUsage {
		return 2
	}
	return 1
}
