package dashboard

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/metrics"
)

var metricsPage = pageOf("metrics.html", "chart.html")

// The limits that the charts show, in percent. The bounce rate is that at which the sending of a broadcast pauses. The
// complaint rate is that which Google and Yahoo ask senders to stay below.
const (
	bounceLimit    = 5.0
	complaintLimit = 0.1
)

// outlierLeast is the minimum number of emails of a period whose bounce rate is worth a remark.
const outlierLeast = 20

// metricSpan is a span of time that the page of metrics can show, with the lengths of its steps. The first length is
// the default.
type metricSpan struct {
	Value, Label string
	days         int
	By           []string
}

var metricSpans = []metricSpan{
	{"24h", "Last 24 hours", 1, []string{"hour"}}, {"7d", "Last 7 days", 7, []string{"day", "hour"}},
	{"30d", "Last 30 days", 30, []string{"day", "week"}}, {"90d", "Last 90 days", 90, []string{"week", "day"}},
}

// defaultSpan is the index of the span that the page shows first.
const defaultSpan = 2

// stepLengths names the lengths of steps.
var stepLengths = map[string]string{"hour": "Hour", "day": "Day", "week": "Week"}

// metricsView is the content of the page of metrics.
type metricsView struct {
	base
	Filter              metricsFilter
	From, To            string
	None                bool // whether nothing happened in the span
	Figures             []figure
	Outcomes            barChart
	Rates               []rateCard
	Rows                []metricsRow
	Domains, Broadcasts []metricsRow

	// These say that the team has so many domains or broadcasts that the page cannot add up their emails.
	ManyDomains, ManyBroadcasts bool

	Export string
}

// metricsFilter is the filter as the visitor set it.
type metricsFilter struct {
	Zone                          *time.Location
	ZoneSet                       bool // whether the address names the zone, rather than the browser
	NoZone, ZoneError             string
	Span                          metricSpan
	Spans                         []metricSpan
	By                            string
	Steps                         []stepChoice
	Domain, DomainName            string
	Broadcast, BroadcastName      string
	Domains, Broadcasts           []web.Choice
	NoDomain, NoBroadcast, NoSpan string
}

// stepChoice is a piece of the segment that sets the length of a step.
type stepChoice struct {
	Label, Href string
	Chosen      bool
}

// figure is one of the numbers at the top. Tone is warn if the figure is above its limit.
type figure struct{ Label, Value, Says, Tone string }

// rateCard is a chart of lines with the value of the whole span.
type rateCard struct {
	Heading, Note string
	Says          string // what the chart shows, if its title does not suffice
	Chart         lineChart
}

// metricsRow is a row of a table with the figures of a period, domain or broadcast.
type metricsRow struct {
	Label, Href string
	counted
	Bar, Tone string // width and class of the bar of delivered emails, from 90 to 100 %
}

// counted are the numbers of emails, per recipient. Opened and Clicked count people only.
type counted struct {
	Sent, Delivered, Waiting, Bounced, Failed, Complained, Opened, Clicked, Unsubscribed int
}

func (n *counted) add(c *metrics.Count) {
	switch events.Type("email." + c.Type) {
	case events.EmailSent:
		n.Sent += c.Recipients
	case events.EmailDelivered:
		n.Delivered += c.Events
	case events.EmailBounced:
		n.Bounced += c.Events
	case events.EmailFailed:
		n.Failed += c.Events
	case events.EmailComplained:
		n.Complained += c.Events
	case events.EmailOpened:
		n.Opened += c.People
	case events.EmailClicked:
		n.Clicked += c.People
	case "email.unsubscribed":
		n.Unsubscribed += c.Events
	}
}

// The rates are percentages, or NaN if there is nothing to divide by. They are those of the API, except that a rate of
// opens or clicks is also NaN above 100 %. Some of the opened emails were then delivered before the span, so that the
// rate does not divide by them.

func (n *counted) deliveredRate() float64 { return share(n.Delivered, n.Sent) }
func (n *counted) bounceRate() float64    { return share(n.Bounced, n.Sent) }
func (n *counted) complaintRate() float64 { return share(n.Complained, n.Delivered) }
func (n *counted) openRate() float64      { return partOf(n.Opened, n.Delivered) }
func (n *counted) clickRate() float64     { return partOf(n.Clicked, n.Delivered) }

// These methods are for the tables.

func (n counted) DeliveredRate() string { return percentText(n.deliveredRate(), 1) }
func (n counted) BounceRate() string    { return percentText(n.bounceRate(), 1) }
func (n counted) ComplaintRate() string { return percentText(n.complaintRate(), 2) }
func (n counted) OpenRate() string      { return percentText(n.openRate(), 1) }
func (n counted) ClickRate() string     { return percentText(n.clickRate(), 1) }

// HighBounces and HighComplaints report whether a rate is above its limit.
func (n counted) HighBounces() bool    { return n.bounceRate() > bounceLimit }
func (n counted) HighComplaints() bool { return n.complaintRate() > complaintLimit }

// waiting distributes the emails that have no outcome yet over the newest periods. An outcome counts in the period in
// which it happened, so a period with more emails sent than outcomes need not have any email left.
func waiting(all []counted) {
	left := 0
	for _, n := range all {
		left += n.Sent - n.Delivered - n.Bounced - n.Failed
	}
	for i := len(all) - 1; i >= 0 && left > 0; i-- {
		all[i].Waiting = min(left, all[i].Sent)
		left -= all[i].Waiting
	}
}

// metricsFilter reads the filter from the request's query.
func (c *call) metricsFilter() metricsFilter {
	q := c.r.URL.Query()
	f := metricsFilter{Spans: metricSpans, Span: metricSpans[defaultSpan], Domain: q.Get("domain"),
		Broadcast: q.Get("broadcast"), Zone: web.Zone(c.r), NoZone: web.With(c.r.URL, "zone", "")}
	if name := strings.TrimSpace(q.Get("zone")); name != "" {
		if zone, ok := web.ParseZone(name); ok {
			f.Zone, f.ZoneSet = zone, true
		} else {
			f.ZoneError = "This time zone is not known. Enter one such as Europe/Berlin."
		}
	}
	for _, s := range metricSpans {
		if s.Value == q.Get("span") {
			f.Span = s
		}
	}
	f.By = f.Span.By[0]
	if slices.Contains(f.Span.By, q.Get("by")) {
		f.By = q.Get("by")
	}
	for _, by := range []string{"hour", "day", "week"} {
		if slices.Contains(f.Span.By, by) {
			f.Steps = append(f.Steps, stepChoice{stepLengths[by], web.With(c.r.URL, "by", by), by == f.By})
		}
	}
	f.NoDomain, f.NoBroadcast = web.With(c.r.URL, "domain", ""), web.With(c.r.URL, "broadcast", "")
	return f
}

// query returns the query for the counts of a filter.
func (f *metricsFilter) query(from, to time.Time) metrics.Query {
	q := metrics.Query{From: from, To: to}
	if f.Domain != "" {
		q.DomainIDs = []string{validID(f.Domain)}
	}
	if f.Broadcast != "" {
		q.BroadcastIDs = []string{validID(f.Broadcast)}
	}
	return q
}

// byPeriod makes a query for a breakdown by the periods of the filter.
func (f *metricsFilter) byPeriod(q metrics.Query) metrics.Query {
	q.ByPeriod = func(t time.Time) string { return startOf(t.In(f.Zone), f.By).Format(time.RFC3339) }
	q.PeriodsOf, q.Zone = metrics.Days, f.Zone
	if f.By == "hour" {
		q.PeriodsOf = metrics.Hours
	}
	return q
}

// periods adds up the counts that match the filter, by period.
func (f *metricsFilter) periods(starts []time.Time, counts []metrics.Count) []counted {
	index := map[string]int{}
	for i, t := range starts {
		index[t.Format(time.RFC3339)] = i
	}
	all := make([]counted, len(starts))
	for i := range counts {
		n := &counts[i]
		if f.Domain != "" && n.DomainID != validID(f.Domain) || f.Broadcast != "" && n.BroadcastID != validID(f.Broadcast) {
			continue
		}
		if at, ok := index[n.Period]; ok {
			all[at].add(n)
		}
	}
	waiting(all)
	return all
}

// countedMax is the maximum number of rows, by period, domain, broadcast and kind of event, that the page reads at
// once.
const countedMax = 20_000

// metricsCounts holds the counts of a span: those of each period, domain and broadcast. If the team has few of them,
// all three are the same counts, by period, domain and broadcast.
type metricsCounts struct {
	periods, domains, broadcasts []metrics.Count
	manyDomains, manyBroadcasts  bool // whether the domains or the broadcasts are too many to count
}

// countMetrics counts the emails of a span. It reads all domains and broadcasts, for the menus and the tables. One
// statement serves for everything unless the team has very many of them. Then each part has a statement of its own.
func (c *call) countMetrics(ctx context.Context, f *metricsFilter, from, now time.Time) (all metricsCounts, err error) {
	q := f.byPeriod(metrics.Query{From: from, To: now, ByDomain: true, ByBroadcast: true, MaxRows: countedMax})
	all.periods, err = c.Metrics.Count(ctx, c.team.TeamID, q)
	if fault.KindOf(err) != fault.Invalid {
		all.domains, all.broadcasts = all.periods, all.periods
		return all, err
	}
	q = f.byPeriod(f.query(from, now))
	q.ByDomain, q.ByBroadcast = f.Domain != "", f.Broadcast != ""
	if all.periods, err = c.Metrics.Count(ctx, c.team.TeamID, q); err != nil {
		return all, err
	}
	q = metrics.Query{From: from, To: now, ByDomain: true, ByBroadcast: f.Broadcast != "", MaxRows: countedMax}
	q.BroadcastIDs = f.query(from, now).BroadcastIDs
	all.domains, err = c.Metrics.Count(ctx, c.team.TeamID, q)
	if all.manyDomains = fault.KindOf(err) == fault.Invalid; err != nil && !all.manyDomains {
		return all, err
	}
	q = metrics.Query{From: from, To: now, ByBroadcast: true, ByDomain: f.Domain != "", MaxRows: countedMax}
	q.DomainIDs = f.query(from, now).DomainIDs
	all.broadcasts, err = c.Metrics.Count(ctx, c.team.TeamID, q)
	if all.manyBroadcasts = fault.KindOf(err) == fault.Invalid; err != nil && !all.manyBroadcasts {
		return all, err
	}
	return all, nil
}

func (c *call) metrics() error {
	f := c.metricsFilter()
	now := c.Metrics.Now().In(f.Zone)
	starts := f.Span.starts(now, f.By)
	from := starts[0]
	var all metricsCounts
	var earlier []metrics.Count
	g, ctx := errgroup.WithContext(c.ctx())
	g.Go(func() (err error) {
		all, err = c.countMetrics(ctx, &f, from, now)
		return err
	})
	g.Go(func() (err error) {
		q := f.query(from.Add(-now.Sub(from)), from)
		q.Types = []events.Type{events.EmailSent} // the page compares no other figure
		earlier, err = c.Metrics.Count(ctx, c.team.TeamID, q)
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	if err := c.addChoices(&f, slices.Concat(all.domains, all.broadcasts)); err != nil {
		return err
	}
	data := metricsView{base: c.base(), Filter: f, From: from.Format("2 Jan"), To: now.Format("2 Jan 2006"),
		Export: f.exportPath()}
	periods := f.periods(starts, all.periods)
	var total, before counted
	for _, n := range periods {
		total = total.plus(n)
	}
	for i := range earlier {
		before.add(&earlier[i])
	}
	data.None = total == counted{}
	data.Figures = figures(&total, &before)
	data.draw(starts, periods, f.By, &f)
	data.Domains, data.Broadcasts = partsOf(all.domains, all.broadcasts, &f)
	data.ManyDomains, data.ManyBroadcasts = all.manyDomains, all.manyBroadcasts
	return c.show(http.StatusOK, metricsPage, data, web.Crumbs(c.team.TeamName, "/app/emails", "Metrics"))
}

func (n counted) plus(m counted) counted {
	return counted{n.Sent + m.Sent, n.Delivered + m.Delivered, n.Waiting + m.Waiting, n.Bounced + m.Bounced,
		n.Failed + m.Failed, n.Complained + m.Complained, n.Opened + m.Opened, n.Clicked + m.Clicked,
		n.Unsubscribed + m.Unsubscribed}
}

// addChoices adds the domains and broadcasts with emails in the span to the filter's menus. A chosen domain without
// emails is added by its name.
func (c *call) addChoices(f *metricsFilter, parts []metrics.Count) error {
	domains, broadcasts := map[string]string{}, map[string]string{}
	for _, p := range parts {
		if p.DomainName != "" {
			domains[p.DomainID] = p.DomainName
		}
		if p.BroadcastID != "" {
			broadcasts[p.BroadcastID] = cmp.Or(p.BroadcastName, "Deleted broadcast")
		}
	}
	if id := validID(f.Domain); f.Domain != "" && domains[id] == "" && c.actor.Scopes.Has(teams.DomainsRead) {
		d, err := c.Deps.Domains.Get(c.ctx(), c.team.TeamID, id)
		if err != nil && fault.KindOf(err) != fault.NotFound {
			return err
		}
		if err == nil {
			domains[id] = d.Name
		}
	}
	f.DomainName, f.BroadcastName = domains[validID(f.Domain)], broadcasts[validID(f.Broadcast)]
	f.Domains, f.Broadcasts = sorted(domains), sorted(broadcasts)
	return nil
}

// sorted returns the choices of a menu by their labels.
func sorted(names map[string]string) (all []web.Choice) {
	for id, name := range names {
		all = append(all, web.Choice{Value: id, Label: name})
	}
	slices.SortFunc(all, func(a, b web.Choice) int {
		return cmp.Or(cmp.Compare(a.Label, b.Label), cmp.Compare(a.Value, b.Value))
	})
	return all[:min(len(all), choicesShown)]
}

// figures returns the five numbers at the top of the page.
func figures(n, before *counted) []figure {
	limited := func(rate, limit float64, says string) (string, string) {
		if rate > limit {
			return says, "warn"
		}
		return says, ""
	}
	sent := figure{Label: "Sent", Value: web.Number(n.Sent), Says: "No emails in the period before"}
	if before.Sent > 0 {
		change := 100 * (float64(n.Sent)/float64(before.Sent) - 1)
		sent.Says = strings.Replace(fmt.Sprintf("%+.1f %% to the period before", change), "-", "−", 1)
	}
	bounced := figure{Label: "Bounced", Value: n.BounceRate()}
	bounced.Says, bounced.Tone = limited(n.bounceRate(), bounceLimit, web.Number(n.Bounced)+", limit 5 %")
	complained := figure{Label: "Complaints", Value: n.ComplaintRate()}
	complained.Says, complained.Tone = limited(n.complaintRate(), complaintLimit,
		web.Number(n.Complained)+", limit 0.10 %")
	delivered := figure{Label: "Delivered", Value: n.DeliveredRate(), Says: web.Number(n.Delivered)}
	if n.Waiting > 0 {
		delivered.Says += ", " + web.Number(n.Waiting) + " on the way"
	}
	opened := figure{Label: "Opened", Value: n.OpenRate(), Says: "Clicked " + n.ClickRate() + ", people only"}
	if n.Opened > n.Delivered {
		opened.Value = web.Number(n.Opened)
		opened.Says = "Clicked " + web.Number(n.Clicked) + ", with emails from before"
	}
	return []figure{sent, delivered, bounced, complained, opened}
}

// draw computes the charts and the rows of the table below them.
func (v *metricsView) draw(starts []time.Time, periods []counted, by string, f *metricsFilter) {
	var outcomes, engagement, complaints, bounces []step
	worst, worstAt, total := bounceLimit, -1, counted{}
	for i, n := range periods {
		var before time.Time
		if i > 0 {
			before = starts[i-1]
		}
		s := step{Href: f.emailsAt(starts[i], by)}
		s.Label, s.Full = axisLabels(starts[i], before, by)
		if i == len(periods)-1 {
			s.Full += ", so far"
		}
		v.Rows = append(v.Rows, metricsRow{Label: s.Full, Href: s.Href, counted: n})
		if n.Sent+n.Delivered+n.Bounced == 0 {
			s.Href = ""
		}
		with := func(text string, values ...float64) step { s.Text, s.Values = text, values; return s }
		text := web.Number(n.Delivered) + " delivered"
		if n.Waiting > 0 {
			text += ", " + web.Number(n.Waiting) + " on the way"
		}
		outcomes = append(outcomes, with(text+", "+web.Number(n.Bounced)+" bounced", float64(n.Delivered), float64(n.Waiting),
			float64(n.Bounced)))
		engagement = append(engagement, with(web.Number(n.Opened)+" opened, "+web.Number(n.Clicked)+" clicked",
			float64(n.Opened), float64(n.Clicked)))
		complaints = append(complaints, with(n.ComplaintRate(), n.complaintRate()))
		bounces = append(bounces, with(n.BounceRate(), n.bounceRate()))
		if n.Sent >= outlierLeast && n.bounceRate() > worst {
			worst, worstAt = n.bounceRate(), i
		}
		total = total.plus(n)
	}
	slices.Reverse(v.Rows)
	v.Outcomes = bars(barChart{ID: "outcomes", Title: "Emails by outcome and " + by,
		Finding: finding(&total, worstAt, outcomes, periods)}, outcomes, "ok", "idle", "bad")
	if worstAt >= 0 {
		v.Outcomes.remarkOn(worstAt, fmt.Sprintf("%s: %.1f %% bounced", outcomes[worstAt].Full, worst))
	}
	// An open counts when it happens, days after the email was sent. Divided by the emails of its own day, it would make
	// a rate of more than 100 % on the day after a broadcast. The chart therefore shows numbers.
	v.Rates = []rateCard{
		{"Engagement", "Opened " + total.OpenRate() + ", clicked " + total.ClickRate(), "Emails that a person opened or " +
			"clicked for the first time, at the time of the open or click; the emails may have been sent earlier. The rates " +
			"are those of all emails delivered in the span. Bots are left out.",
			lines(lineChart{ID: "engagement", Numbers: true, Title: "Emails opened and clicked, by " + by,
				Finding: web.Number(total.Opened) + " opened and " + web.Number(total.Clicked) + " clicked in the whole span."},
				engagement, 0, 4, [2]string{"Opened", "a"}, [2]string{"Clicked", "b"})},
		{"Complaints", total.ComplaintRate(), "", lines(lineChart{ID: "complaints",
			Title:   "Complaints by " + by + ", in percent of the delivered emails, with the limit of 0.10 %",
			Finding: total.ComplaintRate() + " in the whole span; the limit is 0.10 %."}, complaints, complaintLimit, 0,
			[2]string{"Rate", "note"})},
		{"Bounces", total.BounceRate(), "", lines(lineChart{ID: "bounces",
			Title:   "Bounces by " + by + ", in percent of the sent emails, with the limit of 5 %",
			Finding: total.BounceRate() + " in the whole span; the limit is 5 %."}, bounces, bounceLimit, 0,
			[2]string{"Rate", "bad"})},
	}
}

// finding says in a sentence what the bars show.
func finding(total *counted, worst int, steps []step, periods []counted) string {
	numbers := func(n int, one, many string) string {
		if n == 1 {
			return "1 " + one
		}
		return web.Number(n) + " " + many
	}
	text := numbers(total.Sent, "email was", "emails were") + " sent, " + numbers(total.Delivered, "was", "were") +
		" delivered and " + web.Number(total.Bounced) + " bounced."
	if worst >= 0 {
		text += fmt.Sprintf(" Most bounces: %s with %s.", steps[worst].Full, periods[worst].BounceRate())
	}
	return text
}

// emailsAt returns the address of the list of emails of the period that begins at t.
func (f *metricsFilter) emailsAt(t time.Time, by string) string {
	q := "?in=" + url.QueryEscape(periodName(t, by))
	for name, id := range map[string]string{"domain": f.Domain, "broadcast": f.Broadcast} {
		if id != "" {
			q += "&" + name + "=" + validID(id)
		}
	}
	return "/app/emails" + q
}

// partsShown is the maximum number of rows of the tables by domain and by broadcast.
const partsShown = 20

// partsOf returns the rows of the tables by domain and by broadcast, those with the most emails first.
func partsOf(ofDomains, ofBroadcasts []metrics.Count, f *metricsFilter) (domains, broadcasts []metricsRow) {
	byDomain, byBroadcast := map[string]*metricsRow{}, map[string]*metricsRow{}
	add := func(to map[string]*metricsRow, id, name, param string, p *metrics.Count) {
		if to[id] == nil {
			to[id] = &metricsRow{Label: name, Href: "/app/emails?" + param + "=" + id}
		}
		to[id].add(p)
	}
	for i := range ofBroadcasts {
		p := &ofBroadcasts[i]
		if (f.Domain == "" || p.DomainID == validID(f.Domain)) && p.BroadcastID != "" {
			add(byBroadcast, p.BroadcastID, cmp.Or(p.BroadcastName, "Deleted broadcast"), "broadcast", p)
		}
	}
	for i := range ofDomains {
		p := &ofDomains[i]
		if (f.Broadcast == "" || p.BroadcastID == validID(f.Broadcast)) && p.DomainID != "" {
			add(byDomain, p.DomainID, cmp.Or(p.DomainName, "Test or deleted domain"), "domain", p)
		}
	}
	rows := func(from map[string]*metricsRow) (all []metricsRow) {
		for _, r := range from {
			if r.Sent == 0 {
				continue
			}
			rate := r.deliveredRate()
			if r.Bar = web.Percent(math.Max(rate-90, 0), 10, 1); rate < 97 {
				r.Tone = "warn"
			} else {
				r.Tone = "ok"
			}
			all = append(all, *r)
		}
		slices.SortFunc(all, func(a, b metricsRow) int {
			return cmp.Or(cmp.Compare(b.Sent, a.Sent), cmp.Compare(a.Label, b.Label))
		})
		return all[:min(len(all), partsShown)]
	}
	return rows(byDomain), rows(byBroadcast)
}

// exportPath returns the address that exports what the page shows. It leaves out what the page has ignored.
func (f *metricsFilter) exportPath() string {
	q := url.Values{"span": {f.Span.Value}, "by": {f.By}}
	for name, value := range map[string]string{"domain": f.Domain, "broadcast": f.Broadcast} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.ZoneSet {
		q.Set("zone", f.Zone.String())
	}
	return "/app/metrics/export?" + q.Encode()
}

// exportMetrics responds with the figures of the table as CSV.
func (c *call) exportMetrics() error {
	if err := c.checkExport(); err != nil {
		return err
	}
	f := c.metricsFilter()
	for _, x := range []struct{ name, used, problem string }{{"span", f.Span.Value, "This span of time is not known."},
		{"by", f.By, "This span of time cannot be divided like that."}} {
		if set := c.r.URL.Query().Get(x.name); set != "" && set != x.used {
			return fault.Invalidf(x.name, "The parameter %q is wrong. %s", x.name, x.problem)
		}
	}
	if f.ZoneError != "" {
		return fault.Invalidf("zone", "%s", f.ZoneError)
	}
	now := c.Metrics.Now().In(f.Zone)
	starts := f.Span.starts(now, f.By)
	q := f.byPeriod(f.query(starts[0], now))
	q.ByDomain, q.ByBroadcast = f.Domain != "", f.Broadcast != ""
	counts, err := c.Metrics.Count(c.ctx(), c.team.TeamID, q)
	if err != nil {
		return err
	}
	h := c.w.Header()
	h.Set("Content-Type", "text/csv; charset=utf-8")
	h.Set("Content-Disposition", `attachment; filename="metrics.csv"`)
	w := csv.NewWriter(c.w)
	w.Write([]string{f.By, "sent", "delivered", "on_the_way", "bounced", "failed", "complained", "opened_people",
		"clicked_people", "unsubscribed"})
	for i, n := range f.periods(starts, counts) {
		row := []string{starts[i].Format(time.RFC3339)}
		for _, v := range []int{n.Sent, n.Delivered, n.Waiting, n.Bounced, n.Failed, n.Complained, n.Opened, n.Clicked,
			n.Unsubscribed} {
			row = append(row, strconv.Itoa(v))
		}
		w.Write(row)
	}
	w.Flush()
	return nil
}
