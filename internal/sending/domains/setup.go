package domains

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"

	"github.com/postrider/postrider/internal/lib/fault"
)

// These are the values of Domain.Setup: the ways in which a domain's owner puts its records into the DNS.
const (
	SetupRecords    = "records"    // the owner installs each record
	SetupCNAME      = "cname"      // three CNAME records lead to names in Config.DNSZone
	SetupDelegation = "delegation" // NS records delegate the domain to this installation's name servers
)

// setups lists the set-ups in the order in which they are shown.
var setups = []string{SetupRecords, SetupCNAME, SetupDelegation}

// nameServersMin is the minimum number of name servers of a delegated domain.
const nameServersMin = 2

// SetupChoice is a set-up that a domain may have.
type SetupChoice struct {
	Setup   string
	Chosen  bool
	Reason  string // why the set-up cannot be chosen; "" if it can be
	Warning string // what the owner should consider before choosing the set-up; "" for nothing
}

// setup returns the set-up of the domain. A domain that was never stored may have none, which means SetupRecords.
func (d *Domain) setup() string { return cmp.Or(d.Setup, SetupRecords) }

// setupsInUse returns the set-ups whose records count: the chosen one, and the former one while it is in use.
func (d *Domain) setupsInUse() []string {
	if d.FormerSetup == "" {
		return []string{d.setup()}
	}
	return []string{d.setup(), d.FormerSetup}
}

// uses reports whether the records of a set-up count.
func (d *Domain) uses(setup string) bool { return slices.Contains(d.setupsInUse(), setup) }

// sendingKeys returns the keys of the records that sending requires.
func sendingKeys(setup string) []string {
	switch setup {
	case SetupCNAME:
		return []string{cnameReturnPath, cnameFirst, cnameSecond}
	case SetupDelegation:
		return []string{delegated}
	}
	return []string{"mx", "spf", proof}
}

// receivingKeys returns the keys of the records that receiving requires.
func receivingKeys(setup string) []string {
	if setup == SetupDelegation {
		return []string{delegated}
	}
	return []string{"receiving", proofOf(setup)}
}

// proofOf returns the key of the record that proves control of the domain's DNS.
func proofOf(setup string) string {
	switch setup {
	case SetupCNAME:
		return cnameFirst
	case SetupDelegation:
		return delegated
	}
	return proof
}

// found reports whether the record with a key was found, or has been missing for at most 72 hours.
func (d *Domain) found(key string) bool {
	s := d.checks[key].Status
	return s == Verified || s == TemporaryFailure
}

// sendingSetup returns the set-up with which the domain sends, or "" if it may not send. The chosen set-up comes before
// the former one.
func (d *Domain) sendingSetup() string {
	for _, setup := range d.setupsInUse() {
		if d.Sending && d.groupStatus(sendingKeys(setup)) == Verified {
			return setup
		}
	}
	return ""
}

// receivingSetup is like sendingSetup for received mail.
func (d *Domain) receivingSetup() string {
	for _, setup := range d.setupsInUse() {
		if d.Receiving && d.groupStatus(d.receivingKeys(setup)) == Verified {
			return setup
		}
	}
	return ""
}

// receivingKeys returns the keys of the records that receiving requires from this domain.
func (d *Domain) receivingKeys(setup string) []string {
	if setup == SetupRecords && d.inReceivingGrace() {
		return []string{"receiving", unproved}
	}
	return receivingKeys(setup)
}

// Served reports whether this installation's name servers answer for the domain. They do not before a look-up at the
// parent zone has found the delegation with the domain's token. Otherwise a team could add a domain whose former owner
// has left a delegation to this installation in place, and the team's own records would be found there.
func (d *Domain) Served() bool {
	return d.uses(SetupDelegation) && (d.found(delegated) || d.found(delegationSeen)) && !d.Placeholder
}

// awaitsServers reports whether the domain is delegated, but not verified yet, because this installation's name servers
// have not answered for it.
func (d *Domain) awaitsServers() bool {
	return d.uses(SetupDelegation) && d.checks[delegated].Status == Pending &&
		d.checks[delegationSeen].Status == Verified
}

// trackingFound returns the status of the record that leads the domain's link-tracking host to this installation. It
// returns "" if the domain has no such host.
func (d *Domain) trackingFound() Status {
	if d.TrackingSubdomain == "" {
		return ""
	}
	if s := d.checks["tracking"].Status; s == Verified || !d.uses(SetupDelegation) {
		return s
	}
	return d.checks[delegated].Status
}

// selectorIn returns the selector under which a key of the domain is published with a set-up. Keys of the set-up
// "cname" have one of the two selectors that are aliases, which the set-up "records" cannot use.
func (c *Config) selectorIn(setup, selector string) string {
	alias := selector == selectorFirst || selector == selectorSecond
	switch {
	case setup == SetupCNAME && !alias:
		return selectorFirst
	case setup == SetupRecords && alias:
		return c.Selector
	}
	return selector
}

// selectorsIn returns the selectors of the domain's keys that sign, with a set-up.
func (c *Config) selectorsIn(setup string, d *Domain) (rsa, ed25519 string) {
	rsa, ed25519 = c.selectors(d)
	return c.selectorIn(setup, rsa), ed25519
}

// choices returns the set-ups that a domain may have.
func (s *Service) choices(ctx context.Context, d *Domain) (all []SetupChoice, err error) {
	for _, setup := range setups {
		reason, warning := s.judgeSetup(d, setup)
		if setup == SetupDelegation && setup != d.setup() && reason == "" {
			if reason, err = s.reasonBelow(ctx, s.DB.Reader, d); err != nil {
				return nil, err
			}
		}
		all = append(all, SetupChoice{Setup: setup, Chosen: setup == d.setup(), Reason: reason, Warning: warning})
	}
	return all, nil
}

// judgeSetup returns the reason why a domain cannot have a set-up, and a warning for its owner. Either may be "".
func (s *Service) judgeSetup(d *Domain, setup string) (reason, warning string) {
	if d.Placeholder {
		return "This domain is claimed from another team. Its set-up can be chosen after the transfer.", ""
	}
	if setup == SetupRecords {
		return "", ""
	}
	if s.c.DNSZone == "" {
		return "This installation has no zone for the names to which your records would point. Its operator can set " +
			"`dns_zone`.", ""
	}
	if setup == SetupCNAME {
		return "", ""
	}
	if s.Delegation == nil && !s.c.TrustDomains {
		return "This installation cannot look up delegations.", ""
	}
	if len(s.c.DNSNames) < nameServersMin {
		return "A domain can be delegated only to two or more name servers. The operator of this installation can set " +
			"`dns_names`.", ""
	}
	root, err := publicsuffix.EffectiveTLDPlusOne(d.Name)
	switch {
	case err != nil:
		return "A public suffix cannot be delegated. Add a domain below it.", ""
	case root == d.Name:
		return "", "This delegates all of " + d.Name + ": its website and all its other records would no longer be found. " +
			"Add a subdomain such as " + s.c.Suggest(d.Name, "mail", "email", "post") + " instead."
	}
	return "", "Only this installation can have records at and below " + d.Name + ". Do not delegate a name that also " +
		"has a website or other mail."
}

// checkSetup returns the fault for a set-up that a domain cannot have.
func (s *Service) checkSetup(d *Domain, setup string) error {
	if !slices.Contains(setups, setup) {
		return unknownSetup()
	}
	if reason, _ := s.judgeSetup(d, setup); reason != "" {
		return cannotBe(setup, reason)
	}
	return nil
}

func cannotBe(setup, reason string) error {
	return fault.Invalidf("setup", "The `setup` field cannot be `%s`. %s", setup, reason)
}

func unknownSetup() error {
	return fault.Invalidf("setup", "The `setup` field must be `records`, `cname` or `delegation`.")
}

// newSetupToken returns a random label with 80 bits of entropy: 16 lower-case letters and digits.
func newSetupToken() string {
	random := make([]byte, 10)
	rand.Read(random)
	return strings.ToLower(base32.StdEncoding.EncodeToString(random))
}

// choose changes the set-up of the domain. The records of the set-up before go on counting if they are found. Records
// that both set-ups have keep their states, and new ones become pending.
func (d *Domain) choose(c *Config, setup string, now time.Time) {
	candidates := d.setupsInUse()
	former := ""
	for _, s := range candidates {
		if s != setup && former == "" && d.foundIn(s) {
			former = s
		}
	}
	d.Setup, d.FormerSetup = setup, former
	if setup != SetupRecords && d.setupToken == "" {
		d.setupToken = newSetupToken()
	}
	d.prune(c.recordsInUse(d))
	var missing []Record
	for _, r := range c.Records(d) {
		if s := d.checks[r.Key].Status; s == "" || s == NotStarted {
			missing = append(missing, r)
		}
	}
	if len(missing) > 0 {
		*d = restart(*d, missing, now)
	}
	d.endFormerSetup()
	d.Status = d.overall()
}

// foundIn reports whether mail depends on the records of a set-up. That is so if the domain sends or receives with it,
// or if one of its own records was found.
func (d *Domain) foundIn(setup string) bool {
	for _, keys := range d.groups(setup) {
		if d.groupStatus(keys) == Verified {
			return true
		}
	}
	return slices.ContainsFunc(ownKeys(setup), d.found)
}

// ownKeys returns the keys of the records with which a set-up leads to names that this installation's name servers
// answer for.
func ownKeys(setup string) []string {
	switch setup {
	case SetupCNAME:
		return []string{cnameReturnPath, cnameFirst, cnameSecond}
	case SetupDelegation:
		return []string{delegated, delegationSeen}
	}
	return nil
}

// endFormerSetup clears the former set-up when mail no longer depends on it. The name servers still answer for its
// names until the records that lead there have been missing for 72 hours, because resolvers may have cached them.
func (d *Domain) endFormerSetup() {
	if d.FormerSetup == "" {
		return
	}
	needed := d.foundIn(d.FormerSetup)
	if needed && d.FormerSetup == SetupRecords {
		needed = d.overall() != Verified
	}
	if d.FormerSetup == d.setup() || !needed {
		d.FormerSetup = ""
	}
}
