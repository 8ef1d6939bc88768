package authres

import (
	"context"
	"errors"
	"fmt"
	"net/mail"
	"strings"

	"github.com/postrider/postrider/internal/mail/dmarc"
)

// dmarc checks whether SPF or DKIM passed for the domain in the From field. It sets the verdict, the facts if they are
// wanted, and the policy that the domain's owner requests (RFC 9989 section 5.3.1). In test mode, that is the next
// milder policy.
func (e *Evaluator) dmarc(ctx context.Context, h header, o Origin, r *Results) {
	if h.problem != "" {
		r.DMARC = Verdict{Result: permerror, Detail: h.problem}
		return
	}
	from, err := fromDomain(h.from)
	if err != nil {
		r.DMARC = Verdict{Result: permerror, Detail: err.Error()}
		return
	}
	walker := dmarc.NewWalker(e.dns.LookupTXT)
	d, err := walker.Discover(ctx, from)
	switch {
	case err != nil:
		r.DMARC = Verdict{Result: temperror, Domain: from, Detail: err.Error()}
		return
	case d.At == "":
		r.DMARC = Verdict{Result: none, Domain: from, Detail: "the domain publishes no policy"}
	case d.Policy == "":
		r.DMARC = Verdict{Result: none, Domain: from, Detail: "the DMARC record of " + d.At + " has no valid policy"}
	default:
		var all []identifier
		for _, v := range r.DKIM {
			all = append(all, identifier{v, "DKIM", d.Record.StrictDKIM})
		}
		r.DMARC = evaluate(ctx, walker, from, append(all, identifier{r.SPF, "SPF", d.Record.StrictSPF}))
		r.Policy = string(d.Policy)
		if e.Facts && r.DMARC.Result != temperror {
			r.Facts = e.facts(ctx, walker, from, h, o, r, d)
		}
	}
	if e.Log != nil {
		e.compare(ctx, walker, from, r, d)
	}
}

// identifier is the verdict of a method on a domain that may be aligned with the From domain.
type identifier struct {
	Verdict
	method string
	strict bool
}

// evaluate returns "pass" if a method passed for a domain that is aligned. Identical domains come first, because they
// need no look-ups.
func evaluate(ctx context.Context, walker *dmarc.Walker, from string, all []identifier) Verdict {
	for _, wanted := range []string{pass, temperror} {
		for _, identical := range []bool{true, false} {
			var failed error
			for _, id := range all {
				if id.Result != wanted || id.strict && !identical {
					continue
				}
				aligned, err := walker.Aligned(ctx, from, id.Domain, identical)
				if aligned {
					detail := fmt.Sprintf("%s of %s", id.method, id.Domain)
					if wanted != pass {
						detail += ": " + id.Detail
					}
					return Verdict{Result: wanted, Domain: from, Detail: detail}
				}
				failed = errors.Join(failed, err)
			}
			if failed != nil {
				return Verdict{Result: temperror, Domain: from, Detail: failed.Error()}
			}
		}
	}
	return Verdict{Result: fail, Domain: from,
		Detail: "neither SPF nor a DKIM signature passes for the domain of the From field"}
}

// fromDomain returns the domain in the From field, or an error if the domain is missing or ambiguous. RFC 9989 section
// 5.3.1 leaves messages with an ambiguous From field to the receiver. This package treats such a field as an error,
// because a mail program could show any of the domains.
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
