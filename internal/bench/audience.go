package bench

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/mail/smtpsink"
	"github.com/postrider/postrider/internal/node"
)

// Properties of the contacts that the benchmark creates.
const (
	crowdHost    = "127.0.0.2" // host that receives the mail of all contacts
	crowdDomains = 5000
	crowdPlans   = 10
	crowdCities  = 1000
)

const (
	singleRate = 10 // single emails sent per second during a broadcast
	aloneMost  = 100
	askTimes   = 21 // repetitions of a request; the benchmark reports the median and the maximum
	countTimes = 3  // repetitions of a request that reads the whole segment
)

// audienceRun measures contacts, segments and broadcasts.
type audienceRun struct {
	*hostileRun
	contacts int
	segment  string // id of the segment that contains all contacts
	teamID   string
	store    *node.Node // reads the measured node's database, because polling the API for progress would load the node
}

// audience measures the import of contacts with two properties, requests for contact lists and counts, and two
// broadcasts to all contacts. Delivery is held during the first broadcast. During the second broadcast, the node
// delivers email, and the benchmark also sends single emails to another host.
func (b *measurement) audience(ctx context.Context, contacts int) error {
	h, stop, err := b.beside(ctx, "--import-max-size", "100GB")
	defer stop()
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(h.sink.Addr())
	crowd, err := smtpsink.Start(net.JoinHostPort(crowdHost, port))
	if err != nil {
		return fmt.Errorf("start the contacts' host: %w", err)
	}
	defer crowd.Close()
	a := &audienceRun{hostileRun: h, contacts: contacts}
	if err := a.open(ctx); err != nil {
		return err
	}
	defer a.store.Close()
	b.say("Postrider %s on %s: %d contacts with two properties in one segment, a broadcast of %d bytes of HTML",
		b.env.Version,
		b.engine(), contacts, b.bytes)
	if err := a.imports(ctx); err != nil {
		return err
	}
	if err := a.asks(ctx); err != nil {
		return err
	}
	alone, err := a.mail(ctx, singleRate, false, func(i int) bool { return i < min(aloneMost, contacts/20+1) })
	if err != nil {
		return err
	}
	b.say("%-38s %s from accept to hand-over", "single emails alone", quantiles(alone))
	if err := a.held(ctx); err != nil {
		return err
	}
	return a.delivered(ctx, crowd)
}

// open opens the running node's database.
func (a *audienceRun) open(ctx context.Context) (err error) {
	c := config.Config{DataDir: a.data(), DatabaseURL: config.Secret(a.url),
		DatabaseDirectURL: config.Secret(a.directURL), BlobURL: a.blobs(), SecretKey: config.Secret(a.secret)}
	if a.store, err = node.Open(ctx, c, slog.New(slog.DiscardHandler), node.Options{Beside: true}); err != nil {
		return err
	}
	who, err := a.store.Teams.Authenticate(ctx, apiKey)
	if err != nil {
		a.store.Close()
		return fmt.Errorf("find the team: %w", err)
	}
	a.teamID = who.TeamID
	return nil
}

// restart restarts the node so that earlier measurements do not affect the peak memory of the next one.
func (a *audienceRun) restart(ctx context.Context, args ...string) error {
	a.node.stop()
	n, err := a.start(ctx, args...)
	if err == nil {
		a.node = n
	}
	return err
}

func crowdPlan(i int) string { return "p" + strconv.Itoa(i%crowdPlans) }
func crowdCity(i int) string { return "c" + strconv.Itoa(i/crowdPlans%crowdCities) }

// writeContacts writes the CSV file for the import.
func (a *audienceRun) writeContacts(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	w.WriteString("email,first_name,plan,city\n")
	for i := range a.contacts {
		fmt.Fprintf(w, "r%d@d%d.crowd.example,Reader %d,%s,%s\n", i, i%crowdDomains, i, crowdPlan(i), crowdCity(i))
	}
	return w.Flush()
}

// imports measures the import of new contacts, and then two more imports of the same file.
func (a *audienceRun) imports(ctx context.Context) error {
	path := filepath.Join(a.dir, "contacts.csv")
	if err := a.writeContacts(path); err != nil {
		return fmt.Errorf("write the file to be imported: %w", err)
	}
	var made struct{ ID string }
	if err := a.ask(ctx, http.MethodPost, "/segments", map[string]any{"name": "Everybody"}, &made); err != nil {
		return err
	}
	a.segment = made.ID
	for _, run := range []struct{ name, onConflict string }{{"import of new contacts", "skip"},
		{"the same file, upsert", "upsert"}, {"the same file, skip", "skip"}} {
		m, err := a.env.NewImporter(path,
			[]string{"--url", "http://" + a.node.addr, "--api-key", apiKey, "--map", "email=email", "--map",
				"first_name=first_name", "--property", "plan=plan", "--property", "city=city", "--segment", a.segment,
				"--on-conflict", run.onConflict})
		if err != nil {
			return err
		}
		a.node.forgetPeak()
		start, cpu := time.Now(), a.node.cpu()
		importID, err := m.Upload(ctx)
		if err != nil {
			return err
		}
		accepted := time.Since(start)
		last, err := m.Watch(ctx, importID)
		if err != nil {
			return err
		}
		took := time.Since(start)
		if done := []int64{last.Created, last.Updated, last.Skipped}; last.Status != "completed" ||
			slices.Max(done) != int64(a.contacts) || run.name == "import of new contacts" && done[0] != slices.Max(done) {
			return fmt.Errorf("%s: it %s %s with %+v; the database must be empty before", run.name, last.Status, last.Error,
				last)
		}
		a.say("%-26s %7.0f /s   %.1f s, of which %.1f s until it was accepted   CPU %.3f ms a row   peak memory %.0f MB",
			run.name, float64(a.contacts)/took.Seconds(), took.Seconds(), accepted.Seconds(),
			(a.node.cpu()-cpu).Seconds()*1000/float64(a.contacts), a.node.peakMB())
	}
	return nil
}

// crowdFilters are segment filters that match widely different proportions of the contacts.
var crowdFilters = []struct {
	name   string
	filter string
	holds  func(i int) bool
}{
	{"AND, one in 10,000", crowdRules("and", `"eq","value":"p3"`, `"eq","value":"c7"`),
		func(i int) bool { return crowdPlan(i) == "p3" && crowdCity(i) == "c7" }},
	{"OR, one in 10", crowdRules("or", `"eq","value":"p3"`, `"eq","value":"c7"`),
		func(i int) bool { return crowdPlan(i) == "p3" || crowdCity(i) == "c7" }},
	{"AND, nine in 10", crowdRules("and", `"neq","value":"p3"`, `"neq","value":"c7"`),
		func(i int) bool { return crowdPlan(i) != "p3" && crowdCity(i) != "c7" }},
}

func crowdRules(kind, plan, city string) string {
	return `{"type":"` + kind + `","rules":[{"type":"rule","field":"contact.properties.plan","operator":` + plan +
		`},{"type":"rule","field":"contact.properties.city","operator":` + city + `}]}`
}

// asks measures the response times of requests for contact lists and contact counts.
func (a *audienceRun) asks(ctx context.Context) error {
	broadcastID, err := a.draft(ctx)
	if err != nil {
		return err
	}
	for _, list := range []string{"/contacts?limit=100", "/segments/" + a.segment + "/contacts?limit=100"} {
		var page struct{ Data []struct{ ID string } }
		name := "GET " + strings.Replace(list, a.segment, "{id}", 1)
		if err := a.times(ctx, name, askTimes, http.MethodGet, list, &page); err != nil {
			return err
		}
		if len(page.Data) != min(100, a.contacts) {
			return fmt.Errorf("%s: it has %d contacts", name, len(page.Data))
		}
	}
	if err := a.count(ctx, "all contacts", a.segment, a.contacts); err != nil {
		return err
	}
	for _, f := range crowdFilters {
		var made struct{ ID string }
		body := map[string]any{"name": f.name, "filter": json.RawMessage(f.filter)}
		if err := a.ask(ctx, http.MethodPost, "/segments", body, &made); err != nil {
			return err
		}
		want := 0
		for i := range a.contacts {
			if f.holds(i) {
				want++
			}
		}
		if err := a.count(ctx, f.name, made.ID, want); err != nil {
			return err
		}
		var page struct{ Data []struct{ ID string } }
		err := a.times(ctx, "GET its first 100", askTimes, http.MethodGet, "/segments/"+made.ID+"/contacts?limit=100", &page)
		if err != nil {
			return err
		}
		if len(page.Data) != min(100, want) {
			return fmt.Errorf("%s: the list has %d contacts", f.name, len(page.Data))
		}
	}
	var of struct{ Contacts, Mailed int }
	err = a.times(ctx, "POST /broadcasts/{id}/audience", countTimes, http.MethodPost,
		"/broadcasts/"+broadcastID+"/audience", &of)
	if err == nil && (of.Contacts != a.contacts || of.Mailed != a.contacts) {
		err = fmt.Errorf("the audience has %d contacts, of whom %d would be mailed", of.Contacts, of.Mailed)
	}
	return err
}

// times repeats a request and reports the median and maximum response times.
func (a *audienceRun) times(ctx context.Context, name string, times int, method, path string, into any) error {
	var took []time.Duration
	for range times {
		start := time.Now()
		if err := a.ask(ctx, method, path, nil, into); err != nil {
			return err
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	a.say("%-38s %7.1f ms, at most %.1f ms", name, ms(took[len(took)/2]), ms(took[len(took)-1]))
	return nil
}

// count polls a new segment until the response contains the segment's size. Large segments are counted in the
// background.
func (a *audienceRun) count(ctx context.Context, name, segment string, want int) error {
	var g struct{ Contacts *int }
	start, answered := time.Now(), time.Duration(0)
	for limit := start.Add(answerLimit); ; {
		if err := a.ask(ctx, http.MethodGet, "/segments/"+segment, nil, &g); err != nil {
			return err
		}
		if answered == 0 {
			answered = time.Since(start)
		}
		if g.Contacts != nil {
			break
		}
		if time.Now().After(limit) {
			return fmt.Errorf("%s: not counted after %v", name, answerLimit)
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
	if *g.Contacts != want {
		return fmt.Errorf("%s: %d were counted, and there are %d", name, *g.Contacts, want)
	}
	a.say("%-38s %7.1f ms until %d were counted, the first answer after %.1f ms", "count: "+name, ms(time.Since(start)),
		want, ms(answered))
	return nil
}

// draft creates a broadcast to all contacts, with template variables in its text.
func (a *audienceRun) draft(ctx context.Context) (broadcastID string, err error) {
	var made struct{ ID string }
	err = a.ask(ctx, http.MethodPost, "/broadcasts", map[string]any{"from": "Bench <a@bench.example>",
		"subject": "News for {{{FIRST_NAME|you}}}", "segment_id": a.segment,
		"html": "<p>Dear {{{FIRST_NAME|reader}}} in {{{city|town}}},</p>\n" + a.html() +
			`<p><a href="{{{POSTRIDER_UNSUBSCRIBE_URL}}}">Unsubscribe</a></p>`}, &made)
	return made.ID, err
}

// held sends a broadcast to all contacts while delivery is held.
func (a *audienceRun) held(ctx context.Context) error {
	if err := a.restart(ctx, "--roles", "api,jobs"); err != nil {
		return err
	}
	before, err := a.store.DB.Sizes(ctx)
	if err != nil {
		return fmt.Errorf("read the sizes of tables: %w", err)
	}
	cpu := a.node.cpu()
	broadcastID, took, err := a.broadcast(ctx, "broadcast, delivery held")
	if err != nil {
		return err
	}
	a.say("%-26s %7.0f /s   CPU %.3f ms a recipient   peak memory %.0f MB", "", float64(a.contacts)/took.Seconds(),
		(a.node.cpu()-cpu).Seconds()*1000/float64(a.contacts), a.node.peakMB())
	after, err := a.store.DB.Sizes(ctx)
	if err != nil {
		return fmt.Errorf("read the sizes of tables: %w", err)
	}
	a.sayDisk(before, after)
	return a.results(ctx, broadcastID)
}

// results measures requests for a broadcast's results and for long and empty lists of its recipients.
func (a *audienceRun) results(ctx context.Context, broadcastID string) error {
	for _, what := range []string{"/results", "/recipients?limit=100&type=sent", "/recipients?limit=100&type=waiting",
		"/recipients?limit=100&type=bounced"} {
		if err := a.times(ctx, "GET /broadcasts/{id}"+what, askTimes, http.MethodGet, "/broadcasts/"+broadcastID+what,
			nil); err != nil {
			return err
		}
	}
	return nil
}

// sayDisk reports how much each table and its indexes grew, in bytes per recipient.
func (a *audienceRun) sayDisk(before, after map[string]int64) {
	grew, all := map[string]int64{}, int64(0)
	for table, size := range after {
		if size -= before[table]; size >= int64(a.contacts) {
			grew[table] = size / int64(a.contacts)
			all += grew[table]
		}
	}
	var parts []string
	most := func(x, y string) int { return cmp.Compare(grew[y], grew[x]) }
	for _, table := range slices.SortedFunc(maps.Keys(grew), most) {
		parts = append(parts, fmt.Sprintf("%s %d", table, grew[table]))
	}
	a.say("disk a recipient           %7d bytes beside its events, %d without its job: %s", all-grew["email_events"],
		all-grew["email_events"]-grew["jobs"], strings.Join(parts, ", "))
}

// delivered sends a second broadcast with delivery running. The node also delivers the emails from the first broadcast,
// which are still in the queue. Until the second broadcast is completely enqueued, the benchmark also sends single
// emails to another host.
func (a *audienceRun) delivered(ctx context.Context, crowd *smtpsink.Sink) error {
	if err := a.restart(ctx); err != nil {
		return err
	}
	before, entered := crowd.Count(), make(chan struct{})
	var broadcastID string
	var took time.Duration
	var singles []time.Duration
	g, within := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		defer close(entered)
		broadcastID, took, err = a.broadcast(within, "broadcast, with delivery")
		return err
	})
	g.Go(func() (err error) {
		singles, err = a.mail(within, singleRate, false, func(int) bool {
			select {
			case <-entered:
				return false
			default:
				return true
			}
		})
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	a.say("%-26s %7.0f /s   peak memory %.0f MB   %d of %d emails of both delivered meanwhile", "",
		float64(a.contacts)/took.Seconds(), a.node.peakMB(), crowd.Count()-before, 2*a.contacts)
	a.say("%-38s %s from accept to hand-over, of %d", "single emails beside it", quantiles(singles), len(singles))
	return a.results(ctx, broadcastID)
}

// broadcast sends a broadcast to all contacts, and returns the broadcast's id and the time taken to enqueue all emails.
func (a *audienceRun) broadcast(ctx context.Context, name string) (broadcastID string, took time.Duration, err error) {
	if broadcastID, err = a.draft(ctx); err != nil {
		return "", 0, err
	}
	start, first, every := time.Now(), time.Duration(0), 2*time.Millisecond
	if err := a.ask(ctx, http.MethodPost, "/broadcasts/"+broadcastID+"/send", map[string]any{}, nil); err != nil {
		return "", 0, err
	}
	for {
		b, err := a.store.Broadcasts.Get(ctx, a.teamID, broadcastID)
		if err != nil {
			return "", 0, err
		}
		if b.Status != broadcasts.Queued && b.Status != broadcasts.Scheduled || b.LeftOut > 0 {
			return "", 0, fmt.Errorf("%s: it is %s %s with %d entered and %d left out", name, b.Status, b.Reason, b.Entered,
				b.LeftOut)
		}
		if first == 0 && b.Entered > 0 {
			first, every = time.Since(start), 20*time.Millisecond
		}
		if b.Entered >= int64(a.contacts) {
			break
		}
		if err := pause(ctx, every); err != nil {
			return "", 0, err
		}
	}
	took = time.Since(start)
	a.say("%-26s %7.1f s until all were entered, the first after %.0f ms", name, took.Seconds(), ms(first))
	return broadcastID, took, nil
}

// ask sends an API request and, unless into is nil, decodes the response into it. If body is nil, the request has no
// body.
func (a *audienceRun) ask(ctx context.Context, method, path string, body, into any) error {
	text := ""
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		text = string(encoded)
	}
	answer, status, err := a.node.call(ctx, method, path, text)
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("%s %s: status %d: %.300s", method, path, status, answer)
	}
	if err == nil && into != nil {
		err = json.Unmarshal(answer, into)
	}
	return err
}
