package cli

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"io/fs"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/docs"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/telemetry"
	"github.com/postrider/postrider/internal/sending/emails"
)

// deploy is the folder of the board and of the alert rules.
const deploy = "../../deploy"

// scrape returns the series of a node, without their values, and the text of the whole scrape.
func (n *started) scrape() (series []string, text string) {
	n.t.Helper()
	status, text := n.askMetrics("/metrics")
	if status != 200 {
		n.t.Fatalf("a scrape: %d %s", status, text)
	}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if line := lines.Text(); line != "" && line[0] != '#' {
			series = append(series, line[:strings.LastIndexByte(line, ' ')])
		}
	}
	return series, text
}

// askMetrics makes a request to the listener for metrics.
func (n *started) askMetrics(path string) (int, string) {
	n.t.Helper()
	r, err := http.Get("http://" + n.MetricsAddr() + path)
	if err != nil {
		n.t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return r.StatusCode, string(text)
}

// certificate makes a certificate for the SMTP listeners that is valid for a number of days.
func (p *installation) certificate(days int) {
	p.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().AddDate(0, 0, days), DNSNames: []string{"mail.example.com"}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		p.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		p.t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"CERT": {Type: "CERTIFICATE", Bytes: der},
		"KEY": {Type: "PRIVATE KEY", Bytes: keyDER}} {
		path := filepath.Join(p.t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			p.t.Fatal(err)
		}
		p.vars["POSTRIDER_TLS_"+name+"_FILE"] = path
	}
}

// observed starts a node with metrics and lets it do a little of everything.
func observed(t *testing.T, p *installation) *started {
	t.Helper()
	p.vars["POSTRIDER_METRICS_LISTEN"] = "127.0.0.1:0"
	p.vars["POSTRIDER_ROLES"] = "api,delivery,jobs,submission,receiving,dns"
	p.vars["POSTRIDER_DNS_LISTEN"], p.vars["POSTRIDER_DNS_NAMES"] = "127.0.0.1:0", "ns1.example.com"
	p.vars["POSTRIDER_SMTP_IN_LISTEN"], p.vars["POSTRIDER_RELAY_ADDR"] = "127.0.0.1:0", "127.0.0.1:1" // not used
	p.certificate(30)
	key := p.key("Acme")
	n := p.start(func(n *node.Node) {
		last := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
		if err := n.DB.SetFact(t.Context(), db.FactLastBackup, last); err != nil {
			t.Fatal(err)
		}
	})
	status, text := n.ask(key, http.MethodPost, "/emails",
		`{"from":"Acme <onboarding@resend.dev>","to":"ann@example.net","subject":"x","text":"y"}`)
	if status != 200 {
		t.Fatalf("send: %d %s", status, text)
	}
	if status, text := n.ask(key, http.MethodGet, "/nowhere", ""); status != 404 {
		t.Fatalf("an unknown path: %d %s", status, text)
	}
	eventually(t, "the email is delivered", func() bool {
		return n.count(`SELECT COUNT(*) FROM jobs WHERE kind = $1`, emails.DeliveryKind) == 0
	})
	eventually(t, "the figures of the installation are measured", func() bool {
		_, text := n.askMetrics("/metrics")
		return strings.Contains(text, "\npostrider_installation_last_backup_timestamp_seconds ") &&
			strings.Contains(text, "\npostrider_certificates_missing ") &&
			strings.Contains(text, "\npostrider_dns_zones_read_timestamp_seconds ")
	})
	return n
}

// A node shows every metric of the catalog, and the names and types follow the conventions of Prometheus. Every query
// of the board and of the alert rules finds a series.
func TestMetricsOfANode(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		n := observed(t, p)
		series, text := n.scrape()
		for _, d := range telemetry.Catalog() {
			if d.Name == "postrider_clock_offset_seconds" && n.DB.Alone() ||
				d.Name == "postrider_installation_jobs_parked" { // exists only if a job is parked
				continue
			}
			if !strings.Contains(text, "\n# TYPE "+d.Name+" "+d.Type+"\n") {
				t.Errorf("the node has no %s %s", d.Type, d.Name)
			}
		}
		for _, want := range []string{`postrider_emails_accepted_total{source="api"} 1`,
			`postrider_deliveries_total{outcome="delivered",provider="other"} 1`,
			`postrider_api_requests_total{class="2xx",group="emails"} 1`,
			`postrider_api_requests_total{class="4xx",group="unknown"} 1`,
			`postrider_jobs_total{kind="` + emails.DeliveryKind + `",result="done"} 1`,
			`postrider_delivery_wait_seconds_count{class="single"} 1`,
			`postrider_check_ok{check="database"} 1`, `postrider_connections_open{kind="smtp_in"} 0`,
			`postrider_relay_deliveries_total{outcome="delivered",relay="relay"} 0`,
			`postrider_relay_resting{relay="relay"} 0`} {
			if !strings.Contains(text, "\n"+want+"\n") {
				t.Errorf("the scrape lacks %s", want)
			}
		}
		lint := exec.CommandContext(t.Context(), promtool(t), "check", "metrics")
		lint.Stdin = strings.NewReader(ownMetrics(text))
		if out, err := lint.CombinedOutput(); err != nil {
			t.Errorf("promtool check metrics: %v\n%s", err, out)
		}
		queries := boardQueries(t)
		if len(queries) < 40 {
			t.Fatalf("the board has %d queries", len(queries))
		}
		for _, q := range append(queries, ruleQueries(t)...) {
			for _, s := range selectors(q) {
				absent := s.name == "up" || s.name == "postrider_installation_jobs_parked" ||
					s.name == "postrider_clock_offset_seconds" && n.DB.Alone()
				if !absent && !slices.ContainsFunc(series, s.matches) {
					t.Errorf("no series of the node matches %s{%s} of the query %s", s.name, s.labels, q)
				}
			}
		}
		if t.Failed() {
			t.Log(text)
		}
	})
}

// ownMetrics returns the part of a scrape that is not about the Go runtime and the process. Some of those names do not
// follow the conventions.
func ownMetrics(text string) string {
	var own strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE "), "postrider_") {
			own.WriteString(line)
		}
	}
	return own.String()
}

// The alert rules are valid, and fire when they should.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"},
		{"check", "config", "prometheus.yml"}} {
		c := exec.CommandContext(t.Context(), promtool(t), args...)
		c.Dir = filepath.Join(deploy, "prometheus")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// Each alert rule leads to a heading of the documentation that says what to do, and metrics.md lists the rule.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile(filepath.Join(deploy, "prometheus", "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := fs.ReadFile(docs.Files, "operating/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	runbook := regexp.MustCompile(`runbook_url: "https://github.com/postrider/postrider/blob/main/docs/` +
		`(operating/\S+\.md)#(\S+)"`)
	for _, rule := range strings.Split(string(rules), "- alert: ")[1:] {
		name, _, _ := strings.Cut(rule, "\n")
		m := runbook.FindStringSubmatch(rule)
		if m == nil {
			t.Errorf("%s has no runbook_url", name)
			continue
		}
		text, err := fs.ReadFile(docs.Files, m[1])
		heading := "\n## " + strings.ReplaceAll(m[2], "-", " ") + "\n"
		if err != nil || !strings.Contains(strings.ToLower(string(text)), heading) {
			t.Errorf("%s leads to %s, which has no heading %s: %v", name, m[1], m[2], err)
		}
		if !strings.Contains(string(list), "`"+name+"`") {
			t.Errorf("metrics.md does not list %s", name)
		}
	}
}

// promtool returns the path of promtool, which `make deps` installs.
func promtool(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatalf("%v: run `make deps`, or install Debian's package prometheus", err)
	}
	return path
}

// boardQueries returns the queries of the Grafana board.
func boardQueries(t *testing.T) (all []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(deploy, "grafana", "postrider.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ H, W, X, Y int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &board); err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" || p.GridPos.X+p.GridPos.W > 24 || p.GridPos.H == 0 {
			t.Errorf("the panel %q has the id or the place of another one, or no place", p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	return all
}

// ruleQueries returns the queries of the alert rules.
func ruleQueries(t *testing.T) (all []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(deploy, "prometheus", "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(data), "\n        expr: ")[1:] {
		query, _, _ := strings.Cut(part, "\n        for: ")
		query, _, _ = strings.Cut(query, "\n        labels: ")
		all = append(all, strings.TrimSpace(strings.TrimPrefix(query, "|")))
	}
	if len(all) < 10 {
		t.Fatalf("%d rules were read", len(all))
	}
	return all
}

// selector is a name in a query with its conditions on labels.
type selector struct {
	name, labels string
	conditions   []*regexp.Regexp // what a series must match
}

var (
	selected  = regexp.MustCompile(`\b((?:postrider|process|go)_[a-z0-9_]+|up)\b(?:\{([^}]*)\})?`)
	condition = regexp.MustCompile(`([a-z_]+)(=~|=|!=)"([^"]*)"`)
)

// selectors returns the selectors of a query. Conditions on the node and on the job are left out, because Prometheus
// adds these labels.
func selectors(query string) (all []selector) {
	for _, m := range selected.FindAllStringSubmatch(query, -1) {
		s := selector{name: m[1], labels: m[2]}
		for _, c := range condition.FindAllStringSubmatch(m[2], -1) {
			if c[1] == "instance" || c[1] == "job" || c[2] == "!=" {
				continue
			}
			value := c[3]
			if c[2] == "=" {
				value = regexp.QuoteMeta(value)
			}
			s.conditions = append(s.conditions, regexp.MustCompile(`[{,]`+c[1]+`="(`+value+`)"`))
		}
		all = append(all, s)
	}
	return all
}

func (s selector) matches(series string) bool {
	name, labels, _ := strings.Cut(series, "{")
	return name == s.name && !slices.ContainsFunc(s.conditions, func(c *regexp.Regexp) bool {
		return !c.MatchString("{" + labels)
	})
}

// The public address answers /healthz and /readyz, and has no metrics and no profiles.
func TestPublicAddressHasNoMetrics(t *testing.T) {
	t.Parallel()
	p := newInstallation(t)
	n := observed(t, p)
	for path, want := range map[string]struct {
		status int
		text   string
	}{"/healthz": {200, `{"status":"ok"}`}, "/readyz": {200, `"status":"ok"`}, "/metrics": {404, "metrics_listen"},
		"/debug/pprof/": {401, ""}} {
		r, err := http.Get(n.url + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != want.status || !strings.Contains(string(text), want.text) {
			t.Errorf("%s: %d %s, %v", path, r.StatusCode, text, err)
		}
	}
	for path, want := range map[string]string{"/healthz": `{"status":"ok"}`, "/debug/pprof/": "goroutine",
		"/readyz": `{"name":"blobs","status":"ok"}`} {
		if status, text := n.askMetrics(path); status != 200 || !strings.Contains(text, want) {
			t.Errorf("%s of metrics_listen: %d %s", path, status, text)
		}
	}
}

// While a node finishes its work, it says that it is stopping.
func TestStoppingNodeIsNotReady(t *testing.T) {
	t.Parallel()
	p := newInstallation(t)
	n := observed(t, p)
	addr := n.MetricsAddr()
	n.end()
	if _, err := http.Get("http://" + addr + "/readyz"); err == nil {
		t.Error("a node that has ended still answers")
	}
	if r := n.Ready(t.Context()); r.Status != telemetry.StatusUnavailable || r.Checks[0].Name != "stopping" {
		t.Errorf("%+v", r)
	}
}

// tracesOf receives traces and returns the spans by name.
type tracesOf struct {
	mu  sync.Mutex
	all map[string][]otlpSpan
}

type otlpSpan struct {
	TraceID, SpanID, ParentSpanID, Name string
	Attributes                          []struct {
		Key   string
		Value struct{ StringValue, IntValue string }
	}
	Links []struct{ TraceID, SpanID string }
}

func (s *otlpSpan) attribute(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.StringValue + a.Value.IntValue
		}
	}
	return ""
}

func (c *tracesOf) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var in struct {
		ResourceSpans []struct {
			ScopeSpans []struct{ Spans []otlpSpan }
		}
	}
	json.NewDecoder(r.Body).Decode(&in)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range in.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				c.all[s.Name] = append(c.all[s.Name], s)
			}
		}
	}
}

// about returns the spans with a name about an email.
func (c *tracesOf) about(name, email string) (found []otlpSpan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.all[name] {
		if s.attribute("postrider.email.id") == email {
			found = append(found, s)
		}
	}
	return found
}

// The spans of a request and of a delivery are joined by the email's id. A client's trace is continued.
func TestTraces(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		c := &tracesOf{all: map[string][]otlpSpan{}}
		s := httptest.NewServer(c)
		t.Cleanup(s.Close)
		p.vars["POSTRIDER_OTLP_ENDPOINT"] = s.URL
		key := p.key("Acme")
		n := p.start()
		send := func(traceparent string) (email string) {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.url+"/emails", strings.NewReader(
				`{"from":"Acme <onboarding@resend.dev>","to":"ann@example.net","subject":"x","text":"y"}`))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+key)
			if traceparent != "" {
				r.Header.Set("Traceparent", traceparent)
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			var out struct{ ID string }
			if err := json.NewDecoder(answer.Body).Decode(&out); err != nil || answer.StatusCode != 200 {
				t.Fatalf("send: %d, %v", answer.StatusCode, err)
			}
			return out.ID
		}
		const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
		alone, joined := send(""), send("00-"+trace+"-"+span+"-01")
		for _, email := range []string{alone, joined} {
			eventually(t, "the delivery is traced", func() bool { return len(c.about("deliver email", email)) == 1 })
			eventually(t, "the request is traced", func() bool { return len(c.about("POST /emails", email)) == 1 })
			d := c.about("deliver email", email)[0]
			if d.TraceID != strings.ReplaceAll(email, "-", "") || d.attribute("postrider.outcome") != "delivered" ||
				d.attribute("postrider.attempt") != "1" {
				t.Errorf("delivery %+v", d)
			}
		}
		request, delivery := c.about("POST /emails", alone)[0], c.about("deliver email", alone)[0]
		if request.TraceID != delivery.TraceID || delivery.ParentSpanID != request.SpanID || request.ParentSpanID != "" ||
			request.attribute("http.response.status_code") != "200" {
			t.Errorf("a request %+v and its delivery %+v", request, delivery)
		}
		request, delivery = c.about("POST /emails", joined)[0], c.about("deliver email", joined)[0]
		eventually(t, "the acceptance is traced", func() bool { return len(c.about("accept email", joined)) == 1 })
		accepted := c.about("accept email", joined)[0]
		if request.TraceID != trace || request.ParentSpanID != span || len(request.Links) != 1 ||
			request.Links[0].TraceID != delivery.TraceID || request.Links[0].SpanID != accepted.SpanID {
			t.Errorf("a request in the client's trace: %+v", request)
		}
		if accepted.TraceID != delivery.TraceID || delivery.ParentSpanID != accepted.SpanID ||
			accepted.Links[0].SpanID != request.SpanID {
			t.Errorf("an acceptance %+v and its delivery %+v", accepted, delivery)
		}
	})
}

// Only clients with a key continue their own traces: otherwise, strangers could have all of their requests sampled.
func TestTracesOfStrangers(t *testing.T) {
	t.Parallel()
	p := newInstallation(t)
	c := &tracesOf{all: map[string][]otlpSpan{}}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	p.vars["POSTRIDER_OTLP_ENDPOINT"], p.vars["POSTRIDER_OTLP_SAMPLE"] = s.URL, "0"
	key := p.key("Acme")
	n := p.start()
	for _, x := range [][2]string{{"", "/emails"}, {"re_unknown", "/emails"}, {key, "/domains"}} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url+x[1], nil)
		if err != nil {
			t.Fatal(err)
		}
		if x[0] != "" {
			r.Header.Set("Authorization", "Bearer "+x[0])
		}
		r.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}
	sampled := func(name string) int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.all[name])
	}
	eventually(t, "the request with a key is traced", func() bool { return sampled("GET /domains") == 1 })
	if n := sampled("GET /emails"); n > 0 {
		t.Errorf("%d requests of strangers are sampled", n)
	}
}

// A port in use ends the start with the name of the setting.
func TestMetricsPortInUse(t *testing.T) {
	t.Parallel()
	p := newInstallation(t)
	n := observed(t, p)
	p.refused("listen at metrics_listen", "serve", "--metrics-listen", n.MetricsAddr(), "--data-dir", t.TempDir(),
		"--http-listen", "127.0.0.1:0", "--hostname", "mail.example.com")
}

// A host whose certificate was never obtained counts in the metrics and makes the node degraded. While the database
// does not answer, a scrape does not wait for it.
func TestMissingCertificate(t *testing.T) {
	t.Parallel()
	p := newInstallation(t)
	p.vars["POSTRIDER_ACME"], p.vars["POSTRIDER_ACME_DIRECTORY"] = "true", "https://127.0.0.1:1/directory"
	p.vars["POSTRIDER_HOSTNAME"] = mailHost
	var blocked atomic.Bool
	resume := make(chan struct{})
	p.options.Trace = func(db.Statement) {
		if blocked.Load() {
			<-resume
		}
	}
	n := observed(t, p)
	t.Cleanup(func() { close(resume) })
	const problem = `{"name":"certificates","status":"degraded","message":"The host ` + mailHost +
		` has no valid certificate: the log of the node has the reason."}`
	eventually(t, "the node is degraded", func() bool {
		status, text := n.askMetrics("/readyz")
		return status == 200 && strings.Contains(text, problem)
	})
	if _, text := n.scrape(); !strings.Contains(text, "\npostrider_certificates_missing 1\n") {
		t.Errorf("the scrape has %s", text)
	}
	blocked.Store(true)
	scraped := make(chan bool)
	go func() {
		r, err := http.Get("http://" + n.MetricsAddr() + "/metrics")
		if err == nil {
			r.Body.Close()
		}
		scraped <- err == nil && r.StatusCode == 200
	}()
	select {
	case ok := <-scraped:
		if !ok {
			t.Error("a scrape failed while the database did not answer")
		}
	case <-time.After(3 * time.Second):
		t.Error("a scrape waits for the database")
	}
}
