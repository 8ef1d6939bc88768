package domains_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/domains"
)

// verified adds a domain whose records are in the zone, and verifies it.
func verified(t *testing.T, s *domains.Service, d *db.DB, dns *zone, name string) domains.Domain {
	t.Helper()
	dom := mustCreate(t, s, domains.NewDomain{Name: name})
	dns.install(s.Records(&dom))
	verify(t, s, dbtest.ID("team"), dom.ID)
	if err := s.Kind().Handle(t.Context(), inHand(t, d, dom.ID)); err != nil {
		t.Fatal(err)
	}
	return get(t, s, dom.ID)
}

func get(t *testing.T, s *domains.Service, id string) domains.Domain {
	t.Helper()
	dom, err := s.Get(t.Context(), dbtest.ID("team"), id)
	if err != nil {
		t.Fatal(err)
	}
	return dom
}

// rotateStep makes one step of the rotation of a domain's keys.
func rotateStep(t *testing.T, s *domains.Service, d *db.DB, id string) {
	t.Helper()
	if err := s.RotationKind().Handle(t.Context(), inHand(t, d, "keys "+id)); err != nil {
		t.Fatal(err)
	}
}

// later lets time pass for the keys of all domains.
func later(t *testing.T, d *db.DB, by time.Duration) {
	t.Helper()
	exec(t, d, `UPDATE domain_keys SET created_at = created_at - $1, state_at = state_at - $1,
		stepped_at = stepped_at - $1, seen_at = CASE WHEN seen_at = 0 THEN 0 ELSE seen_at - $1 END`, by.Microseconds())
	exec(t, d, `UPDATE domains SET created_at = created_at - $1, rotate_at = rotate_at - $1,
		keys_since = CASE WHEN keys_since = 0 THEN 0 ELSE keys_since - $1 END`, by.Microseconds())
}

// keysIn returns the keys of a domain in a state.
func keysIn(t *testing.T, s *domains.Service, id string, state domains.KeyState) []domains.Key {
	t.Helper()
	dom := get(t, s, id)
	all, err := s.DKIMKeys(t.Context(), &dom)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(k domains.Key) bool { return k.State != state })
}

// publish installs the records of keys.
func (z *zone) publish(all []domains.Key) {
	z.set(func(f *resolve.Fake) {
		for _, k := range all {
			f.TXTRecords[k.Name] = []string{k.Value}
		}
	})
}

// signers returns the selectors that sign.
func signers(t *testing.T, s *domains.Service, id string) (all []string) {
	t.Helper()
	g, err := s.Signing(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range g.Signers {
		all = append(all, k.Selector)
	}
	return all
}

// until makes steps, an hour apart, until the domain has no key in the state.
func until(t *testing.T, s *domains.Service, d *db.DB, id string, gone domains.KeyState) (steps int) {
	t.Helper()
	for ; len(keysIn(t, s, id, gone)) > 0; steps++ {
		if steps == 2000 {
			t.Fatalf("it still has a key that is %s", gone)
		}
		later(t, d, time.Hour)
		rotateStep(t, s, d, id)
	}
	return steps
}

// A rotation publishes new keys, signs with them after their records were seen for two TTLs, keeps the records of the
// old keys, revokes them and forgets them.
func TestRotation(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dns := newZone()
		s, h, _ := build(t, d, dns, domains.Config{})
		dom := verified(t, s, d, dns, "acme.example")
		old := signers(t, s, dom.ID)
		keys, err := s.RotateKeys(t.Context(), dbtest.ID("team"), dom.ID, false)
		if err != nil || len(keys) != 4 {
			t.Fatalf("%+v, %v", keys, err)
		}
		next := keysIn(t, s, dom.ID, domains.KeyNext)
		later(t, d, 24*time.Hour)
		rotateStep(t, s, d, dom.ID)
		if got := signers(t, s, dom.ID); !slices.Equal(got, old) || !slices.Equal(old, []string{"postrider", "postrider-ed"}) {
			t.Errorf("it signs with %s and %s", old, got)
		}
		dns.publish(next)
		until(t, s, d, dom.ID, domains.KeyNext)
		if got := signers(t, s, dom.ID); !slices.Equal(got, []string{next[0].Selector, next[1].Selector}) {
			t.Errorf("it signs with %s, want %+v", got, next)
		}
		got := get(t, s, dom.ID)
		if r := s.Records(&got); r[2].FQDN != next[0].Name || r[2].Value != next[0].Value || r[3].Value != next[1].Value {
			t.Errorf("records %+v", r)
		}
		// The next look-up of the records finds those of the new keys.
		if err := s.Kind().Handle(t.Context(), inHand(t, d, dom.ID)); err != nil {
			t.Fatal(err)
		}
		if got := get(t, s, dom.ID); got.Status != domains.Verified {
			t.Errorf("the domain is %s", got.Status)
		}
		retired := keysIn(t, s, dom.ID, domains.KeyRetired)
		if len(retired) != 2 || retired[0].Selector != "postrider" || retired[0].Value != keys[0].Value {
			t.Errorf("%+v", retired)
		}
		if hours := until(t, s, d, dom.ID, domains.KeyRetired); hours < 7*24 {
			t.Errorf("revoked after %d hours", hours)
		}
		if revoked := keysIn(t, s, dom.ID, domains.KeyRevoked); len(revoked) != 2 || revoked[0].Value != "v=DKIM1; p=" {
			t.Errorf("%+v", revoked)
		}
		if hours := until(t, s, d, dom.ID, domains.KeyRevoked); hours < 30*24 {
			t.Errorf("removed after %d hours", hours)
		}
		if all, _ := left(t, d, "keys "+dom.ID); all != 0 {
			t.Errorf("%d jobs are left", all)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		updates := len(slices.DeleteFunc(h.all, func(e events.Type) bool { return e != events.DomainUpdated }))
		if updates < 4 { // verification twice, the new keys, the switch
			t.Errorf("%d events", updates)
		}
	})
}

// Of several nodes that begin a rotation of the same domain at once, one succeeds.
func TestOneRotationAtATime(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dns := newZone()
		s, _, _ := build(t, d, dns, domains.Config{})
		other, _, _ := build(t, d, dns, domains.Config{})
		dom := verified(t, s, d, dns, "acme.example")
		for _, emergency := range []bool{false, true} {
			errs := make([]error, 6)
			var all []func()
			for i := range errs {
				by := []*domains.Service{s, other}[i%2]
				all = append(all, func() { _, errs[i] = by.RotateKeys(t.Context(), dbtest.ID("team"), dom.ID, emergency) })
			}
			together(all...)
			refused := 0
			for _, err := range errs {
				if fault.KindOf(err) == fault.Locked {
					refused++
				} else if err != nil {
					t.Error(err)
				}
			}
			if next := keysIn(t, s, dom.ID, domains.KeyNext); refused != 5 || len(next) != 2 || next[0].Emergency != emergency {
				t.Errorf("emergency %v: %d refused, %+v", emergency, refused, next)
			}
		}
		if _, err := s.RotateKeys(t.Context(), dbtest.ID("other"), dom.ID, true); fault.KindOf(err) != fault.NotFound {
			t.Errorf("another team: %v", err)
		}
	})
}

// A domain that was never verified, and has signed nothing, has no rotation.
func TestRotationNeedsAProof(t *testing.T) {
	t.Parallel()
	s, _, _ := build(t, dbtest.SQLite(t), newZone(), domains.Config{})
	dom := mustCreate(t, s, domains.NewDomain{Name: "acme.example"})
	if _, err := s.RotateKeys(t.Context(), dbtest.ID("team"), dom.ID, false); fault.KindOf(err) != fault.Invalid {
		t.Errorf("%v", err)
	}
}

// Retired keys stay as long as emails are retried by the settings of the moment, which a reload changes.
func TestRetrySpanChanges(t *testing.T) {
	t.Parallel()
	dns, d := newZone(), dbtest.SQLite(t)
	s, _, _ := build(t, d, dns, domains.Config{RetrySpan: 48 * time.Hour})
	dom := verified(t, s, d, dns, "acme.example")
	keys, err := s.RotateKeys(t.Context(), dbtest.ID("team"), dom.ID, false)
	if err != nil {
		t.Fatal(err)
	}
	dns.publish(keys)
	until(t, s, d, dom.ID, domains.KeyNext)
	s.SetRetrySpan(20 * 24 * time.Hour)
	if hours := until(t, s, d, dom.ID, domains.KeyRetired); hours < 21*24 {
		t.Errorf("revoked after %d hours", hours)
	}
}

// The owner of a domain with single records gets a notice with the records to add, once for each rotation. Owners whose
// records lead to names of this installation have nothing to do.
func TestOwnerIsAskedForRecords(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dns := newZone()
		s, _, _ := build(t, d, dns, domains.Config{Rotation: 90 * 24 * time.Hour})
		var notices []string
		s.Notify = func(_ context.Context, _ *db.Tx, team, subject, text string) error {
			if team != dbtest.ID("team") {
				t.Errorf("a notice to %s", team)
			}
			notices = append(notices, subject+"\n"+text)
			return nil
		}
		dom := verified(t, s, d, dns, "acme.example")
		later(t, d, 180*24*time.Hour)
		if err := s.ExamineKeys(t.Context()); err != nil {
			t.Fatal(err)
		}
		rotateStep(t, s, d, dom.ID)
		rotateStep(t, s, d, dom.ID)
		next := keysIn(t, s, dom.ID, domains.KeyNext)
		if len(notices) != 1 || len(next) != 2 {
			t.Fatalf("%d notices, keys %+v", len(notices), next)
		}
		for _, k := range next {
			if !strings.Contains(notices[0], k.Name) || !strings.Contains(notices[0], k.Value) {
				t.Errorf("%s lacks %s", notices[0], k.Name)
			}
		}
		// After a week, there is one reminder, which names only the record that is missing.
		dns.publish(next[:1])
		for hours := 0; hours < 14*24; hours += 6 {
			if reminded := len(notices) == 2; hours < 6*24 && reminded || hours > 8*24 && !reminded {
				t.Fatalf("%d notices after %d hours", len(notices), hours)
			}
			later(t, d, 6*time.Hour)
			rotateStep(t, s, d, dom.ID)
		}
		late := keysIn(t, s, dom.ID, domains.KeyNext)
		if len(late) != 1 || !strings.HasPrefix(late[0].Advice, "This record has not been found for 14 days. Add") {
			t.Fatalf("%+v", late)
		}
		if len(notices) != 2 || !strings.Contains(notices[1], "not found for a week") || !strings.Contains(notices[1],
			late[0].Value) || strings.Contains(notices[1], next[0].Value) {
			t.Errorf("notices %q", notices)
		}
		notices = notices[1:]
		if _, err := s.RotateKeys(t.Context(), dbtest.ID("team"), dom.ID, true); err != nil || len(notices) != 2 ||
			!strings.Contains(notices[1], "emergency") {
			t.Errorf("%d notices, %v", len(notices), err)
		}
		exec(t, d, `UPDATE domains SET setup = 'cname', setup_token = 'token', checks = $1`,
			`{"cname-rp":{"status":"verified"},"cname-s1":{"status":"verified"},"cname-s2":{"status":"verified"}}`)
		exec(t, d, `DELETE FROM domain_keys`)
		if _, err := s.RotateKeys(t.Context(), dbtest.ID("team"), dom.ID, true); err != nil || len(notices) != 2 {
			t.Errorf("with CNAME records: %d notices, %v", len(notices), err)
		}
	})
}

// If the set-up is changed during an emergency rotation, the new keys are kept with selectors of the new set-up.
func TestEmergencySurvivesAChangeOfTheSetup(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dns := newZone()
		s, _, _ := build(t, d, dns, domains.Config{DNSZone: "dns.test"})
		dom := verified(t, s, d, dns, "acme.example")
		if _, err := s.RotateKeys(t.Context(), dbtest.ID("team"), dom.ID, true); err != nil {
			t.Fatal(err)
		}
		before := keysIn(t, s, dom.ID, domains.KeyNext)
		// The domain sends with the new set-up, and its former one is still in use.
		exec(t, d, `UPDATE domains SET setup = 'cname', former_setup = 'records', setup_token = 'token', checks = $1`,
			`{"cname-rp":{"status":"verified"},"cname-s1":{"status":"verified"},"cname-s2":{"status":"verified"},
			"mx":{"status":"verified"},"spf":{"status":"verified"},"dkim":{"status":"verified"},
			"dkim-ed25519":{"status":"verified"}}`)
		rotateStep(t, s, d, dom.ID)
		next := keysIn(t, s, dom.ID, domains.KeyNext)
		if len(next) != 1 || next[0].Value != before[0].Value || next[0].Selector != "s2" {
			t.Fatalf("before %+v, after %+v", before, next)
		}
		dns.publish(next)
		until(t, s, d, dom.ID, domains.KeyNext)
		if got := signers(t, s, dom.ID); !slices.Equal(got, []string{"s2"}) {
			t.Errorf("it signs with %s", got)
		}
		// The former Ed25519 key signs no more either, and the new one not before its record is found.
		exec(t, d, `UPDATE domains SET setup = 'records', former_setup = ''`)
		d.Hint("domains", dom.ID)
		if got := signers(t, s, dom.ID); len(got) != 1 {
			t.Errorf("it signs with %s", got)
		}
		if in := keysIn(t, s, dom.ID, domains.KeySigning); len(in) != 2 || in[1].Value != before[1].Value {
			t.Errorf("%+v, want %+v", in, before)
		}
	})
}

// In an emergency, the old record is revoked an hour after the last signature with its key.
func TestEmergencyRotation(t *testing.T) {
	t.Parallel()
	dns, d := newZone(), dbtest.SQLite(t)
	s, _, _ := build(t, d, dns, domains.Config{})
	dom := verified(t, s, d, dns, "acme.example")
	if _, err := s.RotateKeys(t.Context(), dbtest.ID("team"), dom.ID, true); err != nil {
		t.Fatal(err)
	}
	next := keysIn(t, s, dom.ID, domains.KeyNext)
	dns.publish(next)
	rotateStep(t, s, d, dom.ID)
	if got := signers(t, s, dom.ID); got[0] != next[0].Selector {
		t.Errorf("it signs with %s", got)
	}
	until(t, s, d, dom.ID, domains.KeyRetired)
	if revoked := keysIn(t, s, dom.ID, domains.KeyRevoked); len(revoked) != 2 {
		t.Errorf("%+v", revoked)
	}
}

// Old keys are rotated without a request, once. A domain with young keys is not looked at again for days.
func TestOldKeysAreRotated(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dns := newZone()
		s, _, _ := build(t, d, dns, domains.Config{Rotation: 90 * 24 * time.Hour})
		dom := verified(t, s, d, dns, "acme.example")
		examine := func() (jobs int) {
			t.Helper()
			if err := s.ExamineKeys(t.Context()); err != nil {
				t.Fatal(err)
			}
			all, _ := left(t, d, "keys "+dom.ID)
			return all
		}
		if examine() != 1 {
			t.Fatal("the keys are not examined")
		}
		rotateStep(t, s, d, dom.ID)
		if examine() != 0 || len(keysIn(t, s, dom.ID, domains.KeyNext)) != 0 {
			t.Error("young keys are rotated or examined again")
		}
		later(t, d, 180*24*time.Hour)
		if examine() != 1 {
			t.Fatal("the keys are not examined again")
		}
		for range 2 {
			rotateStep(t, s, d, dom.ID)
			if next := keysIn(t, s, dom.ID, domains.KeyNext); len(next) != 2 {
				t.Errorf("%+v", next)
			}
		}
		// The job was due in the future of a clock that was ahead.
		exec(t, d, `UPDATE jobs SET run_at = run_at + 1000000000000`)
		exec(t, d, `UPDATE domain_keys SET stepped_at = stepped_at + 1000000000000`)
		examine()
		var due bool
		if err := d.QueryRow(t.Context(), `SELECT run_at <= $1 FROM jobs WHERE dedupe = $2`, d.Now().UnixMicro(),
			"keys "+dom.ID).Scan(&due); err != nil || !due {
			t.Errorf("the rotation goes on: %v, %v", due, err)
		}
	})
}

// If the database fails at any point during the switch to a new key, the domain signs either with the old key, whose
// record is published, or with the new one, and the record of the old one stays.
func TestSwitchWithoutDatabase(t *testing.T) {
	t.Parallel()
	d, proxy := dbtest.Proxied(t, 0)
	dns := newZone()
	s, _, _ := build(t, d, dns, domains.Config{})
	n := 0
	var dom domains.Domain
	var next []domains.Key
	var j jobs.Job
	failed := dbtest.EachTorn(t, proxy, func() {
		n++
		dom = verified(t, s, d, dns, fmt.Sprintf("d%d.example", n))
		if _, err := s.RotateKeys(t.Context(), dbtest.ID("team"), dom.ID, true); err != nil {
			t.Fatal(err)
		}
		next = keysIn(t, s, dom.ID, domains.KeyNext)
		dns.publish(next)
		j = inHand(t, d, "keys "+dom.ID)
	}, func() error { return s.RotationKind().Handle(t.Context(), j) }, func(skip int, err error) {
		d.Hint("domains", dom.ID)
		got, retired := signers(t, s, dom.ID), keysIn(t, s, dom.ID, domains.KeyRetired)
		waits := keysIn(t, s, dom.ID, domains.KeyNext)
		done := got[0] == next[0].Selector && len(retired) == 2 && retired[0].Selector == "postrider" && len(waits) == 0
		undone := got[0] == "postrider" && len(retired) == 0 && len(waits) == 2 && err != nil
		if !done && !undone {
			t.Errorf("answer %d torn: %v; it signs with %s; retired %+v", skip, err, got, retired)
		}
	})
	if failed < 4 {
		t.Errorf("%d steps failed: the test reaches too little", failed)
	}
}
