package domainreports

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/mail/dmarc"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/tlsrpt"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/domains"
)

const (
	tokenBytes  = 10
	tokenLength = 16
)

var tokenEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

func newToken() string {
	b := make([]byte, tokenBytes)
	rand.Read(b)
	return tokenEncoding.EncodeToString(b)
}

func isToken(local string) bool {
	b, err := tokenEncoding.DecodeString(local)
	return err == nil && len(local) == tokenLength && len(b) == tokenBytes
}

// Target is a domain for which a report arrived.
type Target struct {
	TeamID, DomainID, Domain string

	returnPath string // the host of the return path of the domain's own mail
}

// Find returns the domain whose address for reports has the given local part. If there is none, ok is false. Find does
// not require a team id, because the address determines the team.
func (s *Service) Find(ctx context.Context, local string) (t Target, ok bool, err error) {
	local = strings.ToLower(local)
	if !isToken(local) {
		return t, false, nil
	}
	return targetOf(ctx, s.p.DB.Reader, local)
}

// Address returns the address for reports about a domain, or "" if the domain has none yet. Domains get their address
// when they are created or looked up, and older ones by [Service.Sweep].
func (s *Service) Address(ctx context.Context, d *domains.Domain) (string, error) {
	token, err := tokenOf(ctx, s.p.DB.Reader, d.TeamID, d.ID)
	if err != nil {
		return "", fmt.Errorf("address for reports about %s: %w", d.Name, err)
	}
	if token == "" {
		return "", nil
	}
	return token + "@" + s.c.HostOf(d.Region), nil
}

// Recorded implements events.Listener: it gives new domains their addresses.
func (s *Service) Recorded(ctx context.Context, tx *db.Tx, all []events.Event) error {
	for _, e := range all {
		if e.Type == events.DomainCreated {
			insertToken(ctx, tx, e.TeamID, e.DomainID)
		}
	}
	return nil
}

// Advised returns the records with which reports about a domain arrive: its DMARC record, and its record for TLS
// reports. They come from what [Service.LookUp] has stored. A record that was never looked up is left out, because it
// might replace a better one. The DMARC record that the owner has chosen counts before the stored one.
func (s *Service) Advised(ctx context.Context, d *domains.Domain) (all []domains.AdvisedRecord, err error) {
	stored, err := recordsOf(ctx, s.p.DB.Reader, d.TeamID, d.ID)
	if err != nil {
		return nil, err
	}
	return s.advised(d, &stored), nil
}

// AdvisedOfAll is like Advised for domains, which may belong to several teams. The result is by the id of the domain.
func (s *Service) AdvisedOfAll(ctx context.Context, of []*domains.Domain) (map[string][]domains.AdvisedRecord, error) {
	stored, err := recordsOfAll(ctx, s.p.DB.Reader, of)
	if err != nil {
		return nil, err
	}
	all := make(map[string][]domains.AdvisedRecord, len(of))
	for _, d := range of {
		if x, ok := stored[d.ID]; ok || d.DMARCRecord != "" || s.c.TrustRecords {
			all[d.ID] = s.advised(d, &x)
		}
	}
	return all, nil
}

// NewRecords returns the records with which a domain asks for reports to an address if it has neither of them yet.
func NewRecords(domain, address string) []domains.AdvisedRecord {
	none, target := dmarc.Discovery{}, "mailto:"+address
	return []domains.AdvisedRecord{
		{Purpose: domains.PurposeDMARC, Name: "_dmarc." + domain, Type: "TXT", Value: adviseRecord(&none, domain, target)},
		{Purpose: domains.PurposeTLSReports, Name: tlsrpt.RecordName(domain), Type: "TXT", Value: adviseTLS(nil, target)}}
}

// advised returns the advised records from what is stored of a domain.
func (s *Service) advised(d *domains.Domain, stored *storedRecords) (all []domains.AdvisedRecord) {
	target := "mailto:" + stored.token + "@" + s.c.HostOf(d.Region)
	known := *stored
	if s.c.TrustRecords && stored.token != "" { // nothing is looked up, so the records are those of a domain without any
		none := dmarc.Discovery{}
		known.dmarc = cmp.Or(stored.dmarc, adviseRecord(&none, d.Name, target))
		known.tls = cmp.Or(stored.tls, adviseTLS(nil, target))
	}
	stored = &known
	if text := cmp.Or(d.DMARCRecord, stored.dmarc); text != "" {
		r := domains.AdvisedRecord{Purpose: domains.PurposeDMARC, Name: "_dmarc." + d.Name, Type: "TXT", Value: text,
			Why: "Other mail systems then report each day which mail uses your domain."}
		if d.DMARCRecord == "" {
			r.Why += " The policy stays as it is."
		}
		if stored.token != "" { // a new domain may have no address for reports yet
			r.Value = withTarget(withoutRemoved(text), target)
		}
		if stored.dmarcRecords > 0 {
			r.Why = fmt.Sprintf("The domain has %d DMARC records, so none of them counts. Replace all of them by this one.",
				stored.dmarcRecords)
		}
		all = append(all, r)
	}
	if stored.tls != "" {
		all = append(all, domains.AdvisedRecord{Purpose: domains.PurposeTLSReports, Name: tlsrpt.RecordName(d.Name),
			Type: "TXT", Value: withTarget(stored.tls, target),
			Why: "Other mail systems then report each day whether they reached your mail hosts over TLS."})
	}
	return all
}

// LookUp looks up the records of a domain that name addresses for reports, and stores the advised records. An advised
// record keeps what the present record says. It never makes the policy weaker: if the domain has no DMARC record of its
// own, the advised record has the policy, the alignment and the addresses for reports that apply to the domain now. If
// a look-up fails, the stored record stays.
//
// If ours is true, this installation's name servers answer for the domain with the stored records. A stored record of
// the owner then stays. A DMARC record that comes from the domains above, or is not stored, is looked up only there.
func (s *Service) LookUp(ctx context.Context, d *domains.Domain, ours bool) error {
	stored, err := recordsOf(ctx, s.p.DB.Reader, d.TeamID, d.ID)
	if err == nil && stored.token == "" {
		stored.token, err = s.createToken(ctx, d)
	}
	if err != nil {
		return fmt.Errorf("address for reports about %s: %w", d.Name, err)
	}
	own := []string{"_dmarc." + d.Name, tlsrpt.RecordName(d.Name)}
	look := func(ctx context.Context, name string) ([]string, error) {
		if ours && slices.Contains(own, name) {
			return nil, fmt.Errorf("%w: %s", resolve.ErrNotFound, name)
		}
		if name == d.Name { // it exists as soon as its records are published, so its policy is not that of tag np
			return nil, fmt.Errorf("%w: %s", resolve.ErrNotFound, name)
		}
		return s.p.DNS.TXT(ctx, name)
	}
	now, target := stored, "mailto:"+stored.token+"@"+s.c.HostOf(d.Region)
	var errs []error
	var asks string
	if !ours || stored.dmarc == "" || stored.inherited {
		found, err := dmarc.NewWalker(look).Discover(ctx, d.Name)
		if err != nil {
			errs = append(errs, fmt.Errorf("look up the DMARC record of %s: %w", d.Name, err))
		} else {
			asks = asksOf(&found)
			if !s.keepsDMARC(d, &stored, &found, ours) {
				now.setDMARC(&found, d.Name, target)
			}
		}
	}
	if text := cmp.Or(d.DMARCRecord, now.dmarc); ours && text != "" {
		asks = asksOfText(d.Name, text)
	}
	if asks != "" {
		now.setAsks(asks, s.c.Now())
	}
	if !ours || stored.tls == "" {
		texts, err := look(ctx, own[1])
		if err != nil && !errors.Is(err, resolve.ErrNotFound) {
			errs = append(errs, fmt.Errorf("look up %s: %w", own[1], err))
		} else {
			now.tls = adviseTLS(texts, target)
		}
	}
	if now != stored {
		errs = append(errs, s.saveRecords(ctx, d, &now))
	}
	return errors.Join(errs...)
}

// keepsDMARC reports whether the stored DMARC record of a domain stays after a look-up.
func (s *Service) keepsDMARC(d *domains.Domain, stored *storedRecords, found *dmarc.Discovery, ours bool) bool {
	if ours {
		// Several records at a domain above are usually a change in progress. They say neither what applies next nor
		// that nothing applies.
		return stored.dmarc != "" && found.At == "" && len(found.Discarded) > 0
	}
	if found.At != d.Name || !d.Served() {
		return false
	}
	// The delegation was not found for some hours, but resolvers still ask our name servers. Their answer must not count
	// as the owner's record, because it would no longer follow the domains above.
	for _, r := range s.advised(d, stored) {
		if r.Purpose == domains.PurposeDMARC {
			return r.Value == found.Text
		}
	}
	return false
}

// setDMARC sets the advised DMARC record of a domain to the one that follows from a look-up.
//
// A record that comes from the domains above also becomes weaker with them. Their owner decides about all domains below
// that have no record of their own, and would expect that a milder policy ends the rejection of mail there, too. An
// owner who wants another policy chooses a record.
func (x *storedRecords) setDMARC(found *dmarc.Discovery, domain, target string) {
	x.dmarc, x.dmarcRecords, x.inherited = adviseRecord(found, domain, target), 0, found.At != domain
	for _, other := range found.Discarded {
		if other.Domain == domain {
			x.dmarcRecords, x.inherited = len(other.Records), false
		}
	}
}

// adviseTLS returns the record for TLS reports with a target, from the present TXT records.
func adviseTLS(texts []string, target string) string {
	if found, err := tlsrpt.FindRecord(texts); err == nil && len(found.Targets) > 0 {
		for _, text := range texts {
			if _, err := tlsrpt.ParseRecord(text); err == nil {
				return withTarget(text, target)
			}
		}
	}
	return "v=TLSRPTv1; rua=" + target
}

// adviseRecord returns the DMARC record of a domain with a target for reports.
func adviseRecord(found *dmarc.Discovery, domain, target string) string {
	if found.At == domain {
		return withTarget(withoutRemoved(found.Text), target)
	}
	base := ""
	for _, d := range found.Discarded {
		if d.Domain == domain {
			base = strictest(d.Records)
		}
	}
	if base == "" {
		policy := found.Requested
		if policy == "" {
			policy = dmarc.None
		}
		base = "v=DMARC1; p=" + string(policy)
		if found.Requested != "" {
			base = inherit(base, policy, found)
		}
	}
	return withTarget(withoutRemoved(base), target)
}

// removedTags are the tags of RFC 7489 that RFC 9989 removed. Receivers ignore them.
var removedTags = []string{"pct", "rf", "ri"}

// withoutRemoved returns a DMARC record without the tags in removedTags. The record is then in test mode if it had
// pct=0, the former way to test a policy (RFC 9989 appendix A.6). Receivers never applied other percentages reliably.
func withoutRemoved(text string) string {
	all := tagsOf(text)
	kept := slices.DeleteFunc(slices.Clone(all), func(t tag) bool { return slices.Contains(removedTags, t.name) })
	if len(kept) == len(all) {
		return text
	}
	hasTest := slices.ContainsFunc(kept, func(t tag) bool { return t.name == "t" })
	if slices.Contains(all, tag{"pct", "0"}) && !hasTest {
		kept = append(kept, tag{"t", "y"})
	}
	return textOf(kept)
}

// strictness ranks the policies.
var strictness = map[dmarc.Policy]int{"": 0, dmarc.None: 1, dmarc.Quarantine: 2, dmarc.Reject: 3}

// inherit adds the tags of the record above a domain to the domain's new record, which has policy. Otherwise the new
// record would make the comparison of domains relaxed, and the owner would no longer get the reports. The policy for
// names that do not exist counts if the record above is that of a public suffix.
func inherit(record string, policy dmarc.Policy, found *dmarc.Discovery) string {
	all := tagsOf(record)
	if np := found.Record.NP; !found.Record.Invalid && strictness[np] > strictness[policy] {
		all = append(all, tag{"np", string(np)})
	}
	if found.Record.Testing {
		all = append(all, tag{"t", "y"})
	}
	for _, t := range tagsOf(clean(found.Text)) {
		switch t.name {
		case "adkim", "aspf", "rua", "ruf", "fo":
			if t.value != "" {
				all = append(all, t)
			}
		}
	}
	return textOf(all)
}

// strictest returns the record with the strictest policy. The first of several equal ones counts.
func strictest(records []string) (best string) {
	most := -1
	for _, text := range records {
		if r, ok := dmarc.Parse(text); ok && strictness[r.P] > most {
			best, most = text, strictness[r.P]
		}
	}
	return best
}

// tag is a tag of a DMARC record, or a field of a record for TLS reports.
type tag struct{ name, value string }

func tagsOf(text string) (all []tag) {
	for part := range strings.SplitSeq(text, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		all = append(all, tag{strings.TrimSpace(name), strings.TrimSpace(value)})
	}
	return all
}

func textOf(all []tag) string {
	parts := make([]string, len(all))
	for i, t := range all {
		parts[i] = t.name + "=" + t.value
	}
	return strings.Join(parts, "; ")
}

// cleanMax is the maximum length of the text that advised records keep of a present one, in bytes.
const cleanMax = 2000

// clean returns a record without the tags that our name servers would refuse to publish: those with control characters,
// and those beyond cleanMax. Tags of the policy do not count towards cleanMax, so that only the first of each name
// stays. Otherwise a delegated domain would lose its policy with such a tag.
func clean(text string) string {
	bad := func(r rune) bool { return r < ' ' || r > '~' }
	if len(text) <= cleanMax && !strings.ContainsFunc(text, bad) {
		return text
	}
	left, seen := cleanMax, map[string]bool{}
	return textOf(slices.DeleteFunc(tagsOf(text), func(t tag) bool {
		size := len(t.name) + len(t.value) + len("=; ")
		if slices.Contains([]string{"v", "p", "sp", "np"}, t.name) && size < 40 {
			again := seen[t.name]
			seen[t.name] = true
			return again || strings.ContainsFunc(t.value, bad) // the policy stays, wherever it is in the record
		}
		if strings.ContainsFunc(t.name+t.value, bad) || size > left {
			return true
		}
		left -= size
		return false
	}))
}

// withTarget returns a record with the target in its tag rua. All other tags stay.
func withTarget(text, target string) string {
	text = clean(text)
	all := tagsOf(text)
	for i, t := range all {
		if t.name != "rua" {
			continue
		}
		for uri := range strings.SplitSeq(t.value, ",") {
			if strings.EqualFold(strings.TrimSpace(uri), target) {
				return text
			}
		}
		all[i].value = strings.TrimPrefix(t.value+","+target, ",")
		return textOf(all)
	}
	return textOf(append(all, tag{"rua", target}))
}

// step is a policy, and whether it is in test mode. In test mode, receivers act one step milder.
type step struct {
	policy  dmarc.Policy
	testing bool
}

// steps lists the steps of a policy from the mildest to the strictest.
var steps = []step{{dmarc.None, false}, {dmarc.Quarantine, true}, {dmarc.Quarantine, false}, {dmarc.Reject, true},
	{dmarc.Reject, false}}

// nextStep returns a DMARC record with the next stricter policy, or "" if the record has the strictest one. The tags of
// RFC 7489 that no longer exist are left out.
func nextStep(text string) string {
	r, ok := dmarc.Parse(text)
	if !ok {
		return ""
	}
	at := step{r.P, r.Testing && r.P != dmarc.None}
	if r.Invalid || r.P == "" {
		at = steps[0]
	}
	next := step{}
	for i := range len(steps) - 1 {
		if steps[i] == at {
			next = steps[i+1]
		}
	}
	if next.policy == "" {
		return ""
	}
	out := []tag{{"v", "DMARC1"}, {"p", string(next.policy)}}
	for _, t := range tagsOf(text) {
		if t.name != "v" && t.name != "p" && t.name != "t" && !slices.Contains(removedTags, t.name) {
			out = append(out, t)
		}
	}
	if next.testing {
		out = append(out, tag{"t", "y"})
	}
	return textOf(out)
}
