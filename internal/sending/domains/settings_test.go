package domains

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
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

// The length of a domain name is limited, so that names below the domain do not exceed the DNS limit.
func TestLongNames(t *testing.T) {
	c := &Config{}
	label := strings.Repeat("l", 61)
	name := label + "." + label + "." + label // 185 bytes
	for _, x := range []struct {
		name  string
		taken bool
	}{{name + ".abcde.example", true}, {name + ".abcdef.example", true}, {name + ".abcdefg.example", false}} {
		if _, err := c.checkName(x.name); (err == nil) != x.taken {
			t.Errorf("%d bytes: %v", len(x.name), err)
		}
	}
}

// Tracking is enabled only if the tracking record is verified and the domain is proved.
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

// Once the record of a tracking subdomain has been verified, the subdomain stays in Tracked, even if the record or the
// setting changes later.
func TestTrackingSubdomainsAreRemembered(t *testing.T) {
	tracks := func(found ...finding) Domain {
		d := Domain{Sending: true, TrackingSubdomain: "links", Tracked: []string{"old"},
			checks: map[string]check{"mx": {Status: Verified}}}
		for i, f := range found {
			d = judge(d, map[string]finding{"tracking": f}, t0.Add(time.Duration(i)*(patience+time.Hour)))
		}
		return d
	}
	after := func(status Status) Domain { // a row from an older release
		d := tracks()
		d.checks["tracking"] = check{Status: status}
		return d
	}
	both, old := []string{"old", "links"}, []string{"old"}
	for _, c := range []struct {
		name string
		d    Domain
		next string
		want []string
	}{
		{"verified", tracks(present), "go", both},
		{"verified twice", tracks(present, present), "go", both},
		{"missing", tracks(present, absent), "go", both},
		{"failed after it was verified", tracks(present, absent, absent), "go", both},
		{"never looked up", tracks(), "go", old},
		{"pending", tracks(absent), "go", old},
		{"failed", tracks(absent, absent), "go", old},
		{"back to an old one", tracks(present), "Old", both},
		{"none", tracks(present), "", both},
		{"the same", tracks(present), "LINKS", both},
		{"verified before", after(Verified), "go", both},
		{"missing before", after(TemporaryFailure), "go", both},
		{"pending before", after(Pending), "go", old},
		{"missing before and looked up", judge(after(TemporaryFailure), map[string]finding{"tracking": absent}, t0), "go",
			both},
	} {
		was := maps.Clone(c.d.checks)
		if err := c.d.set(Capabilities{}, nil, &c.next); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(c.d.Tracked, c.want) || c.d.TrackingSubdomain != strings.ToLower(c.next) {
			t.Errorf("%s: then %q is tracked, and %q were", c.name, c.d.TrackingSubdomain, c.d.Tracked)
		}
		if same := strings.EqualFold(c.next, "links"); same != maps.Equal(was, c.d.checks) && was["tracking"] != (check{}) {
			t.Errorf("%s: the record is %v after %v", c.name, c.d.checks, was)
		}
	}
}

// A delegated domain without a tracking subdomain gets no remembered one.
func TestNoTrackingSubdomainIsRemembered(t *testing.T) {
	d := Domain{Sending: true, Setup: SetupDelegation, TrackingSubdomain: "links",
		checks: map[string]check{delegated: {Status: Verified}}}
	for _, label := range []string{"", "go", ""} {
		if err := d.set(Capabilities{}, nil, &label); err != nil {
			t.Fatal(err)
		}
		d.rememberTracking()
	}
	if !slices.Equal(d.Tracked, []string{"links", "go"}) {
		t.Errorf("%q are remembered", d.Tracked)
	}
}

// A domain keeps at most 50 tracking subdomains. A domain that has had 50 tracking subdomains can only switch back to
// one of them, and it keeps all 50.
func TestTooManyTrackingSubdomains(t *testing.T) {
	d := Domain{Sending: true}
	set := func(label string) error { return d.set(Capabilities{}, nil, &label) }
	for i := range trackedMax {
		if err := set(fmt.Sprintf("l%d", i)); err != nil {
			t.Fatal(err)
		}
		d = judge(d, map[string]finding{"tracking": present}, t0)
	}
	err := set("more")
	if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "`tracking_subdomain`") ||
		d.TrackingSubdomain != fmt.Sprintf("l%d", trackedMax-1) || len(d.Tracked) != trackedMax {
		t.Errorf("one more: %v; %d are remembered", err, len(d.Tracked))
	}
	for _, label := range []string{"l0", "", "l7"} {
		if err := set(label); err != nil || d.TrackingSubdomain != label || len(d.Tracked) != trackedMax {
			t.Errorf("%q: %v; %d are remembered", label, err, len(d.Tracked))
		}
	}
}

func TestSettings(t *testing.T) {
	on, off := true, false
	text := func(s string) *string { return &s }
	for _, c := range []struct {
		name          string
		capabilities  Capabilities
		tls, tracking *string
		field         string // the refused field
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
