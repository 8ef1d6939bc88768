package domains

import (
	"slices"
	"testing"
)

// A domain's names are its own name, the return-path host if sending is enabled, and all current and former tracking
// hosts.
func TestNames(t *testing.T) {
	names := func(d Domain) (all []string) {
		for _, n := range d.names() {
			all = append(all, n.name)
		}
		return all
	}
	d := Domain{Name: "acme.example", ReturnPath: "send"}
	if got := names(d); !slices.Equal(got, []string{"acme.example"}) {
		t.Errorf("of one that only receives: %q", got)
	}
	d.Sending = true
	if got := names(d); !slices.Equal(got, []string{"acme.example", "send.acme.example"}) {
		t.Errorf("of one that sends: %q", got)
	}
	d.TrackingSubdomain, d.Tracked = "links", []string{"old", "links"}
	want := []string{"acme.example", "send.acme.example", "links.acme.example", "old.acme.example"}
	if got := names(d); !slices.Equal(got, want) {
		t.Errorf("of one that tracks links: %q", got)
	}
}

// A name is reserved as long as one of its records is found or was found until recently. A former tracking host stays
// reserved.
func TestKeptNames(t *testing.T) {
	host := dnsName{name: "send.acme.example", host: true, records: []string{"mx", "spf"}}
	for s, want := range map[Status]bool{"": false, NotStarted: false, Pending: false, Failed: false, Verified: true,
		TemporaryFailure: true} {
		for _, key := range host.records {
			d := Domain{checks: map[string]check{key: {Status: s}, "dkim": {Status: Verified}}}
			if d.reserves(host) != want {
				t.Errorf("%s is %q, and the name is not kept: %v", key, s, want)
			}
		}
	}
	if d := (Domain{}); !d.reserves(dnsName{name: "old.acme.example", host: true, tracked: true}) {
		t.Error("a host of old links is given up")
	}
}

// A name is proposed only if a team can add it. The names at and below the zone of the name servers are the operator's.
func TestSuggestedNames(t *testing.T) {
	c := Config{Hosts: []string{"mail.acme.example"}, DNSZone: "dns.mail.acme.example"}
	for domain, want := range map[string]string{"acme.example": "email.acme.example", "other.example": "mail.other.example",
		"dns.mail.acme.example": "mail.dns.mail.acme.example"} {
		if got := c.Suggest(domain, "mail", "email"); got != want {
			t.Errorf("%s: %s, want %s", domain, got, want)
		}
	}
	for name, want := range map[string]bool{"dns.mail.acme.example": true, "ns1.dns.mail.acme.example": true,
		"mail.acme.example": true, "acme.example": false, "a.mail.acme.example": false} {
		if c.reserved(name) != want {
			t.Errorf("%s: reserved %v", name, !want)
		}
	}
	if none := (&Config{}); none.reserved("acme.example") {
		t.Error("without a zone, a name is reserved")
	}
}
