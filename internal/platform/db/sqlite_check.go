package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/postrider/postrider/internal/lib/fileperm"
)

// checkMax is the time limit for the check of a node's database file at startup. Checking a gigabyte takes several
// seconds.
const checkMax = time.Minute

// stopMark returns the name of the stop mark, a file next to the database that records a clean shutdown. The mark
// contains the size and modification time of the database file. A node that opens the database removes the mark, and
// writes it again after its last connection has copied the log into the file. A copy of the database file does not
// match the mark, because its modification time differs.
func stopMark(path string) string { return path + ".stopped" }

// stoppedAs returns the stop mark's content for the current state of the database file, or "" if a write-ahead log
// exists.
func stoppedAs(path string) string {
	info, err := os.Stat(path)
	if err != nil || fileperm.Exists(path+"-wal") {
		return ""
	}
	return fmt.Sprintf("%d octets, %d\n", info.Size(), info.ModTime().UnixNano())
}

// isFresh reports whether the database does not exist yet.
func isFresh(path string) bool {
	info, err := os.Stat(path)
	return (errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0) && !fileperm.Exists(path+"-wal")
}

// closedInOrder reports whether the database is unchanged since its last clean shutdown.
func closedInOrder(path string) bool {
	mark, err := os.ReadFile(stopMark(path))
	return err == nil && len(mark) > 0 && string(mark) == stoppedAs(path)
}

// markStopped writes the stop mark. If writing fails, or the mark is lost in a power failure, the next start checks the
// file unnecessarily, which is harmless.
func markStopped(path string) {
	if mark := stoppedAs(path); mark != "" {
		_ = os.WriteFile(stopMark(path), []byte(mark), 0o600)
	}
}

// MarkChecked writes the stop mark of a database file that no process uses and that was found whole, so that the next
// node does not check it again.
func MarkChecked(path string) { markStopped(path) }

// check returns an error if the database file is damaged. After checkMax, the check method logs a warning, stops
// checking and returns nil.
func (s *sqliteDB) check(ctx context.Context, path string, log *slog.Logger) error {
	start := time.Now()
	var size int64
	if info, err := os.Stat(path); err == nil {
		size = info.Size()
	}
	log.Info("the database was not closed in order; checking it for damage", "path", path, "bytes", size)
	limited, cancel := context.WithTimeout(ctx, checkMax)
	defer cancel()
	found, err := quickCheck(limited, s.read)
	switch {
	case len(found) > 0:
		return damagedAs(path, strings.Join(found, "; "))
	case err != nil && limited.Err() != nil && ctx.Err() == nil:
		log.Warn("the database is too large to be looked at whole at the start; `postrider backup` reads all of it",
			"path", path, "looked", time.Since(start))
		return nil
	case err != nil:
		return damaged(path, err)
	}
	log.Info("the database is whole", "path", path, "took", time.Since(start))
	return nil
}

// quickCheck returns up to three defects in the database file.
func quickCheck(ctx context.Context, read *sql.DB) (found []string, err error) {
	rows, err := read.QueryContext(ctx, "PRAGMA quick_check(3)")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return found, err
		}
		if line != "ok" {
			found = append(found, strings.Join(strings.Fields(line), " "))
		}
	}
	return found, rows.Err()
}

// damaged replaces an error that reports a damaged file with an error that also says what to do. Errors that do not
// report damage are returned unchanged.
func damaged(path string, err error) error {
	if !IsDamaged(err) {
		return err
	}
	return damagedAs(path, err.Error())
}

// IsDamaged reports whether an error means that the file of SQLite is damaged or no database.
func IsDamaged(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && (e.Code()&0xff == lib.SQLITE_CORRUPT || e.Code()&0xff == lib.SQLITE_NOTADB)
}

func damagedAs(path, what string) error {
	return fmt.Errorf("the database %s is damaged (%s), and running on it would lose more. Put it aside with the files "+
		"whose "+
		"names begin with its own, and restore the last backup; without one, `sqlite3 %s .recover` saves what can be read. "+
		"See \"The database is damaged\" in docs/operating/backup-and-restore.md", path, what, path)
}

// snapshot writes a consistent copy of the database to an empty file. Reads and writes continue while snapshot runs.
func (s *sqliteDB) snapshot(ctx context.Context, to string) error {
	d, err := s.open()
	if err != nil {
		return err
	}
	defer d.Close()
	if _, err = d.ExecContext(ctx, "VACUUM INTO $1", to); err != nil {
		return damaged(s.path, err)
	}
	return nil
}
