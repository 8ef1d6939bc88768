package domains_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

// A domain is refused if one of its names belongs to the operator or another team, and the error names the request
// field. No keys are generated if the domain is refused.
func TestNamesThatAreRefused(t *testing.T) {
	ctx := t.Context()
	s, _, _ := build(t, dbtest.SQLite(t), newZone(), domains.Config{TrustDomains: true, ManagedDomain: "managed.example",
		SandboxDomains: []string{"sandbox.example"}, Hosts: []string{"mx.operator.example"}})
	oneKey(t, s)
	add := func(team string, n domains.NewDomain) {
		t.Helper()
		if _, err := s.AddVerified(ctx, team, n); err != nil {
			t.Fatal(err)
		}
	}
	add(dbtest.ID("first"), domains.NewDomain{Name: "acme.example", TrackingSubdomain: "links"})
	add(dbtest.ID("third"), domains.NewDomain{Name: "below.third.example"})
	key, made := s.GenerateRSA, 0
	s.GenerateRSA = func() (*dkim.Key, error) { made++; return key() }
	for _, c := range []struct {
		domain domains.NewDomain
		field  string // the field named in the error; empty if the domain is accepted
		said   string
	}{
		{domains.NewDomain{Name: ""}, "name", "Missing"},
		{domains.NewDomain{Name: "no name"}, "name", "`example.com`"},
		{domains.NewDomain{Name: "second.example", Region: "moon"}, "region", "us-east-1"},
		{domains.NewDomain{Name: "second.example", TLS: "none"}, "tls", "`enforced`"},
		{domains.NewDomain{Name: "second.example", ReturnPath: "mta-sts"}, "custom_return_path", "MTA-STS policy"},
		{domains.NewDomain{Name: "second.example", TrackingSubdomain: "MTA-STS"}, "tracking_subdomain", "MTA-STS policy"},
		{domains.NewDomain{Name: "MX.operator.example"}, "name", "`mx.operator.example` belongs to this service"},
		{domains.NewDomain{Name: "operator.example", ReturnPath: "mx"}, "custom_return_path", "`mx.operator.example`"},
		{domains.NewDomain{Name: "operator.example", TrackingSubdomain: "mx"}, "tracking_subdomain", "`mx.operator.example`"},
		{domains.NewDomain{Name: "t.test"}, "name", "belongs to this service"}, // the region's tracking host
		{domains.NewDomain{Name: "managed.example"}, "name", "belongs to this service"},
		{domains.NewDomain{Name: "mine.managed.example"}, "name", "belongs to this service"},
		{domains.NewDomain{Name: "sandbox.example"}, "name", "for trying things out"},
		{domains.NewDomain{Name: "mine.sandbox.example"}, "name", "belongs to this service"},
		{domains.NewDomain{Name: "acme.example"}, "name", "has been registered already"},
		{domains.NewDomain{Name: "send.acme.example"}, "name", "The domain `send.acme.example` is, or stands below"},
		{domains.NewDomain{Name: "a.b.links.acme.example"}, "name",
			"The domain `a.b.links.acme.example` is, or stands below"},
		{domains.NewDomain{Name: "notmanaged.example"}, "", ""},
		{domains.NewDomain{Name: "third.example", ReturnPath: "below"}, "custom_return_path", "`below.third.example`"},
		{domains.NewDomain{Name: "other.acme.example"}, "", ""},
	} {
		made = 0
		_, err := s.Create(ctx, dbtest.ID("second"), c.domain)
		if c.field == "" {
			if err != nil || made != 1 {
				t.Errorf("%+v: %v, and %d keys are made", c.domain, err, made)
			}
			continue
		}
		f, ok := errors.AsType[*fault.Error](err)
		if !ok || f.Field != c.field || !strings.Contains(f.Message, c.said) || made > 0 {
			t.Errorf("%+v: %#v, and %d keys are made", c.domain, err, made)
		}
	}
	dom, err := s.Create(ctx, dbtest.ID("second"), domains.NewDomain{Name: "operator.example"})
	if err != nil {
		t.Fatal(err)
	}
	if dom.TLS != domains.Opportunistic || dom.Region != "us-east-1" || dom.ReturnPath != "send" ||
		!dom.Sending || dom.Receiving {
		t.Errorf("by default it is %+v", dom)
	}
	err = s.Update(ctx, dbtest.ID("second"), dom.ID, domains.Change{TrackingSubdomain: new("mx")})
	if f, ok := errors.AsType[*fault.Error](err); !ok || f.Kind != fault.Invalid || f.Field != "tracking_subdomain" {
		t.Errorf("a host of the operator's: %v", err)
	}
	label := strings.Repeat("a", 47)
	dom, err = s.Create(ctx, dbtest.ID("second"), domains.NewDomain{Name: strings.Repeat(label+".", 4) + "example"})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Update(ctx, dbtest.ID("second"), dom.ID, domains.Change{TrackingSubdomain: new(strings.Repeat("t", 63))})
	if f, ok := errors.AsType[*fault.Error](err); !ok || f.Kind != fault.Invalid || f.Field != "tracking_subdomain" {
		t.Errorf("a host whose name is too long: %v", err)
	}
	if err := s.Update(ctx, dbtest.ID("second"), dom.ID, domains.Change{TrackingSubdomain: new("links")}); err != nil {
		t.Errorf("a host whose name is short enough: %v", err)
	}
}

// If a claim is refused, the error contains the reason. No keys are generated for refused or repeated claims.
func TestClaimsThatAreRefused(t *testing.T) {
	ctx := t.Context()
	s, _, _ := build(t, dbtest.SQLite(t), newZone(), domains.Config{})
	oneKey(t, s)
	mustCreate(t, s, domains.NewDomain{Name: "acme.example"})
	again := domains.NewDomain{Name: "acme.example", OpenTracking: true}
	if _, _, err := s.Claim(ctx, dbtest.ID("other"), again); err != nil {
		t.Fatal(err)
	}
	made := 0
	s.GenerateRSA = func() (*dkim.Key, error) { made++; return nil, errors.New("no entropy") }
	for _, c := range []struct {
		name, team string
		domain     domains.NewDomain
		want       fault.Kind
	}{
		{"a region that there is not", dbtest.ID("other"), domains.NewDomain{Name: "acme.example", Region: "moon"},
			fault.Invalid},
		{"the team's own", dbtest.ID("team"), domains.NewDomain{Name: "acme.example"}, fault.Forbidden},
		{"nobody's", dbtest.ID("other"), domains.NewDomain{Name: "nobody.example"}, fault.NotFound},
	} {
		if _, created, err := s.Claim(ctx, c.team, c.domain); fault.KindOf(err) != c.want || created {
			t.Errorf("%s: created %v, %v", c.name, created, err)
		}
	}
	if _, created, err := s.Claim(ctx, dbtest.ID("other"), again); err != nil || created {
		t.Errorf("once more: created %v, %v", created, err)
	}
	if made > 0 {
		t.Errorf("%d keys were made", made)
	}
	if _, created, err := s.Claim(ctx, dbtest.ID("third"), again); !fault.Ours(err) || created {
		t.Errorf("without a key: created %v, %v", created, err)
	}
	if _, err := s.Create(ctx, dbtest.ID("team"), domains.NewDomain{Name: "new.example"}); !fault.Ours(err) {
		t.Errorf("a domain without a key: %v", err)
	}
}

// One RSA key is generated in advance, but not while the node starts. When a domain uses the key, another key is
// generated.
func TestKeysAreMadeInAdvance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, _ := build(t, dbtest.SQLite(t), resolve.Fake{}, domains.Config{})
		oneKey(t, s)
		key := s.GenerateRSA
		var made atomic.Int64 // the simulated clock does not order the reads below before Run's next key
		s.GenerateRSA = func() (*dkim.Key, error) { made.Add(1); return key() }
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		if synctest.Wait(); made.Load() != 0 {
			t.Errorf("%d keys are made at the start", made.Load())
		}
		for want, name := range []string{1: "one.example", 2: "two.example"} {
			if name == "" {
				continue
			}
			time.Sleep(time.Minute) // simulated time
			if synctest.Wait(); made.Load() != int64(want) {
				t.Errorf("%d keys are made before %s is added, want %d", made.Load(), name, want)
			}
			mustCreate(t, s, domains.NewDomain{Name: name})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		s.GenerateRSA = func() (*dkim.Key, error) { return nil, errors.New("no entropy") }
		if err := s.Run(t.Context()); err == nil {
			t.Error("nobody hears that no key can be made")
		}
	})
}
