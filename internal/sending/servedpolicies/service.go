package servedpolicies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/domains"
)

// State says whether senders can obey the policy of a domain.
type State string

// These are the states of a policy.
const (
	Inactive State = "off"
	Pending  State = "pending" // the records were never found
	Working  State = "working"
	// Updating means that the policy worked and was changed, and the owner has to publish the new id.
	Updating State = "updating"
	Failing  State = "failing"
	Ending   State = "ending" // the policy is withdrawn, and still served as a policy of mode none
)

// Record is a DNS record that the domain's owner publishes.
type Record struct{ Name, Type, Value string }

// Host is a mail host in a policy.
type Host struct {
	Name   string
	Source string // installation, mx, named, or earlier: the MX records do not lead to it any more
}

// Policy describes the policy of a domain for its team.
type Policy struct {
	DomainID  string
	Domain    string
	Mode      Mode
	State     State
	MaxAge    time.Duration // 0 if nothing is served
	ID        string        // the id that the record should have; "" if nothing is served
	Text      string        // the text that is served; "" if nothing is served
	Hosts     []Host
	Records   []Record
	Problems  []Problem
	CheckedAt time.Time // zero before the first check
	// NextCheckAt is when the next check is due; zero if nothing is served.
	NextCheckAt time.Time
	// NewIDAt is when ID and the TXT record change after a change of the policy; zero if they do not. The owner then
	// publishes the record.
	NewIDAt time.Time
	// PublishBy is when a former id in the DNS begins to count as a problem; zero in other states than Updating.
	PublishBy time.Time
	// Automatic says that the name servers of this installation publish the records.
	Automatic bool
	// TestingSince is when the mode testing began; zero in other modes.
	TestingSince time.Time
	// KeepUntil is until when the records must stay after the policy was switched off; zero in other modes.
	KeepUntil time.Time
	// EnforceBlocked is why the mode enforce would be refused; "" if it would be accepted.
	EnforceBlocked string
	// EnforceAdvised says that the policy has been tested for long enough without failures in received TLS reports.
	EnforceAdvised bool
}

// Change is a request to change the policy of a domain.
type Change struct {
	Mode   Mode
	MaxAge time.Duration // 0 means the default of the mode
	// KeepAge keeps the lifetime if the mode stays the same, and MaxAge is 0.
	KeepAge bool
	// Hosts are hosts that the policy lists before the MX records lead to them. Nil leaves them as they are.
	Hosts []string
}

// Get returns the policy of a team's domain.
func (s *Service) Get(ctx context.Context, teamID, domainID string) (Policy, error) {
	d, err := s.p.Domains.Get(ctx, teamID, domainID)
	if err != nil {
		return Policy{}, err
	}
	p, err := find(ctx, s.p.DB.Reader, teamID, domainID)
	if err != nil {
		return Policy{}, err
	}
	return s.describe(ctx, &d, p)
}

// Set changes the policy of a team's domain and makes its check due. The MX records are looked up before the
// transaction.
func (s *Service) Set(ctx context.Context, teamID, domainID string, c Change) (Policy, error) {
	d, err := s.p.Domains.Get(ctx, teamID, domainID)
	if err != nil {
		return Policy{}, err
	}
	own := s.inboundHost(&d)
	if err := s.check(ctx, &d, own, &c); err != nil {
		return Policy{}, err
	}
	mx, found := s.lookUpNow(ctx, d.Name)
	var p *row
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		if err := lock(ctx, tx, domainID); err != nil {
			return err
		}
		audit.Target(ctx, domainID)
		if p, err = find(ctx, tx.Reader, teamID, domainID); err != nil {
			return err
		}
		if c.Mode == Off && p == nil {
			return nil
		}
		now := s.c.Now()
		if p == nil {
			p = &row{DomainID: domainID, TeamID: teamID, Name: d.Name}
		}
		was := *p
		p.Watch.note(found)
		p.apply(c, own, mx, now)
		audit.Detail(ctx, differences(&was, p))
		if known := p.mayBeKnown(&d, found); p.renew(now, known) && known {
			p.allowTime()
		}
		// The zone of a delegated domain has the records at once, and must keep them if the domain is deleted.
		p.LeadsHere = p.LeadsHere || d.Served()
		p.CheckAt = now
		s.changed(tx, domainID)
		return save(ctx, tx, p)
	})
	if err != nil {
		return Policy{}, err
	}
	return s.describe(ctx, &d, p)
}

// differences describes a change of a policy for the audit log. It names only the hosts that the team has named.
func differences(was, now *row) string {
	named := func(r *row) string {
		var all []string
		for _, h := range r.Hosts {
			if h.Named {
				all = append(all, h.Name)
			}
		}
		slices.Sort(all)
		return cmp.Or(strings.Join(all, " "), "none")
	}
	age := func(r *row) string {
		if r.mode() == Off {
			return "none"
		}
		return strconv.FormatInt(int64(r.MaxAge/time.Second), 10)
	}
	var all audit.Differences
	all.Add("mode", string(was.mode()), string(now.mode()))
	all.Add("max_age", age(was), age(now))
	all.Add("hosts", named(was), named(now))
	return all.String()
}

// apply applies a change that a team requested to a row.
func (r *row) apply(c Change, own string, mx []resolve.MX, now time.Time) {
	if c.KeepAge && c.Mode == r.mode() {
		c.MaxAge = cmp.Or(c.MaxAge, r.MaxAge)
	}
	if c.Mode != r.mode() {
		r.TestingSince, r.ChangedAt = time.Time{}, now
		if c.Mode == Testing {
			r.TestingSince = now
		}
		if r.mode() == Off { // the records may have been removed since
			r.Watch = r.Watch.restart()
		}
	}
	if c.Mode == Off {
		r.Mode, r.MaxAge, r.Watch = mtasts.None, noneAge, r.Watch.restart()
		return
	}
	r.Mode, r.MaxAge = mtasts.Mode(c.Mode), defaultAge(c.Mode, c.MaxAge)
	if c.Hosts != nil {
		r.Hosts = nameHosts(r.Hosts, c.Hosts)
	}
	r.Hosts = mergeHosts(r.Hosts, own, mx, now)
}

// check returns a fault if the requested change is not allowed. It normalizes the host names in c.
func (s *Service) check(ctx context.Context, d *domains.Domain, own string, c *Change) error {
	switch c.Mode {
	case Off:
		return nil
	case Testing, Enforce:
	default:
		return fault.Invalidf("mode", "The `mode` field must be `off`, `testing` or `enforce`.")
	}
	switch {
	case !d.Placeholder && !d.Receiving && d.Served():
		return fault.Invalidf("mode", "The `mode` field must be `off`, because only a receiving domain can have a policy. "+
			"Enable receiving for `%s`.", d.Name)
	case d.Placeholder || !d.MayReceive():
		return fault.Invalidf("mode", "The `mode` field must be `off`, because only a verified receiving domain can have a "+
			"policy. Enable receiving for `%s`, and publish its MX and DKIM records.", d.Name)
	case s.c.PublicHost == "":
		return fault.Invalidf("mode", "The `mode` field must be `off`, because other servers cannot look up the host of "+
			"`public_url`, which would serve the policy. Ask the operator to set it to a full host name such as mail.example.com.")
	case isPolicyHost(d.Name), len(mtasts.RecordName(d.Name)) > 253:
		return fault.Invalidf("mode", "The `mode` field must be `off`, because the name of `%s` does not allow a policy.", d.Name)
	case d.TrackingSubdomain == "mta-sts", slices.Contains(d.Tracked, "mta-sts"):
		return fault.Invalidf("mode", "The `mode` field must be `off`, because the host mta-sts.%s has or had tracked links.", d.Name)
	}
	if err := checkAge(c); err != nil {
		return err
	}
	if err := checkNamed(c); err != nil {
		return err
	}
	if c.Mode != Enforce {
		return nil
	}
	if _, err := s.p.Certificate(ctx, own); err != nil {
		return fault.Invalidf("mode", "%s", s.blocked(own, err))
	}
	return nil
}

func isPolicyHost(name string) bool {
	_, ok := mtasts.CutHost(name)
	return ok
}

// blocked returns why a policy must not be enforced.
func (s *Service) blocked(own string, err error) string {
	return fmt.Sprintf("The `mode` field must not be `enforce`, because senders do not accept the certificate of %s: %v. Ask "+
		"the operator to set `acme`, or `tls_cert_file` with a certificate of a public authority.", own, err)
}

func checkAge(c *Change) error {
	least := testingAge
	if c.Mode == Enforce {
		least = enforceAge
	}
	if c.MaxAge != 0 && (c.MaxAge < least || c.MaxAge > mtasts.MaxAge) {
		return fault.Invalidf("max_age", "The `max_age` field must be a number of seconds from %d to %d in the mode `%s`.",
			least/time.Second, mtasts.MaxAge/time.Second, c.Mode)
	}
	return nil
}

func checkNamed(c *Change) error {
	if len(c.Hosts) > MaxNamed {
		return fault.Invalidf("hosts", "The `hosts` field may have at most %d hosts.", MaxNamed)
	}
	for i, name := range c.Hosts {
		name = strings.ToLower(strings.TrimSuffix(name, "."))
		if !mtasts.IsHost(name) || !strings.Contains(name, ".") {
			return fault.Invalidf("hosts", "The `hosts` field must have host names such as mx.example.com; %.80q is none.", name)
		}
		c.Hosts[i] = name
	}
	return nil
}

// changed notifies all nodes that the policy of a domain has changed. The zones of the name servers are then updated.
func (s *Service) changed(tx *db.Tx, domainID string) {
	tx.AfterCommit(func() { s.p.DB.Hint(domains.HintTopic, domainID) })
}

// inboundHost returns the host of this installation that receives mail for a domain.
func (s *Service) inboundHost(d *domains.Domain) string {
	return strings.ToLower(s.p.Domains.InboundHost(d))
}

// describe returns the policy of a domain for its team. The row p may be nil.
func (s *Service) describe(ctx context.Context, d *domains.Domain, p *row) (Policy, error) {
	now, own := s.c.Now(), s.inboundHost(d)
	x := Policy{DomainID: d.ID, Domain: d.Name, Mode: Off, State: Inactive}
	if _, err := s.p.Certificate(ctx, own); err != nil {
		x.EnforceBlocked = s.blocked(own, err)
	}
	if p == nil {
		return x, nil
	}
	x.Mode, x.MaxAge, x.ID, x.Text = p.mode(), p.MaxAge, p.recordID(now), p.Body
	x.CheckedAt, x.TestingSince, x.Problems = p.CheckedAt, p.TestingSince, p.Watch.Problems
	x.Records, x.NextCheckAt, x.Automatic = s.records(d.Name, p, now), p.CheckAt, d.Served()
	if p.FormerID != "" && now.Before(p.AnnounceAt) {
		x.NewIDAt = p.AnnounceAt
	}
	switch {
	case x.Mode == Off:
		x.State, x.KeepUntil = Ending, p.ObsoleteAt
		if len(x.Problems) == 0 {
			p.addStale(d, &x, now)
		}
		return x, nil
	case !p.Watch.Worked:
		x.State = Pending
	case p.Watch.Broken || len(p.Watch.Problems) > 0:
		x.State = Failing
	case p.isUpdating(now) && !x.Automatic:
		x.State, x.PublishBy = Updating, db.Time(p.Watch.PublishBy)
		p.addStale(d, &x, now)
	case p.isStale(now) && !x.Automatic: // the next check stores that
		x.State = Failing
		p.addStale(d, &x, now)
	default:
		x.State = Working
	}
	for _, h := range p.Hosts {
		source := "earlier"
		switch {
		case h.Name == own:
			source = "installation"
		case h.Seen > 0 && !time.UnixMicro(h.Seen).Before(p.lastSeen()):
			source = "mx"
		case h.Named:
			source = "named"
		}
		x.Hosts = append(x.Hosts, Host{h.Name, source})
	}
	return x, s.advise(ctx, d, p, &x, now)
}

// lastSeen returns the time of the last successful look-up of the MX records.
func (r *row) lastSeen() (last time.Time) {
	for _, h := range r.Hosts {
		if at := time.UnixMicro(h.Seen); h.Seen > 0 && at.After(last) {
			last = at
		}
	}
	return last
}

// advise decides whether to recommend the mode enforce. It does so only if TLS reports show that senders could have
// delivered.
func (s *Service) advise(ctx context.Context, d *domains.Domain, p *row, x *Policy, now time.Time) error {
	if s.p.Reports == nil || p.mode() != Testing || x.State != Working || x.EnforceBlocked != "" ||
		now.Sub(p.TestingSince) < cleanFor {
		return nil
	}
	sessions, failures, err := s.p.Reports(ctx, d.TeamID, d.Name, now.Add(-cleanFor))
	if err != nil {
		return fmt.Errorf("read the TLS reports about %s: %w", d.Name, err)
	}
	x.EnforceAdvised = sessions > 0 && failures == 0
	return nil
}

// records returns the records that a domain with a policy needs.
func (s *Service) records(domain string, p *row, now time.Time) []Record {
	return []Record{{mtasts.HostName(domain), "CNAME", s.c.PublicHost},
		{mtasts.RecordName(domain), "TXT", mtasts.Record(p.recordID(now))}}
}

// Records returns the DNS records that the policies of domains need, by the id of the domain. Domains without a policy
// are not in the result.
func (s *Service) Records(ctx context.Context, of []*domains.Domain) (map[string][]Record, error) {
	policies, err := findAll(ctx, s.p.DB.Reader, of)
	if err != nil {
		return nil, err
	}
	all, now := map[string][]Record{}, s.c.Now()
	for _, d := range of {
		if p := policies[d.ID]; p != nil {
			all[d.ID] = s.records(d.Name, p, now)
		}
	}
	return all, nil
}

// ErrNoPolicy means that a host serves no policy.
var ErrNoPolicy = errors.New("there is no policy at this host")

// Body returns the text of the policy that a host such as mta-sts.example.com serves, or ErrNoPolicy. The host must be
// in lower case.
func (s *Service) Body(ctx context.Context, name string) (string, error) {
	p, err := s.at(ctx, name)
	if err != nil {
		return "", err
	}
	return p.Body, nil
}

// MayHaveCertificate reports whether a host serves a policy and was seen to lead to this installation.
func (s *Service) MayHaveCertificate(ctx context.Context, name string) (bool, error) {
	p, err := s.at(ctx, name)
	if errors.Is(err, ErrNoPolicy) {
		return false, nil
	}
	return err == nil && p.LeadsHere, err
}

// at returns the row of the policy that a host serves, or ErrNoPolicy.
func (s *Service) at(ctx context.Context, name string) (*row, error) {
	domain, ok := mtasts.CutHost(name)
	if !ok || !mtasts.IsHost(name) {
		return nil, ErrNoPolicy
	}
	r, err := s.p.Domains.Receiver(ctx, domain)
	if err != nil {
		return nil, err
	}
	if r.CatchAll { // the domain may receive mail, or could a moment ago
		p, err := findServed(ctx, s.p.DB.Reader, r.TeamID, r.DomainID)
		if err != nil {
			return nil, err
		}
		if p != nil {
			off, err := s.p.Suspended(ctx, r.TeamID)
			if err != nil || off {
				return nil, orNoPolicy(err)
			}
			return p, nil
		}
	}
	p, err := findWithdrawn(ctx, s.p.DB.Reader, domain)
	if err != nil || p == nil {
		return nil, orNoPolicy(err)
	}
	p.Mode, p.MaxAge = mtasts.None, noneAge // the next check stores that
	p.Body = p.policy().Text()
	return p, nil
}

// EraseTeam deletes the policies of a deleted team. Those of which senders may have copies are withdrawn: their rows stay
// until the copies expire, and belong to no team.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	err := s.p.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return releaseSome(ctx, tx, teamID) })
	if err != nil {
		return fmt.Errorf("erase the served policies of team %s: %w", teamID, err)
	}
	return nil
}

func orNoPolicy(err error) error {
	if err != nil {
		return err
	}
	return ErrNoPolicy
}
