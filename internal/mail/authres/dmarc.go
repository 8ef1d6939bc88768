package authres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// dmarc checks whether SPF or DKIM passed for the domain in the From field, and returns the policy that the domain's
// owner requests (RFC 7489 section 6.6). Relaxed alignment uses the public suffix list.
func (e *Evaluator) dmarc(ctx context.Context, h header, spf Verdict, dkim []Verdict) (Verdict, string) {
	if h.problem != "" {
		return Verdict{Result: permerror, Detail: h.problem}, ""
	}
	from, err := fromDomain(h.from)
	if err != nil {
		return Verdict{Result: permerror, Detail: err.Error()}, ""
	}
	record, found, err := e.dmarcRecord(ctx, from)
	switch {
	case err != nil:
		return Verdict{Result: temperror, Domain: from, Detail: err.Error()}, ""
	case !found:
		return Verdict{Result: none, Domain: from, Detail: "the domain publishes no policy"}, ""
	}
	v := Verdict{Result: fail, Domain: from,
		Detail: "neither SPF nor a DKIM signature passes for the domain of the From field"}
	judge := func(method string, other Verdict, strict bool) {
		switch {
		case v.Result == pass || !aligned(from, other.Domain, strict):
		case other.Result == pass:
			v.Result, v.Detail = pass, fmt.Sprintf("%s of %s", method, other.Domain)
		case other.Result == temperror:
			v.Result, v.Detail = temperror, fmt.Sprintf("%s of %s: %s", method, other.Domain, other.Detail)
		}
	}
	for _, d := range dkim {
		judge("DKIM", d, record.strictDKIM)
	}
	judge("SPF", spf, record.strictSPF)
	return v, record.policy
}

// aligned reports whether a verdict about domain applies to the From domain (RFC 7489 section 3.1).
func aligned(from, domain string, strict bool) bool {
	if domain == "" || strict {
		return from == domain
	}
	return organizational(from) == organizational(domain)
}

// organizational returns the organizational domain of a name: the registered domain below a public suffix. A public
// suffix is its own organizational domain and never aligns with domains registered below it.
func organizational(domain string) string {
	registered, err := publicsuffix.EffectiveTLDPlusOne(domain)
	if err != nil {
		return domain
	}
	return registered
}

// fromDomain returns the domain in the From field, or an error if the domain is missing or ambiguous. RFC 7489 section
// 6.6.1 lets the receiver decide how to handle an ambiguous From field. This package treats an ambiguous From field as
// an error, because a mail program could show any of the domains.
func fromDomain(fields []string) (string, error) {
	if len(fields) != 1 {
		return "", fmt.Errorf("the message has %d From fields, and there must be one", len(fields))
	}
	addrs, err := fromAddresses(fields[0])
	if err != nil {
		return "", err
	}
	domain := ""
	for _, addr := range addrs {
		name := hostName(addr[strings.LastIndexByte(addr, '@')+1:])
		switch {
		case name == "":
			return "", errors.New("the From field has an address without a domain name")
		case domain != "" && domain != name:
			return "", errors.New("the From field names several domains")
		}
		domain = name
	}
	if domain == "" {
		return "", errors.New("the From field holds no address")
	}
	return domain, nil
}

// fromAddresses returns the addresses in a From field. Display names in real mail often violate the grammar. If the
// field ends with its only pair of angle brackets, every mail reader takes the address from those brackets.
func fromAddresses(value string) ([]string, error) {
	list, err := mail.ParseAddressList(strings.ToValidUTF8(value, "?"))
	if err == nil {
		addrs := make([]string, len(list))
		for i, a := range list {
			addrs[i] = a.Address
		}
		return addrs, nil
	}
	open := strings.IndexByte(value, '<')
	if open >= 0 && strings.Count(value, "<") == 1 && strings.IndexByte(value, '>') == len(value)-1 {
		addr := value[open+1 : len(value)-1]
		if strings.Count(addr, "@") == 1 && !strings.ContainsAny(addr, "\" \t,;:()") {
			return []string{addr}, nil
		}
	}
	return nil, errors.New("the From field cannot be read")
}

// dmarcPolicy holds the parts of a DMARC record that this package uses.
type dmarcPolicy struct {
	policy                string // policy for the domain in the From field
	strictDKIM, strictSPF bool
}

// dmarcRecord looks for a DMARC record at the domain and, if there is none, at its organizational domain (RFC 7489
// section 6.6.3).
func (e *Evaluator) dmarcRecord(ctx context.Context, from string) (dmarcPolicy, bool, error) {
	p, found, err := e.dmarcAt(ctx, from, false)
	if org := organizational(from); err == nil && !found && org != from {
		return e.dmarcAt(ctx, org, true)
	}
	return p, found, err
}

func (e *Evaluator) dmarcAt(ctx context.Context, domain string, parent bool) (dmarcPolicy, bool, error) {
	records, err := e.dns.LookupTXT(ctx, "_dmarc."+domain)
	if err != nil {
		if dnsErr, ok := errors.AsType[*net.DNSError](err); ok && dnsErr.IsNotFound {
			return dmarcPolicy{}, false, nil
		}
		return dmarcPolicy{}, false, fmt.Errorf("look up the DMARC record of %s: %w", domain, err)
	}
	var p dmarcPolicy
	n := 0
	for _, r := range records {
		if parsed, ok := parseDMARC(r, parent); ok {
			p = parsed
			n++
		}
	}
	return p, n == 1, nil // more than one DMARC record is treated as none (RFC 7489 section 6.6.3)
}

// parseDMARC parses a DMARC record. The library's parser rejects the whole record because of one bad tag. RFC 7489
// section 6.3 requires receivers to use the tag's default value instead.
func parseDMARC(text string, parent bool) (p dmarcPolicy, ok bool) {
	tags := make(map[string]string)
	first := true
	for pair := range strings.SplitSeq(text, ";") {
		name, value, _ := strings.Cut(pair, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if first && (name != "v" || value != "DMARC1") {
			return dmarcPolicy{}, false
		}
		first = false
		if _, twice := tags[name]; !twice {
			tags[name] = value
		}
	}
	p.policy = strings.ToLower(tags["p"])
	valid := knownPolicy(p.policy)
	if sub, has := tags["sp"]; has {
		sub = strings.ToLower(sub)
		valid = valid && knownPolicy(sub)
		if parent {
			p.policy = sub
		}
	}
	if !valid {
		// An invalid policy is treated as "none" if the record requests aggregate reports (RFC 7489 section 6.6.3).
		if !strings.Contains(strings.ToLower(tags["rua"]), "mailto:") {
			return dmarcPolicy{}, false
		}
		p.policy = none
	}
	p.strictDKIM = strings.EqualFold(tags["adkim"], "s")
	p.strictSPF = strings.EqualFold(tags["aspf"], "s")
	return p, true
}

func knownPolicy(s string) bool { return s == "none" || s == "quarantine" || s == "reject" }
