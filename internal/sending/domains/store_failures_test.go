package domains_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domains"
)

// store implements the dependencies and event listeners that package domains calls. Each method runs a database
// statement that the test can make fail.
type store struct{ d *db.DB }

func (s store) Recorded(ctx context.Context, tx *db.Tx, _ []events.Event) error {
	var n int
	return tx.QueryRow(ctx, `SELECT 40 + 2`).Scan(&n)
}

func (s store) attach(service *domains.Service) {
	ask := func(ctx context.Context, text string) (yes bool, err error) {
		err = s.d.QueryRow(ctx, text).Scan(&yes)
		return yes, err
	}
	service.HasScheduled = func(ctx context.Context, _, _ string) (bool, error) { return ask(ctx, `SELECT 1 = 2`) }
	service.SentSince = func(ctx context.Context, _, _ string, _ time.Time) (bool, error) {
		return ask(ctx, `SELECT 1 = 3`)
	}
	service.Notify = func(ctx context.Context, tx *db.Tx, _, _, _ string) error {
		var n int
		return tx.QueryRow(ctx, `SELECT 40 + 3`).Scan(&n)
	}
}

// operations creates domains and claims in the states that the tested operations need.
type operations struct {
	t           *testing.T
	d           *db.DB
	dns         *zone
	s, trusting *domains.Service // trusting has TrustDomains enabled; s does not
	n           int              // number of the last domain added; part of its name
	domain      domains.Domain
	claim       domains.Claim
	job         jobs.Job
}

// add adds a new domain.
func (o *operations) add() {
	o.n++
	o.domain = mustCreate(o.t, o.s, domains.NewDomain{Name: o.name(), TrackingSubdomain: "links"})
}

func (o *operations) name() string { return fmt.Sprintf("d%d.example", o.n) }

// addPublished adds a domain, installs its records in DNS, and claims its look-up job.
func (o *operations) addPublished() {
	o.add()
	o.dns.install(o.s.Records(&o.domain))
	verify(o.t, o.s, dbtest.ID("team"), o.domain.ID)
	o.job = inHand(o.t, o.d, o.domain.ID)
}

// addVerified adds a verified domain.
func (o *operations) addVerified() {
	o.t.Helper()
	o.addPublished()
	if err := o.s.Kind().Handle(o.t.Context(), o.job); err != nil {
		o.t.Fatal(err)
	}
}

// begin starts another team's claim to the domain and claims the look-up job, as a worker does.
func (o *operations) begin() {
	o.t.Helper()
	var err error
	o.claim, _, err = o.trusting.Claim(o.t.Context(), dbtest.ID("other"), domains.NewDomain{Name: o.domain.Name})
	if err != nil {
		o.t.Fatal(err)
	}
	o.job = inHand(o.t, o.d, o.claim.DomainID)
}

// beginVerified adds a verified domain and starts another team's claim to it.
func (o *operations) beginVerified() {
	o.t.Helper()
	o.addVerified()
	o.begin()
}

// prove handles the job that finds the claim's proof, and claims the next look-up job.
func (o *operations) prove() {
	o.t.Helper()
	if err := o.look(); err != nil {
		o.t.Fatal(err)
	}
	o.job = inHand(o.t, o.d, o.claim.DomainID)
}

// look handles a look-up job, which finds all records.
func (o *operations) look() error { return o.trusting.Kind().Handle(o.t.Context(), o.job) }

// rows returns the row counts of the domain tables as a string.
func (o *operations) rows() (text string) {
	o.t.Helper()
	for _, what := range []string{`COUNT(*) FROM domains`, `COUNT(*) FROM domain_claims`, `COUNT(*) FROM jobs`,
		`COUNT(*) FROM domains WHERE status = 'verified'`, `COUNT(*) FROM domains WHERE team_id = $1`,
		`COUNT(*) FROM domains WHERE checks <> '{}'`} {
		var n int
		var args []any
		if strings.Contains(what, "$1") {
			args = []any{db.ID(dbtest.ID("other"))}
		}
		if err := o.d.QueryRow(o.t.Context(), `SELECT `+what, args...).Scan(&n); err != nil {
			o.t.Fatal(err)
		}
		text += fmt.Sprintln(n, what)
	}
	return text
}

// operation is an operation to test, with an optional setup function.
type operation struct {
	name    string
	prepare func()
	act     func() error
}

// onDomains returns the operations on domains to test.
func (o *operations) onDomains() []operation {
	ctx, s, no := o.t.Context(), o.s, false
	return []operation{
		{"Create", nil, func() error {
			o.n++
			_, err := s.Create(ctx, dbtest.ID("team"), domains.NewDomain{Name: o.name(), TrackingSubdomain: "links"})
			return err
		}},
		{"AddVerified", func() { o.n++ }, func() error {
			_, err := o.trusting.AddVerified(ctx, dbtest.ID("team"), domains.NewDomain{Name: o.name()})
			return err
		}},
		{"AddVerified of an existing domain", o.add, func() error {
			_, err := o.trusting.AddVerified(ctx, dbtest.ID("team"), domains.NewDomain{Name: o.domain.Name})
			return err
		}},
		{"Get", o.add, func() error { _, err := s.Get(ctx, dbtest.ID("team"), o.domain.ID); return err }},
		{"Exists", nil, func() error {
			there, err := s.Exists(ctx, dbtest.ID("team"), o.domain.ID)
			if err == nil && !there {
				o.t.Error("the domain does not exist")
			}
			return err
		}},
		{"Count", nil, func() error { _, err := s.Count(ctx, dbtest.ID("team")); return err }},
		{"List", nil, func() error { _, _, err := s.List(ctx, dbtest.ID("team"), page.Page{}); return err }},
		{"Update", o.add, func() error {
			return s.Update(ctx, dbtest.ID("team"), o.domain.ID, domains.Change{OpenTracking: &no,
				TrackingSubdomain: new("other")})
		}},
		{"Update of a verified domain", o.addVerified, func() error {
			return s.Update(ctx, dbtest.ID("team"), o.domain.ID, domains.Change{ClickTracking: &no})
		}},
		{"Delete", o.add, func() error { return s.Delete(ctx, dbtest.ID("team"), o.domain.ID) }},
		{"Verify", o.add, func() error { return s.Verify(ctx, dbtest.ID("team"), o.domain.ID) }},
		{"Sender", func() { o.addVerified(); o.d.Hint("domains", o.domain.ID) }, func() error {
			_, err := s.Sender(ctx, dbtest.ID("team"), o.domain.Name)
			return err
		}},
		{"Sender of a sandbox", func() {
			if err := o.trusting.EraseTeam(ctx, "00000000-0000-0000-0000-000000000001"); err != nil {
				o.t.Fatal(err)
			}
		}, func() error { _, err := o.trusting.Sender(ctx, dbtest.ID("team"), "sandbox.example"); return err }},
		{"Signing", func() { o.d.Hint("domains", o.domain.ID) }, func() error {
			_, err := s.Signing(ctx, o.domain.ID)
			return err
		}},
		{"a look-up", o.addPublished, o.look},
	}
}

// onClaims returns the operations on claims to test.
func (o *operations) onClaims() []operation {
	ctx, s := o.t.Context(), o.s
	return []operation{
		{"Claim", o.addVerified, func() error {
			_, _, err := s.Claim(ctx, dbtest.ID("other"), domains.NewDomain{Name: o.domain.Name})
			return err
		}},
		{"GetClaim", o.beginVerified, func() error {
			_, err := s.GetClaim(ctx, dbtest.ID("other"),
				o.claim.DomainID)
			return err
		}},
		{"VerifyClaim", o.beginVerified, func() error {
			_, err := s.VerifyClaim(ctx, dbtest.ID("other"), o.claim.DomainID)
			return err
		}},
		{"the look-up of a proof", o.beginVerified, o.look},
		{"the check of a domain in use", func() { o.beginVerified(); o.prove() }, o.look},
		{"a transfer", func() { o.add(); o.begin(); o.prove() }, o.look},
	}
}

// If any database statement in an operation fails, the operation returns an error and leaves the database unchanged.
func TestOperationsWithoutAStatement(t *testing.T) {
	dbtest.SQLiteTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		ctx, dns := t.Context(), newZone()
		others := store{d}
		s, _, _ := build(t, d, dns, domains.Config{}, others)
		trusting, _, _ := build(t, d, dns, domains.Config{TrustDomains: true,
			SandboxDomains: []string{"sandbox.example"}}, others)
		for _, service := range []*domains.Service{s, trusting} {
			oneKey(t, service)
			others.attach(service)
		}
		o := &operations{t: t, d: d, dns: dns, s: s, trusting: trusting}
		for _, v := range append(o.onDomains(), o.onClaims()...) {
			before := ""
			failed := trace.EachBroken(t, func() {
				if v.prepare != nil {
					v.prepare()
				}
				before = o.rows()
			}, v.act, func(err error) {
				if now := o.rows(); err != nil && now != before {
					t.Errorf("%s fails and has changed something: %v\n%s\n%s", v.name, err, before, now)
				}
			})
			if failed < 1 {
				t.Errorf("%s never fails", v.name)
			}
			if t.Failed() {
				t.Fatalf("at %s", v.name)
			}
		}
		for name, act := range map[string]func() error{"Recheck": func() error { return s.Recheck(ctx) },
			"EraseTeam": func() error { return s.EraseTeam(ctx, dbtest.ID("team")) }} {
			if trace.EachBroken(t, o.add, act, nil) < 1 {
				t.Errorf("%s never fails", name)
			}
		}
		_, err := s.Create(ctx, dbtest.ID("team"), domains.NewDomain{Name: "other.example", Region: "moon"})
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("in an unknown region: %v", err)
		}
	})
}
