package domains_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domains"
)

// inHand claims the job with the given deduplication key, as a worker does, and returns the job.
func inHand(t *testing.T, d *db.DB, dedupe string) jobs.Job {
	t.Helper()
	j := jobs.Job{Attempt: 1, CreatedAt: time.Now()}
	if err := d.Update(t.Context(), func(tx *db.Tx) error {
		return tx.QueryRow(t.Context(), `UPDATE jobs SET attempt = 1, holder = id WHERE dedupe = $1
			RETURNING id, kind, lane, team_id, payload`, dedupe).
			Scan((*db.ID)(&j.ID), &j.Kind, &j.Lane, (*db.ID)(&j.TeamID), &j.Payload)
	}); err != nil {
		t.Fatal(err)
	}
	return j
}

// left returns the number of jobs with the given deduplication key, and how many of them are claimed.
func left(t *testing.T, d *db.DB, dedupe string) (all, held int) {
	t.Helper()
	if err := d.QueryRow(t.Context(), `SELECT COUNT(*), COUNT(*) FILTER (WHERE holder IS NOT NULL) FROM jobs
		WHERE dedupe = $1`,
		dedupe).Scan(&all, &held); err != nil {
		t.Fatal(err)
	}
	return all, held
}

// If the database fails at any point during a look-up, the look-up either records all findings or fails and keeps its
// job. If the outcome of the commit is unknown, the findings may be recorded even though the look-up fails.
func TestLookUpWithoutDatabase(t *testing.T) {
	d, proxy := dbtest.Proxied(t, 0)
	dns := newZone()
	s, _, _ := build(t, d, dns, domains.Config{})
	oneKey(t, s)
	var dom domains.Domain
	var j jobs.Job
	n := 0
	failed := dbtest.EachTorn(t, proxy, func() {
		n++
		dom = mustCreate(t, s, domains.NewDomain{Name: fmt.Sprintf("d%d.example", n)})
		dns.install(s.Records(&dom))
		verify(t, s, dbtest.ID("team"), dom.ID)
		j = inHand(t, d, dom.ID)
	}, func() error { return s.Kind().Handle(t.Context(), j) }, func(skip int, err error) {
		status, _ := statuses(t, s, dom.ID)
		all, held := left(t, d, dom.ID)
		done, undone := status == domains.Verified && all == 0, status == domains.Pending && held == 1
		if !done && (err == nil || !undone) {
			t.Errorf("answer %d torn: %v; it is %s, and of %d jobs %d are in hand", skip, err, status, all, held)
		}
	})
	if failed < 4 {
		t.Errorf("%d look-ups failed: the test reaches too little", failed)
	}
}

// Two look-ups are tested: the one that finds a claim's proof and the one that transfers the domain. If the database
// fails during one of these look-ups, either all changes are recorded or none.
func TestClaimWithoutDatabase(t *testing.T) {
	for name, want := range map[string]domains.ClaimStatus{"proof": domains.ClaimVerified,
		"handing over": domains.ClaimCompleted} {
		t.Run(name, func(t *testing.T) {
			d, proxy := dbtest.Proxied(t, 0)
			s, _, _ := build(t, d, newZone(), domains.Config{TrustDomains: true})
			oneKey(t, s)
			var before, c domains.Claim
			var j jobs.Job
			n := 0
			get := func() {
				t.Helper()
				var err error
				if c, err = s.GetClaim(t.Context(), dbtest.ID("other"), c.DomainID); err != nil {
					t.Fatal(err)
				}
			}
			failed := dbtest.EachTorn(t, proxy, func() {
				n++
				domain := domains.NewDomain{Name: fmt.Sprintf("d%d.example", n)}
				mustCreate(t, s, domain)
				var err error
				if c, _, err = s.Claim(t.Context(), dbtest.ID("other"), domain); err != nil {
					t.Fatal(err)
				}
				j = inHand(t, d, c.DomainID)
				if want == domains.ClaimCompleted {
					if err := s.Kind().Handle(t.Context(), j); err != nil {
						t.Fatal(err)
					}
					j = inHand(t, d, c.DomainID)
				}
				get()
				before = c
			}, func() error { return s.Kind().Handle(t.Context(), j) }, func(skip int, err error) {
				get()
				_, held := left(t, d, c.DomainID)
				done, undone := c.Status == want && held == 0, c.Status == before.Status && held == 1
				if !done && (err == nil || !undone) {
					t.Errorf("answer %d torn: %v; the claim was %s and is %s, %d jobs are in hand", skip, err, before.Status, c.Status,
						held)
				}
			})
			if failed < 4 {
				t.Errorf("%d looks failed: the test reaches too little", failed)
			}
		})
	}
}

// If the database is unavailable, no operation reports success or a missing domain.
func TestVerbsWithoutDatabase(t *testing.T) {
	d := dbtest.SQLite(t)
	s, _, _ := build(t, d, newZone(), domains.Config{TrustDomains: true})
	oneKey(t, s)
	dom := mustCreate(t, s, domains.NewDomain{Name: "acme.example"})
	d.Close()
	ctx := t.Context()
	for name, f := range map[string]func() error{
		"Create": func() error {
			_, err := s.Create(ctx, dbtest.ID("team"), domains.NewDomain{Name: "b.example"})
			return err
		},
		"AddVerified": func() error {
			_, err := s.AddVerified(ctx, dbtest.ID("team"), domains.NewDomain{Name: "acme.example"})
			return err
		},
		"Get":       func() error { _, err := s.Get(ctx, dbtest.ID("team"), dom.ID); return err },
		"Exists":    func() error { _, err := s.Exists(ctx, dbtest.ID("team"), dom.ID); return err },
		"Count":     func() error { _, err := s.Count(ctx, dbtest.ID("team")); return err },
		"List":      func() error { _, _, err := s.List(ctx, dbtest.ID("team"), page.Page{}); return err },
		"Update":    func() error { return s.Update(ctx, dbtest.ID("team"), dom.ID, domains.Change{}) },
		"Delete":    func() error { return s.Delete(ctx, dbtest.ID("team"), dom.ID) },
		"Verify":    func() error { return s.Verify(ctx, dbtest.ID("team"), dom.ID) },
		"Recheck":   func() error { return s.Recheck(ctx) },
		"EraseTeam": func() error { return s.EraseTeam(ctx, dbtest.ID("team")) },
		"Sender":    func() error { _, err := s.Sender(ctx, dbtest.ID("team"), "acme.example"); return err },
		"Signing":   func() error { _, err := s.Signing(ctx, dom.ID); return err },
		"Receiver":  func() error { _, err := s.Receiver(ctx, "acme.example"); return err },
		"Claim": func() error {
			_, _, err := s.Claim(ctx, dbtest.ID("other"),
				domains.NewDomain{Name: "acme.example"})
			return err
		},
		"GetClaim":    func() error { _, err := s.GetClaim(ctx, dbtest.ID("other"), dom.ID); return err },
		"VerifyClaim": func() error { _, err := s.VerifyClaim(ctx, dbtest.ID("other"), dom.ID); return err },
		"the look-up": func() error {
			return s.Kind().Handle(ctx, jobs.Job{ID: "j", Payload: dom.ID, TeamID: dbtest.ID("team"), Attempt: 1})
		},
	} {
		if err := f(); !fault.Ours(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
