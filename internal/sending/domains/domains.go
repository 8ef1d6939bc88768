// Package domains manages the domains that teams send from and receive at: their DNS records, the verification of the
// records, and the DKIM keys.
//
// # States
//
// Each record is verified separately. The state of a record goes from not_started to pending and then to verified, or
// to failed if it is not found for 72 hours. The 72 hours begin for each record when it is first looked up, or when its
// owner requests verification. So records of a capability that is enabled later have their own 72 hours. A verified
// record that disappears is a temporary_failure for up to 72 hours, during which the domain still works, and then
// failed. The records of a capability are a group; the domain's status is derived from the states of its groups.
// [judge], a pure function, decides all of this.
//
// # Proof
//
// The domain's own DKIM key is the only required value that no other team was given, so only this record proves control
// of the domain's DNS. Every capability needs this record: sending, receiving and tracking. The other required records
// only direct mail and links to this installation. Records of these kinds also exist at names that the team does not
// control, such as return paths of other teams and domains that previous owners no longer use.
//
// # Names
//
// When a domain is added, its name belongs to the team; a unique index enforces this. A claim has a placeholder until
// it is completed. A domain also has the host of its return paths and the host of its tracked links. Once the domain is
// proved, each name at which its records are found is registered for its team, again by a unique index. Then
//
//   - no other team may add a domain at or below such a host, and a record at that host does not count for another
//     team's domain;
//   - no other team may choose a return path or a tracking subdomain with that name.
//
// A host of tracked links stays registered once its record was verified, because links in sent emails lead there.
// Neither a missing record nor a changed setting releases such a host. A domain has at most 50 such hosts.
//
// A domain that is not proved reserves only its own name, which can be claimed. Otherwise adding example.com with some
// label would lock out the owner of the domain at that label. Different teams may have a domain and its subdomain,
// because each needs its own proof. No team may add the operator's hosts, or names at or below the managed domain or a
// sandbox domain.
//
// # Invariants
//
// Private keys are encrypted in the database and decrypted only for signing. RSA keys are generated in advance and kept
// in memory. A new domain takes one after all checks, outside of any transaction. No transaction is open during DNS
// queries.
//
// # When it fails
//
// A DNS query without an answer changes nothing; in particular, no record fails because of it. After internal errors,
// look-ups are retried without limit. Each node caches the data for accepting and receiving emails for a second, and
// the data for delivery for 30 seconds. After a change, a hint clears these caches on all nodes. If the hint is lost, a
// node uses the old data until it expires.
//
// # What it does not do
//
// The package sends no email: Deps.Notify sends the notices to owners.
package domains

import (
	"slices"
	"strings"
	"time"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/dkim"
)

// Status is the state of a domain or of one of its records (API reference section 10.3).
type Status string

const (
	NotStarted        Status = "not_started"
	Pending           Status = "pending"
	Verified          Status = "verified"
	Failed            Status = "failed"
	TemporaryFailure  Status = "temporary_failure" // used only for records
	PartiallyVerified Status = "partially_verified"
	PartiallyFailed   Status = "partially_failed"
)

// patience is how long a record may be missing before it fails (API reference section 10.3).
const patience = 72 * time.Hour

// TLS is how mail from the domain is secured in transit.
const (
	Opportunistic = "opportunistic" // STARTTLS if the host offers it
	Enforced      = "enforced"      // only to hosts with a verified certificate
)

// regions are the regions of the API; the configuration maps them to hosts.
var regions = []string{"us-east-1", "eu-west-1", "sa-east-1", "ap-northeast-1"}

// system is the id of the team that owns the sandbox domains.
const system = "system"

// Domain is a domain of a team.
type Domain struct {
	ID                string
	TeamID            string
	Name              string // ASCII, lower case
	Region            string
	ReturnPath        string   // a label below the domain
	TrackingSubdomain string   // empty for none
	Tracked           []string // tracking subdomains that were ever verified; their links keep working
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

// check is the state of one record.
type check struct {
	Status Status `json:"status"`
	// Since is when the record became pending or missing, in Unix microseconds. It is 0 only if an older release wrote
	// the row. The record then has not been looked up after the upgrade, or has been pending since Domain.VerifySince.
	Since int64 `json:"since,omitempty"`
}

// Record is a DNS record that the domain's owner must install.
type Record struct {
	Key      string // the internal name: mx, spf, dkim, dkim-ed25519, receiving, tracking, caa
	Kind     string // the API's name: SPF, DKIM, Receiving, Tracking, TrackingCAA
	Name     string // name as the API shows it: relative to the registrable domain, or absolute
	FQDN     string
	Type     string
	Value    string
	Priority int // priority of MX records; 0 for others
	Status   Status
}

// Region holds the hosts of one region.
type Region struct{ BounceHost, InboundHost, SPFInclude, TrackingHost string }

// Config is the configuration of domains.
type Config struct {
	Default         Region
	Regions         map[string]Region
	Selector        string // selector of the RSA key
	SelectorEd25519 string
	CAAIssuer       string
	Hosts           []string // further hosts of the operator, in addition to those of the regions
	ManagedDomain   string   // the parent of the teams' managed hosts; empty for none
	SandboxDomains  []string
	SandboxSend     bool // sandbox domains may send to anybody
	TrustDomains    bool // every record counts as found, without a DNS query
	LegacyAliases   bool // claims may also be proven with the older prefix
	UnprovedMax     int  // unverified domains of a team, including claims; 0 means 1,000
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

// Sender holds the data of a sending domain that accepting an email needs.
type Sender struct {
	DomainID  string
	Name      string
	TLS       string
	Sandbox   bool
	OwnerOnly bool // emails may go only to the team owner's address
	Tracking  Tracking
}

// Tracking holds the tracking settings of a domain's emails. With the zero value nothing is tracked.
type Tracking struct {
	Host   string // of tracked links; "" unless its record is verified; without it nothing is tracked
	Opens  bool
	Clicks bool
}

// Signing holds the data of a sending domain that delivering an email needs.
type Signing struct {
	Name           string
	Signers        []dkim.Signer // RSA first
	ReturnPathHost string
	TLS            string
	Tracking       Tracking
}

// Records returns the records of the domain with their states. The CAA record is included only if a look-up found that
// it is needed.
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
		case key == proof && d.inReceivingGrace():
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
		add("tracking", "Tracking", "CNAME", d.TrackingSubdomain+"."+d.Name, d.TrackingSubdomain+"."+d.Name, r.TrackingHost,
			0)
		if _, needed := d.checks["caa"]; needed {
			add("caa", "TrackingCAA", "CAA", root, root, `0 issue "`+c.CAAIssuer+`"`, 0)
		}
	}
	return all
}

// proof is the key of the record with the RSA key. Only this team was given its value, so the record proves that the
// team controls the domain's DNS. The values of the other required records are the same for all teams and prove
// nothing.
const proof = "dkim"

// unproved is the key of a check that domains have if they received mail before the proof was required. It is kept
// until the domain is proved or 72 hours have passed.
const unproved = "unproved"

// proved reports whether the proof was found, or has been missing only for a short time.
func (d *Domain) proved() bool {
	s := d.checks[proof].Status
	return s == Verified || s == TemporaryFailure
}

// inReceivingGrace reports whether the domain may still receive without the proof.
func (d *Domain) inReceivingGrace() bool {
	return !d.proved() && d.checks[unproved].Status == TemporaryFailure
}

func (d *Domain) returnPathHost() string { return d.ReturnPath + "." + d.Name }

// TrackingHost returns the host of tracked links, "" unless its record is verified.
func (d *Domain) TrackingHost() string {
	if d.TrackingSubdomain == "" || d.checks["tracking"].Status != Verified || !d.proved() {
		return ""
	}
	return d.TrackingSubdomain + "." + d.Name
}

func (d *Domain) tracking() Tracking {
	host := d.TrackingHost()
	if host == "" {
		return Tracking{}
	}
	return Tracking{host, d.OpenTracking, d.ClickTracking}
}

// groups returns the record keys that each enabled capability requires. Ed25519 and tracking are optional, so neither
// delays a domain.
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
	if d.inReceivingGrace() {
		return []string{"receiving", unproved}
	}
	return []string{"receiving", proof}
}

// MaySend reports whether the domain may send: its sending records are verified, or have been missing for at most 72
// hours.
func (d *Domain) MaySend() bool { return d.Sending && d.groupStatus(forSending) == Verified }

// MayReceive reports whether the domain may receive: its receiving records are verified, or have been missing for at
// most 72 hours.
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

// overall derives the domain's status from those of its groups.
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

// refusedNames are domains of mailbox providers, which no team can own.
var refusedNames = []string{"gmail.com", "googlemail.com", "outlook.com", "hotmail.com", "live.com", "msn.com",
	"yahoo.com",
	"ymail.com", "icloud.com", "me.com", "mac.com", "aol.com", "gmx.de", "gmx.net", "gmx.com", "web.de", "mail.ru",
	"yandex.ru",
	"proton.me", "protonmail.com", "qq.com", "163.com", "126.com", "zoho.com", "fastmail.com", "hey.com"}

// checkName checks a domain name and returns its stored form.
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
