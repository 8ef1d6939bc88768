package certs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// listMax limits the number of paths or failures that one statement reads.
const listMax = 10_000

// put stores a sealed value at a path.
func (s *Storage) put(ctx context.Context, path string, sealed []byte) error {
	err := s.db.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO certificate_values (path, value, changed_at) VALUES ($1, $2, $3)
			ON CONFLICT (path) DO UPDATE SET value = excluded.value, changed_at = excluded.changed_at`, path, sealed,
			db.Micros(tx.Now()))
		return err
	})
	if err != nil {
		return fmt.Errorf("store %s: %w", path, err)
	}
	return nil
}

// get returns the sealed value at a path, or fs.ErrNotExist.
func (s *Storage) get(ctx context.Context, path string) (sealed []byte, err error) {
	err = s.db.QueryRow(ctx, `SELECT value FROM certificate_values WHERE path = $1`, path).Scan(&sealed)
	if errors.Is(err, db.ErrNoRows) {
		return nil, fmt.Errorf("read %s: %w", path, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return sealed, nil
}

// stat returns the size of a sealed value and the time at which it was stored, or fs.ErrNotExist.
func (s *Storage) stat(ctx context.Context, path string) (size int64, changed time.Time, err error) {
	var us int64
	err = s.db.QueryRow(ctx, `SELECT LENGTH(value), changed_at FROM certificate_values WHERE path = $1`, path).
		Scan(&size, &us)
	if errors.Is(err, db.ErrNoRows) {
		return 0, time.Time{}, fmt.Errorf("find %s: %w", path, fs.ErrNotExist)
	}
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("find %s: %w", path, err)
	}
	return size, db.Time(us), nil
}

// below returns the paths below a path, in byte order. In this order, "0" follows directly after "/".
func (s *Storage) below(ctx context.Context, path string, limit int) ([]string, error) {
	rows, err := s.db.Query(ctx, `SELECT path FROM certificate_values WHERE path > $1 AND path < $2
		ORDER BY path LIMIT $3`, path+"/", path+"0", limit)
	all, err := db.Collect(rows, err, func(r db.Row) (path string, err error) {
		err = r.Scan(&path)
		return path, err
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", path, err)
	}
	return all, nil
}

// remove deletes the value at a path and all values below it.
func (s *Storage) remove(ctx context.Context, path string) error {
	err := s.db.Update(ctx, func(tx *db.Tx) error {
		tx.Queue(ctx, `DELETE FROM certificate_values WHERE path = $1`, path)
		tx.Queue(ctx, `DELETE FROM certificate_values WHERE path > $1 AND path < $2`, path+"/", path+"0")
		return nil
	})
	if err != nil {
		return fmt.Errorf("delete %s: %w", path, err)
	}
	return nil
}

// removeOld deletes the values below a path that were stored before a time, and failures and locks that ended before.
func (s *Storage) removeOld(ctx context.Context, path string, before time.Time) error {
	done, err := s.begin()
	if err != nil {
		return err
	}
	defer done()
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		tx.Queue(ctx, `DELETE FROM certificate_values WHERE path > $1 AND path < $2 AND changed_at < $3`, path+"/",
			path+"0", db.Micros(before))
		tx.Queue(ctx, `DELETE FROM certificate_failures WHERE retry_at < $1`, db.Micros(before))
		tx.Queue(ctx, `DELETE FROM certificate_locks WHERE expires_at < $1`, db.Micros(before))
		return nil
	})
	if err != nil {
		return fmt.Errorf("delete old challenges: %w", err)
	}
	return nil
}

// take acquires a lock that nobody has, or that has ended. It returns false if another holder has the lock.
func (s *Storage) take(ctx context.Context, name, holder string) (ok bool, err error) {
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `INSERT INTO certificate_locks (name, holder, expires_at) VALUES ($1, $2, $3)
			ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
			WHERE certificate_locks.expires_at < $4`, name, holder, db.Micros(tx.Now().Add(lockTime)),
			db.Micros(tx.Now()))
		ok = n > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("take the lock %s: %w", name, err)
	}
	return ok, nil
}

// prolong extends a lock. It returns false if the holder has lost the lock.
func (s *Storage) prolong(ctx context.Context, name, holder string) (ok bool, err error) {
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE certificate_locks SET expires_at = $3 WHERE name = $1 AND holder = $2`, name, holder,
			db.Micros(tx.Now().Add(lockTime)))
		ok = n > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("extend the lock %s: %w", name, err)
	}
	return ok, nil
}

// release deletes a lock of a holder.
func (s *Storage) release(ctx context.Context, name, holder string) error {
	err := s.db.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM certificate_locks WHERE name = $1 AND holder = $2`, name, holder)
		return err
	})
	if err != nil {
		return fmt.Errorf("release the lock %s: %w", name, err)
	}
	return nil
}

// failure describes the last failed request for a host's certificate.
type failure struct {
	host              string
	count             int // consecutive
	reason            string
	failedAt, retryAt time.Time
}

const failureColumns = `host, failures, reason, failed_at, retry_at`

func scanFailure(r db.Row) (f failure, err error) {
	var failed, retry int64
	err = r.Scan(&f.host, &f.count, &f.reason, &failed, &retry)
	f.failedAt, f.retryAt = db.Time(failed), db.Time(retry)
	return f, err
}

// failureOf returns the failure of a host; its count is 0 if the host has none.
func (s *Storage) failureOf(ctx context.Context, host string) (failure, error) {
	done, err := s.begin()
	if err != nil {
		return failure{}, err
	}
	defer done()
	f, err := scanFailure(s.db.QueryRow(ctx, `SELECT `+failureColumns+` FROM certificate_failures WHERE host = $1`, host))
	if errors.Is(err, db.ErrNoRows) {
		return failure{host: host}, nil
	}
	if err != nil {
		return failure{}, fmt.Errorf("read the last failure of %s: %w", host, err)
	}
	return f, nil
}

// failures returns the failures of the given hosts, and those of other hosts up to a limit, in order of their names.
func (s *Storage) failures(ctx context.Context, own []string, limit int) (ours, others []failure, err error) {
	done, err := s.begin()
	if err != nil {
		return nil, nil, err
	}
	defer done()
	list := append([]string{}, own...) // not nil
	rows, err := s.db.Query(ctx, `SELECT `+failureColumns+` FROM certificate_failures WHERE host = ANY($1)`, list)
	if ours, err = db.Collect(rows, err, scanFailure); err != nil {
		return nil, nil, fmt.Errorf("list failures: %w", err)
	}
	rows, err = s.db.Query(ctx, `SELECT `+failureColumns+` FROM certificate_failures WHERE host <> ALL($1)
		ORDER BY host LIMIT $2`, list, limit)
	if others, err = db.Collect(rows, err, scanFailure); err != nil {
		return nil, nil, fmt.Errorf("list failures: %w", err)
	}
	return ours, others, nil
}

// fail stores a failure. The wait before the next request depends on the number of consecutive failures, and is at
// least the given one.
func (s *Storage) fail(ctx context.Context, host, reason string, least time.Duration) (f failure, err error) {
	done, err := s.begin()
	if err != nil {
		return failure{}, err
	}
	defer done()
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		f = failure{host: host, reason: reason, failedAt: tx.Now()}
		err := tx.QueryRow(ctx, `SELECT failures FROM certificate_failures WHERE host = $1`, host).Scan(&f.count)
		if err != nil && !errors.Is(err, db.ErrNoRows) {
			return err
		}
		f.count++
		f.retryAt = f.failedAt.Add(max(waitAfter(f.count), least))
		_, err = tx.Exec(ctx, `INSERT INTO certificate_failures (host, failures, reason, failed_at, retry_at)
			VALUES ($1, $2, $3, $4, $5) ON CONFLICT (host) DO UPDATE SET failures = excluded.failures,
			reason = excluded.reason, failed_at = excluded.failed_at, retry_at = excluded.retry_at`, f.host, f.count,
			f.reason, db.Micros(f.failedAt), db.Micros(f.retryAt))
		return err
	})
	if err != nil {
		return failure{}, fmt.Errorf("store the failure of %s: %w", host, err)
	}
	return f, nil
}

// succeed deletes the failure of a host.
func (s *Storage) succeed(ctx context.Context, host string) error {
	done, err := s.begin()
	if err != nil {
		return err
	}
	defer done()
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM certificate_failures WHERE host = $1`, host)
		return err
	})
	if err != nil {
		return fmt.Errorf("delete the failure of %s: %w", host, err)
	}
	return nil
}

// soonen moves the next request for the given hosts forward, to the given time after their last failure.
func (s *Storage) soonen(ctx context.Context, hosts []string, wait time.Duration) error {
	done, err := s.begin()
	if err != nil {
		return err
	}
	defer done()
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE certificate_failures SET retry_at = failed_at + $2
			WHERE host = ANY($1) AND retry_at > failed_at + $2`, hosts, wait.Microseconds())
		return err
	})
	if err != nil {
		return fmt.Errorf("plan the next requests: %w", err)
	}
	return nil
}

// sealedValue is a value before, and after it was sealed again.
type sealedValue struct {
	path          string
	sealed, again []byte
}

// sealedValues returns the next values, in the order of their paths.
func sealedValues(ctx context.Context, r db.Reader, after string) ([]sealedValue, error) {
	rows, err := r.Query(ctx, `SELECT path, value FROM certificate_values WHERE path > $1 ORDER BY path LIMIT 100`, after)
	all, err := db.Collect(rows, err, func(r db.Row) (v sealedValue, err error) {
		err = r.Scan(&v.path, &v.sealed)
		return v, err
	})
	if err != nil {
		return nil, fmt.Errorf("read sealed certificates: %w", err)
	}
	return all, nil
}

// replaceSealed stores values that were sealed again, unless they have changed meanwhile.
func replaceSealed(ctx context.Context, d *db.DB, values []sealedValue) error {
	if len(values) == 0 {
		return nil
	}
	err := d.Update(ctx, func(tx *db.Tx) error {
		for _, v := range values {
			tx.Queue(ctx, `UPDATE certificate_values SET value = $2 WHERE path = $1 AND value = $3`, v.path, v.again, v.sealed)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("seal certificates again: %w", err)
	}
	return nil
}
