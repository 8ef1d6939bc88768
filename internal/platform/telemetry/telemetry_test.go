package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the table of docs/operating/metrics.md instead of comparing it")

// complete returns the metrics of a node that has all sources, after one event of each kind.
func complete(t *testing.T, h *Health) *Metrics {
	t.Helper()
	m := New(Sources{Version: "v1", Health: h,
		Connections:   func() map[string]int64 { return map[string]int64{"smtp_out": 2} },
		Pauses:        func() (int, int) { return 1, 2 },
		Relays:        func() map[string]bool { return map[string]bool{"main": false, "corp": true} },
		SecureLookUps: func() map[string]int64 { return map[string]int64{"secure": 2} },
		Zones: func() (Zones, bool) {
			return Zones{Number: 3, BadZones: 1, BadRecords: 2, ReadAt: time.Unix(60, 0)}, true
		},
		RunningJobs: func() map[string]int64 { return map[string]int64{"email": 3} },
		Disks:       func() []Disk { return []Disk{{"data_dir", 5, 10}} },
		BlobErrors:  func() map[string]int64 { return map[string]int64{"get": 1} },
		Clock:       func() (time.Duration, bool) { return -time.Second, true },
		Expiries: func() []CertificateExpiry {
			return []CertificateExpiry{{"file", "a", time.Unix(200, 0)}, {"file", "b", time.Unix(100, 0)}}
		}, MissingCertificates: func() (int, bool) { return 2, true }})
	m.Request("emails", 422, time.Second)
	m.Request("events", 200, 0)
	m.Accepted("smtp", 3)
	m.Delivered("bounced", "google", 2)
	m.SetRelays([]string{"main", "corp"})
	m.RelayDelivered("deferred", "corp", 2)
	m.Conversation("google", time.Second)
	m.Waited("bulk", time.Minute)
	m.Webhook("retry", time.Second)
	m.Kind("email")
	m.Job("email", "done")
	m.Transaction(time.Millisecond, time.Second, false)
	m.Received("stored")
	m.Spans("dropped", 7)
	m.Query("customer", "NXDOMAIN")
	m.QueryDropped("rate_limit")
	m.HTTPConnections(1)
	return m
}

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

var silent = slog.New(slog.DiscardHandler)

// A scrape contains every metric of the catalog, with its values.
func TestScrape(t *testing.T) {
	t.Parallel()
	h := NewHealth(Check{Name: "dns", Run: func(context.Context) error { return nil }})
	m := complete(t, h)
	handler := Handler(m, h, silent)
	if _, text := get(t, handler, "/metrics"); strings.Contains(text, "\n"+installationPrefix) {
		t.Errorf("figures that were not measured: %s", text)
	}
	m.SetInstallation(Installation{At: time.Unix(50, 0), Parked: map[string]int64{"webhook": 4}, Sending: 1, Paused: 2,
		LastBackup: time.Unix(40, 5e8), Created: time.Unix(30, 0), Webhooks: Backlog{Due: 1, Later: 2, Oldest: time.Second},
		Queue: map[string]Backlog{"single": {Due: 8, Later: 9, Oldest: time.Minute}}})
	status, text := get(t, handler, "/metrics")
	if status != 200 {
		t.Fatalf("status %d: %s", status, text)
	}
	for _, d := range Catalog() {
		if !strings.Contains(text, "\n# TYPE "+d.Name+" "+d.Type+"\n") {
			t.Errorf("the scrape has no %s %s", d.Type, d.Name)
		}
	}
	for _, want := range []string{
		`postrider_build_info{version="v1"} 1`,
		`postrider_api_requests_total{class="4xx",group="emails"} 1`,
		`postrider_api_requests_total{class="2xx",group="events"} 1`,
		`postrider_api_request_duration_seconds_count{group="emails"} 1`,
		`postrider_emails_accepted_total{source="smtp"} 3`,
		`postrider_emails_accepted_total{source="api"} 0`,
		`postrider_deliveries_total{outcome="bounced",provider="google"} 2`,
		`postrider_delivery_wait_seconds_bucket{class="bulk",le="60"} 1`,
		`postrider_connections_open{kind="http"} 1`,
		`postrider_connections_open{kind="smtp_out"} 2`,
		`postrider_destinations_paused 1`, `postrider_mail_hosts_failing 2`,
		`postrider_relay_deliveries_total{outcome="deferred",relay="corp"} 2`,
		`postrider_relay_deliveries_total{outcome="delivered",relay="main"} 0`,
		`postrider_relay_resting{relay="corp"} 1`, `postrider_relay_resting{relay="main"} 0`,
		`postrider_webhook_attempts_total{outcome="retry"} 1`,
		`postrider_jobs_total{kind="email",result="done"} 1`, `postrider_jobs_total{kind="email",result="parked"} 0`,
		`postrider_jobs_running{kind="email"} 3`,
		`postrider_transactions_total{result="failed"} 1`,
		`postrider_disk_free_bytes{folder="data_dir"} 5`, `postrider_blob_errors_total{operation="get"} 1`,
		`postrider_clock_offset_seconds -1`, `postrider_certificate_expiry_timestamp_seconds{source="file"} 100`,
		`postrider_check_ok{check="dns"} 1`, `postrider_trace_spans_total{result="dropped"} 7`,
		`postrider_installation_queue_jobs{class="single",state="later"} 9`,
		`postrider_installation_queue_jobs{class="bulk",state="due"} 0`,
		`postrider_installation_queue_oldest_due_seconds{class="single"} 60`,
		`postrider_installation_webhook_jobs{state="due"} 1`,
		`postrider_installation_jobs_parked{kind="webhook"} 4`,
		`postrider_installation_broadcasts{status="paused"} 2`,
		`postrider_installation_last_backup_timestamp_seconds 40.5`, `postrider_installation_created_timestamp_seconds 30`,
		`postrider_certificates_missing 2`,
		`postrider_dns_queries_total{rcode="NXDOMAIN",zone="customer"} 1`,
		`postrider_dns_queries_limited_total{reason="rate_limit"} 1`,
		`postrider_dns_queries_limited_total{reason="malformed"} 0`,
		`postrider_dns_zones 3`, `postrider_dns_invalid{kind="record"} 2`, `postrider_dns_invalid{kind="zone"} 1`, `postrider_dns_zones_read_timestamp_seconds 60`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("the scrape lacks %s", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// The series of a relay end when the relay is no longer configured.
func TestRelaysChange(t *testing.T) {
	t.Parallel()
	m := complete(t, NewHealth())
	m.SetRelays([]string{"corp", "spare"})
	_, text := get(t, Handler(m, NewHealth(), silent), "/metrics")
	for series, want := range map[string]bool{`{outcome="deferred",relay="corp"} 2`: true,
		`{outcome="delivered",relay="spare"} 0`: true, `relay="main"} 0` + "\n" + `postrider_relay_deliveries`: false,
		`postrider_relay_deliveries_total{outcome="delivered",relay="main"}`: false} {
		if strings.Contains(text, series) != want {
			t.Errorf("%s: %v, want %v in\n%s", series, !want, want, text)
		}
	}
}

// Figures of a whole installation and of one node can be told apart by name and by help text.
func TestCatalog(t *testing.T) {
	t.Parallel()
	for _, d := range Catalog() {
		whole := strings.HasPrefix(d.help(), "Whole installation")
		if whole != strings.HasPrefix(d.Name, installationPrefix) || whole == strings.HasPrefix(d.help(), "This node") {
			t.Errorf("%s: %s", d.Name, d.help())
		}
	}
}

// docs/operating/metrics.md has the table of the catalog.
func TestTableOfMetrics(t *testing.T) {
	t.Parallel()
	const path = "../../../docs/operating/metrics.md"
	const begin = "<!-- metrics: made by go test ./internal/platform/telemetry -update -->\n"
	const end = "<!-- end of metrics -->"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the marks of the table", path)
	}
	want := before + begin + "\n" + Markdown() + "\n" + end + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(data) {
		t.Errorf("%s differs from the catalog. Run: go test ./internal/platform/telemetry -update", path)
	}
}

// The node is not ready if a vital check fails or the node is stopping. Other failing checks are only listed.
func TestReport(t *testing.T) {
	t.Parallel()
	var database, dns error
	h := NewHealth(Check{Name: "database", Vital: true, Run: func(context.Context) error { return database }},
		Check{Name: "dns", Every: time.Hour, Run: func(context.Context) error { return dns }})
	handler := Handler(New(Sources{Health: h}), h, silent)
	want := func(status int, body string) {
		t.Helper()
		if got, text := get(t, handler, "/readyz"); got != status || strings.TrimSpace(text) != body {
			t.Errorf("%d %s; want %d %s", got, text, status, body)
		}
	}
	const ok = `{"status":"ok","checks":[{"name":"database","status":"ok"},{"name":"dns","status":"ok"}]}`
	want(200, ok)
	database = errors.New("the database is away")
	want(503, `{"status":"unavailable","checks":[{"name":"database","status":"unavailable",`+
		`"message":"The database is away."},{"name":"dns","status":"ok"}]}`)
	database = nil
	want(200, ok)
	dns = errors.New("the resolvers are away")
	h.run(t.Context(), 1)
	want(200, `{"status":"degraded","checks":[{"name":"database","status":"ok"},{"name":"dns","status":"degraded",`+
		`"message":"The resolvers are away."}]}`)
	if _, text := get(t, handler, "/metrics"); !strings.Contains(text, `postrider_check_ok{check="dns"} 0`) {
		t.Errorf("the metric of the check: %s", text)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	dns = nil
	h.run(canceled, 1) // an interrupted check says nothing
	if last := h.Last()[1]; last.Status != StatusDegraded {
		t.Errorf("after an interrupted check: %+v", last)
	}
	h.Stop()
	want(503, `{"status":"unavailable","checks":[{"name":"stopping","status":"unavailable",`+
		`"message":"The node is stopping."}]}`)
	if status, _ := get(t, handler, "/healthz"); status != 200 {
		t.Errorf("healthz of a stopping node: %d", status)
	}
}

// A check that does not end delays a report for a limited time, and runs once for all who ask meanwhile.
func TestHangingCheck(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	resume := make(chan struct{})
	h := NewHealth(Check{Name: "disk", Vital: true, Run: func(context.Context) error {
		if runs.Add(1) == 1 {
			<-resume
		}
		return nil
	}})
	h.limit = 20 * time.Millisecond
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if r := h.Report(t.Context()); r.Status != StatusUnavailable || r.Checks[0].Message != "The check does not end." {
				t.Errorf("%+v", r)
			}
		})
	}
	all.Wait()
	if n := runs.Load(); n != 1 {
		t.Errorf("the check ran %d times", n)
	}
	close(resume)
	h.active.Wait()
	h.limit = time.Minute
	if r := h.Report(t.Context()); r.Status != StatusOK || runs.Load() != 2 {
		t.Errorf("%+v after %d runs", r, runs.Load())
	}
}

// Run repeats all checks until its context ends.
func TestRunChecks(t *testing.T) {
	t.Parallel()
	ran := make(chan bool, 10)
	h := NewHealth(Check{Name: "x", Every: time.Hour, Run: func(context.Context) error {
		ran <- true
		return errors.New("bad")
	}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- h.Run(ctx) }()
	<-ran
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The listener serves profiles, but not the command line, which may contain secrets.
func TestProfiles(t *testing.T) {
	t.Parallel()
	h := NewHealth()
	handler := Handler(New(Sources{}), h, silent)
	for path, want := range map[string]int{"/debug/pprof/": 200, "/debug/pprof/heap?debug=1": 200,
		"/debug/pprof/goroutine?debug=1": 200, "/debug/pprof/cmdline": 404, "/healthz": 200, "/": 404, "/emails": 404} {
		if status, text := get(t, handler, path); status != want || strings.Contains(text, os.Args[0]+"\x00") {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
	var r Report
	if _, text := get(t, handler, "/healthz"); json.Unmarshal([]byte(text), &r) != nil || r.Status != StatusOK {
		t.Errorf("healthz: %s", text)
	}
}

// Counting an email's events takes no memory.
func BenchmarkCount(b *testing.B) {
	m := New(Sources{})
	b.ReportAllocs()
	for b.Loop() {
		m.Delivered("delivered", "google", 1)
		m.Conversation("google", time.Second)
		m.Waited("single", time.Second)
		m.Job("email", "done")
		m.Accepted("api", 1)
		m.Request("emails", 200, time.Millisecond)
		m.Transaction(time.Millisecond, time.Millisecond, true)
	}
}

func BenchmarkScrape(b *testing.B) {
	h := NewHealth()
	handler := Handler(New(Sources{}), h, silent)
	for b.Loop() {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		io.Copy(io.Discard, w.Body)
	}
}
