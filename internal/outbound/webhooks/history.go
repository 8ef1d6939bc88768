package webhooks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/platform/partitions"
)

// State is the delivery state of a message at one endpoint.
type State string

const (
	Pending    State = "pending"    // not tried yet
	Attempting State = "attempting" // failed, but will be retried
	Success    State = "success"
	Failed     State = "failed" // failed permanently, unless the message is replayed or recovered
)

// open reports whether a delivery is unfinished.
func (s State) open() bool { return s == Pending || s == Attempting }

// Message is an event's message at one endpoint.
type Message struct {
	ID        string // msg_...
	Type      events.Type
	CreatedAt time.Time
	State     State
	NextAt    time.Time // time of the next attempt if State is Attempting, otherwise zero
	Payload   string    // JSON; set only if a single message is read
}

// Attempt is one attempt to deliver a message.
type Attempt struct {
	ID        string // atmpt_...
	Code      int    // HTTP status; 0 if there was no response
	Response  string // beginning of the response body, at most 1 KB
	Error     string // reason why the attempt failed; empty if it succeeded
	StartedAt time.Time
	Duration  time.Duration
}

// Messages returns a page of an endpoint's messages, newest first. An empty state means all states.
func (s *Service) Messages(ctx context.Context, teamID, endpointID string, state State,
	p page.Page) ([]Message, bool, error) {
	switch state {
	case "", Pending, Attempting, Success, Failed:
	default:
		return nil, false, fault.Invalidf("status",
			"The `status` parameter must be `pending`, `attempting`, `success` or `failed`.")
	}
	if _, err := getEndpoint(ctx, s.p.DB.Reader, teamID, endpointID); err != nil {
		return nil, false, err
	}
	return listMessages(ctx, s.p.DB, teamID, endpointID, state, p)
}

// Message returns one message with its payload.
func (s *Service) Message(ctx context.Context, teamID, endpointID, messageID string) (Message, error) {
	if _, err := getEndpoint(ctx, s.p.DB.Reader, teamID, endpointID); err != nil {
		return Message{}, err
	}
	return getMessage(ctx, s.p.DB.Reader, teamID, endpointID, messageID)
}

// Attempts returns a page of a message's delivery attempts, newest first.
func (s *Service) Attempts(ctx context.Context, teamID, endpointID, messageID string,
	p page.Page) ([]Attempt, bool, error) {
	if _, err := s.Message(ctx, teamID, endpointID, messageID); err != nil {
		return nil, false, err
	}
	return listAttempts(ctx, s.p.DB.Reader, teamID, endpointID, messageID, p)
}

// CheckID returns an error unless text is a well-formed id with the given prefix, such as the id of a message or an
// attempt.
func CheckID(field, prefix, text string) error {
	if compact, ok := strings.CutPrefix(text, prefix); !ok || id.Expand(compact) == "" {
		return fault.New(fault.BadID, field, "The `%s` must be an id such as `%s0199d0a1b2c37def8123456789abcdef`.", field,
			prefix)
	}
	return nil
}

// Id prefixes for use with [CheckID].
const (
	MessagePrefix = messagePrefix
	AttemptPrefix = attemptPrefix
)

// replayMark is the prefix of a replay job's payload; the message id follows it.
const replayMark = "replay:"

// Replay schedules one more attempt for a message in any state, with the same id and payload and a new signature. A
// replay does not change the message's retry schedule, except that a successful replay ends the schedule. While a
// replay of a message waits or runs, more calls to Replay for that message have no effect.
func (s *Service) Replay(ctx context.Context, teamID, endpointID, messageID string) error {
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		e, err := lockEndpoint(ctx, tx, teamID, endpointID)
		if err != nil {
			return err
		}
		if _, err := getMessage(ctx, tx.Reader, teamID, endpointID, messageID); err != nil {
			return err
		}
		if err := mustBeEnabled(&e); err != nil {
			return err
		}
		if !e.FullSince.IsZero() {
			return fault.New(fault.TooFast, "",
				"Too many events wait for this webhook. Try again when they have been delivered.")
		}
		s.p.Queue.Insert(ctx, tx, jobs.New{Kind: Kind, Lane: lane(teamID, endpointID), TeamID: teamID, Dedupe: endpointID +
			"/" + messageID,
			Payload: replayMark + messageID})
		return nil
	})
}

func mustBeEnabled(e *Endpoint) error {
	if e.Status != Enabled {
		return fault.Invalidf("webhook_id", "The webhook is disabled. Enable it first, with `status` set to `enabled`.")
	}
	return nil
}

// replayOne handles a replay job. If the endpoint has been disabled, replayOne makes no attempt.
func (s *Service) replayOne(ctx context.Context, j jobs.Job, messageID string) error {
	endpoint := laneEndpoint(j.Lane)
	e, err := s.endpoints.endpoint(ctx, j.TeamID, endpoint)
	if err != nil {
		return err
	}
	m, err := getMessage(ctx, s.p.DB.Reader, j.TeamID, endpoint, messageID)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return err
	}
	if err != nil || e == nil || e.Status != Enabled {
		return s.p.Queue.End(ctx, j)
	}
	if err := j.Sure(ctx); err != nil {
		return err
	}
	a, v, err := s.try(ctx, e, m.ID, m.Payload, nil, 1)
	switch {
	case errors.Is(err, errCrowded):
		return s.giveBack(ctx, j)
	case err != nil:
		return err
	}
	return s.p.Queue.Record(ctx, func(tx *db.Tx) error {
		s.p.Queue.Finish(ctx, tx, j)
		d := deliveryResult{TeamID: j.TeamID, EndpointID: e.ID, MessageID: m.ID}
		chain, found, err := lockDelivery(ctx, tx, &d)
		if err != nil {
			return err
		}
		if !found { // deleted during the attempt
			return s.judged(ctx, tx, e, v)
		}
		if v.state == Success {
			markSuccess(ctx, tx, &d)
			if err := s.follow(ctx, tx, &d, chain); err != nil {
				return err
			}
		}
		insertAttempt(ctx, tx, &d, a, v.reason)
		trimAttempts(ctx, tx, &d)
		return s.judged(ctx, tx, e, v)
	})
}

// follow enqueues a job for the messages that waited for a replayed message. The existing jobs of the waiting messages
// are due only at the replayed message's next scheduled attempt, and will be unnecessary by then.
func (s *Service) follow(ctx context.Context, tx *db.Tx, d *deliveryResult, chain string) error {
	next, err := openAfter(ctx, tx, d, chain, perJob)
	if err != nil || len(next) == 0 {
		return err
	}
	s.p.Queue.Insert(ctx, tx, jobs.New{Kind: Kind, Lane: lane(d.TeamID, d.EndpointID), TeamID: d.TeamID,
		Payload: strings.Join(next, ",")})
	return nil
}

// RecoverKind is the job kind that delivers failed messages again.
const RecoverKind = "webhook.recover"

// recovery is the payload of a recovery job: an endpoint, and the ids between which the ids of the messages are.
type recovery struct {
	Endpoint string `json:"endpoint"`
	From     string `json:"from"`
	To       string `json:"to"`
}

// Recover redelivers, oldest first, every message that failed at an endpoint after the given time. Each message gets a
// complete retry schedule. Recover does not include messages that are older than the retention period.
func (s *Service) Recover(ctx context.Context, teamID, endpointID string, since time.Time) error {
	switch {
	case since.IsZero():
		return fault.MissingField("since")
	case since.After(time.Now()), since.Year() < 2000:
		return fault.Invalidf("since", "The `since` field must be a time in the past.")
	}
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		e, err := lockEndpoint(ctx, tx, teamID, endpointID)
		if err != nil {
			return err
		}
		if err := mustBeEnabled(&e); err != nil {
			return err
		}
		s.enqueueRecovery(ctx, tx, teamID, &recovery{endpointID, id.First(since), id.First(tx.Now().Add(time.Second))})
		return nil
	})
}

// recoveries returns the job kind for recoveries. Each team runs at most one recovery job at a time.
func (s *Service) recoveries() jobs.Kind {
	return jobs.Kind{Name: RecoverKind, Handle: s.recoverSome, Workers: 4, PerLane: 1, Lease: 15 * time.Minute,
		Schedule: []time.Duration{time.Minute, 5 * time.Minute, time.Hour}}
}

const (
	batch          = 100             // maximum number of rows per transaction in a recovery or sweep
	recoverStretch = 5_000           // number of messages that a recovery reopens before the team's next recovery runs
	recoverWait    = 2 * time.Second // delay before a recovery continues if enough jobs wait for the endpoint
	sweepStretch   = 50              // number of transactions for one endpoint before the sweep continues with the next

	unsettledMost = 10_000 // maximum number of unfinished deliveries in a partition that is dropped
)

// recoverSome handles a recovery job: it reopens a limited number of failed messages, one batch per transaction, and
// enqueues another job for the remaining messages. After a crash, recoverSome continues with the messages that are
// still in the state Failed. A recovery fills at most half of the endpoint's maximum backlog, so that the endpoint
// still accepts new messages.
func (s *Service) recoverSome(ctx context.Context, j jobs.Job) error {
	var r recovery
	if err := json.Unmarshal([]byte(j.Payload), &r); err != nil {
		return fmt.Errorf("read a recovery: %w", err)
	}
	most := max(1, s.c.EndpointMax/2)
	waiting, err := waitingUpTo(ctx, s.p.DB.Reader, j.TeamID, r.Endpoint, most)
	if err != nil {
		return err
	}
	if waiting == most {
		return s.p.DB.Update(ctx, func(tx *db.Tx) error {
			s.p.Queue.Retry(ctx, tx, j, tx.Now().Add(recoverWait), "the endpoint's backlog is long enough")
			return nil
		})
	}
	for left, done := min(most-waiting, recoverStretch), false; !done; left -= batch {
		var next recovery
		err := s.p.DB.Update(ctx, func(tx *db.Tx) (err error) {
			next = r
			done, err = s.recoverBatch(ctx, tx, j, &next, left)
			return err
		})
		if err != nil {
			return fmt.Errorf("recover what failed at webhook %s: %w", r.Endpoint, err)
		}
		r = next
	}
	return nil
}

// recoverBatch reopens a batch of an endpoint's failed messages; the parameter left limits their number. After the last
// failed message, recoverBatch finishes the job. If failed messages remain, recoverBatch replaces the job with a job
// that starts after the reopened messages.
func (s *Service) recoverBatch(ctx context.Context, tx *db.Tx, j jobs.Job, r *recovery,
	left int) (done bool, err error) {
	e, err := lockEndpoint(ctx, tx, j.TeamID, r.Endpoint)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return false, err
	}
	limit := min(left, batch)
	var all []failedMessage
	if err == nil && e.Status == Enabled {
		if all, err = failedMessages(ctx, tx.Reader, j.TeamID, r, limit); err != nil {
			return false, err
		}
	}
	if len(all) > 0 {
		lowerOpenSince(ctx, tx, j.TeamID, r.Endpoint, all[0].ID)
	}
	var out outbox
	for _, m := range all {
		reopen(ctx, tx, j.TeamID, r.Endpoint, m.ID)
		out.add(outboxKey{j.TeamID, r.Endpoint, m.chain}, m.ID)
		r.From = string(messageKey(m.ID))
	}
	s.insertJobs(ctx, tx, &out)
	switch {
	case len(all) < limit:
		s.p.Queue.Finish(ctx, tx, j)
		return true, nil
	case limit < left:
		return false, nil
	}
	s.p.Queue.Finish(ctx, tx, j)
	s.enqueueRecovery(ctx, tx, j.TeamID, r)
	return true, nil
}

func (s *Service) enqueueRecovery(ctx context.Context, tx *db.Tx, teamID string, r *recovery) {
	payload, err := json.Marshal(r)
	if err != nil {
		panic("webhooks: a recovery cannot be encoded: " + err.Error()) // encoding strings and numbers never fails
	}
	s.p.Queue.Insert(ctx, tx, jobs.New{Kind: RecoverKind, Lane: teamID, TeamID: teamID, Dedupe: r.Endpoint,
		Payload: string(payload)})
}

// RemoveBefore deletes, oldest first, a batch of what is older than the given time of a team's messages, deliveries and
// attempts. Deliveries that are not finished stay with their messages. RemoveBefore returns the position at which the
// next call must continue, or "" if nothing remains to be deleted. The position is an endpoint and a message, or only a
// message after all endpoints.
func (s *Service) RemoveBefore(ctx context.Context, teamID string, before time.Time, after string) (next string,
	err error) {
	if next, err = s.removeBelow(ctx, teamID, db.ID(id.First(before)), after); err != nil {
		return "", fmt.Errorf("delete old messages of the webhooks of team %s: %w", teamID, err)
	}
	return next, nil
}

func (s *Service) removeBelow(ctx context.Context, teamID string, below db.ID, after string) (next string, err error) {
	endpoints, err := endpointIDs(ctx, s.p.DB.Reader, teamID)
	if err != nil {
		return "", err
	}
	current, last, begun := strings.Cut(after, "/")
	for _, endpoint := range endpoints {
		if begun && (current == "" || string(endpoint) < current) {
			continue
		}
		from := db.NoID
		if string(endpoint) == current {
			from = db.ID(last)
		}
		if upTo, err := s.removeDeliveries(ctx, teamID, endpoint, from, below); upTo != "" || err != nil {
			return string(endpoint) + "/" + upTo, err
		}
	}
	from := db.NoID
	if current == "" && begun {
		from = db.ID(last)
	}
	some, err := messagesBetween(ctx, s.p.DB.Reader, teamID, from, below)
	if err != nil || len(some) == 0 {
		return "", err
	}
	next = "/" + string(some[len(some)-1])
	if some, err = unneeded(ctx, s.p.DB.Reader, teamID, endpoints, some); err != nil || len(some) == 0 {
		return next, err
	}
	return next, s.p.DB.Update(ctx, func(tx *db.Tx) error { deleteMessages(ctx, tx, teamID, some); return nil })
}

// removeDeliveries deletes the finished ones of a batch of an endpoint's deliveries, and returns the id of the batch's
// last message. The id is "" if there are no more deliveries.
func (s *Service) removeDeliveries(ctx context.Context, teamID string, endpoint, after, below db.ID) (upTo string,
	err error) {
	some, err := deliveriesBetween(ctx, s.p.DB.Reader, teamID, endpoint, after, below)
	if err != nil || len(some) == 0 {
		return "", err
	}
	var finished []db.ID
	for _, d := range some {
		if !d.open {
			finished = append(finished, d.messageID)
		}
	}
	upTo = string(some[len(some)-1].messageID)
	if len(finished) == 0 {
		return upTo, nil
	}
	return upTo, s.p.DB.Update(ctx, func(tx *db.Tx) error {
		deleteFinished(ctx, tx, teamID, endpoint, finished)
		return nil
	})
}

// Unsettled returns what must stay of the messages of all teams with ids in a range: unfinished deliveries with their
// messages, and messages whose fan-out has not ended.
func (s *Service) Unsettled(ctx context.Context, r db.Reader, from, to string) ([]partitions.Kept, error) {
	all, err := unsettledBetween(ctx, r, from, to, unsettledMost+1)
	if err != nil {
		return nil, fmt.Errorf("find unfinished deliveries to webhooks: %w", err)
	}
	if len(all) > unsettledMost {
		return nil, fmt.Errorf("more than %d deliveries to webhooks are not finished", unsettledMost)
	}
	return all, nil
}

// Sweep does the work of SweepPart for all teams.
func (s *Service) Sweep(ctx context.Context) error { return s.SweepPart(ctx, jobs.Whole) }

// SweepPart deletes all rows of deleted endpoints, for the teams whose short ids are in the range of the part.
// SweepPart works in batches, each in its own transaction.
func (s *Service) SweepPart(ctx context.Context, p jobs.Part) error {
	for more := true; more; {
		var err error
		if more, err = s.sweepRound(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// sweepRound deletes a limited number of rows of each deleted endpoint, so that an endpoint with millions of rows does
// not delay other endpoints. If more rows may remain to be deleted, sweepRound returns true.
func (s *Service) sweepRound(ctx context.Context, p jobs.Part) (more bool, err error) {
	for last := ""; ; {
		all, err := deletedEndpoints(ctx, s.p.DB.Reader, p, last, batch)
		if err != nil {
			return false, err
		}
		for _, e := range all {
			left, err := s.repeat(ctx, func(tx *db.Tx) (int64, error) { return sweepEndpoint(ctx, tx, &e, batch) })
			if err != nil {
				return false, fmt.Errorf("sweep webhook %s: %w", e.ID, err)
			}
			more = more || left
			last = e.ID
		}
		if len(all) < batch {
			return more, nil
		}
	}
}

// repeat calls the function do until do deletes nothing, but at most sweepStretch times. If more rows may remain to be
// deleted, repeat returns true.
func (s *Service) repeat(ctx context.Context, do func(tx *db.Tx) (int64, error)) (more bool, err error) {
	for range sweepStretch {
		var n int64
		err := s.p.DB.Update(ctx, func(tx *db.Tx) (err error) {
			n, err = do(tx)
			return err
		})
		if err != nil || n == 0 {
			return false, err
		}
	}
	return true, nil
}

func newAttemptID(now time.Time) string {
	return attemptPrefix + id.Compact(id.At(now))
}
