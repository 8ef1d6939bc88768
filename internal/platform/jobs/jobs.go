// Package jobs is a durable job queue in the database. A job is inserted in the transaction that makes the job
// necessary, and is finished in the transaction that records its effect.
//
// # Terms
//
// A job has a kind and a lane. Each kind has a handler. A lane is a queue within the kind, for example for one team's
// mail to one destination. Lanes are served in turn, so a long or slow lane never delays another lane. Lanes may form a
// group that shares a limit, such as all teams' lanes for one destination. A lane has an owner, usually a team. Owners
// share a kind's workers as described in package fairshare. A new owner always finds free workers, even if another
// owner has many lanes or long jobs. A lane may be for bulk jobs, which yield to other jobs with the same group and
// owner ([Kind.Bulk]). An owner's stuck groups cannot use all its workers, so that its other groups continue ([Share]).
//
// # Life of a job
//
//	Insert ──► waiting ──claim──► in hand ──Finish──► gone
//	              ▲                  │ Retry, Wait, an error, given back, or its node died
//	              └──────────────────┤
//	              ▲                  ├─Park, or no try left──► parked ──Unpark──► waiting
//	              ▲                  └─Hold, HoldUntil──► held ──Release or its time──► waiting
//
// A claim writes the node's id into the holder column. Other nodes cannot claim a job until its holder column is
// cleared. A node clears the holder column when it releases jobs that its workers did not finish. When a node declares
// another node dead, it clears holder in the dead node's jobs.
//
// Clocks of different nodes are never compared. Each node increments a heartbeat counter in the database, on a separate
// connection. A node declares another node dead after 20 seconds without a new heartbeat from that node, measured by
// its own monotonic clock. During these 20 seconds, the declaring node must not have lost contact with the database for
// more than 12 seconds. A node whose own heartbeats fail is unsure of its jobs after 12 seconds. Until a heartbeat
// succeeds, an unsure node does not begin any irreversible action (see [Job.Sure]). A node that starts on SQLite makes
// all claimed jobs due, because no other process can hold jobs.
//
// The attempt column is the fence. Each claim increments attempt, and attempt never decreases. Finish, Retry, Wait,
// Park and Hold change a job only if its attempt is still the same. A worker that lost its job therefore cannot change
// it ([ErrLost]). The tries column counts the attempts that ended with Retry; crashes and handler errors do not count.
// The failures column counts a handler's consecutive errors and determines when a job is parked. Retry and Wait reset
// the failures column.
//
// # Failures
//
// A job's handler runs at least once. A handler runs again after a crash between its external effect and its commit. If
// a hint about new work is lost, the next scan finds the work, within 10 seconds or, with very many lanes, minutes. A
// job whose handler fails is retried according to the kind's schedule. A job that fails after the last delay of the
// schedule is parked, and an operator can list it. If the kind is Endless, the last delay repeats and the job is never
// parked. If a handler fails because a part of this installation is not available (the database, the blob store, DNS),
// the job is repeated every 24 seconds until the outage ends, and the attempt counts neither as a failure nor as a try.
// After a day of such failures of one job, they count like other errors ([Job.Outlasted]), because the cause may
// concern this job alone. No job is dropped. Insert and Move make a parked job with the same dedupe key due again. If
// the node that holds a job dies, the job is due again after about 20 seconds.
//
// Times come from the database's clock ([db.DB.Now]). If the database's clock steps back, the runner detects the step
// within seconds and restarts the waits in progress. A job that is due immediately gets a due time one hour in the
// past, so that a clock step does not delay the job. A time that a caller chose, such as the time of a scheduled email,
// is not changed.
//
// # Out of scope
//
// The queue does not guarantee that a job runs exactly once, and keeps no history of finished jobs. The queue orders
// the jobs in a lane only by their due time. The package contains no code specific to email.
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

// ErrLost means that the job no longer belongs to this worker. Either another node declared this node dead, or another
// attempt claimed or ended the job.
var ErrLost = errors.New("the job was lost to another worker")

// Values of the run_at column for jobs that do not become due at a specific time.
const (
	never  = math.MaxInt64     // parked, or held without a time
	inHand = math.MaxInt64 - 1 // value of run_at if a node has claimed the job
)

// slack is how far in the past run_at is set for a job that is due immediately.
const slack = time.Hour

// Job is a claimed job.
type Job struct {
	ID        string
	Kind      string
	Lane      string
	TeamID    string
	Payload   string
	Attempt   int // the attempt's number, used as a fence: 1 for the first claim
	Tries     int // number of attempts that ended with Retry
	Failures  int // number of consecutive errors before this attempt
	LastError string
	CreatedAt time.Time

	life *life
}

// New is a job to insert. A job with a zero RunAt is due immediately. A RunAt other than zero is a time that the caller
// chose, which does not change when the clock steps back.
type New struct {
	Kind    string
	Lane    string // "" means the lane with the name of the kind
	TeamID  string
	Dedupe  string // if not empty, at most one job of the kind with this key exists
	Payload string
	RunAt   time.Time
}

// Queue inserts, moves and ends jobs.
type Queue struct{ d *db.DB }

// NewQueue returns the queue in the database d.
func NewQueue(d *db.DB) *Queue { return &Queue{d} }

// Insert inserts jobs in the caller's transaction and wakes workers after its commit. If a job with the same kind and
// dedupe key already exists, Insert does not add another job. If the existing job is parked, Insert makes it due.
func (q *Queue) Insert(ctx context.Context, tx *db.Tx, all ...New) {
	for _, n := range all {
		if n.Lane == "" {
			n.Lane = n.Kind
		}
		runAt, setAt := tx.Now().Add(-slack), tx.Now().UnixMicro()
		if !n.RunAt.IsZero() {
			runAt, setAt = n.RunAt, 0
		}
		args := []any{db.ID(id.New()), n.Kind, n.Lane, db.ID(n.TeamID), n.Dedupe, n.Payload, runAt.UnixMicro(), false,
			tx.Now().UnixMicro(), setAt}
		if n.Dedupe == "" {
			tx.QueueRow(ctx, insertJob, args...)
		} else {
			tx.Queue(ctx, insertUnique, args...)
		}
		q.wake(tx, n.Kind, n.Lane, runAt)
	}
}

// Finish deletes a job in the transaction that records the job's effect. If another worker has claimed the job, the
// transaction fails with ErrLost; this also applies to Retry, Wait, Park and Hold.
func (q *Queue) Finish(ctx context.Context, tx *db.Tx, j Job) {
	tx.QueueOneRow(ctx, lost("finish", j), finishJob, db.ID(j.ID), j.Attempt)
}

// End calls Finish in a separate transaction, for work that has no result to record.
func (q *Queue) End(ctx context.Context, j Job) error {
	return q.d.Update(ctx, func(tx *db.Tx) error {
		q.Finish(ctx, tx, j)
		return nil
	})
}

// Retry ends an attempt and makes the job due again at the given time. The why parameter is stored as the job's last
// error.
func (q *Queue) Retry(ctx context.Context, tx *db.Tx, j Job, at time.Time, why string) {
	tx.QueueOne(ctx, lost("retry", j), retryJob, db.ID(j.ID), j.Attempt, at.UnixMicro(), db.Text(why, whyMax),
		tx.Now().UnixMicro())
	q.wake(tx, j.Kind, j.Lane, at)
}

// Wait makes the job due again at the given time without counting the attempt as a try. Wait is for jobs that could not
// start for a reason that is unrelated to the job and its handler.
func (q *Queue) Wait(ctx context.Context, tx *db.Tx, j Job, at time.Time, why string) {
	tx.QueueOne(ctx, lost("wait", j), waitJob, db.ID(j.ID), j.Attempt, at.UnixMicro(), db.Text(why, whyMax),
		tx.Now().UnixMicro())
	q.wake(tx, j.Kind, j.Lane, at)
}

// fail makes a job due again after its handler has failed, and counts the failure.
func (q *Queue) fail(ctx context.Context, tx *db.Tx, j Job, at time.Time, why string) {
	tx.QueueOne(ctx, lost("retry", j), failJob, db.ID(j.ID), j.Attempt, at.UnixMicro(), db.Text(why, whyMax),
		tx.Now().UnixMicro())
	q.wake(tx, j.Kind, j.Lane, at)
}

// Park suspends the job until an operator, Insert or Move makes it due again.
func (q *Queue) Park(ctx context.Context, tx *db.Tx, j Job, why string) {
	tx.QueueOne(ctx, lost("park", j), parkJob, db.ID(j.ID), j.Attempt, int64(never), true, db.Text(why, whyMax))
}

// Remove deletes a team's waiting or parked job by its dedupe key. Remove returns false if no such job exists or a
// worker has claimed it.
func (q *Queue) Remove(ctx context.Context, tx *db.Tx, kind, teamID, dedupe string) (bool, error) {
	n, err := tx.Exec(ctx, removeJob, kind, dedupe, db.ID(teamID))
	return n > 0, err
}

// RemoveAll deletes a team's waiting and parked jobs of a kind that have the given dedupe keys. Claimed jobs stay.
func (q *Queue) RemoveAll(ctx context.Context, tx *db.Tx, kind, teamID string, dedupes []string) {
	tx.Queue(ctx, removeJobs, kind, dedupes, db.ID(teamID))
}

// Move makes a team's waiting or parked job with the given dedupe key due at a time that the caller chose. Move returns
// false if no such job exists or a worker has claimed it. The team id is "" for a job of no team.
func (q *Queue) Move(ctx context.Context, tx *db.Tx, kind, teamID, lane, dedupe string, at time.Time) (bool, error) {
	n, err := tx.Exec(ctx, moveJob, kind, dedupe, at.UnixMicro(), false, db.ID(teamID))
	if n > 0 {
		q.wake(tx, kind, lane, at)
	}
	return n > 0, err
}

func lost(what string, j Job) error {
	return fmt.Errorf("%s job %s, attempt %d: %w", what, j.ID, j.Attempt, ErrLost)
}

const hintTopic = "jobs"

// wake tells every node, after the commit, that the lane has a job due at the given time. The time must not be later
// than the job's run_at, because claims do not read jobs that are due before the time of the earliest hint.
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

const whyMax = 500 // maximum length of the stored last_error in bytes

// Unpark makes a parked job due immediately and resets its failures. If no parked job has the given id, Unpark returns
// a NotFound fault.
func (q *Queue) Unpark(ctx context.Context, jobID string) error {
	missing := fault.NotFoundf("There is no parked job %s. `postrider jobs` lists those that are.", jobID)
	if !id.Valid(jobID) {
		return missing
	}
	return q.d.Update(ctx, func(tx *db.Tx) error {
		var kind, lane string
		err := tx.QueryRow(ctx, selectParkedLane, db.ID(jobID)).Scan(&kind, &lane)
		if errors.Is(err, db.ErrNoRows) {
			return missing
		}
		if err != nil {
			return fmt.Errorf("unpark job %s: %w", jobID, err)
		}
		at := tx.Now().Add(-slack)
		tx.Queue(ctx, unparkJob, db.ID(jobID), false, at.UnixMicro(), tx.Now().UnixMicro())
		q.wake(tx, kind, lane, at)
		return nil
	})
}
