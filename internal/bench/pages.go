package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/front/dashboard"
	"github.com/postrider/postrider/internal/front/signin"
	"github.com/postrider/postrider/internal/lib/config"
)

const (
	pageRequests = 50               // default number of requests of each page and team
	linksKept    = 200              // number of addresses of a page from which the next one is chosen
	samplesWait  = 30 * time.Second // how long pages may take to link to the samples
	firstViewMax = 120 << 10        // goal for the bytes of a first view
	pageGoal     = 50 * time.Millisecond
)

// pageViews are queries with which pages are measured besides the page itself. PLACE is the id of an email or a request
// at a random time of the fill.
var pageViews = map[string][]string{
	"/app/emails":      {"after=PLACE", "before=PLACE"},
	"/app/emails/{id}": {"view=text", "view=source", "view=headers", "view=raw", "view=attachments"},
	"/app/logs":        {"after=PLACE"},
	"/app/search":      {"q=sample"}, // leads to a contact and a broadcast
	"/app/metrics":     {"span=24h", "span=7d&by=hour", "span=90d", "span=90d&by=day"},
}

// pages measures every page of the dashboard on a store that [measurement.fill] has filled, one request at a time, as
// owners of three teams. Pages of single objects are found by the links on other pages, so a page to which nothing
// leads makes the benchmark fail. The measured time is that of the whole request on loopback.
func (b *measurement) pages(ctx context.Context, c config.Config) error {
	tokens, err := b.signOwnersIn(ctx, c)
	if err != nil {
		return fmt.Errorf("sign the owners of teams in, which --fill makes with the same --teams: %w", err)
	}
	n, mx, stop, err := b.startReceiving(ctx)
	if err != nil {
		return err
	}
	defer stop()
	m := pageMeter{b: b, n: n, random: rand.New(rand.NewPCG(1, 2)), until: time.Now().Add(-fillAge),
		rows: map[string]*pageRow{}, assets: map[string]int{}, mux: http.NewServeMux()}
	m.readTable()
	teams := b.fillTeams()
	b.say("Postrider %s on %s: pages of %d teams, one at a time", b.env.Version, b.engine(), len(teams))
	var all []*pageVisitor
	for i, team := range teams {
		if err := b.makeSamples(ctx, n, mx, team); err != nil {
			return fmt.Errorf("make what pages show for team %d: %w", team, err)
		}
		v := &pageVisitor{m: &m, team: team, tokens: tokens[i], links: map[string][]string{}}
		if err := v.explore(ctx); err != nil {
			return fmt.Errorf("find the pages of team %d: %w", team, err)
		}
		all = append(all, v)
	}
	m.rows = map[string]*pageRow{} // only what follows is measured
	for range cmp.Or(b.requests, pageRequests) {
		for _, v := range all {
			if err := v.visitAll(ctx, linksKept); err != nil {
				return fmt.Errorf("a page of team %d: %w", v.team, err)
			}
		}
	}
	m.report()
	return nil
}

// pageMeter measures pages.
type pageMeter struct {
	b        *measurement
	n        *measuredNode
	random   *rand.Rand
	until    time.Time
	patterns []string       // paths of the tables of pages, without methods
	mux      *http.ServeMux // finds the pattern of a path
	rows     map[string]*pageRow
	assets   map[string]int // compressed bytes of a file that pages load, by path
}

// pageRow is what was measured of a page.
type pageRow struct {
	name       string
	took       []time.Duration
	html, view int // most bytes of a response, and of a first view; 0 if the response is no page of the dashboard
}

// readTable reads the tables of pages. It leaves out the pages of single objects among those for accounts and people,
// because an approval or a template needs a connected app. It leaves out the files of received reports too, which other
// mail systems send.
func (m *pageMeter) readTable() {
	for _, r := range dashboard.Routes() {
		method, path, _ := strings.Cut(r.Pattern, " ")
		if method != http.MethodGet {
			continue
		}
		m.mux.HandleFunc(r.Pattern, http.NotFound) // only matched, never called
		if !r.Stream && path != "/app/domains/{id}/reports/{report}/file" {
			m.patterns = append(m.patterns, path)
		}
	}
	for _, pattern := range signin.Patterns() {
		if method, path, _ := strings.Cut(pattern, " "); method == http.MethodGet && strings.HasPrefix(path, "/app/") &&
			!strings.Contains(path, "{") {
			m.patterns = append(m.patterns, path)
		}
	}
}

// place returns an id of a random time of the fill.
func (m *pageMeter) place() string {
	return idAt(m.random, m.until.Add(-time.Duration(m.random.Float64()*float64(m.b.days)*float64(24*time.Hour))))
}

// report prints a row for each page, the slowest first.
func (m *pageMeter) report() {
	m.b.say("%-46s %9s %9s %9s %9s %11s %9s", "page", "p50", "p99", "at most", "bytes", "first view", "requests")
	var whole []time.Duration
	heaviest, slow := &pageRow{}, 0
	all := slices.SortedFunc(maps.Values(m.rows), func(x, y *pageRow) int {
		slices.Sort(x.took)
		slices.Sort(y.took)
		return cmp.Or(cmp.Compare(quantile(y.took, 99), quantile(x.took, 99)), cmp.Compare(x.name, y.name))
	})
	for _, r := range all {
		view := "-"
		if r.view > 0 {
			view = fmt.Sprintf("%.1f KB", float64(r.view)/1024)
		}
		m.b.say("%-46s %6.2f ms %6.2f ms %6.2f ms %6.1f KB %11s %9d", r.name, ms(quantile(r.took, 50)),
			ms(quantile(r.took, 99)), ms(r.took[len(r.took)-1]), float64(r.html)/1024, view, len(r.took))
		whole = append(whole, r.took...)
		if r.view > heaviest.view {
			heaviest = r
		}
		if quantile(r.took, 99) > pageGoal {
			slow++
		}
	}
	slices.Sort(whole)
	m.b.say("all %d pages: p50 %.2f ms, p99 %.2f ms, at most %.2f ms; p99 above %.0f ms: %d; heaviest first view %.1f of "+
		"%d KB, %s", len(all), ms(quantile(whole, 50)), ms(quantile(whole, 99)), ms(whole[len(whole)-1]), ms(pageGoal),
		slow, float64(heaviest.view)/1024, firstViewMax>>10, heaviest.name)
}

// quantile returns a percentile of sorted durations.
func quantile(sorted []time.Duration, percent int) time.Duration {
	return sorted[len(sorted)*percent/100]
}

// pageVisitor opens the pages of a team. A user may open 20 pages a second, so the pages are opened by several users.
type pageVisitor struct {
	m      *pageMeter
	team   int
	tokens []string // of the sessions, used in turn
	turn   int
	links  map[string][]string // addresses of pages with parameters, by pattern, the newest last
}

// explore opens pages until each pattern has an address. It opens only the first objects of lists: the samples.
func (v *pageVisitor) explore(ctx context.Context) error {
	limit := time.Now().Add(samplesWait)
	for {
		if err := v.visitAll(ctx, 1); err != nil {
			return err
		}
		missing := slices.DeleteFunc(slices.Clone(v.m.patterns), func(pattern string) bool {
			return !strings.Contains(pattern, "{") || strings.HasSuffix(pattern, "{$}") || len(v.links[pattern]) > 0
		})
		if len(missing) == 0 {
			return nil
		}
		if time.Now().After(limit) {
			return fmt.Errorf("no page leads to %s; add what they show to the samples of the benchmark",
				strings.Join(missing, ", "))
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// address returns an address of a pattern, of the first ones that are known. If none is known, ok is false.
func (v *pageVisitor) address(pattern string, ofFirst int) (path string, ok bool) {
	path = strings.TrimSuffix(pattern, "{$}")
	if !strings.Contains(path, "{") {
		return path, true
	}
	known := v.links[pattern][:min(len(v.links[pattern]), ofFirst)]
	if len(known) == 0 {
		return "", false
	}
	return known[v.m.random.IntN(len(known))], true
}

// visitAll opens each page once, and with each query of [pageViews]. Pages of single objects are chosen from the first
// addresses that are known. If only one address may be chosen, other places of lists are not opened.
func (v *pageVisitor) visitAll(ctx context.Context, ofFirst int) error {
	for _, pattern := range v.m.patterns {
		path, ok := v.address(pattern, ofFirst)
		if !ok {
			continue
		}
		if err := v.visit(ctx, pattern, path); err != nil {
			return err
		}
		for _, view := range pageViews[pattern] {
			query := strings.Replace(view, "PLACE", v.m.place(), 1)
			if query != view && ofFirst == 1 {
				continue
			}
			if err := v.visit(ctx, pattern+"?"+view, path+"?"+query); err != nil {
				return err
			}
		}
	}
	return nil
}

// visit opens a page and records what it took.
func (v *pageVisitor) visit(ctx context.Context, name, address string) error {
	got, err := v.open(ctx, address)
	if err != nil {
		return fmt.Errorf("GET %s: %w", address, err)
	}
	row := v.m.rows[name]
	if row == nil {
		row = &pageRow{name: name}
		v.m.rows[name] = row
	}
	row.took, row.html = append(row.took, got.took), max(row.html, got.bytes)
	if !got.page {
		return nil
	}
	links, files, err := readLinks(got.text)
	if err != nil {
		return fmt.Errorf("GET %s: %w", address, err)
	}
	weight := got.bytes
	for _, file := range files {
		n, err := v.weigh(ctx, file)
		if err != nil {
			return fmt.Errorf("GET %s, which %s loads: %w", file, address, err)
		}
		weight += n
	}
	row.view = max(row.view, weight)
	for _, link := range links {
		v.remember(link)
	}
	return nil
}

// open requests an address, with the next user if the last one has requested too many pages.
func (v *pageVisitor) open(ctx context.Context, address string) (got response, err error) {
	for range 2 * len(v.tokens) {
		v.turn++
		got, err = v.m.n.open(ctx, address, v.tokens[v.turn%len(v.tokens)])
		if err != nil || got.status < http.StatusBadRequest {
			return got, err
		}
		if got.status != http.StatusTooManyRequests {
			return got, fmt.Errorf("status %d: %.2000s", got.status, got.text)
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return got, err
		}
	}
	return got, errors.New("all users have requested too many pages")
}

// weigh returns the compressed size of a file that pages load.
func (v *pageVisitor) weigh(ctx context.Context, path string) (int, error) {
	if n, ok := v.m.assets[path]; ok {
		return n, nil
	}
	got, err := v.open(ctx, path)
	v.m.assets[path] = got.bytes
	return got.bytes, err
}

// remember keeps an address if a pattern with parameters matches it.
func (v *pageVisitor) remember(address string) {
	path, _, _ := strings.Cut(address, "?")
	u, err := url.Parse(path)
	if err != nil {
		return
	}
	_, pattern := v.m.mux.Handler(&http.Request{Method: http.MethodGet, URL: u})
	pattern = strings.TrimPrefix(pattern, "GET ")
	if !strings.Contains(pattern, "{") || slices.Contains(v.links[pattern], path) {
		return
	}
	known := append(v.links[pattern], path)
	v.links[pattern] = known[max(0, len(known)-linksKept):]
}
