// Package domains is the domains that teams send from and receive at: their DNS records, whether those are there, and
// the keys that sign for them.
//
// # States
//
// Each record is looked up for itself. It goes from not_started over pending to verified, or to failed when it was not
// found for 72 hours. These begin for each record when it is first looked for, or when its owner asks: one that a
// capability needs that is enabled later begins later. A verified record that disappears is a temporary_failure for up
// to 72 hours, in which the domain goes on sending, and then failed. The records of a capability are a group; the
// domain's status says how its groups stand. [judge] decides all of that and is pure; looking up happens in a job,
// outside any transaction, and an answer that could not be had changes nothing.
//
// # Proof
//
// Of all records only that of the domain's own DKIM key has a value that no other team was given, so it alone shows
// that the team rules the domain's DNS. Every capability needs it: sending, receiving and tracking. The others say that
// mail and links are led here, and many names are that are not the team's: the hosts of others' return paths, domains
// whose owners have left.
//
// # Names
//
// A domain's name belongs to one team, by a unique index, from when it is added; a claim holds a placeholder until it
// is proven. The other names follow from it: the host of its return paths and that of its tracked links. Once the
// domain is proved, each name at which its records are found is entered for its team, again by a unique index, and then
//
//   - no other team adds a domain at or below such a host, and a record that is found there for another team's domain
//     does not count;
//   - no other team chooses a return path or a tracking subdomain that comes to stand there.
//
// What is not proved keeps nobody from anything but its own name, which can be claimed: else adding example.com with
// some label would lock out who owns the domain at that label. Domains above and below another team's are fine, because
// each has its own proof. Nobody adds the operator's hosts, and nothing at or below the managed domain or a sandbox
// domain.
//
// # Invariants
//
// Private keys are sealed in the database and opened only for signing. They are made when nothing is left to refuse,
// and outside any transaction. What a sender or delivery asks of a domain is remembered for a second or so, and dropped
// at once when it changes, on all nodes.
//
// The package sends nothing, and what it finds in DNS is data, never an error.
package domains

import (
	"slices"
	"strings"
	"time"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"

	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/mail/dkim"
)

// Status is the state of a domain or of one of its records (API reference section 10.3).
type Status string

const (
	NotStarted        Status = "not_started"
	Pending           Status = "pending"
	Verified          Status = "verified"
	Failed            Status = "failed"
	TemporaryFailure  Status = "temporary_failure" // of records only
	PartiallyVerified Status = "partially_verified"
	PartiallyFailed   Status = "partially_failed"
)

// patience is how long a record may be missing before it counts as failed (API reference section 10.3).
const patience = 72 * time.Hour

// TLS says how mail from the domain is secured on its way.
const (
	Opportunistic = "opportunistic" // STARTTLS where offered
	Enforced      = "enforced"      // a verified certificate, or not sent
)

// regions that the API knows; the configuration says which hosts a region means.
var regions = []string{"us-east-1", "eu-west-1", "sa-east-1", "ap-northeast-1"}

// system is the team of the sandbox domains.
const system = "system"

// Domain is a domain of a team.
type Domain struct {
	ID                string
	TeamID            string
	Name              string // ASCII, lower case
	Region            string
	ReturnPath        string // label below the domain
	TrackingSubdomain string // empty when none
	OldTracking       []string
	TLS               string
	OpenTracking      bool
	ClickTracking     bool
	Sending           bool
	Receiving         bool
	Status            Status
	Placeholder       bool
	VerifySince       time.Time
	CheckedAt         time.Time
	CreatedAt         time.Time

	checks       map[string]check // by record key
	rsa, ed25519 keyRow
}

type keyRow struct {
	sealed []byte
	record string
}

// check is what is known of one record.
type check struct {
	Status Status `json:"status"`
	// Since is when it began to be pending or to be missing, in microseconds. 0 is what rows of before have: it was not
	// looked for since, or is pending since Domain.VerifySince.
	Since int64 `json:"since,omitempty"`
}

// Record is a DNS record that the domain's owner installs.
type Record struct {
	Key      string // what it is to us: mx, spf, dkim, dkim-ed25519, receiving, tracking, caa
	Kind     string // as the API labels it: SPF, DKIM, Receiving, Tracking, TrackingCAA
	Name     string // relative to the registrable domain, or full, as the API shows it
	FQDN     string
	Type     string
	Value    string
	Priority int // of MX records; 0 for others
	Status   Status
}

// Region is the hosts that a region's label means.
type Region struct{ BounceHost, InboundHost, SPFInclude, TrackingHost string }

// Config is what of the configuration concerns domains.
type Config struct {
	Default         Region
	Regions         map[string]Region
	Selector        string // of the RSA key
	SelectorEd25519 string
	CAAIssuer       string
	Hosts           []string // the operator's own hosts, beside those of the regions
	ManagedDomain   string   // below which each team has a name; empty when there is none
	SandboxDomains  []string
	SandboxSend     bool // anyone may be written to from a sandbox domain
	TrustDomains    bool // whatever DNS is asked for is found, without asking it
	LegacyAliases   bool // a claim is proven by the older prefix of its value too
	UnprovedMax     int  // domains of a team that are not verified, claims among them; 0 means 1,000
}

func (c *Config) region(label string) Region {
	r, d := c.Regions[label], c.Default
	for _, f := range []struct{ dst, def *string }{{&r.BounceHost, &d.BounceHost}, {&r.InboundHost, &d.InboundHost},
		{&r.SPFInclude, &d.SPFInclude}, {&r.TrackingHost, &d.TrackingHost}} {
		if *f.dst == "" {
			*f.dst = *f.def
		}
	}
	return r
}

// Sender is what accepting an email needs of its sending domain.
type Sender struct {
	DomainID  string
	Name      string
	TLS       string
	Sandbox   bool
	OwnerOnly bool // may write only to the team owner's address
}

// Signing is what delivering an email needs of its sending domain.
type Signing struct {
	Name           string
	Signers        []dkim.Signer // RSA first
	ReturnPathHost string
	TLS            string
}

// Records are the records of the domain, with what is known of each. CAA stands among them only where it was
// found to be needed.
func (c *Config) Records(d *Domain) []Record {
	r := c.region(d.Region)
	root, err := publicsuffix.EffectiveTLDPlusOne(d.Name)
	if err != nil {
		root = d.Name
	}
	below := strings.TrimSuffix(strings.TrimSuffix(d.Name, root), ".") // "mail" of mail.example.com, "" at the apex
	relative := func(label string) string { return strings.TrimSuffix(label+"."+below, ".") }
	var all []Record
	add := func(key, kind, typ, name, fqdn, value string, priority int) {
		status := d.checks[key].Status
		switch {
		case key == proof && d.excused():
			status = TemporaryFailure
		case status == "":
			status = NotStarted
		}
		all = append(all, Record{key, kind, name, fqdn, typ, value, priority, status})
	}
	dkim := func(key, selector, record string) {
		add(key, "DKIM", "TXT", relative(selector+"._domainkey"), selector+"._domainkey."+d.Name, record, 0)
	}
	if d.Sending {
		add("mx", "SPF", "MX", relative(d.ReturnPath), d.returnPathHost(), r.BounceHost, 10)
		add("spf", "SPF", "TXT", relative(d.ReturnPath), d.returnPathHost(), "v=spf1 include:"+r.SPFInclude+" ~all", 0)
	}
	dkim(proof, c.Selector, d.rsa.record)
	if d.Sending {
		dkim("dkim-ed25519", c.SelectorEd25519, d.ed25519.record)
	}
	if d.Receiving {
		name := below
		if name == "" {
			name = d.Name
		}
		add("receiving", "Receiving", "MX", name, d.Name, r.InboundHost, 10)
	}
	if d.TrackingSubdomain != "" {
		add("tracking", "Tracking", "CNAME", d.TrackingSubdomain+"."+d.Name, d.TrackingSubdomain+"."+d.Name, r.TrackingHost, 0)
		if _, needed := d.checks["caa"]; needed {
			add("caa", "TrackingCAA", "CAA", root, root, `0 issue "`+c.CAAIssuer+`"`, 0)
		}
	}
	return all
}

// proof is the record of the RSA key. Only this team was given its value, so whoever installs it rules the domain's DNS
// and gives the domain to this team. The values of all other records are the same for all teams and prove nothing.
const proof = "dkim"

// unproved stands among the checks of a domain that received mail before the proof was asked for, until it is proved or
// 72 hours have passed.
const unproved = "unproved"

// proved reports whether the proof is there, or has gone missing lately.
func (d *Domain) proved() bool {
	s := d.checks[proof].Status
	return s == Verified || s == TemporaryFailure
}

// excused reports whether the domain may receive without the proof for now.
func (d *Domain) excused() bool {
	return !d.proved() && d.checks[unproved].Status == TemporaryFailure
}

func (d *Domain) returnPathHost() string { return d.ReturnPath + "." + d.Name }

// TrackingHost is the host of tracked links, empty while its record is not verified.
func (d *Domain) TrackingHost() string {
	if d.TrackingSubdomain == "" || d.checks["tracking"].Status != Verified || !d.proved() {
		return ""
	}
	return d.TrackingSubdomain + "." + d.Name
}

// groups are the records that a capability needs. Ed25519 is offered beside RSA and tracking is an extra: neither holds
// up a domain.
func (d *Domain) groups() [][]string {
	var all [][]string
	if d.Sending {
		all = append(all, forSending)
	}
	if d.Receiving {
		all = append(all, d.forReceiving())
	}
	return all
}

var forSending = []string{"mx", "spf", proof}

func (d *Domain) forReceiving() []string {
	if d.excused() {
		return []string{"receiving", unproved}
	}
	return []string{"receiving", proof}
}

// MaySend reports whether mail may leave from the domain: its sending records are verified, or have gone missing
// lately.
func (d *Domain) MaySend() bool { return d.Sending && d.groupStatus(forSending) == Verified }

// MayReceive reports whether all mail for the domain is its team's, by the records of receiving.
func (d *Domain) MayReceive() bool { return d.Receiving && d.groupStatus(d.forReceiving()) == Verified }

func (d *Domain) groupStatus(keys []string) Status {
	count := map[Status]int{}
	for _, k := range keys {
		switch s := d.checks[k].Status; s {
		case "":
			count[NotStarted]++
		case TemporaryFailure:
			count[Verified]++
		default:
			count[s]++
		}
	}
	switch {
	case count[Verified] == len(keys):
		return Verified
	case count[Failed] > 0:
		return Failed
	case count[NotStarted] == len(keys):
		return NotStarted
	}
	return Pending
}

// overall is the domain's status by those of its groups.
func (d *Domain) overall() Status {
	count := map[Status]int{}
	groups := d.groups()
	for _, g := range groups {
		count[d.groupStatus(g)]++
	}
	switch {
	case count[Verified] == len(groups):
		return Verified
	case count[Verified] > 0 && count[Failed] > 0:
		return PartiallyFailed
	case count[Verified] > 0:
		return PartiallyVerified
	case count[Failed] > 0:
		return Failed
	case count[Pending] > 0:
		return Pending
	}
	return NotStarted
}

// refusedNames are hosts of mailboxes: nobody who sends through us owns them.
var refusedNames = []string{"gmail.com", "googlemail.com", "outlook.com", "hotmail.com", "live.com", "msn.com", "yahoo.com",
	"ymail.com", "icloud.com", "me.com", "mac.com", "aol.com", "gmx.de", "gmx.net", "gmx.com", "web.de", "mail.ru", "yandex.ru",
	"proton.me", "protonmail.com", "qq.com", "163.com", "126.com", "zoho.com", "fastmail.com", "hey.com"}

// checkName returns a domain name in the form in which it is kept.
func (c *Config) checkName(name string) (string, error) {
	if name == "" {
		return "", fault.MissingField("name")
	}
	ascii, err := idna.Lookup.ToASCII(strings.TrimSuffix(strings.TrimSpace(name), "."))
	ascii = strings.ToLower(ascii)
	if err != nil || len(ascii) > 200 || !isHostname(ascii) {
		return "", fault.Invalidf("name", "The `name` field must be a domain name such as `example.com`.")
	}
	suffix, icann := publicsuffix.PublicSuffix(ascii)
	switch {
	case suffix == ascii && (icann || strings.Contains(suffix, ".")):
		return "", fault.Invalidf("name", "The domain `%s` is a public suffix. Add a domain below it that you own.", ascii)
	case slices.Contains(refusedNames, ascii):
		return "", fault.Invalidf("name", "The domain `%s` is a public mailbox provider's. Add a domain that you own.", ascii)
	case slices.Contains(c.SandboxDomains, ascii):
		return "", fault.Invalidf("name", "The domain `%s` is for trying things out and needs not be added.", ascii)
	}
	return ascii, nil
}

func isHostname(name string) bool {
	labels := strings.Split(name, ".")
	for _, l := range labels {
		if !isLabel(l, 63) {
			return false
		}
	}
	return len(labels) > 1
}

func isLabel(l string, limit int) bool {
	return l != "" && len(l) <= limit && l[0] != '-' && l[len(l)-1] != '-' && !strings.ContainsFunc(l, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-')
	})
}
