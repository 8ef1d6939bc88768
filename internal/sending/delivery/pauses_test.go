package delivery

import (
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/delivery/routing"
	"github.com/postrider/postrider/internal/sending/emails"
)

// The time for which the operator had paused a destination does not count for the retries of its mail, whether the table
// names the domain or its host, and also if the operator changed other tables meanwhile.
func TestPausesDoNotCountForRetries(t *testing.T) {
	t.Parallel()
	const life = 10 * time.Hour
	schedule := []time.Duration{time.Hour}
	for name, d := range map[string]routing.Destination{"domain": {Domains: []string{destination}},
		"host": {Hosts: []string{"mx.test"}}} {
		s := newService(Config{Schedule: schedule}, Deps{})
		begin := time.Now()
		at := func(after time.Duration, all ...routing.Destination) {
			s.shape.now = func() time.Time { return begin.Add(after) }
			s.Apply(Config{Schedule: schedule, Destinations: all})
		}
		d.Name, d.Paused = "a", true
		other := routing.Destination{Name: "b", Domains: []string{"other.example"}, Paused: true}
		at(time.Hour, d)
		at(100*time.Hour, d, other)
		at(201*time.Hour, other)
		for _, x := range []struct {
			domain  string
			created time.Duration // after begin
			age     time.Duration // with the pause
			over    bool
		}{
			{destination, 0, 202 * time.Hour, false},
			{destination, 0, 209 * time.Hour, false},
			{destination, 0, 209*time.Hour + time.Minute, true},
			{destination, 50 * time.Hour, 160 * time.Hour, false},
			{destination, 50 * time.Hour, 160*time.Hour + time.Minute, true},
			{destination, 201 * time.Hour, 9*time.Hour + time.Minute, true},
			{"third.example", 0, 9*time.Hour + time.Minute, true},
			{"other.example", 0, 1000 * time.Hour, false}, // 900 hours are those of the pause, which lasts
		} {
			host := "mx.other.test"
			if x.domain == destination {
				host = "mx.test"
			}
			created := begin.Add(x.created)
			y := &try{job: jobs.Job{CreatedAt: created}, d: emails.Delivery{Domain: x.domain},
				route: &route{seen: lookup{hosts: []resolve.Host{{Name: host}}}}, rules: &routing.Destination{Lifetime: life,
					Schedule: []time.Duration{time.Hour, time.Hour, 1000 * time.Hour}}}
			if x.domain == "other.example" {
				y.rules.Lifetime = 101 * time.Hour
			}
			if _, over := s.nextWait(y, created.Add(x.age)); over != x.over {
				t.Errorf("%s: an email to %s, created after %v, aged %v: over %v", name, x.domain, x.created, x.age, over)
			}
		}
	}
}

// A pause that lasted when the node started may have begun at any time before. Explanations name only the time for which
// it is known.
func TestPauseBeforeTheStart(t *testing.T) {
	t.Parallel()
	paused := routing.Destination{Name: "a", Domains: []string{destination}, Paused: true, Reason: "maintenance"}
	before := time.Now()
	s := newService(Config{Transport: Direct, Destinations: []routing.Destination{paused}}, Deps{})
	reason, since, held := s.Held(destination)
	if !held || reason != "maintenance" || since.Before(before) || since.After(time.Now()) {
		t.Errorf("held %v since %v, because of %q", held, since, reason)
	}
	start := since
	ended := start.Add(time.Hour)
	s.shape.now = func() time.Time { return ended }
	paused.Reason = "still"
	s.Apply(Config{Destinations: []routing.Destination{paused}})
	if reason, since, _ := s.Held(destination); reason != "still" || !since.Equal(start) {
		t.Errorf("held since %v, because of %q", since, reason)
	}
	s.Apply(Config{})
	created := start.Add(-100 * time.Hour)
	x := s.pausedFor(&try{d: emails.Delivery{Domain: destination}}, created, ended.Add(time.Hour))
	if x.total != 101*time.Hour || !x.first.Equal(start) || !x.last.Equal(ended) {
		t.Errorf("paused for %v, known from %v until %v", x.total, x.first, x.last)
	}
}

// Mail that goes to no host is not held, even if a table names its domain.
func TestNothingHeldWithoutAHost(t *testing.T) {
	t.Parallel()
	all := []routing.Destination{{Name: "a", Domains: []string{"*"}, Paused: true}}
	for _, c := range []struct {
		config Config
		domain string
		held   bool
	}{
		{Config{Transport: Direct}, destination, true},
		{Config{Transport: Capture}, destination, false},
		{Config{Transport: Direct, SandboxDomains: []string{"sandbox.example"}}, "sandbox.example", false},
	} {
		c.config.Destinations = all
		if _, _, held := newService(c.config, Deps{}).Held(c.domain); held != c.held {
			t.Errorf("%s with the transport %s: held %v", c.domain, c.config.Transport, held)
		}
	}
}
