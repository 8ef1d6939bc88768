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
)

// checkMax is how long a node that starts looks at its file: a gigabyte takes some seconds.
const checkMax = time.Minute

// stopMark is the file beside a database that says that it was closed in order, and what it was like then. Whoever
// opens the database to run on it takes the mark away, and puts it back when the last connection has written
// everything into the file. A copy is not what the mark says, because it has another time.
func stopMark(path string) string { return path + ".stopped" }

// stoppedAs is what the mark of a file says now, or "" while more than the file belongs to the database.
func stoppedAs(path string) string {
	info, err := os.Stat(path)
	if err != nil || fileExists(path+"-wal") {
		return ""
	}
	return fmt.Sprintf("%d octets, %d\n", info.Size(), info.ModTime().UnixNano())
}

// isFresh reports whether there is nothing yet.
func isFresh(path string) bool {
	info, err := os.Stat(path)
	return (errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0) && !fileExists(path+"-wal")
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}

// closedInOrder reports whether the database is as it was left by whoever closed it last.
func closedInOrder(path string) bool {
	mark, err := os.ReadFile(stopMark(path))
	return err == nil && len(mark) > 0 && string(mark) == stoppedAs(path)
}

// markStopped leaves the mark. Where that fails, or the power does, the next start looks at the file, which does no
// harm.
func markStopped(path string) {
	if mark := stoppedAs(path); mark != "" {
		_ = os.WriteFile(stopMark(path), []byte(mark), 0o600)
	}
}

// check looks whether the file is whole, for as long as checkMax.
func (s *sqliteDB) check(ctx context.Context, path string, log *slog.Logger) error {
	start := time.Now()
	var octets int64
	if info, err := os.Stat(path); err == nil {
		octets = info.Size()
	}
	log.Info("the database was not closed in order; looking whether it is whole", "path", path, "octets", octets)
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

// quickCheck returns what is wrong with the file, some of it.
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

// damaged says what to do when err is that the file is not whole.
func damaged(path string, err error) error {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok || e.Code()&0xff != lib.SQLITE_CORRUPT && e.Code()&0xff != lib.SQLITE_NOTADB {
		return err
	}
	return damagedAs(path, e.Error())
}

func damagedAs(path, what string) error {
	return fmt.Errorf("the database %s is damaged (%s), and running on it would lose more. Put it aside with the files whose "+
		"names begin with its own, and restore the last backup; without one, `sqlite3 %s .recover` saves what can be read. "+
		"See \"Backing up and restoring\" in docs/operating.md", path, what, path)
}

// snapshot writes the database as it is at one instant to an empty file. Others read and write meanwhile.
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
