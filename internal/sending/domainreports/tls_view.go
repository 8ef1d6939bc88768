package domainreports

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/tlsrpt"
	"github.com/postrider/postrider/internal/sending/domains"
)

// TLSDay counts the sessions of a day.
type TLSDay struct {
	Day                time.Time
	Successful, Failed int64
}

// TLSFailure counts the sessions that failed in one way at one mail host.
type TLSFailure struct {
	Host, Type, Policy string // Type is a result type of RFC 8460, or "unspecified"
	Reporter           string
	Sessions           int64
	Advice             string
}

// TLSReporter counts what a reporter reported.
type TLSReporter struct {
	Domain             string
	Successful, Failed int64
}

// TLSView shows the TLS reports about a domain.
type TLSView struct {
	Period
	Successful, Failed int64
	Days               []TLSDay
	Failures           []TLSFailure
	MoreFailures       int // failures that are not in the list
	Reporters          []TLSReporter
	Findings           []Finding
	Apart              Apart
}

// TLS returns the view of a domain's TLS reports.
func (s *Service) TLS(ctx context.Context, d *domains.Domain, p Period) (*TLSView, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	v := &TLSView{Period: p}
	days, reporters, failures := map[int64]*TLSDay{}, map[string]*TLSReporter{}, map[TLSFailure]int64{}
	err := tlsTotals(ctx, s.p.DB.Reader, d.TeamID, d.ID, today(p.From), today(p.To), func(x tlsTotal) {
		if days[x.day] == nil {
			days[x.day] = &TLSDay{Day: time.UnixMicro(x.day).UTC()}
		}
		who := x.reporter
		if reporters[who] == nil && len(reporters) >= groupsMax {
			who = ""
		}
		if reporters[who] == nil {
			reporters[who] = &TLSReporter{Domain: who}
		}
		if x.result == "" {
			v.Successful += x.count
			days[x.day].Successful += x.count
			reporters[who].Successful += x.count
			return
		}
		v.Failed += x.count
		days[x.day].Failed += x.count
		reporters[who].Failed += x.count
		f := TLSFailure{Host: x.host, Type: x.result, Policy: x.policyType, Reporter: who}
		if _, found := failures[f]; !found && len(failures) >= groupsMax {
			f.Host, f.Reporter = "", ""
		}
		failures[f] += x.count
	})
	if err != nil {
		return nil, err
	}
	for _, at := range slices.Sorted(maps.Keys(days)) {
		v.Days = append(v.Days, *days[at])
	}
	for f, n := range failures {
		f.Sessions, f.Advice = n, fixOf(f.Type)
		v.Failures = append(v.Failures, f)
	}
	slices.SortFunc(v.Failures, func(a, b TLSFailure) int {
		return cmp.Or(cmp.Compare(b.Sessions, a.Sessions), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Type, b.Type),
			cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Reporter, b.Reporter))
	})
	v.Findings = v.findings()
	if len(v.Failures) > sourcesMax {
		v.MoreFailures, v.Failures = len(v.Failures)-sourcesMax, v.Failures[:sourcesMax]
	}
	for _, r := range reporters {
		v.Reporters = append(v.Reporters, *r)
	}
	slices.SortFunc(v.Reporters, func(a, b TLSReporter) int {
		return cmp.Or(cmp.Compare(b.Successful+b.Failed, a.Successful+a.Failed), cmp.Compare(a.Domain, b.Domain))
	})
	v.Reporters = v.Reporters[:min(len(v.Reporters), sourcesMax)]
	v.Apart, err = unprovenSessions(ctx, s.p.DB.Reader, d.TeamID, d.ID, today(p.From), today(p.To))
	return v, err
}

// findings adds the failures up by mail host and type.
func (v *TLSView) findings() []Finding {
	type place struct{ host, result string }
	sums, reporters := map[place]int64{}, map[place]map[string]bool{}
	for _, f := range v.Failures {
		at := place{f.Host, f.Type}
		sums[at] += f.Sessions
		if reporters[at] == nil {
			reporters[at] = map[string]bool{}
		}
		reporters[at][f.Reporter] = true
	}
	var all []Finding
	for at, n := range sums {
		if n < findingMin || n*findingPart < v.Successful+v.Failed {
			continue
		}
		f := Finding{Kind: FindingKind(at.result), Source: at.host, Messages: n, Advice: fixOf(at.result)}
		host := cmp.Or(at.host, "your mail hosts")
		f.Says = fmt.Sprintf("%d TLS sessions with %s failed: %s. %d senders reported it.", n, host, at.result,
			len(reporters[at]))
		if len(reporters[at]) == 1 {
			for name := range reporters[at] {
				f.Reporter = name
			}
			f.Says = fmt.Sprintf("%d TLS sessions of %s with %s failed: %s.", n, cmp.Or(f.Reporter, "one sender"), host,
				at.result)
		}
		all = append(all, f)
	}
	return sorted(all)
}

// fixes say what to do about failures.
var fixes = map[tlsrpt.Result]string{
	tlsrpt.NoSTARTTLS: "The host does not offer STARTTLS. Configure a certificate at its SMTP server, and check " +
		"whether a firewall removes STARTTLS.",
	tlsrpt.HostMismatch: "The certificate does not have the name of the host. Get a certificate with the name in " +
		"the MX record, or correct the MX record.",
	tlsrpt.CertificateExpired: "The certificate has expired. Renew it, and restart the SMTP server if it does not " +
		"read it again by itself.",
	tlsrpt.NotTrusted: "Senders do not trust the certificate. Use one of a public authority, and send the whole " +
		"chain.",
	tlsrpt.ValidationFailure: "The senders could not verify the host. Compare its certificate with the MX record, " +
		"the MTA-STS policy and the TLSA records. If the host is not in the policy, add it to the policy's lines mx.",
	tlsrpt.TLSAInvalid: "The TLSA record does not fit the certificate. It was probably not changed with the " +
		"certificate: publish a record for the present certificate.",
	tlsrpt.DNSSECInvalid: "The DNSSEC signatures of the zone are wrong or expired. Sign the zone again, and check " +
		"the DS record at the parent zone.",
	tlsrpt.DANERequired: "The sender demands DANE, and the host has no TLSA record that can be used. Publish one, " +
		"or tell the sender.",
	tlsrpt.FetchError: "The MTA-STS policy could not be fetched. Check that " +
		"https://mta-sts.DOMAIN/.well-known/mta-sts.txt answers, with a valid certificate.",
	tlsrpt.PolicyInvalid: "The MTA-STS policy has a mistake. Compare it with RFC 8461 section 3.2.",
	tlsrpt.WebPKIInvalid: "The host of the MTA-STS policy has no valid certificate. Renew the certificate of " +
		"mta-sts.DOMAIN.",
}

// fixOf returns what to do about a failure.
func fixOf(result string) string {
	fix, ok := fixes[tlsrpt.Result(result)]
	if !ok {
		return "The reporter does not say what failed. Compare the certificate of the host with its DNS records."
	}
	return fix
}

// Sessions returns the numbers of TLS sessions and of failures in the proven TLS reports about a team's domain since a
// time. If well-known reporters sent reports, only theirs count. Otherwise the numbers are 0 unless two reporters are
// independent. Reports about a domain that the team does not have count as none.
func (s *Service) Sessions(ctx context.Context, teamID, domain string, since time.Time) (all, failed int64, err error) {
	d, err := s.p.Domains.GetByName(ctx, teamID, domain)
	if fault.KindOf(err) == fault.NotFound {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	type sum struct{ all, failed int64 }
	var known, others sum
	reporters := map[string]bool{}
	err = tlsTotals(ctx, s.p.DB.Reader, teamID, d.ID, today(since), today(s.c.Now())+1, func(x tlsTotal) {
		to := &others
		if isWellKnown(x.reporter) {
			to = &known
		} else if len(reporters) < groupsMax {
			reporters[x.reporter] = true
		}
		to.all += x.count
		if x.result != "" {
			to.failed += x.count
		}
	})
	if known.all == 0 && independent(slices.Collect(maps.Keys(reporters))) {
		known = others
	}
	return known.all, known.failed, err
}
