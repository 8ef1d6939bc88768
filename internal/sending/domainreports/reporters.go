package domainreports

import (
	"net/mail"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/postrider/postrider/internal/mail/dmarcrpt"
	"github.com/postrider/postrider/internal/mail/tlsrpt"
)

// wellKnown are the domains in From of the reports of large mail systems, as public programs that sort such mail name
// them. The public cannot get a mailbox at any of these domains. Domains with mailboxes for everybody, such as
// yahoo.com and comcast.net, must not be added: each of their users could forge reports.
var wellKnown = []string{
	"google.com", "dmarc.yahoo.com", "microsoft.com", "corp.mail.ru", "fastmaildmarc.com", "alerts.comcast.net",
	"sicher.gmx.net", "amazonses.com", "linkedin.com", "mimecastreport.com",
}

// otherNames are domains that reports of an organization name, and the domain from which the organization sends them.
var otherNames = map[string]string{"yahooinc.com": "yahoo.com", "oath.com": "yahoo.com"}

func isWellKnown(reporter string) bool {
	return slices.Contains(wellKnown, reporter) || strings.HasSuffix(reporter, ".mimecastreport.com") // one for each region
}

// organization returns the organizational domain of a domain. Reporters with the same one are not independent.
func organization(domain string) string {
	if org, err := publicsuffix.EffectiveTLDPlusOne(domain); err == nil {
		return org
	}
	return domain
}

// identity returns the name by which limits and claims of a reporter are added up. The public may have mailboxes in the
// organizational domain of a well-known reporter.
func identity(domain string) string {
	if isWellKnown(domain) {
		return domain
	}
	return organization(domain)
}

// related reports whether two domains have the same organizational domain, as relaxed alignment demands.
func related(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	return a != "" && b != "" && organization(a) == organization(b)
}

// claimsOfDMARC returns the domains that a DMARC report names as its reporter.
func claimsOfDMARC(h *dmarcrpt.Header) []string { return claims(h.Email, h.Org) }

// claimsOfTLS returns the domains that a TLS report and its message name as its reporter. Fields of the header count only
// if they are signed, and so does the name of a file that is the whole body.
func claimsOfTLS(m *Message, by *sender, f *file, r *tlsrpt.Report) []string {
	texts := []string{r.Contact, r.Organization}
	if by.covers(m, tlsrpt.SubmitterField, TLS) {
		texts = append(texts, headerOf(m, tlsrpt.SubmitterField))
	}
	if found := subjectForm.FindStringSubmatch(m.Parsed.Subject); found != nil && by.covers(m, "Subject", TLS) {
		texts = append(texts, found[2])
	}
	isNamed := !m.Parsed.IsFile || by.covers(m, "Content-Type", TLS) && by.covers(m, "Content-Disposition", TLS)
	if submitter, _, ok := strings.Cut(f.name, "!"); ok && isNamed {
		texts = append(texts, submitter)
	}
	return claims(texts...)
}

// claims returns the domains of the texts that are addresses or domains.
func claims(texts ...string) (all []string) {
	for _, text := range texts {
		name := strings.TrimPrefix(strings.TrimSpace(text), "mailto:")
		if a, err := mail.ParseAddress(name); err == nil {
			name = a.Address[strings.LastIndexByte(a.Address, '@')+1:]
		}
		if name = cleanName(name); strings.Contains(name, ".") && !strings.ContainsAny(name, " @/:;,<>\"()") {
			all = append(all, name)
		}
	}
	return all
}

// misnamed returns why a report of an authenticated sender proves nothing, or "". A report must name a reporter whose
// organizational domain is the sender's. Well-known reporters may use other names, as Yahoo does.
func (by *sender) misnamed(claimed []string) string {
	switch {
	case isWellKnown(by.domain), slices.ContainsFunc(claimed, func(name string) bool {
		return related(name, by.domain) || organization(by.domain) == otherNames[organization(name)]
	}):
		return ""
	case len(claimed) == 0:
		return "The report does not name a domain of its reporter."
	}
	return "The report names " + claimed[0] + " as its reporter, but it came from " + by.domain + "."
}

// claim is what one reporter says about messages from this installation.
type claim struct {
	reporter         string
	failed, messages int64
}

// defect is a sum of the claims of several reporters.
type defect struct{ failed, messages, reporters int64 }

// These are the limits from which failing signatures of this installation are a defect, and not the fault of one host
// that changed messages.
const (
	defectMessages = 10
	defectPercent  = 1
)

// isDefect reports whether the failures of one reporter are more than chance.
func (c *claim) isDefect() bool { return c.failed > 0 && c.failed*100 >= c.messages*defectPercent }

// confirmed adds up the claims about one domain. It returns false if they do not make a defect. Any domain can sign a
// forged report. So the failures of a well-known reporter must suffice, or those that remain without the largest other
// reporter. A reporter that finds few failures does not make those of others fewer.
func confirmed(all []claim) (sum defect, ok bool) {
	byOrg := map[string]*claim{}
	var known, largest int64
	for _, c := range all {
		name := identity(c.reporter)
		if byOrg[name] == nil {
			byOrg[name] = &claim{reporter: c.reporter}
		}
		byOrg[name].failed += c.failed
		byOrg[name].messages += c.messages
	}
	for _, c := range byOrg {
		switch {
		case !c.isDefect():
			continue
		case isWellKnown(c.reporter):
			known += c.failed
		default:
			largest = max(largest, c.failed)
		}
		sum.failed, sum.messages, sum.reporters = sum.failed+c.failed, sum.messages+c.messages, sum.reporters+1
	}
	return sum, known >= defectMessages || sum.failed-largest >= defectMessages
}

// independent returns whether reports of these reporters prove something together: one is well-known, or two have
// different organizational domains. It ignores the empty name.
func independent(reporters []string) bool {
	first := ""
	for _, name := range reporters {
		org := organization(name)
		switch {
		case name == "":
		case isWellKnown(name), first != "" && org != first:
			return true
		default:
			first = org
		}
	}
	return false
}
