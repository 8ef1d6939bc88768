package delivery

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
)

// due makes the delivery job for a delayed email due now.
func (f *fixture) due(emailID string) {
	f.T.Helper()
	var jobID string
	err := f.DB.Update(f.T.Context(), func(tx *db.Tx) error {
		return tx.QueryRow(f.T.Context(), `UPDATE jobs SET parked = $2 WHERE kind = $3 AND payload LIKE $1 RETURNING id`,
			"%"+emailID+"%", true, emails.DeliveryKind).Scan(&jobID)
	})
	if err == nil {
		err = f.Queue.Unpark(f.T.Context(), jobID)
	}
	if err != nil {
		f.T.Fatal(err)
	}
}

// A recipient that is suppressed between two tries receives no email, whether the cause is a manual entry, a bounce or
// a complaint. The other recipients receive the email.
func TestSuppressedBetweenTries(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"manual", "bounce", "complaint"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				to, other := way+"@"+destination, "other@"+destination
				var mu sync.Mutex
				open, heard := false, 0
				mx := smtptest.NewServer(t, smtptest.Config{Rcpt: func(_, rcpt string) string {
					mu.Lock()
					defer mu.Unlock()
					if rcpt == to {
						heard++
					}
					switch {
					case !open:
						return "451 4.3.0 later"
					case strings.HasPrefix(rcpt, "bounce@"):
						return "550 5.1.1 no such user"
					}
					return ""
				}})
				n := one(mx.Addr)
				cfg := n.config(1)
				cfg.Schedule = []time.Duration{time.Hour, time.Hour}
				f := newFixture(t, d, cfg, n.dns).run()
				alone, both := f.send(to), f.send(other, to)
				f.wait(alone, events.EmailDelayed)
				f.wait(both, events.EmailDelayed, events.EmailDelayed)
				mu.Lock()
				open = true
				mu.Unlock()
				reason := f.suppress(way, to)
				mu.Lock()
				asked := heard
				mu.Unlock()
				f.due(alone)
				if diff := cmp.Diff([]string{"sent", "delivery_delayed " + to, "suppressed " + to},
					f.wait(alone, events.EmailSuppressed)); diff != "" {
					t.Error(diff)
				}
				if data := f.event(alone, events.EmailSuppressed).Data.(*events.Suppressed); data.Reason != reason ||
					data.Type != "OnAccountSuppressionList" {
					t.Errorf("suppressed because of %+v", data)
				}
				f.due(both)
				f.wait(both, events.EmailSuppressed, events.EmailDelivered)
				mu.Lock()
				defer mu.Unlock()
				if heard != asked {
					t.Errorf("the host heard of a suppressed address %d times", heard-asked)
				}
				if f.state(alone) != emails.Suppressed || f.state(both) != emails.Delivered || f.jobsLeft() != 0 {
					t.Errorf("states %s and %s, %d jobs", f.state(alone), f.state(both), f.jobsLeft())
				}
				if a := f.attempts(both); len(a) != 2 || !slices.Equal(a[1].Recipients, []string{other}) {
					t.Errorf("attempts %+v", a)
				}
			})
		})
	}
}

// suppress adds an address to the suppression list in the given way: manual, bounce or complaint. The returned string
// is the reason that the event must contain.
func (f *fixture) suppress(way, to string) (reason string) {
	f.T.Helper()
	switch way {
	case "manual":
		if _, err := f.Suppressions.Add(f.T.Context(), f.Acme.TeamID, []string{strings.ToUpper(to)}); err != nil {
			f.T.Fatal(err)
		}
	case "bounce":
		f.wait(f.send(to), events.EmailBounced)
	case "complaint":
		x := f.send(to)
		f.wait(x, events.EmailDelivered)
		if err := f.DB.Update(f.T.Context(), func(tx *db.Tx) error {
			return f.service.p.Recorder.Record(f.T.Context(), tx, events.Event{TeamID: f.Acme.TeamID, EmailID: x,
				DomainID: f.Sender.ID,
				Type:     events.EmailComplained, Recipient: to, Data: &events.Complaint{}})
		}); err != nil {
			f.T.Fatal(err)
		}
		return "previous_complaint"
	}
	return "previous_bounce"
}

// If the first try is made soon after the email was accepted, suppressions are not looked up again. If the first try is
// late, suppressions are looked up, and the query uses the index.
func TestSuppressionsOfAFirstTry(t *testing.T) {
	t.Parallel()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		mx := smtptest.NewServer(t, smtptest.Config{})
		n := one(mx.Addr)
		f := newFixture(t, d, n.config(1), n.dns)
		asked := func() (all []db.Statement) {
			for _, s := range trace.Take() {
				if strings.Contains(s.SQL, "FROM suppressions") {
					all = append(all, s)
				}
			}
			return all
		}
		late := f.send(address(1), address(2))
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE jobs SET created_at = created_at - $1`,
				(suppressionsMaxAge + time.Second).Microseconds())
			return err
		}); err != nil {
			t.Fatal(err)
		}
		f.suppress("manual", address(2))
		f.suppressMany(1000)
		asked()
		f.run()
		f.wait(late, events.EmailSuppressed, events.EmailDelivered)
		all := asked()
		if len(all) != 1 {
			t.Fatalf("the suppressions were asked %d times for an email that waited", len(all))
		}
		if plan := trace.Plan(t, all[0]); !strings.Contains(plan, "suppressions_address") {
			t.Errorf("the look does not go by its index:\n%s", plan)
		}
		fresh := f.send(address(3))
		f.wait(fresh, events.EmailDelivered)
		if all := asked(); len(all) != 1 { // the only look-up was made when the email was accepted
			t.Errorf("the suppressions were asked %d times for an email that went out at once", len(all))
		}
		if got := mx.Messages(); len(got) != 2 || !slices.Equal(got[0].To, []string{address(1)}) {
			t.Errorf("messages %+v", got)
		}
	})
}

// suppressMany adds n addresses to the team's suppression list, so that the query planner chooses the right index.
func (f *fixture) suppressMany(n int) {
	f.T.Helper()
	err := f.DB.Update(f.T.Context(), func(tx *db.Tx) error {
		for i := range n {
			tx.Queue(f.T.Context(), `INSERT INTO suppressions (id, team_id, address, origin, source_id, created_at)
				VALUES ($1, $2, $3, 'manual', '', 0)`, id.New(), f.Acme.TeamID, fmt.Sprintf("filler%d@%s", i, destination))
		}
		_, err := tx.Exec(f.T.Context(), `ANALYZE suppressions`)
		return err
	})
	if err != nil {
		f.T.Fatal(err)
	}
}

// notifyingDNS is a DNS resolver that sends on a channel for each MX query.
type notifyingDNS struct {
	resolve.Fake
	asked chan struct{}
}

func (r notifyingDNS) MX(ctx context.Context, domain string) ([]resolve.MX, error) {
	r.asked <- struct{}{}
	return r.Fake.MX(ctx, domain)
}

// After a job has waited for its turn, it checks the suppressions again before it sends the message.
func TestSuppressedWhileItWaitsForATurn(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		n := one("")
		cfg := n.config(1)
		cfg.Dial = refuseDial(t)
		dns := notifyingDNS{n.dns, make(chan struct{}, 1)}
		f := newFixture(t, d, cfg, dns)
		f.service.suppressionsMaxAge = 0
		permits := int64(f.service.c.MaxConnections)
		if err := f.service.pool.permits.Acquire(t.Context(), "another", permits); err != nil {
			t.Fatal(err)
		}
		f.run()
		x := f.send(address(1), address(2))
		<-dns.asked
		f.suppress("manual", address(1))
		f.suppress("manual", address(2))
		f.service.pool.permits.Release("another", permits)
		if diff := cmp.Diff([]string{"suppressed " + address(1), "suppressed " + address(2)},
			f.wait(x, events.EmailSuppressed, events.EmailSuppressed)); diff != "" {
			t.Error(diff)
		}
		if f.jobsLeft() != 0 || len(f.attempts(x)) != 0 {
			t.Errorf("%d jobs are left, attempts %+v", f.jobsLeft(), f.attempts(x))
		}
	})
}
