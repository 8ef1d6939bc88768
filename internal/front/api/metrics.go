package api

import (
	"cmp"
	"context"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/metrics"
)

var metricsQuery = []string{"start_date", "end_date", "timezone", "granularity", "metrics", "dimensions", "domain_id",
	"email_id", "broadcast_id"}

// counterMetrics lists the metrics that are stored as counters. Rates are computed from the stored counters.
var (
	counterMetrics = []string{"received", "delivered", "complained", "suppressed", "bounced", "bounced_transient",
		"bounced_permanent",
		"bounced_undetermined", "opened", "clicked", "unsubscribed", "delivery_delayed", "failed", "sent", "unique_opened",
		"unique_clicked"}
	// botMetrics lists extensions to the API reference. A response contains a bot metric only if the request names it.
	botMetrics = []string{"opened_machine", "clicked_machine", "unique_opened_people", "unique_clicked_people"}
	rates      = map[string][2]string{"delivery_rate": {"delivered", "sent"}, "open_rate": {"unique_opened", "delivered"},
		"click_rate": {"unique_clicked", "delivered"}, "bounce_rate": {"bounced", "sent"}, "complaint_rate": {"complained",
			"delivered"},
		"unsubscribe_rate": {"unsubscribed", "delivered"}}
	rateNames = []string{"delivery_rate", "open_rate", "click_rate", "bounce_rate", "complaint_rate", "unsubscribe_rate"}
)

const (
	maxPeriods = 10_000
	hourStep   = 15 * time.Minute // in every time zone, each hour begins at a multiple of hourStep
)

type metricsOut struct {
	Object      string             `json:"object"`
	StartDate   wire.ISOTime       `json:"start_date"`
	EndDate     wire.ISOTime       `json:"end_date"`
	Metrics     []string           `json:"metrics"`
	Dimensions  []string           `json:"dimensions"`
	Granularity string             `json:"granularity"`
	Totals      map[string]float64 `json:"totals"`
	Data        *[]map[string]any  `json:"data,omitzero" doc:"Absent if the request has no dimensions."`
}

// metricsIn is a metrics request that has been validated.
type metricsIn struct {
	metrics.Query
	metrics, dimensions []string
	granularity         string
	zone                *time.Location
}

func (a *API) getMetrics(ctx context.Context, c *wire.Call, _ wire.None) (metricsOut, error) {
	in, err := readMetrics(c.Query(), a.Services.Metrics.Now())
	if err != nil {
		return metricsOut{}, err
	}
	counts, err := a.Services.Metrics.Count(ctx, c.TeamID, in.Query)
	if err != nil {
		return metricsOut{}, err
	}
	out := metricsOut{Object: "metrics", StartDate: wire.ISOTime(in.From), EndDate: wire.ISOTime(in.To),
		Metrics: in.metrics, Dimensions: orEmpty(in.dimensions), Granularity: in.granularity}
	total := map[string]int{}
	for _, n := range counts {
		add(total, n)
	}
	out.Totals = in.row(total)
	if len(in.dimensions) > 0 {
		data, err := in.data(ctx, counts)
		if err != nil {
			return metricsOut{}, err
		}
		out.Data = &data
	}
	return out, nil
}

func add(to map[string]int, n metrics.Count) {
	switch n.Type {
	case "sent":
		to["sent"] += n.Recipients // counted per recipient, like delivery outcomes
		return
	case "opened", "clicked":
		to["unique_"+n.Type] += n.Recipients
		to["unique_"+n.Type+"_people"] += n.People
		if n.Detail == events.DetailMachine {
			to[n.Type+"_machine"] += n.Events
		}
	case "bounced":
		to["bounced_"+n.Detail] += n.Events
	}
	to[n.Type] += n.Events
}

// row returns the requested metrics, computed from counters.
func (in *metricsIn) row(n map[string]int) map[string]float64 {
	row := map[string]float64{}
	for _, m := range in.metrics {
		if r, ok := rates[m]; ok {
			row[m] = 0
			if n[r[1]] > 0 {
				row[m] = math.Round(1000*float64(n[r[0]])/float64(n[r[1]])) / 10
			}
			continue
		}
		row[m] = float64(n[m])
	}
	return row
}

// data returns one row for each combination of dimension values. If the period is the only dimension, periods without
// events are included.
func (in *metricsIn) data(ctx context.Context, counts []metrics.Count) ([]map[string]any, error) {
	type key struct{ period, domain, name, email, broadcast, broadcastName string }
	rows := map[key]map[string]int{}
	if in.ByPeriod != nil && len(in.dimensions) == 1 {
		for name := range in.periods() {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			rows[key{period: name}] = map[string]int{}
		}
	}
	for _, n := range counts {
		k := key{n.Period, n.DomainID, n.DomainName, n.EmailID, n.BroadcastID, n.BroadcastName}
		if in.ByBroadcast && n.BroadcastID == "" {
			continue
		}
		if rows[k] == nil {
			rows[k] = map[string]int{}
		}
		add(rows[k], n)
	}
	keys := make([]key, 0, len(rows))
	for k := range rows {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.period, b.period), cmp.Compare(a.name, b.name), cmp.Compare(a.domain, b.domain),
			cmp.Compare(a.email, b.email), cmp.Compare(a.broadcast, b.broadcast))
	})
	data := make([]map[string]any, 0, len(keys))
	for _, k := range keys {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		row := map[string]any{}
		for m, v := range in.row(rows[k]) {
			row[m] = v
		}
		if in.ByPeriod != nil {
			row["period"] = k.period
		}
		if in.ByDomain {
			row["domain_id"], row["domain_name"] = k.domain, k.name
		}
		if in.ByEmail {
			row["email_id"] = k.email
		}
		if in.ByBroadcast {
			row["broadcast_id"], row["broadcast_name"] = k.broadcast, k.broadcastName
		}
		data = append(data, row)
	}
	return data, nil
}

// maxListItems is the maximum number of distinct items in a list parameter.
const maxListItems = 100

// splitList reads a query parameter that contains a list. Items can be separated by commas or given by repeating the
// parameter.
func splitList(q url.Values, name string) (all []string, err error) {
	for _, v := range q[name] {
		for x := range strings.SplitSeq(v, ",") {
			if x = strings.TrimSpace(x); x == "" || slices.Contains(all, x) {
				continue
			}
			if len(all) == maxListItems {
				return nil, fault.Invalidf(name, "The `%s` parameter takes at most %d items.", name, maxListItems)
			}
			all = append(all, x)
		}
	}
	return all, nil
}

func readMetrics(q url.Values, now time.Time) (in metricsIn, err error) {
	in.granularity, in.zone = cmp.Or(q.Get("granularity"), "daily"), time.UTC
	if !slices.Contains([]string{"hourly", "daily", "weekly", "monthly"}, in.granularity) {
		return in, invalidChoice("granularity", "hourly", "daily", "weekly", "monthly")
	}
	if z := q.Get("timezone"); z != "" {
		if in.zone, err = time.LoadLocation(z); err != nil || z == "Local" {
			return in, fault.Invalidf("timezone", "The `timezone` parameter must be an IANA zone such as `America/New_York`.")
		}
	}
	if in.metrics, err = splitList(q, "metrics"); err != nil {
		return in, err
	}
	if len(in.metrics) == 0 {
		in.metrics = append(slices.Clone(counterMetrics), rateNames...)
	}
	for _, m := range in.metrics {
		if _, rate := rates[m]; !rate && !slices.Contains(counterMetrics, m) && !slices.Contains(botMetrics, m) {
			return in, fault.Invalidf("metrics", "The `metrics` parameter has `%s`, which is no metric.", m)
		}
	}
	if err := in.readDimensions(q); err != nil {
		return in, err
	}
	return in, in.readSpan(q, now)
}

func (in *metricsIn) readDimensions(q url.Values) (err error) {
	if in.dimensions, err = splitList(q, "dimensions"); err != nil {
		return err
	}
	for _, d := range in.dimensions {
		switch d {
		case "period":
			in.ByPeriod, in.Zone, in.PeriodsOf = in.period, in.zone, metrics.Days
			if in.granularity == "hourly" {
				in.PeriodsOf = metrics.Hours
			}
		case "domain":
			in.ByDomain = true
		case "email":
			in.ByEmail = true
		case "broadcast":
			in.ByBroadcast = true
		default:
			return fault.Invalidf("dimensions",
				"The `dimensions` parameter has `%s`; it takes period, domain, email and broadcast.", d)
		}
	}
	for name, dst := range map[string]*[]string{"domain_id": &in.DomainIDs, "email_id": &in.EmailIDs,
		"broadcast_id": &in.BroadcastIDs} {
		if *dst, err = splitList(q, name); err != nil {
			return err
		}
		for i, x := range *dst {
			if !id.Valid(x) {
				return fault.Invalidf(name, "The `%s` parameter must have valid UUIDs.", name)
			}
			(*dst)[i] = strings.ToLower(x)
		}
	}
	if (in.ByEmail || len(in.EmailIDs) > 0) && (in.ByBroadcast || len(in.BroadcastIDs) > 0) {
		return fault.Invalidf("dimensions",
			"The email dimension or `email_id` cannot be combined with the broadcast dimension or `broadcast_id`.")
	}
	return nil
}

func (in *metricsIn) readSpan(q url.Values, now time.Time) (err error) {
	in.To = now
	if q.Has("end_date") {
		if in.To, err = parseDate("end_date", q.Get("end_date"), in.zone); err != nil {
			return err
		}
		if in.To.After(now) {
			in.To = now
		}
	}
	in.From = in.To.AddDate(0, 0, -6)
	if q.Has("start_date") {
		if in.From, err = parseDate("start_date", q.Get("start_date"), in.zone); err != nil {
			return err
		}
	}
	if in.From.After(in.To) {
		return fault.Invalidf("start_date", "The `start_date` parameter must not be after `end_date`.")
	}
	if in.ByPeriod != nil && in.countPeriods() > maxPeriods {
		return fault.Invalidf("granularity", "The span has more than %d periods of this `granularity`.", maxPeriods)
	}
	return nil
}

// parseDate parses a date or a datetime. A date or datetime without an offset is interpreted in the given time zone.
func parseDate(name, text string, zone *time.Location) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04"} {
		if t, err := time.ParseInLocation(layout, text, zone); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fault.Invalidf(name, "The `%s` parameter must be an ISO 8601 date or datetime.", name)
}
