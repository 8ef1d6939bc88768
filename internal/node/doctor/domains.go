package doctor

import (
	"fmt"
	"strings"

	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/servedpolicies"
)

// Notices is about the sender of notices.
type Notices struct {
	From   string // the setting notice_from
	Domain string
	Team   string // name of the operator's team; "" if there is no team
	// Found is whether the domain exists, Own whether it belongs to the operator's team, and MaySend whether its records
	// were found lately.
	Found, Own, MaySend bool
}

// Domains is what the DNS says of the teams' domains.
type Domains struct {
	Err  error // of the query for the domains
	All  []Domain
	More bool   // there are further domains, which were not looked up
	Only string // the domain or team to which the look-up was limited; "" for none
}

// Domain is a team's domain with its records as of now.
type Domain struct {
	Name    string
	Team    string // name
	Records []domains.Record
	Late    bool // there was no time to look the domain up
	DMARC   DMARC
	Policy  *servedpolicies.Examined // the MTA-STS policy that is served; nil for none
}

func checkNotices(f *Facts) []Finding {
	o := one{id: "notices"}
	n := f.Notices
	if n == nil {
		return nil
	}
	subject := n.From
	switch {
	case n.From == "":
		o.add(NotChecked, "notice_from", "notice_from is not set, so people get no invitations and teams no notices.",
			"Set notice_from to an address at a domain of the operator's team.")
	case n.Domain == "":
		o.add(Failure, subject, "notice_from is not an address, so no notices are sent.", "Write it as Postrider "+
			"<notices@example.com>.")
	case !n.Found:
		o.add(Failure, subject, "The domain "+n.Domain+" was not added, so no notices and alarms are sent by email.",
			"Add the domain to the operator's team, and verify it.")
	case !n.Own:
		o.add(Failure, subject, "The domain "+n.Domain+" belongs to another team than the operator's ("+n.Team+"), so no "+
			"notices and alarms are sent by email.", "Set operator_team to the id of the team that has the domain.")
	case !n.MaySend:
		o.add(Failure, subject, "The domain "+n.Domain+" is not verified, so no notices and alarms are sent by email.",
			"Add its DNS records, and verify it.")
	default:
		o.ok(subject, "The domain is verified and belongs to the operator's team.")
	}
	return o.all
}

// recordStatus is the status of a finding for each record that is missing. The other records are needed to send or
// receive.
var recordStatus = map[string]Status{"dkim-ed25519": Warning, "tracking": Warning, "caa": Warning}

// recordEffect says what a missing record means.
var recordEffect = map[string]string{
	"mx":           "Bounces of this domain's email are lost, and its email may fail SPF",
	"spf":          "Email of this domain fails SPF",
	"dkim":         "Signatures of this domain's email (DKIM) are not valid, and large providers refuse it",
	"dkim-ed25519": "The second signature of this domain's email (DKIM with Ed25519) is not valid",
	"receiving":    "Mail to this domain does not reach this installation",
	"tracking":     "Tracked links in this domain's email do not work",
	"caa":          "No certificate can be issued for the tracked links of this domain",
}

func checkDomains(f *Facts) []Finding {
	d := f.Domains
	o := one{id: "domains"}
	switch {
	case d == nil:
		return nil
	case d.Err != nil:
		o.add(NotChecked, "teams' domains", "The domains cannot be read: "+d.Err.Error()+".", "See the findings about the "+
			"database.")
		return o.all
	case len(d.All) == 0 && d.Only != "":
		o.add(NotChecked, d.Only, "There is no such domain that was verified.", "Check the spelling.")
		return o.all
	case len(d.All) == 0:
		o.add(NotChecked, "teams' domains", "No team has a verified domain.", "")
		return o.all
	}
	good, late, silent := 0, 0, 0
	var all []Finding
	for i := range d.All {
		x := &d.All[i]
		if x.Late {
			late++
			continue
		}
		found := checkDomain(x)
		switch {
		case len(found) == 0:
			good++
		case worstOf(found) == NotChecked:
			silent++
		}
		all = append(all, found...)
	}
	bad := len(d.All) - good - late - silent
	count := fmt.Sprintf("%d of %d domains", good, len(d.All))
	if d.More && d.Only == "" {
		count += ", which were looked up longest ago,"
	} else if d.More {
		count += ", which are not all of " + d.Only + ","
	}
	text := count + " have all records and a DMARC policy."
	if rest := late + silent; rest > 0 {
		text += fmt.Sprintf(" %d could not be checked.", rest)
	}
	switch {
	case bad > 0:
		o.add(worstOf(all), "teams' domains", text, "See the findings about single records.")
	case good == 0:
		o.add(NotChecked, "teams' domains", text, "See the findings about single records, and the finding dns.servers.")
	default:
		o.ok("teams' domains", "%s", text)
	}
	return append(o.all, all...)
}

// worstOf returns the worst status of findings.
func worstOf(all []Finding) Status {
	worst := OK
	order := map[Status]int{OK: 0, NotChecked: 1, Warning: 2, Failure: 3}
	for _, f := range all {
		if order[f.Status] > order[worst] {
			worst = f.Status
		}
	}
	return worst
}

// checkDomain returns the findings about a domain that are not good.
func checkDomain(d *Domain) (all []Finding) {
	for _, r := range d.Records {
		id := "domain." + strings.ReplaceAll(r.Key, "-", "_")
		subject := fmt.Sprintf("%s %s (team %s)", r.Type, r.FQDN, d.Team)
		status, known := recordStatus[r.Key]
		if !known {
			status = Failure
		}
		switch {
		case r.Hidden:
			all = append(all, Finding{ID: id, Subject: subject, Status: NotChecked, Meaning: "The record cannot be seen, " +
				"because the domain is still delegated to this installation. It works with its former set-up meanwhile.",
				Advice: r.Advice()})
		case r.Unanswered:
			all = append(all, Finding{ID: id, Subject: subject, Status: NotChecked,
				Meaning: "No name server answered the question about the record.",
				Advice:  "Check that the name servers of " + d.Name + " work. See also the finding dns.servers."})
		case r.Status != domains.Verified:
			found := "The record was not found."
			if r.Found != "" {
				found = "The DNS has other values: " + strings.ReplaceAll(r.Found, "\n", " | ")
			}
			all = append(all, Finding{ID: id, Subject: subject, Status: status,
				Meaning: recordEffect[r.Key] + ". " + found, Advice: r.Advice() + " Wanted: " + wanted(&r)})
		}
	}
	if d.DMARC.Domain != "" {
		o := one{id: "domain.dmarc"}
		o.checkPolicy(&d.DMARC)
		for _, f := range o.all {
			if f.Status != OK {
				f.Subject = fmt.Sprintf("%s (team %s)", d.Name, d.Team)
				all = append(all, f)
			}
		}
	}
	return all
}

// wanted returns the value of a record as it should be.
func wanted(r *domains.Record) string {
	if r.Type == "MX" {
		return fmt.Sprintf("%d %s", r.Priority, r.Value)
	}
	return r.Value
}
