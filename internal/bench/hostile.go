package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/internal/mail/smtpsink"
)

// These constants set the hostile team's load and the well-behaved team's email rate.
const (
	silentHosts     = 40
	silentDomains   = 200
	silentBatches   = 50 // batches of 100 emails
	silentEndpoints = 1000
	slowFetches     = 200
	goodRate        = 20 // emails per second
	goodFor         = 20 * time.Second
	answerLimit     = 5 * time.Minute // time limit for the last delivery or webhook
)

// goodEvents lists the event types that the webhook receives: one event of each type per delivered email.
var goodEvents = []string{"email.sent", "email.delivered"}

// hostileRun measures one team's latencies while another team's mail hosts and webhook endpoints never answer.
type hostileRun struct {
	*measurement
	node   *measuredNode
	client *http.Client

	good, bad string // API keys of the two teams
	hooks     *httptest.Server
	silent    *httptest.Server

	mu      sync.Mutex
	posted  map[string]time.Time // time at which the email was due, by recipient
	arrived map[string]time.Duration
	told    []time.Duration // webhook latencies; nil if the team has no webhooks
	more    chan struct{}
}

// hostile starts a node that delivers to hosts on loopback. It reports the latencies of a well-behaved team, first
// alone and then alongside a hostile team. The hostile team sends email to hosts that never answer, has webhook
// endpoints that never answer, and sends attachments whose URLs never finish loading.
func (b *measurement) hostile(ctx context.Context) error {
	h, stop, err := b.beside(ctx)
	defer stop()
	if err != nil {
		return err
	}
	if h.bad, err = h.secondTeam(ctx); err != nil {
		return err
	}
	if err := h.node.addDomain(ctx, h.bad, `{"name":"hostile.example"}`); err != nil {
		return err
	}
	h.told = []time.Duration{}
	if err := h.post(ctx, h.good, "/webhooks", map[string]any{"endpoint": h.hooks.URL, "events": goodEvents}); err != nil {
		return err
	}
	b.say("Postrider %s on %s: a team sends %d emails a second, beside another whose hosts never answer", b.env.Version,
		b.engine(), goodRate)
	return h.measure(ctx, []phase{
		{"alone", nil},
		{fmt.Sprintf("%d emails to %d silent hosts", silentBatches*100, silentHosts), h.mailSilentHosts},
		{fmt.Sprintf("and %d silent webhook endpoints", silentEndpoints), h.tellSilentEndpoints},
		{fmt.Sprintf("and %d attachments that never come", slowFetches), h.attachSlowFiles},
	})
}

// beside starts a node for measuring one team's latencies under some other load. The caller must call stop, even after
// an error.
func (b *measurement) beside(ctx context.Context, args ...string) (h *hostileRun, stop func(), err error) {
	h = &hostileRun{measurement: b, client: &http.Client{Timeout: time.Minute}, posted: map[string]time.Time{},
		arrived: map[string]time.Duration{}, more: make(chan struct{}, 1)}
	if stop, err = h.serveHosts(); err != nil {
		return h, stop, err
	}
	_, port, _ := net.SplitHostPort(b.sink.Addr())
	b.direct = []string{"--transport", "direct", "--smtp-port", port, "--dns-servers", b.dns}
	if h.node, err = b.start(ctx, args...); err != nil {
		return h, stop, err
	}
	stopHosts := stop
	stop = func() {
		h.node.stop()
		stopHosts()
	}
	h.good = apiKey
	return h, stop, nil
}

// phase is a kind of load that, once started, continues until the end of the benchmark.
type phase struct {
	name  string
	begin func(context.Context) error
}

// measure reports the well-behaved team's latencies in each phase.
func (h *hostileRun) measure(ctx context.Context, phases []phase) error {
	h.say("%-42s %22s %22s", "", "accept to hand-over", "event to webhook")
	for _, p := range phases {
		if p.begin != nil {
			if err := p.begin(ctx); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		if err := h.behave(ctx, p.name); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	h.say("peak memory %34.0f MB", h.node.peakMB())
	return nil
}

// serveHosts starts a DNS server, the good mail host, the silent mail hosts, and both teams' HTTP servers.
func (h *hostileRun) serveHosts() (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range slices.Backward(stops) {
			f()
		}
	}
	h.sink.Close() // this run replaces the default sink
	h.sink, err = smtpsink.Config{OnMessage: func(_ string, to []string, _ []byte) { h.took(to[0]) }}.Start("127.0.0.1:0")
	if err != nil {
		return stop, fmt.Errorf("start the sink: %w", err)
	}
	_, port, _ := net.SplitHostPort(h.sink.Addr())
	for i := range silentHosts {
		l, err := net.Listen("tcp", net.JoinHostPort(silentHost(i), port))
		if err != nil {
			return stop, fmt.Errorf("listen as a silent host: %w", err)
		}
		stops = append(stops, func() { l.Close() })
		go acceptSilently(l)
	}
	stopDNS, err := h.answerDNS(hostileZone)
	if err != nil {
		return stop, err
	}
	stops = append(stops, stopDNS)
	h.hooks = httptest.NewServer(http.HandlerFunc(h.hook))
	stops = append(stops, h.hooks.Close)
	ended := make(chan struct{})
	h.silent = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-ended:
		case <-r.Context().Done():
		}
	}))
	stops = append(stops, h.silent.Close, func() { close(ended) })
	return stop, nil
}

func silentHost(i int) string { return "127.0.1." + strconv.Itoa(1+i%silentHosts) }

// acceptSilently accepts connections until the listener is closed, and never sends anything on them.
func acceptSilently(l net.Listener) {
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		open = append(open, c)
	}
}

// hostileZone answers DNS queries for good.example, whose mail host is the sink, and for the subdomains of
// silent.example and crowd.example.
func hostileZone(q dns.Question) []dns.RR {
	name := strings.TrimSuffix(strings.ToLower(q.Name), ".")
	header := dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET, Ttl: 3600}
	host := ""
	switch {
	case name == "good.example":
		host = "127.0.0.1"
	case strings.HasSuffix(name, ".silent.example"):
		sum := fnv.New32a()
		io.WriteString(sum, name)
		host = silentHost(int(sum.Sum32() % silentHosts))
	case strings.HasSuffix(name, ".crowd.example"):
		host = crowdHost
	default:
		return nil
	}
	switch q.Qtype {
	case dns.TypeMX:
		return []dns.RR{&dns.MX{Hdr: header, Preference: 10, Mx: q.Name}}
	case dns.TypeA:
		return []dns.RR{&dns.A{Hdr: header, A: net.ParseIP(host)}}
	}
	return nil
}

// secondTeam creates the hostile team and returns its API key.
func (h *hostileRun) secondTeam(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, h.node.cmd.Path, "keys", "create", "--create-team", "--team", "Hostile",
		"--data-dir", h.data()).Output()
	if err != nil {
		return "", fmt.Errorf("make a second team: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (h *hostileRun) post(ctx context.Context, key, path string, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+h.node.addr+path, strings.NewReader(string(text)))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("User-Agent", "bench")
	answer, err := h.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err == nil && answer.StatusCode/100 != 2 {
		err = fmt.Errorf("POST %s: %s: %.300s", path, answer.Status, said)
	}
	return err
}

func hostileEmail(to string) map[string]any {
	return map[string]any{"from": "a@hostile.example", "to": to, "subject": "Hello", "text": "Hello."}
}

func (h *hostileRun) mailSilentHosts(ctx context.Context) error {
	for b := range silentBatches {
		batch := make([]map[string]any, 100)
		for i := range batch {
			n := b*len(batch) + i
			batch[i] = hostileEmail(fmt.Sprintf("u%d@d%d.silent.example", n, n%silentDomains))
		}
		if err := h.post(ctx, h.bad, "/emails/batch", batch); err != nil {
			return err
		}
	}
	return nil
}

func (h *hostileRun) tellSilentEndpoints(ctx context.Context) error {
	for i := range silentEndpoints {
		endpoint := fmt.Sprintf("%s/%d", h.silent.URL, i)
		if err := h.post(ctx, h.bad, "/webhooks", map[string]any{"endpoint": endpoint, "events": goodEvents}); err != nil {
			return err
		}
	}
	for range 2 {
		batch := make([]map[string]any, 100)
		for i := range batch {
			batch[i] = hostileEmail("delivered@resend.dev")
		}
		if err := h.post(ctx, h.bad, "/emails/batch", batch); err != nil {
			return err
		}
	}
	return nil
}

func (h *hostileRun) attachSlowFiles(ctx context.Context) error {
	for i := range slowFetches {
		email := hostileEmail("delivered@resend.dev")
		email["attachments"] = []map[string]any{{"filename": "a.txt", "path": fmt.Sprintf("%s/%d", h.silent.URL, i)}}
		if err := h.post(ctx, h.bad, "/emails", email); err != nil {
			return err
		}
	}
	return nil
}

// behave sends the good team's emails at a fixed rate and reports the latencies of deliveries and webhooks. One email
// in ten has an attachment that the node must fetch.
func (h *hostileRun) behave(ctx context.Context, name string) error {
	count := int(goodFor.Seconds() * goodRate)
	hooks := 2 * count
	h.mu.Lock()
	if h.told = h.told[:0]; h.told == nil {
		hooks = 0
	}
	h.mu.Unlock()
	mails, err := h.mail(ctx, goodRate, true, func(i int) bool { return i < count })
	if err != nil {
		return err
	}
	if err := h.await(ctx, "events told", hooks, func() int { return len(h.told) }); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.say("%-42s %s %s", name, quantiles(mails), quantiles(h.told))
	return nil
}

// mail sends the good team's emails at the given rate per second until more(i) returns false. It returns the delivery
// latency of each email, measured from the time at which the email was due. If attach is true, one email in ten has an
// attachment that the node must fetch.
func (h *hostileRun) mail(ctx context.Context, rate int, attach bool, more func(i int) bool) ([]time.Duration, error) {
	h.mu.Lock()
	clear(h.arrived)
	h.mu.Unlock()
	start, count := time.Now(), 0
	g, posting := errgroup.WithContext(ctx)
	for ; more(count); count++ {
		due := start.Add(time.Duration(count) * time.Second / time.Duration(rate))
		if pause(posting, time.Until(due)) != nil {
			break
		}
		to := fmt.Sprintf("u%d-%d@good.example", start.UnixMilli(), count)
		h.mu.Lock()
		h.posted[to] = due
		h.mu.Unlock()
		email := map[string]any{"from": "a@bench.example", "to": to, "subject": "Receipt", "html": h.html()}
		if attach && count%10 == 9 {
			email["attachments"] = []map[string]any{{"filename": "a.txt", "path": h.hooks.URL + "/file"}}
		}
		g.Go(func() error { return h.post(posting, h.good, "/emails", email) })
	}
	if err := cmp.Or(g.Wait(), ctx.Err()); err != nil {
		return nil, err
	}
	if err := h.await(ctx, "emails handed over", count, func() int { return len(h.arrived) }); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.arrived)), nil
}

// await waits until the result of done() is at least want; h.mu is held during each call to done.
func (h *hostileRun) await(ctx context.Context, what string, want int, done func() int) error {
	limited, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	for {
		h.mu.Lock()
		n := done()
		h.mu.Unlock()
		if n >= want {
			return nil
		}
		select {
		case <-h.more:
		case <-limited.Done():
			return fmt.Errorf("%d of %d %s", n, want, what)
		}
	}
}

func quantiles(all []time.Duration) string {
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return fmt.Sprintf("p50 %5.0f, p99 %5.0f ms", ms(all[len(all)/2]), ms(all[len(all)*99/100]))
}

// took records that the good mail host received an email.
func (h *hostileRun) took(to string) {
	now := time.Now()
	h.mu.Lock()
	if due, ok := h.posted[to]; ok {
		h.arrived[to] = now.Sub(due)
		delete(h.posted, to)
	}
	h.mu.Unlock()
	h.wake()
}

// hook is the good team's HTTP handler, which serves the webhook endpoint and the attached file.
func (h *hostileRun) hook(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	if r.Method == http.MethodGet {
		io.WriteString(w, "a file\n")
		return
	}
	var event struct {
		CreatedAt time.Time `json:"created_at"`
	}
	if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	h.told = append(h.told, now.Sub(event.CreatedAt))
	h.mu.Unlock()
	h.wake()
}

func (h *hostileRun) wake() {
	select {
	case h.more <- struct{}{}:
	default:
	}
}
