package servedpolicies_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/mtasts/ststest"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/servedpolicies"
)

// working returns a fixture with an enforced policy that works.
func working(t *testing.T, d *db.DB) *fixture {
	t.Helper()
	f := newFixture(t, d)
	f.set(servedpolicies.Change{Mode: servedpolicies.Enforce})
	f.publish()
	if p := f.check(); p.State != servedpolicies.Working {
		t.Fatalf("the policy is %+v", p)
	}
	f.pass(2 * time.Hour)
	return f
}

// expectTold compares the numbers of notices and events, and the last event.
func (f *fixture) expectTold(n int, last events.Type) {
	f.t.Helper()
	if len(f.notices) != n || len(f.recorded) != n || n > 0 && (f.recorded[n-1].Type != last ||
		f.recorded[n-1].TeamID != f.Acme.TeamID || f.recorded[n-1].DomainID != f.domain.ID) {
		f.t.Errorf("the team was told %q and %+v instead of %d times, last of %s", f.notices, f.recorded, n, last)
	}
}

// Each kind of breakage is reported once. The first check that finds it does not report it, and later checks do not
// repeat the report. The breakage ends when no problem was found for an hour.
func TestBreakages(t *testing.T) {
	t.Parallel()
	for kind, breakIt := range map[string]func(f *fixture){
		"host ": func(f *fixture) { f.zone.set(func(z *resolve.Fake) { z.CNAMERecords = nil }) },
		"policy ": func(f *fixture) {
			f.lab.Set(name, ststest.Site{Handler: func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/plain")
				w.Write([]byte(policy("enforce", 604800, "elsewhere.example")))
			}})
		},
		"record ": func(f *fixture) {
			f.zone.set(func(z *resolve.Fake) {
				z.TXTRecords = map[string][]string{"_mta-sts." + name: {"v=STSv1; id=1;"}}
			})
		},
		"certificate ": func(f *fixture) { f.certErr = errors.New("it has expired") },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				f := working(t, d)
				breakIt(f)
				if p := f.check(); p.State != servedpolicies.Failing || problems(p) != kind {
					t.Errorf("the policy is %+v", p)
				}
				f.expectTold(0, "")
				for range 100 {
					f.pass(16 * time.Minute)
					f.check()
				}
				f.expectTold(1, events.DomainTransportFailed)
				e := f.recorded[0].Data.(*events.Transport)
				if e.Name != name || e.Mode != "enforce" || len(e.Problems) != 1 || e.Problems[0].Type+" " != kind ||
					!strings.Contains(f.notices[0], e.Problems[0].Message) {
					t.Errorf("the event is %+v, and the notice %s", e, f.notices[0])
				}
				f.certErr = nil
				f.publish()
				for range 5 { // it breaks again before it has worked for an hour
					f.check()
					f.pass(50 * time.Minute)
				}
				f.expectTold(2, events.DomainTransportRecovered)
				if got := f.recorded[1].Data.(*events.Transport); !got.Since.Equal(e.Since) || len(got.Problems) > 0 {
					t.Errorf("the end has the event %+v, the beginning %+v", got, e)
				}
			})
		})
	}
}

// A policy that breaks again and again is one breakage.
func TestFlapping(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := working(t, d)
		for i := range 20 {
			if f.certErr = nil; i%4 != 3 {
				f.certErr = errors.New("it has expired")
			}
			f.check()
			f.pass(16 * time.Minute)
		}
		f.expectTold(1, events.DomainTransportFailed)
	})
}

// A problem that only one check finds is not a breakage. A problem of a policy that has never worked is not one either.
func TestNoBreakage(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := working(t, d)
		for range 5 {
			f.certErr = errors.New("it has expired")
			f.check()
			f.pass(16 * time.Minute)
			f.certErr = nil
			f.check()
			f.pass(2 * time.Hour)
		}
		f.set(servedpolicies.Change{Mode: servedpolicies.Off})
		f.zone.set(func(z *resolve.Fake) { z.CNAMERecords, z.TXTRecords = nil, nil })
		f.set(servedpolicies.Change{Mode: servedpolicies.Testing})
		for range 10 {
			f.check()
			f.pass(time.Hour)
		}
		f.expectTold(0, "")
	})
}

// Look-ups without an answer change nothing, and a host of the MX records is not dropped from the policy.
func TestDNSOutage(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := working(t, d)
		all := []string{name, "_mta-sts." + name, "mta-sts." + name}
		for _, fail := range [][]string{all, all[:1], all[1:2], all[2:]} {
			f.zone.set(func(z *resolve.Fake) { z.Fail = fail })
			for range 12 * 24 {
				f.check()
				f.pass(time.Hour)
			}
			if p := f.get(); p.State != servedpolicies.Working {
				t.Errorf("without an answer about %s, the policy is %+v", fail, p)
			}
		}
		f.expectTold(0, "")
		f.expectBody(policy("enforce", 604800, inbound))
	})
}

// If the text changes but the owner does not publish the new id, the team gets a notice with the new id.
func TestChangedTextWithFormerID(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := working(t, d)
		f.zone.set(func(z *resolve.Fake) {
			z.MXRecords = map[string][]resolve.MX{name: {{Host: inbound, Pref: 10}, {Host: "backup.example", Pref: 20}}}
		})
		if p := f.check(); problems(p) != "policy " && problems(p) != "" {
			t.Errorf("directly after the change: %+v", p.Problems)
		}
		for range 5 {
			f.pass(16 * time.Minute)
			f.check()
		}
		f.expectTold(1, events.DomainTransportFailed)
		p := f.get()
		if problems(p) != "record " || !strings.Contains(f.notices[0], "id="+p.ID+";") {
			t.Errorf("the problems are %+v, and the notice %s", p.Problems, f.notices)
		}
		f.publish()
		f.expectSender("enforce")
		for range 6 {
			f.pass(16 * time.Minute)
			f.check()
		}
		f.expectTold(2, events.DomainTransportRecovered)
	})
}
