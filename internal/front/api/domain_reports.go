package api

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domainreports"
	"github.com/postrider/postrider/internal/sending/domains"
)

type reportWire struct {
	ID           string        `json:"id"`
	Kind         *string       `json:"kind" enum:"dmarc,tls" doc:"Null if the message had no report."`
	State        string        `json:"state" enum:"counted,overlapping,unreadable,discarded" doc:"Only counted reports are included in the totals. overlapping: another report of the reporter covers part of the same period. unreadable: the report has an error or is too large. discarded: the report contradicts itself, or is about another domain."`
	Reason       *string       `json:"reason" doc:"Why the report does not count, or why a report of an authenticated sender proves nothing."`
	Proven       bool          `json:"proven" doc:"Whether the reporter is authenticated and the report names it. Reports without proof are added up apart."`
	Reporter     *string       `json:"reporter" doc:"The domain of the sender."`
	Organization *string       `json:"organization" doc:"The reporter's name in the report."`
	ReportID     *string       `json:"report_id" doc:"The reporter's ID of the report."`
	PolicyDomain *string       `json:"policy_domain" doc:"The domain that the report is about."`
	Begin        *wire.ISOTime `json:"begin" doc:"The start of the period that the report covers."`
	End          *wire.ISOTime `json:"end" doc:"The end of the period that the report covers."`
	Total        int64         `json:"total" doc:"The number of messages in a DMARC report, or of sessions in a TLS report."`
	Failed       int64         `json:"failed" doc:"The number of messages that passed neither DKIM nor SPF for the domain, or of failed sessions."`
	Rows         int64         `json:"rows" doc:"The number of rows in the report."`
	Repeats      int64         `json:"repeats" doc:"How many further times the report was received."`
	Size         int64         `json:"size" doc:"The size of the file in bytes."`
	HasFile      bool          `json:"has_file" doc:"Whether the file is kept and can be downloaded."`
	CreatedAt    wire.ISOTime  `json:"created_at" doc:"When the report was received."`
}

func reportToWire(r domainreports.Report) reportWire {
	return reportWire{r.ID, orNull(string(r.Kind)), string(r.State), orNull(r.Reason), r.Proven, orNull(r.Reporter),
		orNull(r.Organization), orNull(r.ReportID), orNull(r.PolicyDomain), isoOrNull(r.Begin), isoOrNull(r.End), r.Messages,
		r.Failed, r.Rows, r.Repeats, r.Size, r.HasFile, wire.ISOTime(r.ReceivedAt)}
}

type findingWire struct {
	Kind     string  `json:"kind" doc:"The kind of finding. For DMARC reports: own_signature, old_selector, missing_in_spf, unaligned, impostor or forwarder. For TLS reports: a result type of RFC 8460, or unspecified."`
	Source   *string `json:"source" doc:"An IP address, the name of a provider, or a mail host."`
	Selector *string `json:"selector" doc:"The DKIM selector; null if the finding is not about one."`
	Total    int64   `json:"total" doc:"Messages or sessions."`
	Text     string  `json:"text" doc:"What was found."`
	Advice   string  `json:"advice" doc:"What to do."`
}

func findingsToWire(all []domainreports.Finding) []findingWire {
	out := []findingWire{}
	for _, f := range all {
		out = append(out, findingWire{string(f.Kind), orNull(f.Source), orNull(f.Selector), f.Messages, f.Says, f.Advice})
	}
	return out
}

type unprovenWire struct {
	Total  int64 `json:"total" doc:"Messages or sessions."`
	Failed int64 `json:"failed" doc:"Those of them that failed."`
}

type dmarcDayWire struct {
	Day     string           `json:"day" doc:"The UTC day." format:"date"`
	Passed  int64            `json:"passed" doc:"Messages that passed DMARC."`
	Failed  int64            `json:"failed" doc:"Messages that failed DMARC."`
	Classes map[string]int64 `json:"classes" doc:"The number of messages by the class of their source."`
}

type sourceWire struct {
	Class       string  `json:"class" enum:"ours,provider,listed,unlisted,forwarded,unknown,rest" doc:"ours: an address of this installation. provider: in an include of the domain's SPF record. listed: in the SPF record itself. unlisted: a source that signs with a key of the domain, but is not in the SPF record. forwarded: mail with a valid signature of a known source, from another address. unknown: all others. rest: sources whose details were not kept."`
	Name        *string `json:"name" doc:"An IP address, or the name of a provider."`
	Messages    int64   `json:"messages" doc:"All messages from the source."`
	Passed      int64   `json:"passed" doc:"Messages that passed DMARC."`
	DKIMPassed  int64   `json:"dkim_passed" doc:"Messages with a valid DKIM signature of the domain."`
	SPFPassed   int64   `json:"spf_passed" doc:"Messages that passed SPF for the domain."`
	Quarantined int64   `json:"quarantined" doc:"Messages that receivers quarantined, for example in a spam folder."`
	Rejected    int64   `json:"rejected" doc:"Messages that receivers refused."`
}

func sourcesToWire(all []domainreports.Source) []sourceWire {
	out := []sourceWire{}
	for _, x := range all {
		out = append(out, sourceWire{string(x.Class), orNull(x.Name), x.Messages, x.Passed, x.DKIM, x.SPF, x.Quarantined,
			x.Rejected})
	}
	return out
}

type reporterWire struct {
	Domain *string `json:"domain" doc:"Null for reporters whose details were not kept."`
	Passed int64   `json:"passed" doc:"Messages that passed DMARC."`
	Failed int64   `json:"failed" doc:"Messages that failed DMARC."`
}

type readinessWire struct {
	Ready        bool     `json:"ready" doc:"Whether the domain is ready for the next stricter policy."`
	Reasons      []string `json:"reasons" doc:"Why the domain is not ready. Empty if it is ready, or if the policy is the strictest one."`
	Policy       *string  `json:"policy" enum:"none,quarantine,reject" doc:"The policy that receivers apply now. Null if the domain has no DMARC record."`
	Record       *string  `json:"record" doc:"The DMARC record that applies now."`
	NextName     string   `json:"next_name" doc:"The name of the DMARC record."`
	NextRecord   *string  `json:"next_record" doc:"The record with the next stricter policy. Null if the policy is the strictest one or unknown."`
	Days         int      `json:"days" doc:"Days since the first report, at most 14. If no reporter is well-known, the first report of a second reporter counts."`
	Messages     int64    `json:"messages" doc:"All messages of these days."`
	Known        int64    `json:"known" doc:"Messages from known sources."`
	KnownPassed  int64    `json:"known_passed" doc:"Messages from known sources that passed DMARC."`
	Unknown      *string  `json:"unknown" doc:"The largest unknown source."`
	UnknownTotal int64    `json:"unknown_total" doc:"Messages from the largest unknown source."`
}

type dmarcViewWire struct {
	Object      string         `json:"object"`
	DomainID    string         `json:"domain_id"`
	Address     string         `json:"address" doc:"The address for reports. Add it to the tag rua of the DMARC record. The address is empty until the domain has one; domains of earlier versions get it within an hour."`
	StartDate   string         `json:"start_date" doc:"The first day." format:"date"`
	EndDate     string         `json:"end_date" doc:"The last day, which is included." format:"date"`
	Messages    int64          `json:"messages" doc:"All messages of the period."`
	Passed      int64          `json:"passed" doc:"Messages that passed DMARC."`
	Days        []dmarcDayWire `json:"days" doc:"The days with reports, oldest first."`
	Sources     []sourceWire   `json:"sources" doc:"The 200 largest sources."`
	MoreSources int            `json:"more_sources" doc:"The number of further sources, which the field sources leaves out."`
	Reporters   []reporterWire `json:"reporters" doc:"The mail systems that sent the reports."`
	Others      []sourceWire   `json:"others" doc:"The unknown sources that send as the domain."`
	Findings    []findingWire  `json:"findings" doc:"The mistakes that the reports show, each with advice."`
	Unproven    unprovenWire   `json:"unproven" doc:"The counts of reports whose reporter is not authenticated. No other field includes them."`
	Incomplete  bool           `json:"incomplete" doc:"Whether a DNS look-up failed, so that known sources may appear as unknown."`
	Readiness   readinessWire  `json:"readiness" doc:"Whether the domain may take the next step of its policy. It is always about the last 14 full days, and about the reports of well-known reporters if there are any."`
}

type tlsDayWire struct {
	Day        string `json:"day" doc:"The UTC day." format:"date"`
	Successful int64  `json:"successful" doc:"Sessions that succeeded."`
	Failed     int64  `json:"failed" doc:"Sessions that failed."`
}

type tlsFailureWire struct {
	Host     *string `json:"host" doc:"The mail host."`
	Type     string  `json:"type" doc:"A result type of RFC 8460, or unspecified."`
	Policy   *string `json:"policy" doc:"The kind of policy that the sender applied; null if the reports do not name it." enum:"tlsa,sts,no-policy-found"`
	Reporter *string `json:"reporter" doc:"The mail system that reported the failure."`
	Sessions int64   `json:"sessions" doc:"Sessions that failed in this way."`
	Advice   string  `json:"advice" doc:"What to do."`
}

type tlsReporterWire struct {
	Domain     *string `json:"domain" doc:"The domain of the reporter; null for reporters whose details were not kept."`
	Successful int64   `json:"successful" doc:"Sessions that succeeded."`
	Failed     int64   `json:"failed" doc:"Sessions that failed."`
}

type tlsViewWire struct {
	Object       string            `json:"object"`
	DomainID     string            `json:"domain_id"`
	Address      string            `json:"address" doc:"The address for reports. Add it to the tag rua of the TXT record at _smtp._tls. The address is empty until the domain has one; domains of earlier versions get it within an hour."`
	StartDate    string            `json:"start_date" doc:"The first day." format:"date"`
	EndDate      string            `json:"end_date" doc:"The last day, which is included." format:"date"`
	Successful   int64             `json:"successful" doc:"Sessions that succeeded."`
	Failed       int64             `json:"failed" doc:"Sessions that failed."`
	Days         []tlsDayWire      `json:"days" doc:"The days with reports, oldest first."`
	Failures     []tlsFailureWire  `json:"failures" doc:"The 200 most frequent failures."`
	MoreFailures int               `json:"more_failures" doc:"The number of further kinds of failures, which the field failures leaves out."`
	Reporters    []tlsReporterWire `json:"reporters" doc:"The mail systems that sent the reports."`
	Findings     []findingWire     `json:"findings" doc:"The mistakes that the reports show, each with advice."`
	Unproven     unprovenWire      `json:"unproven" doc:"The counts of reports whose reporter is not authenticated. No other field includes them."`
}

func dateOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// reported returns the domain and the period of a request for DMARC or TLS reports.
func (a *API) reported(ctx context.Context, c *wire.Call) (d domains.Domain, p domainreports.Period, err error) {
	id, err := c.ID("domain_id")
	if err != nil {
		return d, p, err
	}
	q := c.Query()
	day := func(name string, to *time.Time) error {
		if !q.Has(name) {
			return nil
		}
		t, err := time.Parse(time.DateOnly, q.Get(name))
		if err != nil {
			return fault.Invalidf(name, "The `%s` parameter must be a date such as 2026-04-30.", name)
		}
		*to = t
		return nil
	}
	p = a.Services.Reports.LastDays(14)
	last := p.To.AddDate(0, 0, -1)
	if err := day("end_date", &last); err != nil {
		return d, p, err
	}
	p.To = last.AddDate(0, 0, 1)
	p.From = p.To.AddDate(0, 0, -15)
	if err := day("start_date", &p.From); err != nil {
		return d, p, err
	}
	d, err = a.Services.Domains.Get(ctx, c.TeamID, id)
	return d, p, err
}

func (a *API) listDomainReports(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[reportWire], error) {
	id, err := c.ID("domain_id")
	if err != nil {
		return wire.List[reportWire]{}, err
	}
	p, err := c.Page(20)
	if err != nil {
		return wire.List[reportWire]{}, err
	}
	d, err := a.Services.Domains.Get(ctx, c.TeamID, id)
	if err != nil {
		return wire.List[reportWire]{}, err
	}
	read := func(p page.Page) ([]domainreports.Report, bool, error) { return a.Services.Reports.Reports(ctx, &d, p) }
	return wire.FullList(p, read, func(r domainreports.Report) string { return r.ID }, reportToWire)
}

// domainReportFile streams the file of a report as it was received.
func (a *API) domainReportFile(ctx context.Context, c *wire.Call) (wire.Stream, error) {
	domainID, err := c.ID("domain_id")
	if err != nil {
		return wire.Stream{}, err
	}
	reportID, err := c.ID("received_report_id")
	if err != nil {
		return wire.Stream{}, err
	}
	d, err := a.Services.Domains.Get(ctx, c.TeamID, domainID)
	if err != nil {
		return wire.Stream{}, err
	}
	f, err := a.Services.Reports.File(ctx, &d, reportID)
	if err != nil {
		return wire.Stream{}, err
	}
	return wire.Stream{MediaType: f.MediaType, FileName: f.Name, Parts: partsOf(f)}, nil
}

// partsOf yields a file in parts, and closes it.
func partsOf(f io.ReadCloser) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		defer f.Close()
		part := make([]byte, 64<<10)
		for {
			n, err := f.Read(part)
			if n > 0 && !yield(part[:n], nil) || errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

func (a *API) dmarcReports(ctx context.Context, c *wire.Call, _ wire.None) (dmarcViewWire, error) {
	d, p, err := a.reported(ctx, c)
	if err != nil {
		return dmarcViewWire{}, err
	}
	v, err := a.Services.Reports.DMARC(ctx, &d, p)
	if err != nil {
		return dmarcViewWire{}, err
	}
	address, err := a.Services.Reports.Address(ctx, &d)
	if err != nil {
		return dmarcViewWire{}, err
	}
	w := dmarcViewWire{Object: "dmarc_reports", DomainID: d.ID, Address: address, StartDate: dateOf(v.From),
		EndDate: dateOf(v.To.AddDate(0, 0, -1)), Messages: v.Messages, Passed: v.Passed, Days: []dmarcDayWire{},
		Sources: sourcesToWire(v.Sources), MoreSources: v.MoreSources, Reporters: []reporterWire{},
		Others: sourcesToWire(v.Others), Findings: findingsToWire(v.Findings),
		Unproven: unprovenWire{v.Apart.Messages, v.Apart.Failed}, Incomplete: v.Incomplete}
	for _, x := range v.Days {
		day := dmarcDayWire{dateOf(x.Day), x.Passed, x.Failed, map[string]int64{}}
		for class, n := range x.Classes {
			day.Classes[string(class)] = n
		}
		w.Days = append(w.Days, day)
	}
	for _, x := range v.Reporters {
		w.Reporters = append(w.Reporters, reporterWire{orNull(x.Domain), x.Passed, x.Messages - x.Passed})
	}
	r := &v.Readiness
	w.Readiness = readinessWire{r.Ready, orEmpty(r.Reasons), orNull(r.Policy), orNull(r.Record), r.Name, orNull(r.Next),
		r.Days, r.Messages, r.Known, r.KnownPassed, orNull(r.Unknown), r.UnknownCount}
	return w, nil
}

func (a *API) tlsReports(ctx context.Context, c *wire.Call, _ wire.None) (tlsViewWire, error) {
	d, p, err := a.reported(ctx, c)
	if err != nil {
		return tlsViewWire{}, err
	}
	v, err := a.Services.Reports.TLS(ctx, &d, p)
	if err != nil {
		return tlsViewWire{}, err
	}
	address, err := a.Services.Reports.Address(ctx, &d)
	if err != nil {
		return tlsViewWire{}, err
	}
	w := tlsViewWire{Object: "tls_reports", DomainID: d.ID, Address: address, StartDate: dateOf(v.From),
		EndDate: dateOf(v.To.AddDate(0, 0, -1)), Successful: v.Successful, Failed: v.Failed, Days: []tlsDayWire{},
		Failures: []tlsFailureWire{}, MoreFailures: v.MoreFailures, Reporters: []tlsReporterWire{},
		Findings: findingsToWire(v.Findings), Unproven: unprovenWire{v.Apart.Messages, v.Apart.Failed}}
	for _, x := range v.Days {
		w.Days = append(w.Days, tlsDayWire{dateOf(x.Day), x.Successful, x.Failed})
	}
	for _, x := range v.Failures {
		w.Failures = append(w.Failures, tlsFailureWire{orNull(x.Host), x.Type, orNull(x.Policy), orNull(x.Reporter),
			x.Sessions, x.Advice})
	}
	for _, x := range v.Reporters {
		w.Reporters = append(w.Reporters, tlsReporterWire{orNull(x.Domain), x.Successful, x.Failed})
	}
	return w, nil
}
