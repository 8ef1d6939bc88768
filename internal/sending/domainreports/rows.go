package domainreports

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/mail/dmarcrpt"
	"github.com/postrider/postrider/internal/mail/tlsrpt"
	"github.com/postrider/postrider/internal/platform/db"
)

const labelMax = 100 // bytes of a selector

// key is what the rows of a DMARC report are added up by.
type key struct {
	source      string // IP address; "" for what was added up without details
	own         bool   // this installation sent the messages for the domain, and did not forward them
	headerFrom  string
	disposition string
	dkim, spf   bool // whether an aligned identifier passed
	// The following describe the signature that matters most, and the result of SPF.
	dkimDomain, selector, dkimResult string
	spfDomain, spfResult             string
}

// row is a number of messages.
type row struct {
	key
	messages int64
}

// folded returns the key without details.
func (k key) folded() key {
	return key{own: k.own, disposition: k.disposition, dkim: k.dkim, spf: k.spf}
}

// sums adds the rows of a report up.
type sums struct {
	own    networks
	path   string // the host of the return path of the domain's own mail
	domain string
	counts map[key]int64

	messages, failed, rows int64
	ownMessages, ownFailed int64
}

func newSums(own networks, t *Target) *sums {
	return &sums{own: own, path: t.returnPath, domain: t.Domain, counts: map[key]int64{}}
}

// errTooMany is why a report with too large numbers cannot be read.
var errTooMany = fmt.Errorf("the report counts more than %d messages or sessions", int64(maxTotal))

func (s *sums) add(r *dmarcrpt.Row) error {
	if r.Count > maxTotal-s.messages {
		return errTooMany
	}
	k := key{source: r.Source.String(), headerFrom: db.Text(r.HeaderFrom, nameMax), disposition: r.Disposition,
		dkim: r.DKIM, spf: r.SPF}
	if best := signatureOf(r); best != nil {
		k.dkimDomain, k.selector, k.dkimResult = db.Text(best.Domain, nameMax), db.Text(best.Selector, labelMax), best.Result
	}
	if len(r.Paths) > 0 {
		k.spfDomain, k.spfResult = db.Text(r.Paths[0].Domain, nameMax), r.Paths[0].Result
	}
	// Forwarded mail comes from the same addresses. It has another return path, and its author's signature, if any.
	_, k.own = s.own.find(r.Source)
	k.own = k.own && strings.EqualFold(k.spfDomain, s.path)
	s.rows++
	s.messages += r.Count
	if !r.DKIM && !r.SPF {
		s.failed += r.Count
	}
	if k.own {
		s.ownMessages += r.Count
		if !r.DKIM {
			s.ownFailed += r.Count
		}
	}
	if _, known := s.counts[k]; !known && len(s.counts) >= maxKeys {
		k = k.folded()
	}
	s.counts[k] += r.Count
	return nil
}

// signatureOf returns the signature that says most about a row: an aligned one that passes if the row passes, or else
// an aligned one. Rows without an aligned signature have none.
func signatureOf(r *dmarcrpt.Row) (best *dmarcrpt.Result) {
	for i := range r.Signatures {
		x := &r.Signatures[i]
		if !related(x.Domain, r.HeaderFrom) {
			continue
		}
		if best == nil || x.Result == "pass" && best.Result != "pass" {
			best = x
		}
	}
	return best
}

// all returns the rows, the largest first. Those beyond maxReportRows are added up by result.
func (s *sums) all() []row {
	list := make([]row, 0, len(s.counts))
	for k, n := range s.counts {
		list = append(list, row{k, n})
	}
	slices.SortFunc(list, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.messages, a.messages), cmp.Compare(a.source, b.source),
			cmp.Compare(a.headerFrom, b.headerFrom), cmp.Compare(a.selector, b.selector),
			cmp.Compare(a.spfDomain, b.spfDomain))
	})
	return fold(list, maxReportRows)
}

// fold keeps the first rows with details, and adds the others up by result. No key occurs twice in the result.
func fold(list []row, limit int) []row {
	out := make([]row, 0, min(len(list), limit+64))
	rest := map[key]int64{}
	for _, r := range list {
		if r.source != "" && len(out) < limit {
			out = append(out, r)
		} else {
			rest[r.folded()] += r.messages
		}
	}
	for k, n := range rest {
		out = append(out, row{k, n})
	}
	return out
}

// digest names a row of a day within a domain.
func (k key) digest(reporter string, proven bool) string {
	return digest(fmt.Sprintf("%q %t %q %t %q %q %t %t %q %q %q %q %q", reporter, proven, k.source, k.own, k.headerFrom,
		k.disposition, k.dkim, k.spf, k.dkimDomain, k.selector, k.dkimResult, k.spfDomain, k.spfResult))
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:12])
}

// sessions is a number of TLS sessions with the same policy, result and mail host. The empty result means success.
type sessions struct {
	policyType, policyDomain, result, host string
	count                                  int64
}

func (x sessions) folded() sessions { return sessions{policyType: x.policyType, result: x.result} }

func (x sessions) isFolded() bool { return x.policyDomain == "" && x.host == "" }

func (x sessions) digest(reporter string, proven bool) string {
	return digest(fmt.Sprintf("%q %t %q %q %q %q", reporter, proven, x.policyType, x.policyDomain, x.result, x.host))
}

// unnamed is the result of failures that a report counts but does not describe.
const unnamed = "unspecified"

// policyTypes are the types of policies. Others are stored as "".
var policyTypes = []tlsrpt.PolicyType{tlsrpt.TLSA, tlsrpt.STS, tlsrpt.NoPolicy}

// sessionsOf adds the sessions of a report up. The numbers in the summary of a policy count. If the failures have fewer
// sessions than the summary, the rest is unnamed; if they have more, the surplus is ignored.
func sessionsOf(r *tlsrpt.Report) []sessions {
	sum := map[sessions]int64{}
	for i := range r.Policies {
		p := &r.Policies[i]
		at := sessions{policyDomain: cleanName(p.Policy.Domain)}
		if slices.Contains(policyTypes, p.Policy.Type) {
			at.policyType = string(p.Policy.Type)
		}
		if p.Successful > 0 {
			sum[at] += p.Successful
		}
		left := p.Failed
		for _, f := range p.Failures {
			x := at
			x.result, x.host = resultOf(f.Result), cleanName(f.Host)
			n := min(f.Sessions, left)
			if left -= n; n > 0 {
				sum[x] += n
			}
		}
		if left > 0 {
			at.result = unnamed
			sum[at] += left
		}
	}
	list := make([]sessions, 0, len(sum))
	for x, n := range sum {
		x.count = n
		list = append(list, x)
	}
	slices.SortFunc(list, func(a, b sessions) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.policyDomain, b.policyDomain),
			cmp.Compare(a.host, b.host), cmp.Compare(a.result, b.result))
	})
	return foldSessions(list, maxReportRows)
}

// foldSessions is like fold.
func foldSessions(list []sessions, limit int) []sessions {
	out := make([]sessions, 0, min(len(list), limit+64))
	rest := map[sessions]int64{}
	for _, x := range list {
		if !x.isFolded() && len(out) < limit {
			out = append(out, x)
		} else {
			rest[x.folded()] += x.count
		}
	}
	for x, n := range rest {
		x.count = n
		out = append(out, x)
	}
	return out
}

// resultOf returns a result type of RFC 8460, or unnamed for others.
func resultOf(r tlsrpt.Result) string {
	if slices.Contains(tlsrpt.Results(), r) {
		return string(r)
	}
	return unnamed
}

// addressOf parses the source of a row.
func addressOf(source string) netip.Addr {
	a, _ := netip.ParseAddr(source)
	return a
}
