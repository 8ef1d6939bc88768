package doctor

import (
	"time"

	"github.com/postrider/postrider/internal/sending/servedpolicies"
)

// lateCheck is the time after which a check of a policy that is due is missing.
const lateCheck = time.Hour

// checkPolicies judges what the nodes' checks of served MTA-STS policies found: whether senders can fetch the policy over
// HTTPS, whether the record has its id, whether the policy lists the mail hosts, and whether their certificate is valid.
func checkPolicies(f *Facts) []Finding {
	o := one{id: "mta_sts"}
	if f.Domains == nil {
		return nil
	}
	good := 0
	for i := range f.Domains.All {
		x := &f.Domains.All[i]
		p := x.Policy
		if p == nil {
			continue
		}
		subject := "mta-sts." + x.Name
		switch {
		case f.Now.Sub(p.CheckAt) > lateCheck:
			o.add(Warning, subject, "No node checks the MTA-STS policy of "+x.Name+", although a check is due since "+
				p.CheckAt.UTC().Format(time.RFC3339)+".", "Run a node with the role jobs.")
		case p.CheckedAt.IsZero():
			o.add(NotChecked, subject, "The MTA-STS policy of "+x.Name+" was not checked yet.", "Try again in some minutes.")
		case len(p.Problems) == 0:
			good++
		default:
			for _, problem := range p.Problems {
				o.add(policyStatus(p), subject, problem.Message, "The team "+x.Team+" must mend this, or choose another mode "+
					"(`PUT /domains/{id}/mta-sts`).")
			}
		}
	}
	if good > 0 {
		o.ok("served policies", "The last checks of %d MTA-STS policies found no problem.", good)
	}
	return o.all
}

// policyStatus returns the status of a problem. Senders keep their mail only if they know an enforced policy.
func policyStatus(p *servedpolicies.Examined) Status {
	if p.Mode == servedpolicies.Enforce && p.Worked {
		return Failure
	}
	return Warning
}
