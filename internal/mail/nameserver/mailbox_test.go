package nameserver

import (
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// The SOA record has the contact's address with the whole local part as its first label.
func TestMailbox(t *testing.T) {
	t.Parallel()
	for address, labels := range map[string][]string{
		"hostmaster@host.example":       {"hostmaster", "host", "example"},
		"Ada.Lovelace+dns@host.example": {"ada.lovelace+dns", "host", "example"},
	} {
		z := Zone{Name: "mail.acme.example", NS: []string{"ns1.host.example"}}
		z.Mailbox = MailboxName(address)
		c, err := Compile(z)
		if err != nil {
			t.Fatalf("%s: %v", address, err)
		}
		wire := make([]byte, 256)
		n, err := dns.PackDomainName(c.soa.Mbox, wire, 0, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for at := 0; at < n-1; at += 1 + int(wire[at]) {
			got = append(got, string(wire[at+1:at+1+int(wire[at])]))
		}
		if !slices.Equal(got, labels) {
			t.Errorf("%s has the labels %q", address, got)
		}
	}
	for _, wrong := range []string{"", "a", `a\.b`, "a..b.example", `a\\b.example`, "a.b+c.example", "a b.example",
		strings.Repeat("a", 64) + ".example"} {
		z := Zone{Name: "mail.acme.example", NS: []string{"ns1.host.example"}}
		z.Mailbox = wrong
		if _, err := Compile(z); err == nil {
			t.Errorf("the mailbox %q is accepted", wrong)
		}
	}
}
