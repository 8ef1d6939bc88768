package domains

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/fault"
)

func TestLabels(t *testing.T) {
	for l, want := range map[string]bool{"a": true, "z": true, "A": true, "Z": true, "0": true, "9": true, "a-b": true,
		"a--b":                  true,
		strings.Repeat("a", 63): true, strings.Repeat("a", 64): false, "": false, "-": false, "-a": false, "a-": false,
		"a`":  false,
		"a{b": false, "a@b": false, "a[b": false, "a/b": false, "a:b": false, "a.b": false, "ä": false, "a b": false} {
		if isLabel(l, 63) != want {
			t.Errorf("%q is not %v", l, want)
		}
	}
}

// A name may be only so long that the names below it fit.
func TestLongNames(t *testing.T) {
	c := &Config{}
	label := strings.Repeat("l", 61)
	name := label + "." + label + "." + label // 185 octets
	for _, x := range []struct {
		name  string
		taken bool
	}{{name + ".abcde.example", true}, {name + ".abcdef.example", true}, {name + ".abcdefg.example", false}} {
		if _, err := c.checkName(x.name); (err == nil) != x.taken {
			t.Errorf("%d octets: %v", len(x.name), err)
		}
	}
}

// Links are tracked by a host whose record is there, of a domain that is proved.
func TestTrackingHost(t *testing.T) {
	for _, c := range []struct {
		label           string
		tracking, proof Status
		want            string
	}{
		{"links", Verified, Verified, "links.acme.example"},
		{"links", Verified, TemporaryFailure, "links.acme.example"},
		{"links", Verified, Failed, ""},
		{"links", Verified, "", ""},
		{"links", Pending, Verified, ""},
		{"links", TemporaryFailure, Verified, ""},
		{"", Verified, Verified, ""},
	} {
		d := Domain{Name: "acme.example", TrackingSubdomain: c.label,
			checks: map[string]check{"tracking": {Status: c.tracking}, proof: {Status: c.proof}}}
		if got := d.TrackingHost(); got != c.want {
			t.Errorf("%q, %s, the proof %s: %q", c.label, c.tracking, c.proof, got)
		}
	}
}

// A tracking subdomain that is given up is kept while links to it may be about, and no more than 50 are.
func TestOldTrackingSubdomains(t *testing.T) {
	tracked := func(s Status) Domain {
		return Domain{Sending: true, TrackingSubdomain: "links", OldTracking: []string{"old"},
			checks: map[string]check{"tracking": {Status: s}, "caa": {Status: s}, "mx": {Status: Verified}}}
	}
	for _, c := range []struct {
		status Status
		next   string
		want   []string
		checks int
	}{
		{Verified, "go", []string{"old", "links"}, 1},
		{TemporaryFailure, "go", []string{"old", "links"}, 1},
		{Pending, "go", []string{"old"}, 1},
		{Failed, "go", []string{"old"}, 1},
		{Verified, "Old", []string{"links"}, 1},
		{Verified, "", []string{"old", "links"}, 1},
		{Verified, "LINKS", []string{"old"}, 3},
	} {
		d := tracked(c.status)
		if err := d.set(Capabilities{}, nil, &c.next); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(d.OldTracking, c.want) || d.TrackingSubdomain != strings.ToLower(c.next) ||
			len(d.checks) != c.checks {
			t.Errorf("%s, then %q: %q is tracked, %q were, %d records are known", c.status, c.next, d.TrackingSubdomain,
				d.OldTracking, len(d.checks))
		}
	}
	d := tracked(Verified)
	for i := range 2 * oldTrackingMax {
		next := fmt.Sprintf("l%d", i)
		if err := d.set(Capabilities{}, nil, &next); err != nil {
			t.Fatal(err)
		}
		d.checks["tracking"] = check{Status: Verified}
	}
	if n := len(d.OldTracking); n != oldTrackingMax || d.OldTracking[n-1] != fmt.Sprintf("l%d", 2*oldTrackingMax-2) {
		t.Errorf("%d are kept, the last %s", n, d.OldTracking[n-1])
	}
}

func TestSettings(t *testing.T) {
	on, off := true, false
	text := func(s string) *string { return &s }
	for _, c := range []struct {
		name          string
		capabilities  Capabilities
		tls, tracking *string
		field         string // that is refused
		want          Domain
	}{
		{"nothing", Capabilities{}, nil, nil, "", Domain{Sending: true, TLS: Opportunistic}},
		{"both", Capabilities{Sending: &on, Receiving: &on}, text(Enforced), text("Links"), "",
			Domain{Sending: true, Receiving: true, TLS: Enforced, TrackingSubdomain: "links"}},
		{"receiving alone", Capabilities{Sending: &off, Receiving: &on}, text(""), text(""), "",
			Domain{Receiving: true, TLS: Opportunistic}},
		{"neither", Capabilities{Sending: &off}, nil, nil, "capabilities", Domain{}},
		{"another tls", Capabilities{}, text("none"), nil, "tls", Domain{}},
		{"no label", Capabilities{}, nil, text("a.b"), "tracking_subdomain", Domain{}},
	} {
		d := Domain{Sending: true, TLS: Opportunistic}
		err := d.set(c.capabilities, c.tls, c.tracking)
		if c.field != "" {
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "`"+c.field+"`") {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil || d.Sending != c.want.Sending || d.Receiving != c.want.Receiving || d.TLS != c.want.TLS ||
			d.TrackingSubdomain != c.want.TrackingSubdomain {
			t.Errorf("%s: %+v, %v", c.name, d, err)
		}
	}
}
