package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/lib/lograte"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/partitions"
)

// load reads the configuration and the command's own flags. The parameter src holds the command's own defaults.
// Positional arguments cause an error, because package flag ignores all flags that follow a positional argument.
func (e *env) load(flags *flag.FlagSet, args []string, src config.Source) (config.Config, error) {
	flags.SetOutput(e.errOut)
	src.Args, src.Flags, src.Getenv = args, flags, e.getenv
	c, err := config.Load(src)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected %q: write flags as --name value, and put values with spaces in quotes", flags.Arg(0))
	}
	return c, err
}

// serve runs a node until the process receives SIGINT or SIGTERM.
func serve(ctx context.Context, e *env, args []string) error {
	c, err := e.load(flag.NewFlagSet("serve", flag.ContinueOnError), args, config.Source{})
	if err != nil {
		return err
	}
	tuneCollector(e.getenv)
	log := newLogger(c, e.errOut)
	defer flush(log)
	n, err := node.Open(ctx, c, log, node.Options{Version: Version})
	if err != nil {
		return err
	}
	defer n.Close()
	var listeners []net.Listener
	if n.Has("api") {
		l, err := net.Listen("tcp", c.HTTPListen)
		if err != nil {
			return fmt.Errorf("listen at http_listen: %w", err)
		}
		listeners = append(listeners, l)
		log.Info("listening", "http", l.Addr().String(), "public_url", c.PublicURL)
	}
	logFeatures(log, c)
	logSetup(ctx, n)
	n.DB.LogStandbys(ctx)
	log.Info("started", "version", Version, "database", n.DB.Engine(), "transport", c.Transport, "roles", c.Roles)
	err = n.Run(ctx, listeners...)
	log.Info("stopped")
	return err
}

// logFeatures logs the features that are on in one line, and each one that is off with its effect.
func logFeatures(log *slog.Logger, c config.Config) {
	var on []string
	for _, f := range node.Features(c) {
		if f.On {
			on = append(on, f.Name)
		} else {
			log.Info("off: "+f.Name, "effect", f.Effect)
		}
	}
	log.Info("on: " + strings.Join(on, ", "))
}

func migrate(ctx context.Context, e *env, args []string) error {
	c, err := e.load(flag.NewFlagSet("migrate", flag.ContinueOnError), args, config.Source{})
	if err != nil {
		return err
	}
	log := newLogger(c, e.errOut)
	if err := node.PrepareFolder(c, log); err != nil {
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
	if err == nil {
		err = partitions.New(d, partitions.Length(c.PartitionBy), log).Make(ctx)
	}
	if err == nil && c.DatabaseURL == "" {
		// Commands need the key of a new installation. With PostgreSQL, the first node decides on it, because migrations may
		// run on a machine that has no key.
		_, err = node.OpenKeyring(ctx, d, c, true)
	}
	return err
}

// openBeside opens the services for a command. A node of the same installation may be running at the same time, even
// with SQLite, which tolerates a second process for a short time. Closing the returned node notifies running nodes of
// the command's changes.
//
// The installation must exist. If openBeside created a database for a wrong data_dir, or tables in a wrong database, a
// command would make a second installation, or report that there is nothing to read or erase.
func openBeside(ctx context.Context, c config.Config, e *env) (*node.Node, error) {
	if !db.IsPostgres(node.DatabaseURL(c)) {
		if err := findDatabase(c); err != nil {
			return nil, err
		}
	}
	return node.Open(ctx, c, newLogger(c, e.errOut), node.Options{Version: Version, Beside: true})
}

// findDatabase returns an error if SQLite's file is missing, or cannot be reached.
func findDatabase(c config.Config) error {
	_, err := os.Stat(node.DatabaseURL(c))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("find the database: %w; this command used %s: set data_dir to the directory of the node, or set "+
			"database_url, or create an installation with `postrider serve`, `postrider dev` or `postrider migrate`", err,
			node.Place(c))
	}
	if err != nil {
		return fmt.Errorf("find the database: %w; run this command as the user of the node", err)
	}
	return nil
}

// openDB opens the configured database for a command. A running node may use the same database.
func openDB(ctx context.Context, c config.Config, log *slog.Logger) (*db.DB, error) {
	return db.Open(ctx, db.Options{URL: node.DatabaseURL(c), DirectURL: string(c.DatabaseDirectURL), Log: log,
		Beside: true})
}

// newLogger returns a logger that limits the lines that one cause can write.
func newLogger(c config.Config, w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		return slog.New(lograte.NewHandler(slog.NewJSONHandler(w, o)))
	}
	return slog.New(lograte.NewHandler(slog.NewTextHandler(w, o)))
}

// flush writes the log lines that are suppressed at present.
func flush(log *slog.Logger) {
	if h, ok := log.Handler().(*lograte.Handler); ok {
		h.Flush()
	}
}

const jobsUsage = `use one of
  postrider jobs           (shows the waiting and the parked jobs)
  postrider jobs retry ID  (retries a parked job)`

// showJobs prints the waiting jobs and the parked jobs. With the argument "retry", showJobs retries a parked job.
func showJobs(ctx context.Context, e *env, args []string) error {
	retry := ""
	if len(args) > 0 && args[0] == "retry" {
		switch {
		case len(args) > 1 && isHelp(args[1]):
			args = args[1:]
		case len(args) == 1 || strings.HasPrefix(args[1], "-"):
			return errors.New("use: postrider jobs retry ID")
		default:
			retry, args = args[1], args[2:]
		}
	}
	flags := flag.NewFlagSet("jobs", flag.ContinueOnError)
	flags.Usage = verbUsage(flags, jobsUsage)
	c, err := e.load(flags, args, config.Source{})
	if err != nil {
		return err
	}
	n, err := openBeside(ctx, c, e)
	if err != nil {
		return err
	}
	defer n.Close()
	if retry != "" {
		ctx = recorded(ctx, "jobs retry")
		audit.Target(ctx, retry)
		return n.Queue.Unpark(ctx, retry)
	}
	stats, err := jobs.Stats(ctx, n.DB.Reader)
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
		parked, err := jobs.ParkedJobs(ctx, n.DB.Reader, after, 100)
		if err != nil || len(parked) == 0 {
			return err
		}
		for _, p := range parked {
			fmt.Fprintf(e.out, "\nparked %s  %s in lane %s after %d consecutive failures\n  %s\n", p.ID, p.Kind, p.Lane,
				p.Failures,
				p.LastError)
		}
		after = parked[len(parked)-1].ID
	}
}
