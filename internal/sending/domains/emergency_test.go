package domains_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

// A second emergency cannot begin before the new keys of the first one have signed for the TTL of their records, and
// for an hour if that is shorter. Afterwards it can, although the former keys are not revoked yet.
func TestEmergenciesHaveAPause(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ ttl, pause time.Duration }{
		{5 * time.Minute, 5 * time.Minute}, {0, time.Hour}, {24 * time.Hour, time.Hour},
	} {
		dbtest.Each(t, func(t *testing.T, d *db.DB) {
			dns := newZone()
			s, _, _ := build(t, d, dns, domains.Config{})
			s.Authoritative = func(ctx context.Context, name string) ([]domains.ServerAnswer, error) {
				texts, err := dns.TXT(ctx, name)
				return []domains.ServerAnswer{{Server: "ns", Texts: texts, TTL: c.ttl}}, err
			}
			dom := verified(t, s, d, dns, "acme.example")
			begin := func(words ...string) {
				t.Helper()
				_, err := s.RotateKeys(t.Context(), dbtest.ID("team"), dom.ID, true)
				if (err == nil) != (len(words) == 0) || err != nil && fault.KindOf(err) != fault.Locked {
					t.Fatalf("TTL %v: %v, want %q", c.ttl, err, words)
				}
				for _, w := range words {
					if !strings.Contains(err.Error(), w) {
						t.Errorf("TTL %v: %q lacks %q", c.ttl, err, w)
					}
				}
			}
			begin()
			later(t, d, 2*time.Hour)
			begin(keysIn(t, s, dom.ID, domains.KeyNext)[0].Selector, "has not been found yet")
			dns.publish(keysIn(t, s, dom.ID, domains.KeyNext))
			rotateStep(t, s, d, dom.ID)
			if next := keysIn(t, s, dom.ID, domains.KeyNext); len(next) != 0 {
				t.Fatalf("keys that wait: %+v", next)
			}
			since := keysIn(t, s, dom.ID, domains.KeySigning)[0].Since
			again := since.Add(c.pause + time.Minute - 1).UTC().Format("15:04 UTC")
			begin("in an emergency", again)
			later(t, d, c.pause-30*time.Second)
			begin("in an emergency")
			later(t, d, 31*time.Second)
			begin()
			if n := len(keysIn(t, s, dom.ID, domains.KeyRetired)); n != 2 {
				t.Errorf("TTL %v: %d former keys of the first emergency", c.ttl, n)
			}
			dns.publish(keysIn(t, s, dom.ID, domains.KeyNext))
			rotateStep(t, s, d, dom.ID)
			until(t, s, d, dom.ID, domains.KeyRetired)
			begin()
		})
	}
}

// An emergency can begin right after an ordinary rotation, whose keys nobody has replaced in an emergency.
func TestEmergencyAfterAnOrdinaryRotation(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dns := newZone()
		s, _, _ := build(t, d, dns, domains.Config{})
		dom := verified(t, s, d, dns, "acme.example")
		rotate := func(emergency bool) {
			t.Helper()
			if _, err := s.RotateKeys(t.Context(), dbtest.ID("team"), dom.ID, emergency); err != nil {
				t.Fatal(err)
			}
			dns.publish(keysIn(t, s, dom.ID, domains.KeyNext))
		}
		rotate(false)
		until(t, s, d, dom.ID, domains.KeyNext)
		rotate(true)
	})
}

// An emergency rotation of a domain with CNAME records also replaces the Ed25519 key, which signs nothing. It asks for
// no record of it, unless the record of the former key is still in the DNS.
func TestEmergencyWithCNAMERecords(t *testing.T) {
	t.Parallel()
	for _, published := range []bool{false, true} {
		dbtest.Each(t, func(t *testing.T, d *db.DB) {
			f := newSetups(t, d)
			dom := f.create(team, "mail.acme.example")
			single := f.Records(&dom)
			f.install(f.choose(team, dom.ID, domains.SetupCNAME).Records, true)
			if published {
				f.install(single, true)
			}
			if dom = f.look(team, dom.ID); dom.Status != domains.Verified {
				t.Fatalf("it is %s", dom.Status)
			}
			keys, err := f.RotateKeys(t.Context(), team, dom.ID, true)
			f.must(err)
			if len(keys) != 2 || keys[1].Selector != "s2" {
				t.Errorf("the keys are %+v", keys)
			}
			rotateStep(t, f.Service, d, dom.ID)
			former := keysIn(t, f.Service, dom.ID, domains.KeyRetired)
			if shown := len(former) == 1 && former[0].Selector == "postrider-ed" &&
				strings.Contains(former[0].Advice, "Keep this record"); shown != published || !shown && len(former) > 0 {
				t.Errorf("published %v: %+v", published, former)
			}
			if next := keysIn(t, f.Service, dom.ID, domains.KeyNext); len(next) != 1 {
				t.Errorf("keys that wait: %+v", next)
			}
		})
	}
}

// A request for an ordinary rotation during an emergency says when the new key signs.
func TestOrdinaryRotationDuringAnEmergency(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dns := newZone()
		s, _, _ := build(t, d, dns, domains.Config{})
		dom := verified(t, s, d, dns, "acme.example")
		for _, emergency := range []bool{true, false} {
			_, err := s.RotateKeys(t.Context(), dbtest.ID("team"), dom.ID, emergency)
			if !emergency && (fault.KindOf(err) != fault.Locked || !strings.Contains(err.Error(), "as soon as") ||
				strings.Contains(err.Error(), "twice")) || emergency && err != nil {
				t.Errorf("emergency %v: %v", emergency, err)
			}
		}
	})
}
