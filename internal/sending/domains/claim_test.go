package domains_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

// contest is a domain that belongs to the team "team" and is claimed by another team.
type contest struct {
	*domains.Service
	t      *testing.T
	dns    *zone
	pass   func(time.Duration)
	domain domains.Domain
	claim  domains.Claim

	scheduled atomic.Bool  // the owner has scheduled emails
	sent      atomic.Bool  // the owner has sent emails recently
	broken    atomic.Int32 // number of internal errors that HasScheduled has yet to return

	mu      sync.Mutex
	notices []string // subjects of notices, by team
}

func (c *contest) listen() {
	c.Notify = func(_ context.Context, _ *db.Tx, team, subject, text string) error {
		c.mu.Lock()
		c.notices = append(c.notices, team+": "+subject)
		c.mu.Unlock()
		if !strings.Contains(text, "acme.example") {
			c.t.Errorf("told %q", text)
		}
		return nil
	}
	c.HasScheduled = func(context.Context, string, string) (bool, error) {
		if c.broken.Add(-1) >= 0 {
			return false, fmt.Errorf("our store is away")
		}
		return c.scheduled.Load(), nil
	}
	c.SentSince = func(_ context.Context, team, id string, since time.Time) (bool, error) {
		if team != dbtest.ID("team") || id != c.domain.ID || time.Since(since) != 24*time.Hour {
			c.t.Errorf("asked whether %s has sent from %s since %v", team, id, since)
		}
		return c.sent.Load(), nil
	}
}

// contested runs f in simulated time, with a verified domain that another team has claimed.
func contested(t *testing.T, f func(c *contest)) {
	t.Helper()
	dns := newZone()
	clocked(t, dns, domains.Config{}, func(t *testing.T, s *domains.Service, pass func(time.Duration)) {
		c := &contest{Service: s, t: t, dns: dns, pass: pass}
		c.listen()
		c.domain = mustCreate(t, s, domains.NewDomain{Name: "acme.example"})
		dns.install(s.Records(&c.domain))
		verify(t, s, dbtest.ID("team"), c.domain.ID)
		pass(time.Minute)
		c.begin(domains.NewDomain{Name: "acme.example"})
		f(c)
	})
}

func (c *contest) begin(n domains.NewDomain) {
	c.t.Helper()
	var err error
	if c.claim, _, err = c.Claim(c.t.Context(), dbtest.ID("other"), n); err != nil {
		c.t.Fatal(err)
	}
}

// prove installs or removes the proof, and requests verification.
func (c *contest) prove(there bool) {
	c.t.Helper()
	c.dns.set(func(f *resolve.Fake) {
		f.TXTRecords["acme.example"] = nil
		if there {
			f.TXTRecords["acme.example"] = []string{c.claim.RecordValue()}
		}
	})
	if _, err := c.VerifyClaim(c.t.Context(), dbtest.ID("other"), c.claim.DomainID); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

func (c *contest) is(after time.Duration, want domains.ClaimStatus, reason string) {
	c.t.Helper()
	c.pass(after)
	got, err := c.GetClaim(c.t.Context(), dbtest.ID("other"), c.claim.DomainID)
	if err != nil || got.Status != want || got.BlockedReason != reason ||
		(got.FailureReason != "") != (want == domains.ClaimFailed) {
		c.t.Errorf("the claim is %s %q %q, %v; want %s %q", got.Status, got.BlockedReason, got.FailureReason, err, want,
			reason)
	}
}

// heard compares the owner's notices, oldest first, with the expected subjects, and then clears the notices.
func (c *contest) heard(want ...string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range want {
		want[i] = dbtest.ID("team") + ": " + want[i]
	}
	if strings.Join(c.notices, "\n") != strings.Join(want, "\n") {
		c.t.Errorf("told %q, want %q", c.notices, want)
	}
	c.notices = nil
}

const (
	newsOfClaim = "A team claims your domain acme.example"
	newsOfProof = "Your domain acme.example is about to go to another team"
	newsOfEnd   = "Your domain acme.example goes to another team tomorrow"
)

// If a claimed domain is in use, its owner is notified of the claim, of the proof and of the transfer. The transfer
// waits while the owner has scheduled emails or sends from the domain.
func TestAClaimOnADomainInUse(t *testing.T) {
	contested(t, func(c *contest) {
		c.heard(newsOfClaim)
		c.scheduled.Store(true)
		c.sent.Store(true)
		c.is(0, domains.ClaimPending, "")
		c.prove(true)
		c.is(0, domains.ClaimVerified, "")
		c.heard()
		c.is(2*time.Second, domains.ClaimBlocked, "grace_period")
		c.heard(newsOfProof)
		c.is(47*time.Hour, domains.ClaimBlocked, "grace_period")
		c.heard()
		c.is(2*time.Hour, domains.ClaimBlocked, "grace_period")
		c.heard(newsOfEnd)
		c.is(22*time.Hour, domains.ClaimBlocked, "grace_period")
		c.is(3*time.Hour, domains.ClaimBlocked, "pending_scheduled_emails")
		c.scheduled.Store(false)
		c.is(20*time.Minute, domains.ClaimBlocked, "recent_owner_activity")
		c.is(5*24*time.Hour, domains.ClaimBlocked, "recent_owner_activity") // a blocked claim outlives its expiry
		c.sent.Store(false)
		c.is(20*time.Minute, domains.ClaimCompleted, "")
		c.heard()
		if got, err := c.Get(c.t.Context(), dbtest.ID("other"), c.claim.DomainID); err != nil || got.Placeholder {
			c.t.Errorf("the claiming team has %+v, %v", got, err)
		}
		if _, err := c.Get(c.t.Context(), dbtest.ID("team"), c.domain.ID); fault.KindOf(err) != fault.NotFound {
			c.t.Errorf("the other team still has it: %v", err)
		}
	})
}

// If the owner keeps using the domain for 30 days, the claim fails, and FailureReason says what the claiming team can
// do.
func TestAClaimFails(t *testing.T) {
	contested(t, func(c *contest) {
		c.sent.Store(true)
		c.prove(true)
		c.is(2*time.Second, domains.ClaimBlocked, "grace_period")
		c.is(49*time.Hour, domains.ClaimBlocked, "grace_period")
		c.is(25*time.Hour, domains.ClaimBlocked, "recent_owner_activity")
		c.is(27*24*time.Hour, domains.ClaimFailed, "")
		if got, err := c.Get(c.t.Context(), dbtest.ID("team"), c.domain.ID); err != nil || got.Status != domains.Verified {
			c.t.Errorf("the owner has %+v, %v", got, err)
		}
		if _, err := c.VerifyClaim(c.t.Context(), dbtest.ID("other"),
			c.claim.DomainID); fault.KindOf(err) != fault.Invalid {
			c.t.Errorf("it is verified again: %v", err)
		}
	})
}

// A claim fails if a third team already uses a name that the transferred domain would need.
func TestAClaimFailsForItsNames(t *testing.T) {
	contested(t, func(c *contest) {
		c.begin(domains.NewDomain{Name: "acme.example", ReturnPath: "mail"})
		below, err := c.Create(c.t.Context(), dbtest.ID("third"), domains.NewDomain{Name: "mail.acme.example"})
		if err != nil {
			c.t.Fatal(err)
		}
		c.dns.install(c.Records(&below))
		verify(c.t, c.Service, dbtest.ID("third"), below.ID)
		c.pass(time.Minute)
		c.prove(true)
		c.is(2*time.Second, domains.ClaimBlocked, "grace_period")
		c.is(49*time.Hour, domains.ClaimBlocked, "grace_period")
		c.is(25*time.Hour, domains.ClaimFailed, "")
		got, err := c.GetClaim(c.t.Context(), dbtest.ID("other"), c.claim.DomainID)
		if err != nil || !strings.Contains(got.FailureReason, "`mail.acme.example`") {
			c.t.Errorf("%q, %v", got.FailureReason, err)
		}
		if _, err := c.Get(c.t.Context(), dbtest.ID("team"), c.domain.ID); err != nil {
			c.t.Errorf("the owner has lost it: %v", err)
		}
	})
}

// A claim does not end immediately when its proof is removed, and the owner is always notified a day before the
// transfer.
func TestAProofThatComesAndGoes(t *testing.T) {
	contested(t, func(c *contest) {
		c.prove(true)
		c.is(2*time.Second, domains.ClaimBlocked, "grace_period")
		c.prove(false)
		c.is(2*time.Second, domains.ClaimPending, "")
		c.is(5*24*time.Hour, domains.ClaimPending, "")
		c.heard(newsOfClaim, newsOfProof)
		c.prove(true)
		c.is(2*time.Second, domains.ClaimBlocked, "grace_period")
		c.heard(newsOfEnd)
		c.prove(false)
		c.is(49*time.Hour, domains.ClaimExpired, "")
		c.heard()
	})
}

// If the proof is removed and installed again, the owner gets another reminder a day before the transfer. Reminders are
// sent at most once a day.
func TestAProofThatComesBack(t *testing.T) {
	contested(t, func(c *contest) {
		c.heard(newsOfClaim)
		c.prove(true)
		c.is(2*time.Second, domains.ClaimBlocked, "grace_period")
		c.is(50*time.Hour, domains.ClaimBlocked, "grace_period")
		c.heard(newsOfProof, newsOfEnd)
		c.prove(false)
		c.is(40*time.Hour, domains.ClaimPending, "")
		c.heard()
		c.prove(true)
		c.is(time.Hour, domains.ClaimBlocked, "grace_period")
		c.heard(newsOfEnd)
		c.prove(false)
		c.is(time.Hour, domains.ClaimPending, "")
		c.prove(true)
		c.is(21*time.Hour, domains.ClaimBlocked, "grace_period")
		c.heard()
		c.is(2*time.Hour, domains.ClaimCompleted, "")
	})
}

// A claim expires even if verification is never requested. Internal errors do not end a claim.
func TestAClaimEnds(t *testing.T) {
	contested(t, func(c *contest) {
		c.is(6*24*time.Hour, domains.ClaimPending, "")
		c.is(25*time.Hour, domains.ClaimExpired, "")
		c.begin(domains.NewDomain{Name: "acme.example"})
		c.heard(newsOfClaim, newsOfClaim)
		c.broken.Store(10)
		c.prove(true)
		for range 10 {
			c.pass(time.Hour)
		}
		c.is(0, domains.ClaimBlocked, "grace_period")
		if left := c.broken.Load(); left > 0 {
			c.t.Errorf("%d more errors would come", left)
		}
	})
}

// The owner is notified of unproven claims at most once a week, no matter how many there are. Each claim ends in the
// appropriate state, such as superseded or canceled.
func TestClaimsThatComeToNothing(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, _ := newService(t, d, newZone())
		oneKey(t, s)
		c := &contest{Service: s, t: t}
		c.listen()
		c.domain = mustCreate(t, s, domains.NewDomain{Name: "acme.example"})
		c.begin(domains.NewDomain{Name: "acme.example"})
		first := c.claim
		c.begin(domains.NewDomain{Name: "acme.example", OpenTracking: true, Region: "eu-west-1"})
		if _, _, err := s.Claim(t.Context(), dbtest.ID("third"), domains.NewDomain{Name: "acme.example"}); err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context(), dbtest.ID("other"), c.claim.DomainID); err != nil {
			t.Fatal(err)
		}
		c.heard(newsOfClaim)
		for id, want := range map[string]domains.Claim{first.DomainID: {Status: domains.ClaimSuperseded, Region: "us-east-1"},
			c.claim.DomainID: {Status: domains.ClaimCanceled, Region: "eu-west-1"}} {
			if got, err := s.GetClaim(t.Context(), dbtest.ID("other"), id); err != nil || got.Status != want.Status ||
				got.Region != want.Region {
				t.Errorf("the claim is %s in %s, %v; want %s in %s", got.Status, got.Region, err, want.Status, want.Region)
			}
		}
	})
}

// A placeholder is the row of a domain that a team has claimed from another team. Verifying the placeholder looks up
// the DNS record that proves the claim. After the transfer, the placeholder's records are not verified yet.
func TestVerifyingAPlaceholder(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dns := newZone()
		s, _ := newService(t, d, dns)
		oneKey(t, s)
		mustCreate(t, s, domains.NewDomain{Name: "acme.example"})
		claim, _, err := s.Claim(t.Context(), dbtest.ID("other"), domains.NewDomain{Name: "acme.example"})
		if err != nil {
			t.Fatal(err)
		}
		dns.set(func(f *resolve.Fake) { f.TXTRecords["acme.example"] = []string{claim.RecordValue()} })
		verify(t, s, dbtest.ID("other"), claim.DomainID)
		testnode.Until(t, "the claim is completed", func() bool {
			got, err := s.GetClaim(t.Context(), dbtest.ID("other"), claim.DomainID)
			return err == nil && got.Status == domains.ClaimCompleted
		})
		got, err := s.Get(t.Context(), dbtest.ID("other"), claim.DomainID)
		if err != nil || got.Status != domains.NotStarted {
			t.Errorf("it is %s, %v", got.Status, err)
		}
		for _, r := range s.Records(&got) {
			if r.Status != domains.NotStarted {
				t.Errorf("the record %s is %s", r.Key, r.Status)
			}
		}
	})
}
