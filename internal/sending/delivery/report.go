package delivery

import (
	"context"
	"log/slog"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
)

// Report describes a delivery attempt whose outcome was stored, for metrics and traces.
type Report struct {
	EmailID, TeamID string
	Destination     string
	Provider        string // group of the destination's provider: google, microsoft, yahoo, apple or other
	Bulk            bool
	Attempt         int    // number of the attempt, from 1
	Host            string // name and address of the last host; "" if none was reached
	Relay           string // name of the last relay; "" if the host was none
	Outcome         string // delivered, delayed, bounced, mixed, unknown or failed
	Code            int    // SMTP code of the answer that decided; 0 if Postrider failed the email

	// Delivered, Deferred, Bounced and Failed are numbers of recipients.
	Delivered, Deferred, Bounced, Failed int

	Waited       time.Duration // time from the job's creation to its claim; only in the first attempt
	Began        time.Time     // when the job was claimed
	Took         time.Duration // time from Began to the outcome
	Conversation time.Duration // time of sending the message to the last host; 0 if no host was reached
}

// recorded reports an attempt whose outcome has been stored. The parameter deciding is the index of the answer that
// decided. Outcomes of test addresses are not reported.
func (s *Service) recorded(t *try, out outcome, verdicts []verdict, a *events.Attempt, deciding int) {
	level := slog.LevelDebug
	if a.Outcome != "delivered" {
		level = slog.LevelInfo
	}
	logged := s.p.Log.Enabled(context.Background(), level)
	if s.isSandbox(t.d.Domain) || !logged && s.p.Observe == nil {
		return
	}
	r := t.report(s.p.DB.Now())
	r.Host, r.Relay, r.Outcome = out.host, out.relay, a.Outcome
	r.Code, r.Conversation = out.answers[deciding].reply.Code, out.took
	for _, v := range verdicts {
		switch v.state {
		case delivered:
			r.Delivered++
		case delayed:
			r.Deferred++
		case bounced:
			r.Bounced++
		}
	}
	if s.p.Observe != nil {
		s.p.Observe(r)
	}
	if logged {
		args := []any{"email", r.EmailID, "team", r.TeamID, "destination", r.Destination, "host", r.Host, "attempt",
			r.Attempt, "outcome", r.Outcome, "code", r.Code, "duration", r.Took}
		if !a.NextAt.IsZero() {
			args = append(args, "next", a.NextAt)
		}
		s.p.Log.Log(context.Background(), level, "attempt", args...)
	}
}

// failed reports an email that Postrider failed, after the commit of tx.
func (s *Service) failed(tx *db.Tx, t *try, reason string) {
	tx.AfterCommit(func() {
		r := t.report(s.p.DB.Now())
		r.Outcome, r.Failed = "failed", len(t.o.To)
		if s.p.Observe != nil {
			s.p.Observe(r)
		}
		s.p.Log.Info("attempt", "email", r.EmailID, "team", r.TeamID, "destination", r.Destination, "attempt", r.Attempt,
			"outcome", r.Outcome, "reason", reason, "duration", r.Took)
	})
}

// report returns a report without an outcome.
func (t *try) report(now time.Time) Report {
	r := Report{EmailID: t.o.ID, TeamID: t.o.TeamID, Destination: t.d.Domain, Provider: t.seen.Provider.Group(),
		Bulk: emails.IsBulk(t.job.Lane), Attempt: t.job.Attempt, Began: t.began, Took: now.Sub(t.began)}
	if r.Attempt == 1 {
		r.Waited = max(t.began.Sub(t.job.CreatedAt), 0)
	}
	return r
}

// Connections returns the number of open connections to mail hosts, including idle ones.
func (s *Service) Connections() int { return s.pool.size() }

// Pauses returns the number of destinations that this node pauses at present, and of addresses of mail hosts that it
// does not try because they did not answer.
func (s *Service) Pauses() (destinations, hosts int) {
	now := s.shape.now()
	return s.shape.paused(now), s.hosts.failing(now)
}

// RestingRelays returns for each relay, by name, whether this node sends no mail to it at present, because it did not
// answer or refused the connection.
func (s *Service) RestingRelays() map[string]bool {
	all, now := map[string]bool{}, s.shape.now()
	for _, r := range s.routes.Load().Relays() {
		all[r.Name] = s.hosts.failed(r.Key(), now)
	}
	return all
}

// paused returns the number of destinations that are paused.
func (s *shaper) paused(now time.Time) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.shapes {
		if h.until.After(now) {
			n++
		}
	}
	return n
}

// failing returns the number of addresses that are in backoff.
func (h *hosts) failing(now time.Time) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range h.entries {
		if one.until.After(now) {
			n++
		}
	}
	return n
}
