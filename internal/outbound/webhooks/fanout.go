package webhooks

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// The transaction that records an event inserts the deliveries if the event has at most directMax endpoints. Inserting
// more deliveries in the transaction that records an event would block other transactions for too long. For an event
// with many endpoints, the transaction inserts only the message and a fan-out job, and the job inserts the deliveries
// in steps. A fan-out job is also used if events that are recorded together have many deliveries, such as the events
// for all recipients of an email.
//
// A row in webhook_fanouts records the progress of a fan-out job. Each step of the job updates the row in the same
// transaction that inserts deliveries, so that a crash neither skips an endpoint nor inserts a delivery twice. Until
// the fan-out has passed an endpoint, later messages of the chain wait at that endpoint ([openMessages]).
const (
	directMax   = 10
	directAll   = 60 // maximum number of deliveries for events that are recorded together
	directFew   = 4  // with so few endpoints, a fan-out job would not save writes
	fanoutStep  = 50 // number of endpoints read in one transaction
	fanoutKind  = "webhook.fanout"
	fanoutTries = 10_000
)

// fanout is a message that must still be delivered to the endpoints whose ids are greater than the id in after.
type fanout struct {
	entry
	after string
}

// fanoutJob is the payload of a fan-out job.
type fanoutJob struct {
	Message string `json:"message"`
	Chain   string `json:"chain"`
}

// enqueueFanout enqueues a job that inserts a message's deliveries.
func (s *Service) enqueueFanout(ctx context.Context, tx *db.Tx, m *entry) error {
	payload, err := json.Marshal(fanoutJob{m.ID, m.chain})
	if err != nil {
		return fmt.Errorf("encode the fan-out of %s: %w", m.ID, err)
	}
	insertFanout(ctx, tx, m)
	s.p.Queue.Insert(ctx, tx, jobs.New{Kind: fanoutKind, Lane: m.TeamID, TeamID: m.TeamID, Payload: string(payload)})
	return nil
}

// fanouts returns the job kind for fan-outs. Each team runs at most one fan-out job at a time, so that the job's writes
// do not block others.
func (s *Service) fanouts() jobs.Kind {
	return jobs.Kind{Name: fanoutKind, Handle: s.fanOut, Workers: 8, PerLane: 1, Lease: lease,
		Schedule: slices.Repeat([]time.Duration{5 * time.Second}, fanoutTries)}
}

func (s *Service) fanOut(ctx context.Context, j jobs.Job) error {
	var p fanoutJob
	if err := json.Unmarshal([]byte(j.Payload), &p); err != nil {
		return fmt.Errorf("read a fan-out: %w", err)
	}
	for done := false; !done; {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		err := s.p.DB.Update(ctx, func(tx *db.Tx) (err error) {
			done, err = s.fanOutStep(ctx, tx, j, p)
			return err
		})
		if err != nil {
			return fmt.Errorf("insert deliveries of %s for team %s: %w", p.Message, j.TeamID, err)
		}
	}
	return nil
}

// fanOutStep inserts deliveries of a message to the next batch of endpoints. After the last endpoint, fanOutStep
// finishes the job.
func (s *Service) fanOutStep(ctx context.Context, tx *db.Tx, j jobs.Job, p fanoutJob) (done bool, err error) {
	f, err := getFanout(ctx, tx.Reader, j.TeamID, p.Chain, p.Message)
	if err != nil {
		return false, err
	}
	if f == nil {
		s.p.Queue.Finish(ctx, tx, j)
		return true, nil
	}
	next, err := endpointsAfter(ctx, tx.Reader, j.TeamID, f.after, fanoutStep)
	if err != nil {
		return false, err
	}
	var out outbox
	for _, x := range next {
		if x.wants(f.Type) && !x.CreatedAt.After(f.at) {
			out.enqueue(ctx, tx, x, &f.entry)
		}
	}
	s.insertJobs(ctx, tx, &out)
	if len(next) < fanoutStep {
		deleteFanout(ctx, tx, f, j)
		s.p.Queue.Finish(ctx, tx, j)
		return true, nil
	}
	advanceFanout(ctx, tx, f, next[len(next)-1].ID, j)
	return false, nil
}

// subscribersOf returns the endpoints that select events of the given type.
func subscribersOf(all []*Endpoint, t events.Type) (some []*Endpoint) {
	for _, x := range all {
		if x.wants(t) {
			some = append(some, x)
		}
	}
	return some
}
