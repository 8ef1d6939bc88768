package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/mail/resolve"
)

// Resolver is what the DNS servers of this node do.
type Resolver struct {
	Err     error // dns_servers or the settings of the system cannot be used
	Servers []resolve.Validation
	Signed  string // the name with a valid signature that was asked for; "" if none was
}

func checkResolver(f *Facts) []Finding {
	servers, validation := one{id: "dns.servers"}, one{id: "dns.validation"}
	r := f.Resolver
	switch {
	case r == nil:
		return nil
	case r.Err != nil:
		servers.add(Failure, "dns_servers", "No DNS server is known: "+r.Err.Error()+". No email can be delivered.",
			"Set dns_servers, or repair /etc/resolv.conf.")
		return servers.all
	}
	var silent, plain, accepting, unknown, good []string
	for _, v := range r.Servers {
		switch {
		case v.Err != nil:
			silent = append(silent, v.Server)
		case !v.Known:
			unknown = append(unknown, v.Server)
		case !v.Authentic:
			plain = append(plain, v.Server)
		case !v.BogusUnknown && !v.RefusesBogus:
			accepting = append(accepting, v.Server)
		default:
			good = append(good, v.Server)
		}
	}
	all := joined(serverNames(r.Servers))
	switch {
	case len(silent) == len(r.Servers):
		servers.add(Failure, all, "No DNS server answers, so emails wait and no mail host is found.",
			"Start a DNS server on this machine (such as unbound), or correct dns_servers or /etc/resolv.conf.")
		return servers.all
	case len(silent) > 0:
		servers.add(Warning, joined(silent), "This DNS server does not answer. Each look-up that asks it first takes "+
			"seconds longer.", "Repair it, or remove it from dns_servers or /etc/resolv.conf.")
	default:
		servers.ok(all, "The DNS servers answer.")
	}
	advice := "Run a validating resolver on this machine, such as unbound, and set dns_servers to 127.0.0.1."
	bad := slices.Concat(plain, accepting)
	switch {
	case r.Signed == "":
		validation.add(NotChecked, all, "doctor_signed_name is empty.", "")
	case len(plain) > 0:
		validation.add(Warning, joined(bad), "This DNS server does not validate signatures (DNSSEC), so forged answers "+
			"can lead email to wrong hosts.", advice)
	case len(accepting) > 0:
		validation.add(Warning, joined(bad), "This DNS server marks answers as validated, but also gives an answer with a "+
			"wrong signature (DNSSEC). Forged answers can lead email to wrong hosts.", advice)
	case len(good) == 0:
		validation.add(NotChecked, joined(unknown), "The DNS servers find no address of "+r.Signed+", the name that "+
			"doctor looks up.", "Set doctor_signed_name to a signed name that has an address (A record).")
	default:
		validation.ok(joined(good), "The DNS servers validate signatures (DNSSEC).")
	}
	return append(servers.all, validation.all...)
}

func serverNames(all []resolve.Validation) (names []string) {
	for _, v := range all {
		names = append(names, v.Server)
	}
	return names
}

// SPF is the result of evaluating an SPF record for an address from which this installation sends.
type SPF struct {
	Name    string
	Purpose string // spf_include or hostname
	Records []string
	Err     error // of the look-up of the records
	Addr    netip.Addr
	Result  string // of RFC 7208: pass, fail, softfail, neutral, none, permerror or temperror
	Detail  string // of the evaluation
}

func checkSPF(f *Facts) []Finding {
	include, hello := one{id: "spf.include"}, one{id: "spf.hostname"}
	for _, s := range f.SPF {
		o, missing := &include, Failure
		what := "The SPF records of all customers include this name, so their email fails SPF"
		if s.Purpose == "hostname" {
			o, missing = &hello, Warning
			what = "Receivers evaluate it for bounces, which have no sender"
		}
		subject := fmt.Sprintf("%s (%s)", s.Name, s.Addr)
		add := "v=spf1 " + ipTerm(s.Addr) + " -all"
		switch {
		case s.Err != nil && !errors.Is(s.Err, resolve.ErrNotFound) || s.Result == "temperror":
			o.add(NotChecked, subject, "The DNS servers gave no answer about the SPF record.", "See the finding dns.servers.")
		case len(s.Records) == 0:
			o.add(missing, subject, "The name has no SPF record. "+what+".", "Add a TXT record at "+s.Name+": "+add)
		case len(s.Records) > 1:
			o.add(Failure, subject, fmt.Sprintf("The name has %d SPF records, so none of them counts. %s.", len(s.Records),
				what), "Keep one record that begins with v=spf1.")
		case s.Result == "pass":
			o.ok(subject, "The SPF record allows the address.")
		case s.Result == "permerror":
			o.add(Failure, subject, "The SPF record cannot be evaluated: "+s.Detail+". "+what+".", "Correct the record: "+
				s.Records[0])
		default:
			o.add(Failure, subject, fmt.Sprintf("The SPF record does not allow the address (%s). %s.", s.Result, what),
				"Add "+ipTerm(s.Addr)+" to the record before its last term: "+s.Records[0])
		}
	}
	return append(include.all, hello.all...)
}

// ipTerm returns the term of an SPF record that allows an address.
func ipTerm(a netip.Addr) string {
	if a.Is4() {
		return "ip4:" + a.String()
	}
	return "ip6:" + a.String()
}

// DMARC is what the DNS says about the policy for a domain.
type DMARC struct {
	Domain  string
	At      string   // the domain with the records, or the one that should have a record
	Records []string // several only if none of them counts
	Err     error
}

func checkDMARC(f *Facts) []Finding {
	o := one{id: "dmarc"}
	for _, d := range f.DMARC {
		o.checkPolicy(&d)
	}
	return o.all
}

func (o *one) checkPolicy(d *DMARC) {
	switch {
	case d.Err != nil && !errors.Is(d.Err, resolve.ErrNotFound):
		o.add(NotChecked, d.Domain, "The DNS servers gave no answer about the DMARC record.", "See the finding dns.servers.")
	case len(d.Records) == 0:
		o.add(Warning, d.Domain, "The domain has no DMARC record. Gmail, Yahoo, Microsoft and Apple refuse bulk mail from "+
			"such domains.", "Add a TXT record at _dmarc."+d.At+": v=DMARC1; p=none")
	case len(d.Records) > 1:
		o.add(Failure, d.Domain, fmt.Sprintf("The domain has %d DMARC records, so none of them counts.", len(d.Records)),
			"Keep one TXT record at _dmarc."+d.At+".")
	default:
		policy := tag(d.Records[0], "p")
		if !slices.Contains([]string{"none", "quarantine", "reject"}, strings.ToLower(policy)) {
			o.add(Failure, d.Domain, fmt.Sprintf("The DMARC record has the policy p=%s, which does not exist, so receivers "+
				"may ignore the record.", policy), "Set p to none, quarantine or reject in the TXT record at _dmarc."+d.At+".")
			return
		}
		o.ok(d.Domain, "The DMARC policy is %s (at %s).", strings.ToLower(policy), d.At)
	}
}

// ReportHost is a host whose addresses receive reports about customers' domains.
type ReportHost struct {
	Name    string
	At      string   // name of the authorization record for an example domain, which was looked up
	Records []string // TXT
	Err     error
}

// checkReports checks that reporters may send DMARC reports about customers' domains to this installation (RFC 9990
// section 4).
func checkReports(f *Facts) []Finding {
	o := one{id: "dmarc.reports"}
	for _, h := range f.Reports {
		allowed := slices.ContainsFunc(h.Records, func(text string) bool {
			return strings.EqualFold(tag(text, "v"), "DMARC1")
		})
		switch {
		case allowed:
			o.ok(h.Name, "Reporters may send DMARC reports about customers' domains to the host.")
		case h.Err != nil && !errors.Is(h.Err, resolve.ErrNotFound):
			o.add(NotChecked, h.Name, "The DNS servers gave no answer about the record that allows DMARC reports.",
				"See the finding dns.servers.")
		default:
			o.add(Warning, h.Name, "Reporters send no DMARC reports about customers' domains to the host, because no record "+
				"allows it.", "Add a TXT record at *._report._dmarc."+h.Name+": v=DMARC1")
		}
	}
	return o.all
}

// tag returns the value of a tag in a record of the form name=value; name=value.
func tag(record, name string) string {
	for part := range strings.SplitSeq(record, ";") {
		if n, v, ok := strings.Cut(part, "="); ok && strings.EqualFold(strings.TrimSpace(n), name) {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
