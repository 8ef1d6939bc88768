package domainreports

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/postrider/postrider/internal/mail/dmarc"
)

// FindingKind is the kind of a finding.
type FindingKind string

// These are the kinds of findings in DMARC reports. Findings in TLS reports have the result types of RFC 8460.
const (
	OwnSignature  FindingKind = "own_signature"  // signatures of this installation fail: a defect of ours
	OldSelector   FindingKind = "old_selector"   // a known source signs with a key that cannot be verified
	MissingInSPF  FindingKind = "missing_in_spf" // a source of the domain is not in its SPF record
	Forwarder     FindingKind = "forwarder"      // a source forwards mail of the domain
	Impostor      FindingKind = "impostor"       // an unknown source passes nothing
	UnsignedKnown FindingKind = "unaligned"      // a known source passes neither method
)

// Finding is something about a domain's mail that its owner should look at.
type Finding struct {
	Kind     FindingKind
	Source   string // an IP address, a provider, or a mail host
	Selector string // of DKIM, if the finding is about one
	Reporter string // of a finding in TLS reports: which sender failed, if it is only one
	Messages int64  // or sessions
	Says     string // what was seen
	Advice   string // what to do
}

// Findings need at least findingMin messages, and one in findingPart of all.
const (
	findingMin  = 10
	findingPart = 1000
	findingsMax = 50
)

// problem is what findings are added up by.
type problem struct {
	kind             FindingKind
	source, selector string
	altered          bool // an impostor's messages have a signature of a known source, which fails
}

// problem returns the finding to which a row belongs.
func (c *classifier) problem(k *key, class Class, name string) (p problem, ok bool) {
	p.source = name
	switch {
	case name == "":
		return p, false
	case class == Ours && !k.dkim:
		p.kind, p.selector = OwnSignature, k.selector
	case class == Ours && !k.spf:
		p.kind = MissingInSPF
	case class == Ours:
		return p, false
	case class == Unlisted:
		p.kind, p.selector = MissingInSPF, k.selector
	case class == Forwarded && !k.dkim: // a rule of this installation forwarded mail without a valid signature
		return p, false
	case class == Forwarded:
		p.kind = Forwarder
	case class == Unknown:
		p.kind, p.altered = Impostor, k.dkimResult != "" && c.selectors[k.selector]
	case !k.dkim && k.dkimResult != "":
		p.kind, p.selector = OldSelector, k.selector
	case !k.dkim && !k.spf:
		p.kind = UnsignedKnown
	default:
		return p, false
	}
	return p, true
}

// manySources stands for the sources of problems beyond the limit of a view.
const manySources = "many sources"

// weight returns the number of messages of which findings need a part. It leaves out the largest reporter that is not
// well-known, if others remain, because any domain can hide findings by a report about many good messages.
func (a *analysis) weight() int64 {
	var largest int64
	for _, r := range a.reporters {
		if !isWellKnown(r.Domain) && r.Messages < a.messages {
			largest = max(largest, r.Messages)
		}
	}
	return a.messages - largest
}

// findings returns the findings that concern enough messages, the largest of each kind first.
func (a *analysis) findings() []Finding {
	var all []Finding
	weight := a.weight()
	for p, n := range a.problems {
		if n < findingMin || n*findingPart < weight {
			continue
		}
		f := Finding{Kind: p.kind, Source: p.source, Selector: p.selector, Messages: n}
		f.Says, f.Advice = p.explain(n, a.policy)
		all = append(all, f)
	}
	return sorted(all)
}

var kindOrder = []FindingKind{OwnSignature, OldSelector, MissingInSPF, UnsignedKnown, Impostor, Forwarder}

func sorted(all []Finding) []Finding {
	slices.SortFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(kindOrder, a.Kind), slices.Index(kindOrder, b.Kind)),
			cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Selector, b.Selector))
	})
	return all[:min(len(all), findingsMax)]
}

// explain says what a problem of n messages is, and what to do about it while receivers apply a DMARC policy.
func (p *problem) explain(n int64, policy string) (says, fix string) {
	selector := "an unnamed selector"
	if p.selector != "" {
		selector = fmt.Sprintf("the selector %q", p.selector)
	}
	switch p.kind {
	case OwnSignature:
		return fmt.Sprintf("The DKIM signature of %d messages from %s, which this installation sent, failed (%s).", n,
				p.source, selector), "Check the DKIM records of the domain on its page. If they are verified, the operator must " +
				"look at this; an alarm was raised."
	case OldSelector:
		return fmt.Sprintf("%s signed %d messages with %s, and the signatures failed.", p.source, n, selector),
			"The key of this selector was probably removed or replaced. Publish the key that the service shows now, or " +
				"choose its new selector there."
	case MissingInSPF:
		if p.selector == "" {
			return fmt.Sprintf("%d messages came from %s, which belongs to this installation, but failed SPF.", n, p.source),
				"The operator must add the address to the record that spf_include names."
		}
		return fmt.Sprintf("%s signed %d messages with %s, but the SPF record of the domain does not list it.", p.source, n,
				selector), "If this service may send as the domain, add what it asks for to the SPF record. Otherwise remove " +
				"its DKIM key."
	case UnsignedKnown:
		return fmt.Sprintf("%d messages from %s passed neither DKIM nor SPF for this domain.", n, p.source),
			"Set up DKIM for this domain at the service, so that its signature has d= of the domain."
	case Forwarder:
		return fmt.Sprintf("%s forwarded %d messages of this domain: DKIM passed, SPF did not.", p.source, n),
			"Nothing is wrong as long as DKIM passes. If a forwarding of your own leads there, check whether you need it."
	}
	if p.altered && policy == string(dmarc.Reject) {
		return fmt.Sprintf("%s sent %d messages as this domain. Their signature of a known source failed.", p.source, n),
			"This is a forwarder or a mailing list that changes messages, or an impostor that copies signatures. Receivers " +
				"that apply the present policy refuse both."
	}
	if p.altered {
		return fmt.Sprintf("%s sent %d messages as this domain. Their signature of a known source failed.", p.source, n),
			"This is a forwarder or a mailing list that changes messages, or an impostor that copies signatures. A " +
				"stricter policy stops both."
	}
	says = fmt.Sprintf("%s sent %d messages as this domain, and they passed neither DKIM nor SPF.", p.source, n)
	if policy == string(dmarc.Reject) {
		return says, "If you do not know this address, somebody uses your domain. You need to do nothing: receivers " +
			"that apply the present policy refuse such mail."
	}
	return says,
		"If you do not know this address, somebody uses your domain. A stricter policy makes receivers refuse such mail."
}
