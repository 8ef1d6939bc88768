package dnsadvice

import (
	"fmt"

	"github.com/postrider/postrider/internal/mail/dmarc"
)

// mixedMin is the number of emails of each kind from which guidance advises to separate them.
const mixedMin = 100

// hidesPolicyOf reports whether the search for a domain's DMARC record ended below its organizational domain. It then
// says nothing about the record of the organizational domain.
func hidesPolicyOf(d *dmarc.Discovery, org string) bool {
	return d.At != "" && d.At != org && below(d.At, org)
}

// Guidance returns sentences about the choice of the domain and its DMARC policy. They concern no mistake. The function
// suggest is that of Deps.
func Guidance(f *Facts, sent Sent, suggest func(domain string, labels ...string) string) (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	org := f.Organization
	switch {
	case sent.Broadcasts >= mixedMin && sent.Others >= mixedMin:
		say("In the last 30 days, %d emails of broadcasts and %d other emails came from %s. Send broadcasts from a domain of "+
			"their own, such as %s, so that complaints about them do not delay the other emails.", sent.Broadcasts,
			sent.Others, f.Domain, suggest(org, "news", "letters"))
	case f.Domain == org && sent.Broadcasts+sent.Others > 0:
		say("Emails come from %s itself. Send them from a subdomain, such as %s, and keep %s for mail that people write, "+
			"so that neither harms the reputation of the other.", org, suggest(org, "mail", "email", "post"), org)
	}
	d, above := f.DMARC, f.Above
	switch {
	case d == nil || len(d.Discarded) > 0 || d.At == "":
	case !hidesPolicyOf(d, org):
		all = append(all, policyGuidance(d)...)
	case above == nil || len(above.Discarded) > 0:
	case above.At == org:
		all = append(all, policyGuidance(above)...)
	default:
		say("The DMARC record is at %s. Publish one at %s too, so that it protects all subdomains.", d.At, org)
	}
	return all
}

// policyGuidance returns sentences about the DMARC record of an organizational domain.
func policyGuidance(d *dmarc.Discovery) (all []string) {
	r := &d.Record
	strict := r.P == dmarc.Quarantine || r.P == dmarc.Reject
	switch {
	case strict && r.SP == dmarc.None:
		all = append(all, "The DMARC record of "+d.At+" has sp=none, so that everybody can send in the name of its "+
			"subdomains. Replace it with sp="+string(r.P)+" once the mail of your subdomains passes.")
	case strict && r.SP == "":
		all = append(all, "The DMARC record of "+d.At+" has no sp, so that p="+string(r.P)+" holds for each subdomain too. "+
			"Write sp="+string(r.P)+" to say so, or a milder policy while the mail of a subdomain does not pass.")
	}
	if strict && r.NP == "" {
		all = append(all, "Add np=reject to the DMARC record of "+d.At+", so that receivers refuse mail from subdomains that do "+
			"not exist.")
	}
	return all
}
