// Package jobs is a durable queue in the database that the work is about: a job is inserted in the transaction that
// makes it necessary, and finished in the transaction that records its effect.
//
// # Terms
//
// A job has a kind, which has a handler, and a lane: a queue of its own within the kind, such as one team's mail to
// one destination. Lanes take turns, so a long or slow lane never delays another. Lanes may form a group that shares
// a limit, such as the lanes of all teams to one destination. A lane has an owner, usually a team. Owners share the
// workers of a kind as package fair describes: however many lanes an owner has, and however long its jobs take, the
// next owner finds workers free. A lane may be for bulk work, which yields to the other work of its group and of its
// owner ([Kind.Bulk]). An owner's groups that are stuck leave workers to its other groups ([Share]).
//
// # Life of a job
//
//	Insert ──► waiting ──claim──► in hand ──Finish──► gone
//	              ▲                  │ Retry, Wait, an error, given back, or its node died
//	              └──────────────────┤
//	              ▲                  ├─Park, or no try left──► parked ──Unpark──► waiting
//	              ▲                  └─Hold──► held ──Release──► waiting
//
// A claim writes the node's id into holder, and no other node claims the job until holder is cleared: by the node
// itself, which gives back what its workers did not end, or by another node that takes it for dead. Clocks of different
// nodes are never compared. Each node counts heartbeats in the database, on a connection of its own, and takes another
// node for dead when it saw no beat of it for 20 seconds by its own monotonic clock, and was itself never without the
// database for more than 12 of them. A node whose own beats fail is unsure of its jobs after 12 seconds, and until it
// is sure again begins nothing that cannot be undone (see [Job.Sure]). A node that starts on SQLite makes all claimed
// jobs due, because no other process can hold one.
//
// attempt is the fence: a claim increments it, nothing decrements it, and Finish, Retry, Wait, Park and Hold change the
// job only while it has their attempt, so that a worker that lost its job changes nothing ([ErrLost]). tries counts the
// attempts that ended with Retry; crashes and errors of a handler do not count. failures counts a handler's errors in
// a row and decides when a job is parked; Retry and Wait reset it.
//
// # When it fails
//
// A handler runs at least once, and again after a crash between its effect on the world and its commit. A hint of new
// work may be lost; the next scan then finds the work. A job whose handler fails is retried by the kind's schedule.
// After the last wait it is parked, where an operator sees it, or, if the kind is Endless, the last wait repeats; no
// job is dropped. Insert and Move make a parked job with their dedupe key due again. When the node of a job dies, the
// job is due again after about 20 seconds.
//
// Times are those of the database's clock ([db.DB.Now]). When that steps back, which is noticed within seconds, waits
// that had begun start again from the new time. A job that is due at once is inserted as due an hour ago, so a step
// does not delay it. A time that a caller chose, such as that of a scheduled email, is kept.
//
// # What it does not do
//
// It does not run a job exactly once, keeps no history of finished jobs, and orders the jobs of a lane only by the
// time at which they are due. It knows nothing of email.
package jobs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// ErrLost means that the job is no longer this worker's: another node took this one for dead, or the job was claimed
// or ended by another attempt.
var ErrLost = errors.New("the job was lost to another worker")

// Values of run_at for jobs that do not become due by time.
const (
	never  = math.MaxInt64     // parked or held
	inHand = math.MaxInt64 - 1 // claimed by a node
)

// slack is how far in the past the run_at of a job is that is due at once.
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

// New is a job to insert. A job with a zero RunAt is due at once. Any other RunAt is a time that the caller chose,
// which is kept when the clock steps back.
type New struct {
	Kind    string
	Lane    string // "" means a lane with the name of the kind
	TeamID  string
	Dedupe  string // when not empty, no job is inserted while there is one of the same kind and key
	Payload string
	RunAt   time.Time
}

// Queue inserts, moves and ends jobs.
type Queue struct{ d *db.DB }

// NewQueue returns the queue in the database d.
func NewQueue(d *db.DB) *Queue { return &Queue{d} }

// Insert inserts jobs in the caller's transaction and wakes workers after its commit. When there is a job of the same
// kind and dedupe key, it inserts none; a parked one it makes due.
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

// Finish deletes the job: its work is done and recorded in this transaction. When the job was claimed by another
// worker meanwhile, the transaction fails with ErrLost; the same holds for Retry, Wait, Park and Hold.
func (q *Queue) Finish(ctx context.Context, tx *db.Tx, j Job) {
	tx.QueueOne(ctx, lost("finish", j), finishJob, j.ID, j.Attempt)
}

// End is Finish in a transaction of its own, for work that leaves nothing to record.
func (q *Queue) End(ctx context.Context, j Job) error {
	return q.d.Update(ctx, func(tx *db.Tx) error {
		q.Finish(ctx, tx, j)
		return nil
	})
}

// Retry makes the job due again at a time. It ends a try, and another follows. why is kept as the last error.
func (q *Queue) Retry(ctx context.Context, tx *db.Tx, j Job, at time.Time, why string) {
	tx.QueueOne(ctx, lost("retry", j), retryJob, j.ID, j.Attempt, at.UnixMicro(), db.Text(why, whyMax),
		tx.Now().UnixMicro())
	q.wake(tx, j.Kind, j.Lane, at)
}

// Wait is Retry for a job that could not be tried, for a reason that is neither in the job nor an error of its
// handler. It does not count as a try.
func (q *Queue) Wait(ctx context.Context, tx *db.Tx, j Job, at time.Time, why string) {
	tx.QueueOne(ctx, lost("wait", j), waitJob, j.ID, j.Attempt, at.UnixMicro(), db.Text(why, whyMax),
		tx.Now().UnixMicro())
	q.wake(tx, j.Kind, j.Lane, at)
}

// fail makes a job whose handler failed due again, and counts the failure.
func (q *Queue) fail(ctx context.Context, tx *db.Tx, j Job, at time.Time, why string) {
	tx.QueueOne(ctx, lost("retry", j), failJob, j.ID, j.Attempt, at.UnixMicro(), db.Text(why, whyMax),
		tx.Now().UnixMicro())
	q.wake(tx, j.Kind, j.Lane, at)
}

// Park sets the job aside until an operator, Insert or Move makes it due again.
func (q *Queue) Park(ctx context.Context, tx *db.Tx, j Job, why string) {
	tx.QueueOne(ctx, lost("park", j), parkJob, j.ID, j.Attempt, int64(never), true, db.Text(why, whyMax))
}

// Remove deletes a waiting or parked job by its dedupe key. It returns false when there is none or it is in hand.
func (q *Queue) Remove(ctx context.Context, tx *db.Tx, kind, dedupe string) (bool, error) {
	n, err := tx.Exec(ctx, removeJob, kind, dedupe)
	return n > 0, err
}

// RemoveAll is Remove for many jobs of a kind. Those that are in hand stay.
func (q *Queue) RemoveAll(ctx context.Context, tx *db.Tx, kind string, dedupes []string) {
	tx.Queue(ctx, removeJobs, kind, dedupes)
}

// Move gives a waiting or parked job, found by its dedupe key, another time that the caller chose. It returns false
// when there is none or it is in hand.
func (q *Queue) Move(ctx context.Context, tx *db.Tx, kind, lane, dedupe string, at time.Time) (bool, error) {
	n, err := tx.Exec(ctx, moveJob, kind, dedupe, at.UnixMicro(), false)
	if n > 0 {
		q.wake(tx, kind, lane, at)
	}
	return n > 0, err
}

func lost(what string, j Job) error {
	return fmt.Errorf("%s job %s, attempt %d: %w", what, j.ID, j.Attempt, ErrLost)
}

const hintTopic = "jobs"

// wake hints to the workers of every node, after the commit, that a lane has a job due at a time.
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

const whyMax = 500 // bytes of the error that is kept of a job

// Unpark makes a parked job due at once. Its failures are counted anew. It returns a NotFound fault when there is no
// such job.
func (q *Queue) Unpark(ctx context.Context, jobID string) error {
	return q.d.Update(ctx, func(tx *db.Tx) error {
		var kind, lane string
		err := tx.QueryRow(ctx, selectParkedLane, jobID).Scan(&kind, &lane)
		if errors.Is(err, db.ErrNoRows) {
			return fault.NotFoundf("There is no parked job %s. `postrider jobs` lists those that are.", jobID)
		}
		if err != nil {
			return fmt.Errorf("unpark job %s: %w", jobID, err)
		}
		at := tx.Now().Add(-slack)
		tx.Queue(ctx, unparkJob, jobID, false, at.UnixMicro(), tx.Now().UnixMicro())
		q.wake(tx, kind, lane, at)
		return nil
	})
}
