package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/outbound/notifications"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// load reads the configuration together with a command's own flags. It refuses words that are neither flags nor their
// values: package flag would ignore the flags after them.
func (e *env) load(flags *flag.FlagSet, args []string, defaults map[string]string) (config.Config, error) {
	flags.SetOutput(e.errOut)
	c, err := config.Load(config.Source{Args: args, Flags: flags, Getenv: e.getenv, Defaults: defaults})
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected %q: flags are given as --name value, and what has spaces in quotes", flags.Arg(0))
	}
	return c, err
}

// serve runs a node until it is signalled to stop.
func serve(ctx context.Context, e *env, args []string) error {
	c, err := e.load(flag.NewFlagSet("serve", flag.ContinueOnError), args, nil)
	if err != nil {
		return err
	}
	log := newLogger(c, e.errOut)
	n, err := newNode(ctx, c, log, measured{})
	if err != nil {
		return err
	}
	defer n.close()
	var listeners []net.Listener
	if n.has("api") {
		l, err := net.Listen("tcp", c.HTTPListen)
		if err != nil {
			return fmt.Errorf("listen at http_listen: %w", err)
		}
		listeners = append(listeners, l)
		log.Info("listening", "http", l.Addr().String(), "public_url", c.PublicURL)
	}
	n.logSetup(ctx)
	log.Info("started", "version", Version, "database", n.db.Engine(), "transport", c.Transport, "roles", c.Roles)
	err = n.run(ctx, listeners...)
	log.Info("stopped")
	return err
}

func migrate(ctx context.Context, e *env, args []string) error {
	c, err := e.load(flag.NewFlagSet("migrate", flag.ContinueOnError), args, nil)
	if err != nil {
		return err
	}
	log := newLogger(c, e.errOut)
	if err := prepareFolder(c, log); err != nil {
		return err
	}
	d, err := openDB(ctx, c, log)
	if err != nil {
		return err
	}
	defer d.Close()
	applied, err := d.Migrate(ctx)
	for _, name := range applied {
		fmt.Fprintln(e.out, "applied", name)
	}
	if err == nil && len(applied) == 0 {
		fmt.Fprintln(e.out, "the database is up to date")
	}
	return err
}

// newCommandNode builds what a command beside a running node needs; SQLite allows a second process for a short time.
// Closing it notifies the node of what the command has changed.
func newCommandNode(ctx context.Context, c config.Config, e *env) (*node, error) {
	n := &node{c: c, log: newLogger(c, e.errOut)}
	err := prepareFolder(c, n.log)
	if err != nil {
		return nil, err
	}
	if n.db, err = openDB(ctx, c, n.log); err != nil {
		return nil, err
	}
	if _, err := n.db.Migrate(ctx); err != nil {
		n.close()
		return nil, err
	}
	n.queue = jobs.NewQueue(n.db)
	n.audit = audit.New(n.db, c.AuditRetention)
	n.newUsers(nil) // what needs keys is done by people, not by commands
	n.teams = teams.New(n.db, n.log, func(context.Context, string, string) (bool, error) {
		return false, fault.Invalidf("domain_id", "Restrict keys to a domain through the API.")
	})
	n.grants = n.newGrants(nil) // for what commands end: they give no tokens
	n.teams.Trial, n.volume = trial(c), newVolume(n.db)
	n.volume.Notify = notifications.New(notifications.Config{}, n.db, n.queue, nil, n.teams, n.log).Tell
	return n, nil
}

// showJobs shows the jobs that wait and those that gave up, and retries the latter.
func showJobs(ctx context.Context, e *env, args []string) error {
	retry := ""
	if len(args) > 0 && args[0] == "retry" {
		if len(args) == 1 || strings.HasPrefix(args[1], "-") {
			return errors.New("use: postrider jobs retry ID")
		}
		retry, args = args[1], args[2:]
	}
	c, err := e.load(flag.NewFlagSet("jobs", flag.ContinueOnError), args, nil)
	if err != nil {
		return err
	}
	n, err := newCommandNode(ctx, c, e)
	if err != nil {
		return err
	}
	defer n.close()
	if retry != "" {
		ctx = recorded(ctx, "jobs retry")
		audit.Target(ctx, retry)
		return n.queue.Unpark(ctx, retry)
	}
	stats, err := jobs.Stats(ctx, n.db.Reader)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.out, "%-24s %8s %8s  %s\n", "kind", "jobs", "parked", "oldest due")
	for _, s := range stats {
		due := "-"
		if !s.DueFrom.IsZero() {
			due = s.DueFrom.Format("2006-01-02 15:04:05")
		}
		fmt.Fprintf(e.out, "%-24s %8d %8d  %s\n", s.Kind, s.Jobs, s.Parked, due)
	}
	for after := ""; ; {
		parked, err := jobs.ParkedJobs(ctx, n.db.Reader, after, 100)
		if err != nil || len(parked) == 0 {
			return err
		}
		for _, p := range parked {
			fmt.Fprintf(e.out, "\nparked %s  %s in lane %s after %d failures in a row\n  %s\n", p.ID, p.Kind, p.Lane, p.Failures,
				p.LastError)
		}
		after = parked[len(parked)-1].ID
	}
}
