// Package jobs is durable work on the database that the work is about: a job is inserted in the transaction that
// makes it necessary, and finished in the transaction that records its effect.
//
// # Words
//
// A job is of a kind, which has a handler, and stands in a lane: a queue of its own within the kind, such as one
// destination's mail of one team. Lanes take turns, so a long or a slow one never holds up another. Lanes may form a
// group that shares a limit, such as all teams' lanes to one destination. A lane has an owner, usually a team. Owners
// share the workers of a kind as package fair says: however many lanes one of them has, and however long its jobs take,
// the next owner finds workers free. Lanes may be bulk: their jobs give way to the others of their group and of their
// owner, whom they leave some room, and have a small share of the turns. A kind may say how sure it is that the jobs of
// a group come to an end; then those that are stuck leave workers to the others of their owner ([Share]).
//
// # Life of a job
//
//	Insert ──► waiting ──claim──► in hand ──Finish──► gone
//	              ▲                  │ Retry, an error, given back, or its node died
//	              └──────────────────┤
//	              ▲                  └─Park, or no try left──► parked ──Unpark──► waiting
//
// A claim writes the node's name into holder, and nobody else claims the job until that is taken out again: by the
// node, which gives back what its workers did not end, or by another that takes the node for dead. No lease that
// compares clocks says so. Each node counts heartbeats in the database, on a connection of its own, and takes another
// for dead when it saw no beat for 20 seconds of its own monotonic clock, in all of which it saw the database. A node
// whose own beats do not come through is not sure of its jobs after 12 seconds, and begins nothing that cannot be
// taken back until it is (see [Job.Sure]). A node that starts on SQLite takes everything back, because no other
// process can hold a job.
//
// attempt is the fence: a claim adds one, nothing takes one away, and Finish, Retry and Park say which attempt they
// speak for, so that a worker that lost its job changes nothing ([ErrLost]). What a handler may count are tries,
// which its own Retry adds to: a crash or an error of ours is none. Errors are counted in a row, as failures, and
// parking goes by these; a try that comes to an end sets them back.
//
// # What can go wrong
//
// A handler runs at least once, and again after a crash between its effect on the world and its commit. A hint that
// new work is there may be lost; then the work is found by the next scan. A handler's error is retried by the kind's
// schedule and then parked, where an operator sees it; nothing is dropped. Whoever needs a parked job, by Insert or
// Move, makes it due again. Times are those of the database's clock ([db.DB.Now]). When it steps back, waits go on as
// long as they were meant to, which is noticed within seconds; a job that is due at once is entered as due an hour ago,
// so it is not held up even for these. A time that somebody chose, such as that of a scheduled email, is kept.
//
// The package knows nothing of email.
package jobs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/id"
)

// ErrLost says that the job is no longer this worker's: another node took this one for dead, or another attempt ended.
var ErrLost = errors.New("the job was lost to another worker")

// run_at of jobs that no time makes due.
const (
	never  = math.MaxInt64     // parked
	inHand = math.MaxInt64 - 1 // a node has it
)

// slack is how far in the past a job that is due at once is entered.
const slack = time.Hour

// Job is a claimed job.
type Job struct {
	ID        string
	Kind      string
	Lane      string
	TeamID    string
	Payload   string
	Attempt   int // the fence: 1 for the first claim
	Tries     int // that ended with Retry
	Failures  int // errors in a row, before this attempt
	LastError string
	CreatedAt time.Time

	life *life
}

// New is a job to insert. The zero RunAt is due at once; another is a time that somebody chose, which is kept when the
// clock steps back, while waits go on for as long as they were meant to.
type New struct {
	Kind    string
	Lane    string // "" stands in a lane of its kind's name
	TeamID  string
	Dedupe  string // when not empty, a job of the same kind and key that is there makes this one needless
	Payload string
	RunAt   time.Time
}

// Queue inserts and ends jobs.
type Queue struct{ d *db.DB }

// NewQueue returns the queue that lives in d.
func NewQueue(d *db.DB) *Queue { return &Queue{d} }

const insertJob = `INSERT INTO jobs (id, kind, lane, team_id, dedupe, payload, run_at, attempt, holder, parked, last_error,
	created_at, set_at) VALUES ($1, $2, $3, $4, $5, $6, $7, 0, '', $8, '', $9, $10)`

// orRevive makes a parked job of the same kind and key due, and leaves one that waits or is in hand alone.
const orRevive = ` ON CONFLICT (kind, dedupe) WHERE dedupe <> '' DO UPDATE SET parked = excluded.parked, failures = 0,
	run_at = excluded.run_at, set_at = excluded.set_at WHERE jobs.parked`

// Insert adds jobs in the caller's transaction and wakes workers once it is on disk.
func (q *Queue) Insert(ctx context.Context, tx *db.Tx, all ...New) {
	for _, n := range all {
		if n.Lane == "" {
			n.Lane = n.Kind
		}
		runAt, setAt := tx.Now().Add(-slack), tx.Now().UnixMicro()
		if !n.RunAt.IsZero() {
			runAt, setAt = n.RunAt, 0
		}
		text := insertJob
		if n.Dedupe != "" {
			text += orRevive
		}
		tx.Queue(ctx, text, id.New(), n.Kind, n.Lane, n.TeamID, n.Dedupe, n.Payload, runAt.UnixMicro(), false,
			tx.Now().UnixMicro(), setAt)
		q.wake(tx, n.Kind, n.Lane, runAt)
	}
}

// Finish removes the job: its work is done and recorded in this transaction. When another worker has the job
// meanwhile, it is the transaction that fails, with ErrLost; so it is with Retry and Park.
func (q *Queue) Finish(ctx context.Context, tx *db.Tx, j Job) {
	tx.QueueOne(ctx, lost("finish", j), `DELETE FROM jobs WHERE id = $1 AND attempt = $2`, j.ID, j.Attempt)
}

// End is Finish in a transaction of its own, for work that leaves nothing to record.
func (q *Queue) End(ctx context.Context, j Job) error {
	return q.d.Update(ctx, func(tx *db.Tx) error {
		q.Finish(ctx, tx, j)
		return nil
	})
}

// Retry makes the job due again at a time: a try came to its end, and another follows.
func (q *Queue) Retry(ctx context.Context, tx *db.Tx, j Job, at time.Time, why string) {
	tx.QueueOne(ctx, lost("retry", j), `UPDATE jobs SET run_at = $3, set_at = $5, holder = '', last_error = $4, tries = tries + 1,
		failures = 0 WHERE id = $1 AND attempt = $2`, j.ID, j.Attempt, at.UnixMicro(), bounded(why), tx.Now().UnixMicro())
	q.wake(tx, j.Kind, j.Lane, at)
}

// Wait is Retry for a job that could not be tried, because of something that is neither its own nor an error of ours:
// it counts as no try.
func (q *Queue) Wait(ctx context.Context, tx *db.Tx, j Job, at time.Time, why string) {
	tx.QueueOne(ctx, lost("wait", j), `UPDATE jobs SET run_at = $3, set_at = $5, holder = '', last_error = $4, failures = 0
		WHERE id = $1 AND attempt = $2`, j.ID, j.Attempt, at.UnixMicro(), bounded(why), tx.Now().UnixMicro())
	q.wake(tx, j.Kind, j.Lane, at)
}

// fail makes a job due again whose handler failed.
func (q *Queue) fail(ctx context.Context, tx *db.Tx, j Job, at time.Time, why string) {
	tx.QueueOne(ctx, lost("retry", j), `UPDATE jobs SET run_at = $3, set_at = $5, holder = '', last_error = $4, failures = failures + 1
		WHERE id = $1 AND attempt = $2`, j.ID, j.Attempt, at.UnixMicro(), bounded(why), tx.Now().UnixMicro())
	q.wake(tx, j.Kind, j.Lane, at)
}

// Park takes the job out of work until an operator retries it.
func (q *Queue) Park(ctx context.Context, tx *db.Tx, j Job, why string) {
	tx.QueueOne(ctx, lost("park", j), `UPDATE jobs SET run_at = $3, holder = '', parked = $4, last_error = $5,
		failures = failures + 1 WHERE id = $1 AND attempt = $2`, j.ID, j.Attempt, int64(never), true, bounded(why))
}

// Remove takes a waiting job away by its dedupe key. It reports false when there is none, or a worker has it in hand.
func (q *Queue) Remove(ctx context.Context, tx *db.Tx, kind, dedupe string) (bool, error) {
	n, err := tx.Exec(ctx, `DELETE FROM jobs WHERE kind = $1 AND dedupe = $2 AND dedupe <> '' AND holder = ''`, kind, dedupe)
	return n > 0, err
}

// Move gives a job that waits, or is parked, another time that somebody chose, by its dedupe key. It reports false when
// there is none, or a worker has it.
func (q *Queue) Move(ctx context.Context, tx *db.Tx, kind, lane, dedupe string, at time.Time) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE jobs SET run_at = $3, set_at = 0, parked = $4,
		failures = CASE WHEN parked THEN 0 ELSE failures END WHERE kind = $1 AND dedupe = $2 AND dedupe <> '' AND holder = ''`, kind, dedupe, at.UnixMicro(), false)
	if n > 0 {
		q.wake(tx, kind, lane, at)
	}
	return n > 0, err
}

func lost(what string, j Job) error {
	return fmt.Errorf("%s job %s, attempt %d: %w", what, j.ID, j.Attempt, ErrLost)
}

const hintTopic = "jobs"

// wake tells workers of every node, after the commit, that a lane has something due at a time.
func (q *Queue) wake(tx *db.Tx, kind, lane string, at time.Time) {
	tx.AfterCommit(func() {
		q.d.Hint(hintTopic, kind+"\t"+lane+"\t"+strconv.FormatInt(at.UnixMicro(), 36))
	})
}

func parseHint(p string) (kind, lane string, at int64, ok bool) {
	kind, rest, ok1 := strings.Cut(p, "\t")
	lane, when, ok2 := strings.Cut(rest, "\t")
	at, err := strconv.ParseInt(when, 36, 64)
	return kind, lane, at, ok1 && ok2 && err == nil
}

func bounded(s string) string {
	const limit = 500
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "")
	}
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "?")
}

// Parked is a job that gave up.
type Parked struct {
	ID, Kind, Lane, TeamID, LastError string
	Failures                          int // in a row
	CreatedAt                         time.Time
}

// ParkedJobs lists jobs that gave up, oldest first, at most limit of those after the id.
func ParkedJobs(ctx context.Context, r db.Reader, after string, limit int) ([]Parked, error) {
	rows, err := r.Query(ctx, `SELECT id, kind, lane, team_id, last_error, failures, created_at FROM jobs
		WHERE parked AND id > $1 ORDER BY id LIMIT $2`, after, limit)
	return db.Collect(rows, err, func(r db.Row) (p Parked, err error) {
		var created int64
		err = r.Scan(&p.ID, &p.Kind, &p.Lane, &p.TeamID, &p.LastError, &p.Failures, &created)
		p.CreatedAt = db.Time(created)
		return p, err
	})
}

// Unpark makes a parked job due at once. It may fail as often as before until it is parked again.
func (q *Queue) Unpark(ctx context.Context, jobID string) error {
	return q.d.Update(ctx, func(tx *db.Tx) error {
		var kind, lane string
		err := tx.QueryRow(ctx, `SELECT kind, lane FROM jobs WHERE id = $1 AND parked`, jobID).Scan(&kind, &lane)
		if errors.Is(err, db.ErrNoRows) {
			return fault.NotFoundf("There is no parked job %s. `postrider jobs` lists those that are.", jobID)
		}
		if err != nil {
			return fmt.Errorf("unpark job %s: %w", jobID, err)
		}
		at := tx.Now().Add(-slack)
		tx.Queue(ctx, `UPDATE jobs SET parked = $2, failures = 0, run_at = $3, set_at = $4 WHERE id = $1`, jobID, false,
			at.UnixMicro(), tx.Now().UnixMicro())
		q.wake(tx, kind, lane, at)
		return nil
	})
}

// Waiting is how much of a kind waits.
type Waiting struct {
	Kind    string
	Jobs    int
	Parked  int
	DueFrom time.Time // when the oldest job that waits became or becomes due; zero when all are in hand or parked
}

// Stats counts jobs by kind. It reads the whole queue and is meant for operators.
func Stats(ctx context.Context, r db.Reader) ([]Waiting, error) {
	rows, err := r.Query(ctx, `SELECT kind, COUNT(*), COUNT(*) FILTER (WHERE parked), MIN(run_at) FROM jobs
		GROUP BY kind ORDER BY kind`)
	return db.Collect(rows, err, func(r db.Row) (w Waiting, err error) {
		var first int64
		err = r.Scan(&w.Kind, &w.Jobs, &w.Parked, &first)
		if first < inHand {
			w.DueFrom = db.Time(first)
		}
		return w, err
	})
}
