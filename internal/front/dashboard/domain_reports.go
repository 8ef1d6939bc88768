package dashboard

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/sending/domainreports"
	"github.com/postrider/postrider/internal/sending/domains"
)

var domainReportsPage = pageOf("domain_reports.html", "chart.html", "advised.html")

const (
	reportsShown = 20
	sourcesShown = 50 // rows of a table on the page; the API has more
)

// reportSpans are the periods that the page can show, in days.
var reportSpans = []int{7, 14, 30}

// reportsView is the content of the page with the reports about a domain.
type reportsView struct {
	base
	Domain  domains.Domain
	Address string
	Spans   []stepChoice
	Tabs    []stepChoice
	DMARC   *domainreports.DMARCView
	TLS     *domainreports.TLSView
	Chart   barChart
	Sources []reportSource
	Reports []domainreports.Report
	Pager   pager
	Empty   bool          // whether no report was received
	Ask     []advisedView // the records with which the domain asks for reports, if none was received
	Unseen  bool          // whether the domain's present records are not known, so that Ask may lack what they say
	First   bool          // whether the first page of the list is shown
}

// reportSource is a row of the table of sources.
type reportSource struct {
	domainreports.Source
	Label string
}

// PassRate returns the percentage of the messages that passed DMARC.
func (s reportSource) PassRate() string { return percentText(share64(s.Passed, s.Messages), 1) }

// classLabels name the classes of sources.
var classLabels = map[domainreports.Class]string{domainreports.Ours: "This service", domainreports.Provider: "Provider",
	domainreports.Listed: "In your SPF record", domainreports.Unlisted: "Signs, not in SPF",
	domainreports.Forwarded: "Forwarded", domainreports.Unknown: "Unknown", domainreports.Rest: "Other"}

func share64(part, all int64) float64 {
	if all == 0 {
		return math.NaN()
	}
	return 100 * float64(part) / float64(all)
}

// domainReports shows the reports of other mail systems about a domain.
func (c *call) domainReports() error {
	d, err := c.Domains.Get(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	days := reportSpans[1]
	if n, err := strconv.Atoi(c.r.URL.Query().Get("days")); err == nil {
		for _, span := range reportSpans {
			if n == span {
				days = span
			}
		}
	}
	data := reportsView{base: c.base(), Domain: d}
	if data.Address, err = c.Reports.Address(c.ctx(), &d); err != nil {
		return err
	}
	period := c.Reports.LastDays(days)
	if data.DMARC, err = c.Reports.DMARC(c.ctx(), &d, period); err != nil {
		return err
	}
	if data.TLS, err = c.Reports.TLS(c.ctx(), &d, period); err != nil {
		return err
	}
	p, err := c.page(reportsShown)
	if err != nil {
		return err
	}
	all, more, err := c.Reports.Reports(c.ctx(), &d, p)
	if err != nil {
		return err
	}
	var ids []string
	for _, r := range all {
		ids = append(ids, r.ID)
	}
	data.Reports, data.Pager = all, c.pager(p, ids, more)
	data.First = p.After == "" && p.Before == ""
	data.Empty = len(all) == 0 && data.First && data.DMARC.Messages == 0 && data.TLS.Successful+data.TLS.Failed == 0
	if data.Empty {
		if err = c.askForReports(&data); err != nil {
			return err
		}
	}
	for _, span := range reportSpans {
		data.Spans = append(data.Spans, stepChoice{Label: fmt.Sprintf("%d days", span), Chosen: span == days,
			Href: web.With(c.r.URL, "days", fmt.Sprint(span), "after", "", "before", "")})
	}
	data.fill()
	return c.show(http.StatusOK, domainReportsPage, data, web.Crumbs("Domains", "/app/domains", d.Name,
		"/app/domains/"+d.ID, "Reports"))
}

// askForReports adds the records with which the domain asks for reports.
func (c *call) askForReports(data *reportsView) error {
	s, err := c.Domains.GetSetup(c.ctx(), c.team.TeamID, data.Domain.ID)
	if err != nil || data.Domain.Setup == domains.SetupDelegation {
		return err // a delegation publishes these records
	}
	for _, a := range advisedViews(s.Advised) {
		if p := a.AdvisedRecord.Purpose; p == domains.PurposeDMARC || p == domains.PurposeTLSReports {
			data.Ask = append(data.Ask, a)
		}
	}
	if len(data.Ask) == 0 && data.Address != "" {
		data.Unseen = true
		for _, r := range domainreports.NewRecords(data.Domain.Name, data.Address) {
			data.Ask = append(data.Ask, advisedView{Advised: domains.Advised{AdvisedRecord: r},
				Purpose: advisedPurposes[r.Purpose], Shown: advisedStates[domains.AdvisedUnknown]})
		}
	}
	return nil
}

// domainReportFile responds with the file of a report, which a browser must save.
func (c *call) domainReportFile() error {
	d, err := c.Domains.Get(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	f, err := c.Reports.File(c.ctx(), &d, validID(c.r.PathValue("report")))
	if err != nil {
		return err
	}
	defer f.Close()
	release, err := c.ReserveMemory(c.ctx(), c.team.TeamID, f.Size)
	if err != nil {
		return err
	}
	defer release()
	content, err := io.ReadAll(f)
	if err != nil {
		return fmt.Errorf("read the file of a report: %w", err)
	}
	h := c.w.Header()
	web.FileHeaders(h)
	h.Set("Content-Type", f.MediaType)
	h.Set("Content-Disposition", `attachment; filename="`+f.Name+`"`)
	return c.write(content)
}

// fill prepares the chart and the table of sources.
func (v *reportsView) fill() {
	byDay := map[time.Time]domainreports.Day{}
	for _, d := range v.DMARC.Days {
		byDay[d.Day] = d
	}
	var steps []step
	for at := v.DMARC.From; at.Before(v.DMARC.To); at = at.AddDate(0, 0, 1) {
		d := byDay[at]
		steps = append(steps, step{Label: at.Format("2 Jan"), Full: at.Format("2 January 2006"),
			Text:   fmt.Sprintf("%s: %d passed, %d failed", at.Format("2 January"), d.Passed, d.Failed),
			Values: []float64{float64(d.Passed), float64(d.Failed)}})
	}
	passed := fmt.Sprintf("%d of %d messages passed DMARC", v.DMARC.Passed, v.DMARC.Messages)
	v.Chart = bars(barChart{ID: "dmarc", Title: "Messages by result", Finding: passed}, steps, "ok", "bad")
	for _, x := range v.DMARC.Sources[:min(len(v.DMARC.Sources), sourcesShown)] {
		v.Sources = append(v.Sources, reportSource{x, classLabels[x.Class]})
	}
}

// PassRate returns the percentage of all messages that passed DMARC.
func (v reportsView) PassRate() string {
	return percentText(share64(v.DMARC.Passed, v.DMARC.Messages), 1)
}

// TLSRate returns the percentage of the sessions that succeeded.
func (v reportsView) TLSRate() string {
	return percentText(share64(v.TLS.Successful, v.TLS.Successful+v.TLS.Failed), 1)
}

// ReporterRows returns the reporters of DMARC reports with their pass rates.
func (v reportsView) ReporterRows() (all []reportSource) {
	for _, x := range v.DMARC.Reporters[:min(len(v.DMARC.Reporters), sourcesShown)] {
		all = append(all, reportSource{domainreports.Source{Name: x.Domain, Messages: x.Messages, Passed: x.Passed}, ""})
	}
	return all
}

// Days returns the days of the chart's table.
func (v reportsView) Days() []domainreports.Day { return v.DMARC.Days }
