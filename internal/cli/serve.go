package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/lib/lograte"
	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/partitions"
)

func serveCommand() command {
	return command{use: "serve", plain: true, group: groupStart, source: ofNode, short: "run a node",
		long: "Runs a node until it is stopped by SIGINT or SIGTERM: the API and the dashboard, delivery and jobs, and " +
			"with further roles also receiving and SMTP submission. It creates the database and migrates it. The log says " +
			"which features are off.",
		example: "postrider serve --config /etc/postrider/postrider.toml\n" +
			"postrider serve --hostname mail.example.com --roles api,delivery,jobs,receiving",
		usual: []string{"config", "data-dir", "database-url", "blob-url", "secret-key", "http-listen", "public-url",
			"hostname", "roles", "transport", "notice-from", "log-level"},
		define: simple(withSettings(serve))}
}

// serve runs a node until the process receives SIGINT or SIGTERM.
func serve(ctx context.Context, e *env, c config.Config, _ []string) error {
	hangups := catchHangups()
	defer hangups.stop()
	tuneCollector(e.getenv)
	level := new(slog.LevelVar)
	level.Set(c.LogLevel)
	log := newLevelLogger(c, e.errOut, level)
	defer flush(log)
	n, err := node.Open(ctx, c, log, node.Options{Version: Version, LogLevel: level, Commands: Reference()})
	if err != nil {
		return err
	}
	defer n.Close()
	defer hangups.reload(n, func() (config.Config, error) {
		loaded, err := e.load()
		return loaded.Config, err
	})()
	var listeners []net.Listener
	if n.ServesHTTP() {
		l, err := node.Listen("http_listen", c.HTTPListen)
		if err != nil {
			return err
		}
		listeners = append(listeners, l)
		log.Info("listening", "http", l.Addr().String(), "public_url", c.PublicURL)
	}
	logFeatures(log, c)
	logSigning(log, n)
	logSetup(ctx, n)
	n.DB.LogStandbys(ctx)
	log.Info("started", "version", Version, "database", n.DB.Engine(), "transport", c.Transport, "roles", c.Roles)
	if err := notifySystemd(e.getenv, "READY=1"); err != nil {
		return err // systemd would end the node later
	}
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

// logSigning logs which implementation creates RSA signatures. In a program with libcrypto, the choice takes some
// milliseconds, so that the first email does not wait for it.
func logSigning(log *slog.Logger, n *node.Node) {
	if !n.Has("delivery") {
		return
	}
	if rsa := dkim.ChosenRSA(); rsa.Go == 0 {
		log.Info("RSA signatures", "implementation", rsa.Implementation)
	} else {
		log.Info("RSA signatures", "implementation", rsa.Implementation, "go", rsa.Go, "libcrypto", rsa.Libcrypto)
	}
}

func migrateCommand() command {
	return command{use: "migrate", group: groupStart, source: ofNode, short: "apply new database migrations",
		long: "Creates the tables of a new database, or applies the migrations that this release adds. A node does so " +
			"at its start, unless migrate_on_start is false.",
		example: "postrider migrate --database-url postgres://postrider@db.example.com/postrider",
		define:  simple(withSettings(migrate))}
}

func migrate(ctx context.Context, e *env, c config.Config, _ []string) error {
	log := newLogger(c, e.errOut)
	// With PostgreSQL, a machine that only runs migrations needs no folder.
	if err := node.PrepareFolder(c, log, c.DatabaseURL == ""); err != nil {
		return err
	}
	d, err := openDB(ctx, c, log)
	if err != nil {
		return err
	}
	defer d.Close()
	applied, err := d.Migrate(ctx)
	if !e.json || err != nil {
		for _, name := range applied {
			e.note("applied %s", name)
		}
	}
	if err == nil {
		err = partitions.New(d, partitions.Length(c.PartitionBy), log).Make(ctx)
	}
	if err == nil && c.DatabaseURL == "" {
		// Commands need the key of a new installation. With PostgreSQL, the first node decides on it, because migrations may
		// run on a machine that has no key.
		_, err = node.OpenKeyring(ctx, d, c, true, log)
	}
	if err != nil {
		return err
	}
	line := ""
	if len(applied) == 0 {
		line = "the database is up to date"
	}
	return e.done(struct {
		Applied []string `json:"applied"`
	}{append([]string{}, applied...)}, line)
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
func newLogger(c config.Config, w io.Writer) *slog.Logger { return newLevelLogger(c, w, c.LogLevel) }

// newLevelLogger is like newLogger, with a level that may change.
func newLevelLogger(c config.Config, w io.Writer, level slog.Leveler) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
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

func jobsCommand() command {
	return command{use: "jobs", group: groupInspect, source: ofNode,
		short: "show waiting and parked jobs, or retry a parked one",
		long: "Shows the number of waiting jobs of each kind, and the jobs that are parked because they failed too " +
			"often, with their last errors.",
		example: "postrider jobs\npostrider jobs retry 0190f6a1-0000-7000-8000-00000000000a",
		define:  beside("jobs", noFlags(showJobs)),
		sub: []command{{use: "retry ID", short: "run a parked job again",
			long:    "Puts a parked job back into the queue, where it is due at once. Retry a job when its cause is mended.",
			example: "postrider jobs retry 0190f6a1-0000-7000-8000-00000000000a",
			define:  beside("jobs retry", noFlags(retryJob))}}}
}

// retryJob puts a parked job back into the queue.
func retryJob(ctx context.Context, e *env, n *node.Node, words []string) error {
	audit.Target(ctx, words[0])
	if err := n.Queue.Unpark(ctx, words[0]); err != nil {
		return err
	}
	return e.done(struct {
		ID      string `json:"id"`
		Retried bool   `json:"retried"`
	}{words[0], true}, "")
}

// waitingObject and parkedObject are jobs in JSON.
type (
	waitingObject struct {
		Kind    string     `json:"kind"`
		Jobs    int        `json:"jobs"`
		Parked  int        `json:"parked"`
		DueFrom *time.Time `json:"due_from"`
	}
	parkedObject struct {
		ID        string     `json:"id"`
		Kind      string     `json:"kind"`
		Lane      string     `json:"lane"`
		TeamID    *string    `json:"team_id"`
		Failures  int        `json:"failures"`
		LastError string     `json:"last_error"`
		CreatedAt *time.Time `json:"created_at"`
	}
)

// showJobs prints the waiting jobs and the parked jobs.
func showJobs(ctx context.Context, e *env, n *node.Node, _ []string) error {
	stats, err := jobs.Stats(ctx, n.DB.Reader)
	if err != nil {
		return err
	}
	waiting, parked := []waitingObject{}, []parkedObject{}
	for _, s := range stats {
		waiting = append(waiting, waitingObject{s.Kind, s.Jobs, s.Parked, moment(s.DueFrom)})
	}
	if !e.json {
		printStats(e.out, stats)
	}
	for after := ""; ; {
		some, err := jobs.ParkedJobs(ctx, n.DB.Reader, after, 100)
		if err != nil {
			return err
		}
		if len(some) == 0 {
			break
		}
		for _, p := range some {
			if after = p.ID; e.json {
				parked = append(parked, parkedObject{p.ID, p.Kind, p.Lane, nilIfZero(p.TeamID), p.Failures, p.LastError,
					moment(p.CreatedAt)})
				continue
			}
			fmt.Fprintf(e.out, "\nparked %s  %s in lane %s after %d consecutive failures\n  %s\n", p.ID, p.Kind, p.Lane,
				p.Failures, p.LastError)
		}
	}
	return e.done(struct {
		Kinds  []waitingObject `json:"kinds"`
		Parked []parkedObject  `json:"parked"`
	}{waiting, parked}, "")
}

// printStats prints the number of jobs of each kind.
func printStats(w io.Writer, stats []jobs.Waiting) {
	fmt.Fprintf(w, "%-24s %8s %8s  %s\n", "kind", "jobs", "parked", "oldest due")
	for _, s := range stats {
		due := "-"
		if !s.DueFrom.IsZero() {
			due = s.DueFrom.Format("2006-01-02 15:04:05")
		}
		fmt.Fprintf(w, "%-24s %8d %8d  %s\n", s.Kind, s.Jobs, s.Parked, due)
	}
}
