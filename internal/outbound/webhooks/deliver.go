package webhooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/platform/signing"
)

const (
	perEndpoint = 32              // maximum number of concurrent attempts at one endpoint
	lease       = 5 * time.Minute // of a job
	handleTime  = 2 * time.Minute // after this time, a job that still has messages releases its worker
	holdTime    = 200 * time.Millisecond

	leastRetention = 24 * time.Hour // minimum retention period of messages (see config)
)

// Kinds returns this package's job kinds: deliveries, recoveries, fan-outs to many endpoints, and backlog measurements.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{s.deliveries(), s.recoveries(), s.fanouts(), s.backlogs()}
}

// deliveries returns the job kind that delivers messages. Teams share the workers, and an endpoint's health limits the
// number of its workers (see [health]). Internal errors never end a delivery; a delivery ends after a success, after a
// permanent failure, or after the last attempt in its schedule.
func (s *Service) deliveries() jobs.Kind {
	return jobs.Kind{Name: Kind, Handle: s.handle, Workers: s.c.Workers, PerLane: perEndpoint, Group: laneEndpoint,
		Owner: laneTeam,
		Limit: s.health.limit, Lease: lease, Schedule: []time.Duration{30 * time.Second}, Endless: true}
}

// lane returns the job lane for deliveries to an endpoint.
func lane(teamID, endpointID string) string { return teamID + "|" + endpointID }

// laneTeam returns the team id in a lane. A lane from an older release contains only the endpoint id, which laneTeam
// returns in place of the team id.
func laneTeam(lane string) string {
	team, _, _ := strings.Cut(lane, "|")
	return team
}

// laneEndpoint returns the endpoint id in a lane.
func laneEndpoint(lane string) string { return lane[strings.LastIndexByte(lane, '|')+1:] }

// handle delivers a job's messages in order, until one of them must be retried.
func (s *Service) handle(ctx context.Context, j jobs.Job) error {
	if messageID, ok := strings.CutPrefix(j.Payload, replayMark); ok {
		return s.replayOne(ctx, j, messageID)
	}
	endpoint := laneEndpoint(j.Lane)
	e, err := s.endpoints.endpoint(ctx, j.TeamID, endpoint)
	if err != nil {
		return err
	}
	if e == nil || e.Status != Enabled {
		return s.drop(ctx, j, e)
	}
	w, err := openMessages(ctx, s.p.DB, j.TeamID, endpoint, strings.Split(j.Payload, ","))
	if err == nil {
		err = s.raise(ctx, j.TeamID, endpoint, w.back)
	}
	open := w.open
	switch {
	case err != nil:
		return err
	case len(open) == 0:
		return s.p.Queue.End(ctx, j)
	case w.held >= 0:
		return s.waitForEarlier(ctx, j, w.held)
	}
	started := time.Now()
	for i := range open {
		last := i == len(open)-1
		if time.Since(started) > handleTime {
			return s.p.DB.Update(ctx, func(tx *db.Tx) error {
				s.p.Queue.Retry(ctx, tx, j, tx.Now(), "more to do")
				return nil
			})
		}
		on, err := s.attempt(ctx, j, e, &open[i], last)
		if err != nil || !on {
			return err
		}
	}
	return nil
}

// waitForEarlier reschedules a job whose chain has an earlier message that is not finished. The waiting job is
// rescheduled to the earlier message's next attempt, or by a short time if that attempt is in progress.
func (s *Service) waitForEarlier(ctx context.Context, j jobs.Job, next int64) error {
	return s.p.DB.UpdateTogether(ctx, db.Recording, func(tx *db.Tx) error {
		at := tx.Now().Add(holdTime)
		if n := db.Time(next); n.After(at) {
			at = n.Add(holdTime)
		}
		s.p.Queue.Retry(ctx, tx, j, at, "an earlier message of the same chain is still open")
		return nil
	})
}

// giveBack reschedules a job without counting an attempt, because the team has too many connections to the endpoint's
// address.
func (s *Service) giveBack(ctx context.Context, j jobs.Job) error {
	wait := jobs.Jitter(s.health.crowded(laneEndpoint(j.Lane)))
	return s.p.DB.UpdateTogether(ctx, db.Recording, func(tx *db.Tx) error {
		s.p.Queue.Retry(ctx, tx, j, tx.Now().Add(wait), errCrowded.Error())
		return nil
	})
}

// drop finishes a job for a deleted or disabled endpoint and marks the job's unfinished messages as failed. The
// endpoint's health record is also removed, so that the endpoint's other jobs are dropped without delay.
func (s *Service) drop(ctx context.Context, j jobs.Job, e *Endpoint) error {
	s.health.forget(laneEndpoint(j.Lane))
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		if e != nil {
			failOpen(ctx, tx, j.TeamID, e.ID, strings.Split(j.Payload, ","))
		}
		s.p.Queue.Finish(ctx, tx, j)
		return nil
	})
}

// openMessage is a message, with its payload, that still has to be delivered to an endpoint.
type openMessage struct {
	ID      string
	Tries   int // earlier attempts
	Payload string
	open    bool
}

// try posts a message, records the result in the endpoint's health record, and returns the response and the verdict on
// it as the nth attempt in a schedule.
func (s *Service) try(ctx context.Context, e *Endpoint, messageID, payload string, schedule []time.Duration,
	nth int) (answer,
	verdict, error) {
	a, err := s.post(ctx, e, messageID, payload)
	if err != nil {
		return a, verdict{}, err
	}
	v := judge(a, schedule, nth)
	s.health.note(e.ID, v.state == Success, a)
	return a, v, nil
}

// attempt makes one delivery attempt, records its result, and reports whether the job may continue with its next
// message.
func (s *Service) attempt(ctx context.Context, j jobs.Job, e *Endpoint, m *openMessage,
	last bool) (on bool, err error) {
	if err := j.Sure(ctx); err != nil {
		return false, err
	}
	a, v, err := s.try(ctx, e, m.ID, m.Payload, s.c.Schedule, m.Tries+1)
	switch {
	case errors.Is(err, errCrowded):
		return false, s.giveBack(ctx, j)
	case err != nil:
		return false, err
	}
	if v.state == Attempting {
		v.wait = jobs.Jitter(v.wait)
	}
	s.observe(v, a)
	return v.state != Attempting && !v.gone, s.p.Queue.Record(ctx, func(tx *db.Tx) error {
		d := deliveryResult{TeamID: j.TeamID, EndpointID: e.ID, MessageID: m.ID, State: v.state, Tries: m.Tries + 1}
		exists := true
		if mayBeDeleted(m.ID, tx.Now()) {
			var err error
			if _, exists, err = lockDelivery(ctx, tx, &d); err != nil {
				return err
			}
		}
		switch {
		case v.state == Attempting:
			d.NextAt = tx.Now().Add(v.wait)
			s.p.Queue.Retry(ctx, tx, j, d.NextAt, v.reason)
		case v.gone && !last:
			s.p.Queue.Retry(ctx, tx, j, tx.Now(), v.reason) // drops the rest
		case last:
			s.p.Queue.Finish(ctx, tx, j)
		}
		if exists {
			saveDelivery(ctx, tx, &d)
			insertAttempt(ctx, tx, &d, a, v.reason)
		}
		return s.judged(ctx, tx, e, v)
	})
}

// observe reports an attempt for metrics.
func (s *Service) observe(v verdict, a answer) {
	if s.p.Observe == nil {
		return
	}
	outcome := "failed"
	switch v.state {
	case Success:
		outcome = "success"
	case Attempting:
		outcome = "retry"
	}
	s.p.Observe(outcome, a.took)
}

// mayBeDeleted reports whether a message is so old that retention may delete it as soon as it is finished, as by a
// replay during a scheduled attempt.
func mayBeDeleted(messageID string, now time.Time) bool {
	at, ok := id.Time(string(messageKey(messageID)))
	return !ok || now.Sub(at) > leastRetention/2
}

// post sends the request and returns the response as an answer. An error means either that no request was made
// ([errCrowded], [dnsAway]), or that the node is stopping and the result is unknown.
func (s *Service) post(ctx context.Context, e *Endpoint, messageID, payload string) (a answer, err error) {
	a.at = s.p.DB.Now()
	keys, err := s.secrets().Signing(e.ID, &e.secret, a.at)
	if err != nil {
		return a, err
	}
	r, err := http.NewRequestWithContext(forTeam(ctx, e.TeamID), http.MethodPost, e.URL, strings.NewReader(payload))
	if err != nil {
		return a, fmt.Errorf("make the request to webhook %s: %w", e.ID, err)
	}
	r.Header["Content-Type"] = []string{"application/json"}
	r.Header["User-Agent"] = []string{s.c.UserAgent}
	signing.Sign(r.Header, messageID, a.at, payload, keys...)
	start := time.Now()
	resp, err := s.client.Do(r)
	if err == nil {
		a.code, a.retryAfter = resp.StatusCode, resp.Header.Get("Retry-After")
		a.body, err = beginning(resp)
		resp.Body.Close()
	}
	a.took = time.Since(start)
	switch {
	case err == nil:
	case errors.Is(err, errCrowded):
		return a, errCrowded
	case ctx.Err() != nil && a.code == 0:
		return a, context.Cause(ctx)
	case fault.IsOutage(err):
		return a, dnsAway(err)
	default:
		a.err, a.late = explain(err), isTimeout(err)
	}
	return a, nil
}

// dnsAway returns the error for an address that could not be looked up, because our own DNS servers do not work. The
// endpoint is not to blame, so the attempt does not count.
func dnsAway(err error) error {
	return fault.New(fault.Unavailable, "", "The host of the URL cannot be looked up at present. Try again in a moment.").
		Because(err)
}

// beginning reads a response body and returns the part that is stored. Some of the remaining body is read and
// discarded, so that the connection can be reused.
func beginning(resp *http.Response) (string, error) {
	most := failureMax
	if resp.StatusCode/100 == 2 {
		most = successMax
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(most)))
	if err == nil {
		_, err = io.CopyN(io.Discard, resp.Body, readMax)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	text := storable(string(body))
	return strings.ToValidUTF8(text[:min(len(text), most)], ""), err
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[net.Error](err)
	return ok && t.Timeout()
}

// storable replaces invalid UTF-8 and NUL characters in a string, because databases reject them.
func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\ufffd"), "\x00", "\ufffd")
}

// explain returns a short explanation of why there was no response, without the URL, which may contain a secret.
func explain(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		if u.Timeout() {
			return "there was no answer in time"
		}
		err = u.Err
	}
	if errors.Is(err, netguard.ErrRefused) {
		return "the address of the endpoint is not public: " + storable(err.Error())
	}
	text := storable(err.Error())
	const limit = 500
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}
