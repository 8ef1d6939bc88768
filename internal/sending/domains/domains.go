// Package domains manages the sending and receiving domains of teams: the DNS records, their verification, and the DKIM
// keys.
//
// # States
//
// Each record is verified separately. The state of a record goes from not_started to pending and then to verified, or
// to failed if it is not found within 72 hours. The 72 hours for a record begin when the record is first looked up or
// when the domain's owner requests verification. If a capability is enabled later, its records therefore have their own
// 72 hours. A verified record that disappears has the state temporary_failure for up to 72 hours, during which the
// domain still works. If the record is still missing after 72 hours, its state becomes failed. The records for one
// capability form a group. The status of a domain is derived from the states of its groups. The function [judge], which
// has no side effects, computes the states of the records and the status of the domain.
//
// # Proof
//
// With the set-up records, the DKIM record is the only required record with a value unique to the domain, so only this
// record proves control of the domain's DNS. Sending, receiving and tracking all require the DKIM record. The other
// required records only direct mail and link visitors to this installation. Records with the same values also exist at
// names that the team does not control. Examples are other teams' return paths, and domains abandoned by previous
// owners.
//
// # Set-ups
//
// The set-up of a domain says which records its owner installs: each one (records), aliases of names in the operator's
// zone (cname), or a delegation to this installation's name servers (delegation). What resolvers find below an alias or
// in a delegated zone comes from this installation and proves nothing. The proof is the alias or the delegation itself:
// its target contains a random label of the domain's row. A record that was left for a deleted domain therefore proves
// no other domain. The name servers answer for a delegated domain only after a look-up at the parent zone has found the
// delegation. After a change, the domain also works with its former set-up while the records of that one are found.
//
// # Names
//
// When a team adds a domain, the name belongs to that team; a unique index ensures that no other team has the same
// name. Until a claim is completed, the claiming team has a placeholder domain. Each domain also has a host for its
// return paths and a host for its tracked links. Once the domain is proved, each name for which the domain has verified
// records is registered for the team. A unique index ensures that a name is registered for only one team. After the
// registration
//
//   - no other team may add a domain at or below a registered host, and records at that host do not count for another
//     team's domain;
//   - no other team may choose a registered name as its return path or tracking subdomain.
//
// Once the record of a link-tracking host has been verified, the host stays registered permanently, because links in
// sent emails point to it. Neither a missing record nor a changed setting releases a link-tracking host. A domain has
// at most 50 link-tracking hosts.
//
// An unproved domain reserves only its own name, which other teams can claim. If an unproved domain also reserved its
// hosts, a team that adds example.com with the label mail would lock out the owner of mail.example.com. A domain and
// its subdomain may belong to different teams, because each domain needs its own proof. No team may add the operator's
// hosts, or names at or below the managed domain or a sandbox domain.
//
// # Invariants
//
// Private keys are encrypted in the database and decrypted only for signing. A rotation replaces them; see rotation.go.
// One RSA key is generated in advance and kept in memory. A new domain gets its RSA key after all checks have passed,
// outside any transaction. No transaction is open during DNS queries.
//
// # Failures
//
// A DNS query without an answer does not change a record's state. After internal errors, look-ups are retried without
// limit. Each node caches the data needed to accept and receive emails for one second, and the data needed for delivery
// for 30 seconds. After a domain changes, a hint clears the domain caches on all nodes. If the hint is lost, a node
// uses the cached data until the cache entry expires.
//
// # Out of scope
//
// The package sends no email: Deps.Notify sends the notices to owners.
package domains

import (
	"slices"
	"strings"
	"sync/atomic"
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

// These are the values of Domain.TLS, which determines how mail from the domain is encrypted in transit.
const (
	Opportunistic = "opportunistic" // uses STARTTLS if the host offers it
	Enforced      = "enforced"      // delivers only to hosts with a verified certificate
)

// regions lists the regions that the API accepts. The configuration maps each region to hosts.
var regions = []string{"us-east-1", "eu-west-1", "sa-east-1", "ap-northeast-1"}

// system stands in the column team_id of the sandbox domains, which belong to no team. Ids of teams contain the time,
// so no team has this id.
const system = "00000000-0000-0000-0000-000000000001"

// Domain is a domain that belongs to a team.
type Domain struct {
	ID                string
	TeamID            string
	Name              string // ASCII, lower case
	Region            string
	ReturnPath        string   // a label below the domain
	TrackingSubdomain string   // empty for none
	Tracked           []string // all tracking subdomains that have ever been verified; their links keep working
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
	Setup             string // SetupRecords, SetupCNAME or SetupDelegation
	FormerSetup       string // the set-up before, while its records are still found; otherwise empty
	DMARCRecord       string // the DMARC record that the owner has chosen; empty for the default
	BIMIRecord        string // the BIMI record that the owner has chosen; empty for none

	setupToken   string           // the label of the domain's names in Config.DNSZone; empty until it is needed
	checks       map[string]check // by record key
	rsa, ed25519 keyRow
	keysSince    time.Time // when the present RSA key began to sign
	rotateAt     time.Time // when it is next examined whether the keys are old enough for a rotation
}

// keyRow is a key that signs.
type keyRow struct {
	sealed   []byte
	record   string
	selector string // "" means that of the configuration; see Config.selectors
}

// check holds the state of one record.
type check struct {
	Status Status `json:"status"`
	// Since is when the record became pending or missing, in Unix microseconds. Since is 0 only if an older release wrote
	// the row. If Since is 0, a pending record has been pending since Domain.VerifySince, and a missing record has not
	// been looked up since the upgrade.
	Since int64 `json:"since,omitempty"`
	// Changed is when Status last changed, in Unix microseconds. Changed is 0 if an older release wrote the row.
	Changed int64 `json:"changed,omitzero"`
	// Found holds the values that the last look-up found instead of the wanted one, one per line; see [shorten].
	Found string `json:"found,omitzero"`
	// Unanswered says that no name server answered the last look-up.
	Unanswered bool `json:"unanswered,omitzero"`
}

// Record is a DNS record that a domain's owner must install.
type Record struct {
	Key      string // the internal name: mx, spf, dkim, dkim-ed25519, cname-s1, receiving, ns and others
	Kind     string // the name in the API: SPF, DKIM, Receiving, Tracking, TrackingCAA, Delegation
	Name     string // name in API responses: relative to the registrable domain, or absolute
	FQDN     string
	Type     string
	Value    string
	Priority int // priority of MX records; 0 for other types
	Status   Status

	ChangedAt  time.Time // when Status last changed; zero if that is unknown
	Until      time.Time // when the record fails if it is not found before; zero if it is verified or has failed
	Found      string    // the values that were found instead of Value, one per line; "" if there were none
	Unanswered bool      // no name server answered the last look-up
	Hidden     bool      // it cannot be seen, because the domain is still delegated; see Domain.HidesRecords
	Servers    string    // why this installation's name servers do not count yet, although the delegation was found
}

// Region holds the host names for one region.
type Region struct{ BounceHost, InboundHost, SPFInclude, TrackingHost string }

// Config is the part of the configuration that concerns domains.
type Config struct {
	Default         Region
	Regions         map[string]Region
	Selector        string // selector of a new domain's RSA key
	SelectorEd25519 string // selector of a new domain's Ed25519 key
	CAAIssuer       string
	Hosts           []string // other hosts that belong to the operator, in addition to the regions' hosts
	ManagedDomain   string   // parent domain of the hosts managed for teams; empty if there is none
	SandboxDomains  []string
	SandboxSend     bool   // sandbox domains may send to any recipient
	TrackingURL     string // prefix of the tracked links of all domains; empty if each domain needs its own host
	TrustDomains    bool   // every record counts as found, without a DNS query
	CheckHosts      bool   // refuse domains whose records would contain hosts that other servers cannot look up
	// Rotation is the age at which DKIM keys are replaced, if their records need no work of the domain's owner. Other keys
	// are replaced at twice this age. 0 means that keys are replaced only on request.
	Rotation      time.Duration
	RetrySpan     time.Duration // how long delivery of an email is retried; see [Service.SetRetrySpan]
	LegacyAliases bool          // claims can also be proven with legacyPrefix
	UnprovedMax   int           // maximum number of unverified domains per team, including claims; 0 means 1,000

	// DNSZone is the operator's zone, which the installation's name servers answer for: names in it are the targets of
	// CNAME records and delegations. If it is empty, domains can only have the set-up records.
	DNSZone string
	// DNSNames are the hosts of the installation's name servers. A domain can be delegated only to two or more.
	DNSNames []string
	// DNSAddresses are the addresses of these hosts in the operator's zone, each as name=address.
	DNSAddresses []string
	// DNSContact is the address in the SOA records of all zones. If it is empty, the address is hostmaster at DNSZone.
	DNSContact string

	liveSpan *atomic.Int64 // RetrySpan as last set; nil in tests without a Service
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

// Sender holds the data about a sending domain that is needed to accept an email.
type Sender struct {
	DomainID  string
	Name      string
	TLS       string
	Sandbox   bool
	OwnerOnly bool // emails may go only to the team owner's address
	Tracking  Tracking
}

// Tracking holds the tracking settings for emails from a domain. The zero value disables tracking.
type Tracking struct {
	Host   string // host of tracked links; "" if there is none, and nothing is tracked
	Opens  bool
	Clicks bool
}

// Signing holds the data about a sending domain that is needed to deliver an email.
type Signing struct {
	Name           string
	Signers        []dkim.Signer // the RSA key comes first
	ReturnPathHost string
	TLS            string
	Tracking       Tracking
	MaySend        bool // see Domain.MaySend
}

// proof is the key of the check for the DKIM record with the RSA key, which proves control with the set-up records. The
// value of this record is unique to the domain, so the record proves that the team controls the domain's DNS. The
// values of the other records of that set-up are the same for all teams and prove nothing.
const proof = "dkim"

// unproved is the key of a check that exists only for domains that received mail before the proof was required. The
// check is deleted when the domain is proved or after 72 hours.
const unproved = "unproved"

// proved reports whether the proof of a set-up in use has been found. A proof that was found but has since been missing
// for at most 72 hours also counts.
func (d *Domain) proved() bool {
	return slices.ContainsFunc(d.setupsInUse(), func(setup string) bool { return d.found(proofOf(setup)) })
}

// inReceivingGrace reports whether the domain may still receive mail without the proof.
func (d *Domain) inReceivingGrace() bool {
	return !d.proved() && d.checks[unproved].Status == TemporaryFailure
}

func (d *Domain) returnPathHost() string { return d.ReturnPath + "." + d.Name }

// TrackingHost returns the domain's link-tracking host, or "" if the host's record is not verified.
func (d *Domain) TrackingHost() string {
	if d.TrackingSubdomain == "" || d.trackingFound() != Verified || !d.proved() {
		return ""
	}
	return d.TrackingSubdomain + "." + d.Name
}

// groups returns, for each enabled capability, the keys of the records that it requires with a set-up. Ed25519 keys and
// tracking are optional, so their records never delay the verification of a domain.
func (d *Domain) groups(setup string) [][]string {
	var all [][]string
	if d.Sending {
		all = append(all, sendingKeys(setup))
	}
	if d.Receiving {
		all = append(all, d.receivingKeys(setup))
	}
	return all
}

// MaySend reports whether the domain may send. The sending records of its set-up, or of its former one, must be
// verified, or must have been missing for at most 72 hours.
func (d *Domain) MaySend() bool { return d.sendingSetup() != "" }

// MayReceive reports whether the domain may receive. The receiving records of its set-up, or of its former one, must be
// verified, or must have been missing for at most 72 hours.
func (d *Domain) MayReceive() bool { return d.receivingSetup() != "" }

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

// overall derives the domain's status from the states of the record groups of its set-up.
func (d *Domain) overall() Status {
	count := map[Status]int{}
	groups := d.groups(d.setup())
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

// refusedNames lists the domains of public mailbox providers, which no team may add.
var refusedNames = []string{"gmail.com", "googlemail.com", "outlook.com", "hotmail.com", "live.com", "msn.com",
	"yahoo.com",
	"ymail.com", "icloud.com", "me.com", "mac.com", "aol.com", "gmx.de", "gmx.net", "gmx.com", "web.de", "mail.ru",
	"yandex.ru",
	"proton.me", "protonmail.com", "qq.com", "163.com", "126.com", "zoho.com", "fastmail.com", "hey.com"}

// checkName checks a domain name and returns the form in which it is stored.
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
