package dmarcrpt

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/netip"
	"slices"
	"strings"
)

// Write writes a report by RFC 9990. The errors of several mistakes are joined in one element, and of more than 100
// signatures in a row, the most significant ones are written. Write returns an error if a report or row would be
// invalid, such as one with values that only RFC 7489 allows, or if w returns one. The report in w is then
// incomplete.
func Write(w io.Writer, h Header, rows iter.Seq[Row]) error {
	if err := h.check(); err != nil {
		return err
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", " ")
	root := start("feedback")
	root.Attr = []xml.Attr{{Name: xml.Name{Local: "xmlns"}, Value: Namespace}}
	err := errors.Join(
		encoder.EncodeToken(root),
		encoder.EncodeElement("1.0", start("version")),
		encoder.EncodeElement(metadataOf(&h), start("report_metadata")),
		encoder.EncodeElement(policyOf(&h.Policy), start("policy_published")))
	if err != nil {
		return err
	}
	empty := true
	for row := range rows {
		if err := row.check(&h.Policy); err != nil {
			return err
		}
		if err := encoder.EncodeElement(recordOf(&row), start("record")); err != nil {
			return err
		}
		empty = false
	}
	if empty {
		return errors.New("a report must have at least one row")
	}
	return errors.Join(encoder.EncodeToken(root.End()), encoder.Close())
}

func start(name string) xml.StartElement { return xml.StartElement{Name: xml.Name{Local: name}} }

func (h *Header) check() error {
	p := &h.Policy
	switch {
	case h.Org == "" || h.Email == "":
		return errors.New("a report needs the name and the address of the reporter")
	case !isID(h.ID):
		return fmt.Errorf("%q is not an id of a report (RFC 9990 section 3.5.1)", h.ID)
	case h.Begin.Unix() < 0 || h.End.Before(h.Begin) || h.End.Unix() > lastTime:
		return fmt.Errorf("the period from %v to %v is invalid", h.Begin, h.End)
	case !isDomain(p.Domain):
		return fmt.Errorf("%q is not a domain that can have a policy", p.Domain)
	case !slices.Contains(policies, p.P) || !isOptional(p.SP, policies) || !isOptional(p.NP, policies):
		return fmt.Errorf("%q, %q and %q are not policies", p.P, p.SP, p.NP)
	case !isOptional(p.Discovery, discoveries):
		return fmt.Errorf("%q is not a method of discovery", p.Discovery)
	}
	return nil
}

func (r *Row) check(p *Policy) error {
	switch {
	case !r.Source.IsValid() || r.Source.Zone() != "":
		return errors.New("a row needs the IP address of the client")
	case r.Count < 1 || r.Count > maxCount:
		return fmt.Errorf("a row has %d messages", r.Count)
	case !isDomain(r.HeaderFrom):
		return fmt.Errorf("%q is not a domain of a From field", r.HeaderFrom)
	case r.EnvelopeFrom != domain(r.EnvelopeFrom) || r.EnvelopeTo != domain(r.EnvelopeTo):
		return fmt.Errorf("%q or %q is not a domain", r.EnvelopeFrom, r.EnvelopeTo)
	case !slices.Contains(dispositions, r.Disposition):
		return fmt.Errorf("%q is not a disposition", r.Disposition)
	case len(r.Paths) > 1:
		return errors.New("a row has several results of SPF")
	case !r.DKIM && !r.SPF && len(r.Reasons) == 0 && !slices.Contains([]string{p.P, p.SP, p.NP}, r.Disposition):
		return fmt.Errorf("the disposition %s differs from the policy and needs a reason", r.Disposition)
	}
	for _, reason := range r.Reasons {
		if !slices.Contains(reasons, reason.Type) {
			return fmt.Errorf("%q is not a reason", reason.Type)
		}
	}
	for _, s := range r.Signatures {
		if !isDomain(s.Domain) || s.Selector == "" || s.Scope != "" || !slices.Contains(signatures, s.Result) {
			return fmt.Errorf("%+v is not a result of DKIM", s)
		}
	}
	for _, s := range r.Paths {
		if !isDomain(s.Domain) || s.Selector != "" || !isOptional(s.Scope, scopes[:1]) || !slices.Contains(paths, s.Result) {
			return fmt.Errorf("%+v is not a result of SPF", s)
		}
	}
	return nil
}

func isDomain(text string) bool { return text != "" && text == domain(text) }

// isOptional reports whether an optional value is empty or a word of a vocabulary.
func isOptional(text string, vocabulary []string) bool {
	return text == "" || slices.Contains(vocabulary, text)
}

// isID reports whether a text has the form of a Report-ID: one or two atoms with dots (RFC 9990 section 3.5.1).
func isID(text string) bool {
	atoms := strings.Split(text, "@")
	for _, atom := range atoms {
		for part := range strings.SplitSeq(atom, ".") {
			valid := func(c rune) bool {
				return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
					strings.ContainsRune("!#$%&'*+-/=?^_`{|}~", c)
			}
			if strings.TrimFunc(part, valid) != "" || part == "" {
				return false
			}
		}
	}
	return len(atoms) <= 2 && len(text) <= maxText
}

// sorted returns the signatures to report, the most significant ones first (RFC 9990 section 3.1.3).
func (r *Row) sorted() []Result {
	rank := func(s Result) int {
		switch {
		case s.Result != "pass":
			return 3
		case s.Domain == r.HeaderFrom:
			return 0
		case strings.HasSuffix(s.Domain, "."+r.HeaderFrom) || strings.HasSuffix(r.HeaderFrom, "."+s.Domain):
			return 1
		}
		return 2
	}
	all := slices.Clone(r.Signatures)
	slices.SortStableFunc(all, func(a, b Result) int { return rank(a) - rank(b) })
	return all[:min(len(all), maxSignatures)]
}

type xmlMetadata struct {
	Org       string `xml:"org_name"`
	Email     string `xml:"email"`
	Contact   string `xml:"extra_contact_info,omitempty"`
	ID        string `xml:"report_id"`
	Begin     int64  `xml:"date_range>begin"`
	End       int64  `xml:"date_range>end"`
	Error     string `xml:"error,omitempty"`
	Generator string `xml:"generator,omitempty"`
}

func metadataOf(h *Header) xmlMetadata {
	return xmlMetadata{Org: h.Org, Email: h.Email, Contact: h.Contact, ID: h.ID, Begin: h.Begin.Unix(), End: h.End.Unix(),
		Error: strings.Join(h.Errors, "; "), Generator: h.Generator}
}

type xmlPolicy struct {
	Domain    string `xml:"domain"`
	Discovery string `xml:"discovery_method,omitempty"`
	P         string `xml:"p"`
	SP        string `xml:"sp,omitempty"`
	NP        string `xml:"np,omitempty"`
	FO        string `xml:"fo,omitempty"`
	ADKIM     string `xml:"adkim"`
	ASPF      string `xml:"aspf"`
	Testing   string `xml:"testing"`
}

func policyOf(p *Policy) xmlPolicy {
	return xmlPolicy{Domain: p.Domain, Discovery: p.Discovery, P: p.P, SP: p.SP, NP: p.NP, FO: p.FailureReports,
		ADKIM: choose(p.StrictDKIM, "s", "r"), ASPF: choose(p.StrictSPF, "s", "r"), Testing: choose(p.Testing, "y", "n")}
}

type xmlRecord struct {
	Source       netip.Addr  `xml:"row>source_ip"`
	Count        int64       `xml:"row>count"`
	Disposition  string      `xml:"row>policy_evaluated>disposition"`
	DKIM         string      `xml:"row>policy_evaluated>dkim"`
	SPF          string      `xml:"row>policy_evaluated>spf"`
	Reasons      []xmlReason `xml:"row>policy_evaluated>reason"`
	HeaderFrom   string      `xml:"identifiers>header_from"`
	EnvelopeFrom string      `xml:"identifiers>envelope_from,omitempty"`
	EnvelopeTo   string      `xml:"identifiers>envelope_to,omitempty"`
	Results      xmlResults  `xml:"auth_results"` // required, even if it is empty
}

type xmlReason struct {
	Type    string `xml:"type"`
	Comment string `xml:"comment,omitempty"`
}

type xmlResults struct {
	DKIM []xmlResult `xml:"dkim"`
	SPF  []xmlResult `xml:"spf"`
}

type xmlResult struct {
	Domain   string `xml:"domain"`
	Selector string `xml:"selector,omitempty"`
	Scope    string `xml:"scope,omitempty"`
	Result   string `xml:"result"`
	Detail   string `xml:"human_result,omitempty"`
}

func recordOf(r *Row) (x xmlRecord) {
	x = xmlRecord{Source: r.Source.Unmap(), Count: r.Count, Disposition: r.Disposition,
		DKIM: choose(r.DKIM, "pass", "fail"), SPF: choose(r.SPF, "pass", "fail"),
		HeaderFrom: r.HeaderFrom, EnvelopeFrom: r.EnvelopeFrom, EnvelopeTo: r.EnvelopeTo}
	for _, reason := range r.Reasons {
		x.Reasons = append(x.Reasons, xmlReason(reason))
	}
	for _, s := range r.sorted() {
		x.Results.DKIM = append(x.Results.DKIM, xmlResult(s))
	}
	for _, s := range r.Paths {
		x.Results.SPF = append(x.Results.SPF, xmlResult(s))
	}
	return x
}

func choose(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}
