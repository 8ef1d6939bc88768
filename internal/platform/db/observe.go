package db

import "time"

// UpdateObserver is called after a transaction of [DB.Update] with two durations: how long the transaction waited for
// the writer (SQLite) or for connections (PostgreSQL), and how long it took without these waits. The argument err is
// nil if the transaction was committed.
type UpdateObserver func(wait, took time.Duration, err error)

// observeUpdate reports an update that ended. An update that the writer never ran is not reported.
func (s *sqliteDB) observeUpdate(queued time.Time, u *pendingUpdate) {
	select {
	case <-u.done:
	default:
		return
	}
	if !u.began.IsZero() {
		s.observe(u.began.Sub(queued), time.Since(u.began), u.err)
	}
}
