package domains_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/dkim/dkimtest"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/sending/domains"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// heard is a listener that collects the types of recorded events.
type heard struct {
	mu  sync.Mutex
	all []events.Type
}

func (h *heard) Recorded(_ context.Context, _ *db.Tx, all []events.Event) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range all {
		h.all = append(h.all, e.Type)
	}
	return nil
}

// zone is a DNS resolver whose records can be changed while queries are in progress.
type zone struct {
	mu sync.Mutex
	resolve.Fake
}

func (z *zone) set(f func(*resolve.Fake)) {
	z.mu.Lock()
	defer z.mu.Unlock()
	f(&z.Fake)
}

func (z *zone) MX(ctx context.Context, name string) ([]resolve.MX, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.Fake.MX(ctx, name)
}

func (z *zone) TXT(ctx context.Context, name string) ([]string, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.Fake.TXT(ctx, name)
}

func (z *zone) CNAME(ctx context.Context, name string) (string, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.Fake.CNAME(ctx, name)
}

func newService(t *testing.T, d *db.DB, dns resolve.Resolver) (*domains.Service, *heard) {
	t.Helper()
	return newServiceWith(t, d, dns, domains.Config{})
}

// newServiceWith is like newService but accepts a configuration.
func newServiceWith(t *testing.T, d *db.DB, dns resolve.Resolver, c domains.Config) (*domains.Service, *heard) {
	t.Helper()
	return newServiceOf(t, d, dns, c)
}

// newServiceOf is like newServiceWith but accepts additional event listeners.
func newServiceOf(t *testing.T, d *db.DB, dns resolve.Resolver, c domains.Config,
	listeners ...events.Listener) (*domains.Service, *heard) {
	t.Helper()
	s, h, runner := build(t, d, dns, c, listeners...)
	t.Cleanup(run(t, runner()))
	return s, h
}

// build is like newServiceOf but does not start a job runner. The returned function creates runners for the service's
// jobs.
func build(t *testing.T, d *db.DB, dns resolve.Resolver, c domains.Config,
	listeners ...events.Listener) (*domains.Service, *heard,
	func() *jobs.Runner) {
	t.Helper()
	keys, err := keyring.New(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	q, recorder, h, log := jobs.NewQueue(d), &events.Recorder{}, &heard{}, slog.New(slog.DiscardHandler)
	recorder.Listen(h)
	for _, l := range listeners {
		recorder.Listen(l)
	}
	if c.Default == (domains.Region{}) {
		c.Default = domains.Region{BounceHost: "b.test", InboundHost: "i.test", SPFInclude: "s.test",
			TrackingHost: "t.test"}
	}
	c.Selector, c.SelectorEd25519 = "postrider", "postrider-ed"
	s := testnode.Must(domains.New(c, domains.Deps{DB: d, Queue: q, Recorder: recorder, Keys: keys, DNS: dns, Log: log,
		OnSendingLost: func(context.Context, *db.Tx, string, string) error { return nil },
		OnSendingBack: func(context.Context, *db.Tx, string, string) error { return nil },
		HasScheduled:  func(context.Context, string, string) (bool, error) { return false, nil },
		SentSince:     func(context.Context, string, string, time.Time) (bool, error) { return false, nil },
		Notify:        func(context.Context, *db.Tx, string, string, string) error { return nil }}))
	s.GenerateRSA = dkimtest.RSA
	return s, h, func() *jobs.Runner {
		r := jobs.NewRunner(d, q, log, time.Second)
		r.Handle(s.Kind())
		r.Cron(jobs.Cron{Name: "domains", Every: 10 * time.Minute, Run: s.Recheck})
		return r
	}
}

// run starts a job runner, which runs until stop is called.
func run(t *testing.T, r *jobs.Runner) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) { // the runner may not have started yet
			t.Error(err)
		}
	}
}

func TestVerification(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dns := &zone{Fake: resolve.Fake{MXRecords: map[string][]resolve.MX{}, TXTRecords: map[string][]string{}}}
		s, h := newService(t, d, dns)
		dom, err := s.Create(t.Context(), dbtest.ID("team"), domains.NewDomain{Name: "acme.example"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Sender(t.Context(), dbtest.ID("team"), "acme.example"); fault.KindOf(err) != fault.Forbidden {
			t.Errorf("a domain that is not verified may send: %v", err)
		}
		dns.set(func(f *resolve.Fake) {
			for _, r := range s.Records(&dom) {
				if r.Type == "MX" {
					f.MXRecords[r.FQDN] = []resolve.MX{{Host: r.Value, Pref: 10}}
				} else {
					f.TXTRecords[r.FQDN] = []string{r.Value}
				}
			}
		})
		status := func() domains.Status {
			got, err := s.Get(t.Context(), dbtest.ID("team"), dom.ID)
			if err != nil {
				t.Fatal(err)
			}
			return got.Status
		}
		if err := s.Verify(t.Context(), dbtest.ID("team"), dom.ID); err != nil {
			t.Fatal(err)
		}
		testnode.Until(t, "the domain is verified", func() bool { return status() == domains.Verified })
		from, err := s.Sender(t.Context(), dbtest.ID("team"), "acme.example")
		if err != nil || from.DomainID != dom.ID {
			t.Errorf("sender %+v, %v", from, err)
		}
		sign, err := s.Signing(t.Context(), dom.ID)
		if err != nil || len(sign.Signers) != 2 || sign.ReturnPathHost != "send.acme.example" {
			t.Errorf("signing %+v, %v", sign, err)
		}
		h.mu.Lock()
		if h.all[0] != events.DomainCreated || h.all[len(h.all)-1] != events.DomainUpdated {
			t.Errorf("events %v", h.all)
		}
		h.mu.Unlock()

		// If a record disappears, the domain may still send, and the record's state shows that the record is missing.
		dns.set(func(f *resolve.Fake) { delete(f.TXTRecords, "postrider._domainkey.acme.example") })
		if err := s.Verify(t.Context(), dbtest.ID("team"), dom.ID); err != nil {
			t.Fatal(err)
		}
		testnode.Until(t, "the missing record is noticed", func() bool {
			got, err := s.Get(t.Context(), dbtest.ID("team"), dom.ID)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range s.Records(&got) {
				if r.Key == "dkim" && r.Status == domains.TemporaryFailure {
					return true
				}
			}
			return false
		})
		if _, err := s.Sender(t.Context(), dbtest.ID("team"), "acme.example"); err != nil {
			t.Errorf("sending stops at once: %v", err)
		}
		if _, err := s.Get(t.Context(), dbtest.ID("other"), dom.ID); fault.KindOf(err) != fault.NotFound {
			t.Errorf("another team reads it: %v", err)
		}
		if err := s.Delete(t.Context(), dbtest.ID("team"), dom.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Sender(t.Context(), dbtest.ID("team"), "acme.example"); fault.KindOf(err) != fault.Forbidden {
			t.Errorf("a deleted domain may send: %v", err)
		}
		if _, err := s.Signing(t.Context(), dom.ID); fault.KindOf(err) != fault.NotFound {
			t.Errorf("a deleted domain signs: %v", err)
		}
	})
}

func TestANameBelongsToOneTeamUntilItIsClaimed(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dns := &zone{Fake: resolve.Fake{TXTRecords: map[string][]string{}}}
		s, _ := newService(t, d, dns)
		ctx := t.Context()
		n := domains.NewDomain{Name: "acme.example"}
		if _, _, err := s.Claim(ctx, dbtest.ID("second"), n); fault.KindOf(err) != fault.NotFound {
			t.Errorf("a claim on what nobody has: %v", err)
		}
		old, err := s.Create(ctx, dbtest.ID("first"), n)
		if err != nil {
			t.Fatal(err)
		}
		for _, team := range []string{dbtest.ID("first"), dbtest.ID("second")} {
			if _, err := s.Create(ctx, team, n); fault.KindOf(err) != fault.Forbidden {
				t.Errorf("%s adds it again: %v", team, err)
			}
		}
		c, created, err := s.Claim(ctx, dbtest.ID("second"), n)
		if err != nil || !created {
			t.Fatalf("%+v, %v", c, err)
		}
		if again, created, err := s.Claim(ctx, dbtest.ID("second"), n); err != nil || created || again.ID != c.ID {
			t.Errorf("the same claim again: %+v, created %v, %v", again, created, err)
		}
		other := n
		other.OpenTracking = true
		if c, created, err = s.Claim(ctx, dbtest.ID("second"), other); err != nil || !created {
			t.Fatalf("another claim: %+v, %v", c, err)
		}
		dns.set(func(f *resolve.Fake) { f.TXTRecords["acme.example"] = []string{`"` + c.RecordValue() + `"`} })
		if _, err := s.VerifyClaim(ctx, dbtest.ID("second"), c.DomainID); err != nil {
			t.Fatal(err)
		}
		testnode.Until(t, "the claim is completed", func() bool {
			got, err := s.GetClaim(ctx, dbtest.ID("second"), c.DomainID)
			if err != nil {
				t.Fatal(err)
			}
			return got.Status == domains.ClaimCompleted
		})
		if _, err := s.Get(ctx, dbtest.ID("first"), old.ID); fault.KindOf(err) != fault.NotFound {
			t.Errorf("the first team still has it: %v", err)
		}
		got, err := s.Get(ctx, dbtest.ID("second"), c.DomainID)
		if err != nil || got.Placeholder || got.Status != domains.NotStarted {
			t.Errorf("the second team has %+v, %v", got, err)
		}
	})
}

// A claim does not end because name servers fail. Look-ups of the proof continue until the claim expires.
func TestAClaimOutlivesBrokenNameServers(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dns := &zone{Fake: resolve.Fake{TXTRecords: map[string][]string{}, Fail: []string{"acme.example"}}}
		s, _ := newService(t, d, dns)
		oneKey(t, s)
		ctx, n := t.Context(), domains.NewDomain{Name: "acme.example"}
		if _, err := s.Create(ctx, dbtest.ID("first"), n); err != nil {
			t.Fatal(err)
		}
		c, _, err := s.Claim(ctx, dbtest.ID("second"), n)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.VerifyClaim(ctx, dbtest.ID("second"), c.DomainID); err != nil {
			t.Fatal(err)
		}
		reason := ""
		testnode.Until(t, "it was looked at", func() bool {
			return d.QueryRow(ctx, `SELECT last_error FROM jobs WHERE payload = $1 AND attempt > 0 AND holder IS NULL`,
				c.DomainID).Scan(&reason) == nil
		})
		if got, err := s.GetClaim(ctx, dbtest.ID("second"), c.DomainID); err != nil || got.Status != domains.ClaimPending ||
			reason != "" {
			t.Errorf("%+v, %v; the job failed with %q", got, err, reason)
		}
		dns.set(func(f *resolve.Fake) {
			f.Fail = nil
			f.TXTRecords["acme.example"] = []string{c.RecordValue()}
		})
		if _, err := s.VerifyClaim(ctx, dbtest.ID("second"), c.DomainID); err != nil {
			t.Fatal(err)
		}
		testnode.Until(t, "the claim is completed", func() bool {
			got, err := s.GetClaim(ctx, dbtest.ID("second"), c.DomainID)
			return err == nil && got.Status == domains.ClaimCompleted
		})
	})
}
