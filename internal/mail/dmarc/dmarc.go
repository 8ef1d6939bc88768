// Package dmarc finds and reads DMARC policy records, and compares the domains of a message, as RFC 9989 says.
//
// # Invariants
//
//   - A walk through the DNS tree makes at most eight queries, however many labels a name has.
//   - A [Walker] queries each name once. A message with n authenticated domains costs at most 9 + 7n queries.
//   - Names are A-labels in lower case without a trailing dot.
//   - Several DMARC records at one name count as none.
//
// # Failures
//
// A record with mistakes is read as RFC 9989 section 4.7 says: a tag with a mistake counts as absent. A look-up that
// fails ends discovery or comparison with its error, because a missing answer could hide a record that applies.
//
// # Out of scope
//
// The package does not verify SPF or DKIM, does not decide what happens to a message, and sends no reports.
package dmarc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/postrider/postrider/internal/mail/resolve"
)

const (
	prefix = "_dmarc."
	// maxQueries is the number of queries of one walk. A longer name is cut to one label less after its first query
	// (RFC 9989 section 4.10).
	maxQueries = 8
	maxName    = 253 // maximum length of a DNS name
)

// Lookup returns one string for each TXT record at a name. Its errors wrap resolve.ErrNotFound if there is no record,
// and also resolve.ErrNoName if the name does not exist. Every other error is a failure.
type Lookup func(ctx context.Context, name string) ([]string, error)

// Walker evaluates the domains of one message. A Walker remembers every answer, so it must not outlive the evaluation,
// and it must not be used by several goroutines at the same time.
type Walker struct {
	lookup Lookup
	sites  map[string]site
}

// NewWalker returns a Walker that makes its queries with lookup.
func NewWalker(lookup Lookup) *Walker {
	return &Walker{lookup: lookup, sites: make(map[string]site)}
}

// site is what the DNS says about DMARC at one domain. The text is empty if the domain has no DMARC record.
type site struct {
	text      string
	record    Record
	discarded []string // the records, if there are several
}

// Discovery is the result of looking for the policy of a domain.
type Discovery struct {
	At     string // domain whose record applies: the domain itself or one above it; empty if there is no record
	Text   string // the record
	Record Record
	// Requested is the policy that the record requests for the domain, and Policy is what remains of it in test mode.
	// Both are empty if DMARC does not apply: there is no record, or it has no valid policy and asks for no reports.
	Requested, Policy Policy
	// Discarded lists the domains that have several DMARC records, of which none counts.
	Discarded []Discarded
}

// Discarded is a domain with several DMARC records.
type Discarded struct {
	Domain  string
	Records []string
}

// Discover finds the record that applies to messages from domain (RFC 9989 section 4.10.1): the record of the domain,
// or else of its organizational domain, or else of the public suffix above it.
func (w *Walker) Discover(ctx context.Context, domain string) (d Discovery, err error) {
	own, err := w.at(ctx, domain)
	if err != nil {
		return Discovery{}, err
	}
	if own.text != "" {
		d.At, d.Text, d.Record, d.Requested = domain, own.text, own.record, own.record.request(own.record.P)
		d.Policy = d.Record.apply(d.Requested)
		return d, nil
	}
	found, err := w.walk(ctx, domain)
	if err != nil {
		return Discovery{}, err
	}
	for _, name := range names(domain) {
		if s, known := w.sites[name]; known && len(s.discarded) > 0 {
			d.Discarded = append(d.Discarded, Discarded{name, s.discarded})
		}
	}
	if len(found) == 0 {
		return d, nil
	}
	// The walk ends at a public suffix, so the last record is the suffix's or the organizational domain's.
	d.At = found[len(found)-1]
	if org := w.organization(domain, found); w.sites[org].text != "" {
		d.At = org
	}
	d.Text, d.Record = w.sites[d.At].text, w.sites[d.At].record
	if d.Requested, err = w.below(ctx, domain, &d.Record); err != nil {
		return Discovery{}, err
	}
	d.Policy = d.Record.apply(d.Requested)
	return d, nil
}

// below returns the policy that a record requests for a domain below its own. The domain is looked up only if the
// answer changes the policy.
func (w *Walker) below(ctx context.Context, domain string, r *Record) (Policy, error) {
	existing := r.SP
	if existing == "" {
		existing = r.P
	}
	if r.NP == "" || r.request(r.NP) == r.request(existing) {
		return r.request(existing), nil
	}
	// The type of the query does not matter: a name exists if it has a record of any type (RFC 9989 appendix A.4).
	_, err := w.lookup(ctx, domain)
	switch {
	case errors.Is(err, resolve.ErrNoName):
		return r.request(r.NP), nil
	case err == nil || errors.Is(err, resolve.ErrNotFound):
		return r.request(existing), nil
	}
	return "", fmt.Errorf("look up whether %s exists: %w", domain, err)
}

// Organizational returns the organizational domain of a domain (RFC 9989 section 4.10.2). If neither the domain nor a
// domain above it has a DMARC record, the result is the domain itself.
func (w *Walker) Organizational(ctx context.Context, domain string) (string, error) {
	found, err := w.walk(ctx, domain)
	if err != nil {
		return "", err
	}
	return w.organization(domain, found), nil
}

// organization selects the organizational domain from the domains with records. The last of them has the fewest labels,
// and only the last one can have a psd tag, because the tag ends the walk.
func (w *Walker) organization(domain string, found []string) string {
	if len(found) == 0 {
		return domain
	}
	last := found[len(found)-1]
	if w.sites[last].record.PSD == SuffixYes && last != domain {
		return lastLabels(domain, labels(last)+1)
	}
	return last
}

// Aligned reports whether an authenticated domain is aligned with the author's domain (RFC 9989 section 4.4). In strict
// mode, the domains must be identical; otherwise their organizational domains must be. An empty domain is not aligned.
func (w *Walker) Aligned(ctx context.Context, author, authenticated string, strict bool) (bool, error) {
	if strict || author == authenticated || authenticated == "" {
		return author == authenticated, nil
	}
	org, err := w.Organizational(ctx, author)
	// A domain is its own organizational domain or is below it, so other domains need no walk.
	if err != nil || authenticated != org && !strings.HasSuffix(authenticated, "."+org) {
		return false, err
	}
	other, err := w.Organizational(ctx, authenticated)
	return err == nil && other == org, err
}

// Record returns the record at a domain, without regard to the domains above it. The boolean result is false if the
// domain has none.
func (w *Walker) Record(ctx context.Context, domain string) (Record, bool, error) {
	s, err := w.at(ctx, domain)
	return s.record, s.text != "", err
}

// walk returns the domains with a record on the way from domain to the root, the longest first. The walk ends at a
// record with a psd tag.
func (w *Walker) walk(ctx context.Context, domain string) (found []string, err error) {
	for _, name := range names(domain) {
		s, err := w.at(ctx, name)
		if err != nil {
			return nil, err
		}
		if s.text == "" {
			continue
		}
		if found = append(found, name); s.record.PSD != "" {
			break
		}
	}
	return found, nil
}

// at looks up the DMARC record of a domain.
func (w *Walker) at(ctx context.Context, domain string) (site, error) {
	if s, known := w.sites[domain]; known {
		return s, nil
	}
	var s site
	if len(prefix+domain) <= maxName { // a longer name cannot exist
		records, err := w.lookup(ctx, prefix+domain)
		if err != nil && !errors.Is(err, resolve.ErrNotFound) {
			return site{}, fmt.Errorf("look up the DMARC record of %s: %w", domain, err)
		}
		s = read(records)
	}
	w.sites[domain] = s
	return s, nil
}

// read returns the DMARC record among the TXT records of a name.
func read(records []string) (s site) {
	var found []string
	for _, text := range records {
		if r, ok := Parse(text); ok {
			found = append(found, text)
			s.text, s.record = text, r
		}
	}
	if len(found) > 1 {
		return site{discarded: found}
	}
	return s
}

// names returns the domains that a walk queries: the domain and those above it, without those that have more than seven
// labels.
func names(domain string) []string {
	all := []string{domain}
	for n := min(labels(domain), maxQueries) - 1; n > 0; n-- {
		all = append(all, lastLabels(domain, n))
	}
	return all
}

func labels(domain string) int { return strings.Count(domain, ".") + 1 }

// lastLabels returns the last n labels of a domain that has at least n.
func lastLabels(domain string, n int) string {
	at := len(domain)
	for range n {
		at = strings.LastIndexByte(domain[:at], '.')
		if at < 0 {
			return domain
		}
	}
	return domain[at+1:]
}
