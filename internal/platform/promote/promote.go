// Package promote moves an installation from an SQLite file and a folder of blobs to PostgreSQL and, if wanted, a bucket.
// The node of the installation keeps working while the rows are copied.
//
// # How it works
//
//  1. Triggers in the SQLite file write the key of each changed row into the table move_changes.
//  2. Each table is copied in the order of its key, page by page. A page and the place that it reached are one
//     transaction on PostgreSQL, so a move that was killed continues there.
//  3. A round reads the changed keys in one snapshot of the file and replaces these rows on PostgreSQL. After a round,
//     PostgreSQL has exactly the rows of the snapshot. In the same snapshots, all rows of both databases are read, and
//     their checksums are compared.
//  4. The node pauses. In one write transaction on the file, the last round runs, the rows that it replaced are read
//     back and compared, and the file is closed: a trigger on each table refuses every change, and the fact moved_to
//     keeps nodes from starting.
//
// # Invariants
//
// The commit of that transaction is the move. Before it, the file has every accepted email and goes on being used.
// After it, PostgreSQL has them, and the file takes no more changes, whoever makes them. The fact "move" keeps nodes from
// starting on PostgreSQL until that commit. A killed move may be repeated at any instant, and [Cancel] ends one.
//
// Only one move at a time can use a file or a database: the caller locks the file, and an advisory lock locks the
// database.
//
// # Failures
//
// Run returns an error and leaves the file as it was, except for its triggers. If the databases differ, the error names
// the table, and the next Run copies that table again.
//
// # Out of scope
//
// The package does not pause nodes, and does not change settings: the caller does the first, and the operator the second.
package promote

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	// pauseMax is the maximum time for which the node is paused.
	pauseMax = 25 * time.Second
	// calm is the time that a round may take at most before the node is paused.
	calm = 3 * time.Second
	// roundsMax is the maximum number of rounds in which the time of a round must get below calm.
	roundsMax = 30
)

// Options are the parameters of [Run].
type Options struct {
	Source *db.DB // SQLite, which a node may be using
	Path   string // the file of Source
	Target *db.DB // PostgreSQL, without a pooler
	URL    string // the URL of Target
	Place  string // describes Target without a password

	Blobs, NewBlobs *blob.Store // NewBlobs is nil if the blobs stay where they are

	// Partitions makes partitions of Target for rows since the given time.
	Partitions func(ctx context.Context, since time.Time) error
	// Pause pauses the node, and keeps nodes from starting, until the returned function is called.
	Pause func(ctx context.Context) (resume func(), err error)
	// Say prints a line of progress.
	Say func(format string, args ...any)
}

// Report says what was moved.
type Report struct {
	Tables      int
	Rows        int64
	Blobs       int
	Paused      time.Duration // for how long the node was paused
	LastChanges int           // number of rows that were copied during the pause
}

// move is a move in progress.
type move struct {
	Options
	id     string
	tables []*table
	to     *target
	file   *sql.DB // Source, for snapshots
	report Report
	known  map[string]int64 // blobs that NewBlobs has, with their sizes
}

// Run moves the installation. If an earlier Run to the same database did not end, Run continues it.
func Run(ctx context.Context, o Options) (r Report, err error) {
	m := &move{Options: o}
	if m.to, err = openTarget(ctx, o.URL); err != nil {
		return r, err
	}
	defer m.to.close()
	if m.file, err = db.OpenFile(o.Path, false); err != nil {
		return r, err
	}
	defer m.file.Close()
	done, err := m.begin(ctx)
	if err != nil || done {
		return m.report, err
	}
	for _, step := range []func(context.Context) error{m.copyAll, m.verify, m.to.analyze, m.copyBlobs, m.settle, m.finish} {
		if err := step(ctx); err != nil {
			return m.report, err
		}
	}
	return m.report, nil
}

// begin finds the tables, and begins or continues the move on both sides. It returns true if only the last step of an
// earlier move was missing, which begin then does.
func (m *move) begin(ctx context.Context) (done bool, err error) {
	moved, err := m.Source.Fact(ctx, db.FactMovedTo)
	if err != nil {
		return false, err
	}
	if m.id, err = sourceMove(ctx, m.Source, m.Place); err != nil {
		return false, err
	}
	on, err := m.targetMove(ctx, moved)
	if err != nil {
		return false, err
	}
	if moved != "" {
		m.Say("the installation was moved earlier; the last step is done now")
		return true, m.to.end(ctx)
	}
	if m.tables, err = findTables(ctx, m.file, m.to); err != nil {
		return false, err
	}
	if m.id == "" {
		m.id = id.New()
		if err := beginSource(ctx, m.Source, m.id, m.Place, m.tables); err != nil {
			return false, fmt.Errorf("begin to record changes: %w", err)
		}
	}
	if on == "" {
		if err := m.to.begin(ctx, m.id, m.tables); err != nil {
			return false, fmt.Errorf("begin on %s: %w", m.Place, err)
		}
	} else {
		m.Say("continuing the move that was begun earlier")
	}
	since, err := oldestRow(ctx, m.file)
	if err != nil {
		return false, err
	}
	if err := m.Partitions(ctx, since); err != nil {
		m.Say("some partitions could not be made; their rows go to the default partitions: %v", err)
	}
	return false, m.to.prepare(ctx, m.tables)
}

// targetMove locks and migrates the target, and returns the id of the move that uses it: "" or the id of this move. It
// returns an error if another move or an installation uses the target. It does not migrate such a target, whose nodes
// may be of an earlier release. moved is the place to which the installation was moved already, or "".
func (m *move) targetMove(ctx context.Context, moved string) (on string, err error) {
	if err := m.to.lock(ctx); err != nil {
		return "", err
	}
	empty, err := m.Target.IsEmpty(ctx)
	if err != nil {
		return "", err
	}
	used := false
	if !empty {
		if on, err = m.Target.Fact(ctx, db.FactMoveID); err != nil {
			return "", err
		}
		if used, err = m.to.inUse(ctx); err != nil {
			return "", fmt.Errorf("look for an installation in %s: %w", m.Place, err)
		}
	}
	switch {
	case moved != "" && (on == "" || on != m.id):
		return "", fmt.Errorf("this installation was moved to %s already", moved)
	case on != "" && on != m.id:
		return "", fmt.Errorf("%s is the target of another move, or of one that was canceled: name an empty database",
			m.Place)
	case on == "" && used:
		return "", fmt.Errorf("%s has an installation already: name an empty database", m.Place)
	}
	if _, err := m.Target.Migrate(ctx); err != nil {
		return "", fmt.Errorf("create the tables of %s: %w", m.Place, err)
	}
	return on, nil
}

// settle runs rounds until one takes so little time that the node can be paused.
func (m *move) settle(ctx context.Context) error {
	for range roundsMax {
		start := time.Now()
		n, err := m.round(ctx, nil)
		if err != nil {
			return err
		}
		if time.Since(start) < calm {
			return nil
		}
		m.Say("copied %d rows that had changed meanwhile", n)
	}
	return errors.New("the node changes rows faster than they can be copied, so a short pause is not possible: run this " +
		"command again when the node has less to do, or stop the node first")
}

// finish pauses the node, copies the last changes, and makes the target the installation.
func (m *move) finish(ctx context.Context) error {
	resume, err := m.Pause(ctx)
	if err != nil {
		return err
	}
	defer resume()
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, pauseMax)
	defer cancel()
	if err := m.copyNewBlobs(limited); err != nil {
		return err
	}
	err = m.Source.Seize(limited, func(c *sql.Conn) error {
		var err error
		if m.report.LastChanges, err = m.lastRound(limited, c); err != nil {
			return err
		}
		if err := m.to.complete(limited, c); err != nil {
			return fmt.Errorf("complete %s: %w", m.Place, err)
		}
		return closeSource(limited, c, m.Place, m.tables)
	})
	if err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("the last changes took more than %v, so the node continues as before: run this command again, "+
				"which continues: %w", pauseMax, err)
		}
		return err
	}
	m.report.Paused = time.Since(start)
	if err := m.to.end(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("the installation is moved, but nodes do not start on %s yet; run this command again: %w", m.Place,
			err)
	}
	return nil
}

// Cancel ends a move that is not complete. The installation stays where it is.
func Cancel(ctx context.Context, source *db.DB) error {
	moved, err := source.Fact(ctx, db.FactMovedTo)
	if err != nil {
		return err
	}
	if moved != "" {
		return fmt.Errorf("this installation was moved to %s, which may have accepted emails since: it cannot be canceled "+
			"any more", moved)
	}
	begun, err := source.Fact(ctx, db.FactMoveID)
	if err != nil {
		return err
	}
	if begun == "" {
		return errors.New("no move has begun")
	}
	return cancelSource(ctx, source)
}
