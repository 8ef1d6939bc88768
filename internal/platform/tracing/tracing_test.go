package tracing

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
)

// collector is an OTLP receiver that decodes requests strictly by the schema of opentelemetry-proto 1.x
// (ExportTraceServiceRequest), as far as Postrider uses it.
type collector struct {
	t   *testing.T
	url string

	mu     sync.Mutex
	answer func(n int, w http.ResponseWriter) bool // handles the n-th request; false: take it
	asked  int
	header http.Header
	spans  []receivedSpan
	news   chan struct{}
}

type receivedValue struct {
	StringValue *string `json:"stringValue"`
	IntValue    *string `json:"intValue"` // int64 is a string in JSON
	BoolValue   *bool   `json:"boolValue"`
}

type receivedAttribute struct {
	Key   string        `json:"key"`
	Value receivedValue `json:"value"`
}

type receivedSpan struct {
	TraceID           string              `json:"traceId"`
	SpanID            string              `json:"spanId"`
	ParentSpanID      string              `json:"parentSpanId"`
	Name              string              `json:"name"`
	Kind              int                 `json:"kind"`
	StartTimeUnixNano string              `json:"startTimeUnixNano"`
	EndTimeUnixNano   string              `json:"endTimeUnixNano"`
	Attributes        []receivedAttribute `json:"attributes"`
	Links             []struct {
		TraceID string `json:"traceId"`
		SpanID  string `json:"spanId"`
	} `json:"links"`
	Status struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"status"`
}

type receivedRequest struct {
	ResourceSpans []struct {
		Resource struct {
			Attributes []receivedAttribute `json:"attributes"`
		} `json:"resource"`
		ScopeSpans []struct {
			Scope struct {
				Name    string `json:"name"`
				Version string `json:"version"`
			} `json:"scope"`
			Spans []receivedSpan `json:"spans"`
		} `json:"scopeSpans"`
	} `json:"resourceSpans"`
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{t: t, news: make(chan struct{}, 10_000)}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	c.url = s.URL
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	defer func() { c.news <- struct{}{} }()
	c.header = r.Header
	if r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" {
		c.t.Errorf("a request %s %s of type %s", r.Method, r.URL, r.Header.Get("Content-Type"))
	}
	if c.answer != nil && c.answer(c.asked, w) {
		return
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	var in receivedRequest
	if err := d.Decode(&in); err != nil {
		c.t.Errorf("decode a request: %v", err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	for _, rs := range in.ResourceSpans {
		if len(rs.Resource.Attributes) == 0 || rs.Resource.Attributes[0].Key != "service.name" {
			c.t.Errorf("the resource has the attributes %+v", rs.Resource.Attributes)
		}
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				c.check(s)
				c.spans = append(c.spans, s)
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, `{"partialSuccess":{}}`)
}

var (
	traceText = regexp.MustCompile(`^[0-9a-f]{32}$`)
	spanText  = regexp.MustCompile(`^[0-9a-f]{16}$`)
)

// check fails the test if a span breaks a rule of the schema.
func (c *collector) check(s receivedSpan) {
	start, err := strconv.ParseUint(s.StartTimeUnixNano, 10, 64)
	end, err2 := strconv.ParseUint(s.EndTimeUnixNano, 10, 64)
	if err != nil || err2 != nil || start > end || s.Name == "" || s.Kind < 1 || s.Kind > 5 ||
		!traceText.MatchString(s.TraceID) || !spanText.MatchString(s.SpanID) ||
		s.ParentSpanID != "" && !spanText.MatchString(s.ParentSpanID) || s.Status.Code < 0 || s.Status.Code > 2 {
		c.t.Errorf("a span breaks the schema: %+v", s)
	}
	for _, l := range s.Links {
		if !traceText.MatchString(l.TraceID) || !spanText.MatchString(l.SpanID) {
			c.t.Errorf("a link breaks the schema: %+v", l)
		}
	}
	for _, a := range s.Attributes {
		n := 0
		for _, set := range []bool{a.Value.StringValue != nil, a.Value.IntValue != nil, a.Value.BoolValue != nil} {
			if set {
				n++
			}
		}
		if a.Key == "" || n != 1 {
			c.t.Errorf("an attribute breaks the schema: %+v", a)
		}
	}
}

// wait waits for n requests.
func (c *collector) wait(n int) {
	c.t.Helper()
	for range n {
		select {
		case <-c.news:
		case <-time.After(20 * time.Second):
			c.t.Fatal("the collector got no further request")
		}
	}
}

// counts counts the results of an exporter.
type counts struct {
	mu  sync.Mutex
	all map[string]int
}

func (c *counts) add(result string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[string]int{}
	}
	c.all[result] += n
}

func (c *counts) get(result string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[result]
}

// run starts an exporter. The function stop sends the rest and waits for the end.
func run(t *testing.T, c Config) (e *Exporter, n *counts, stop func()) {
	t.Helper()
	n = &counts{}
	e, err := New(c, slog.New(slog.DiscardHandler), n.add)
	if err != nil {
		t.Fatal(err)
	}
	e.pause = time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return e, n, stop
}

func someSpan() Span {
	at := time.Unix(1_800_000_000, 5)
	return Span{Trace: NewTrace(), ID: NewSpan(), Name: "POST /emails", Kind: Server, Start: at, End: at.Add(time.Second)}
}

// A collector gets all fields of a span, in the form of the schema.
func TestExport(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	e, n, stop := run(t, Config{Endpoint: c.url + "/", Ratio: 1, Version: "v1", Host: "a",
		Headers: map[string]string{"authorization": "Bearer secret"}})
	s, other := someSpan(), someSpan()
	s.Parent, s.Error, s.Links = NewSpan(), "status 500", []Link{{other.Trace, other.ID}}
	s.Attributes = []Attribute{{"text", "x\x00é"}, {"number", -5}, {"flag", true}, {"took", time.Second}}
	e.Add(s)
	stop()
	if n.get("sent") != 1 || n.get("dropped") != 0 || c.header.Get("Authorization") != "Bearer secret" {
		t.Fatalf("counted %v, sent the header %v", n.all, c.header)
	}
	got := c.spans[0]
	if got.TraceID != s.Trace.String() || got.SpanID != s.ID.String() || got.ParentSpanID != s.Parent.String() ||
		got.StartTimeUnixNano != "1800000000000000005" || got.EndTimeUnixNano != "1800000001000000005" || got.Kind != 2 ||
		got.Status.Code != 2 || got.Status.Message != "status 500" || got.Links[0].SpanID != other.ID.String() {
		t.Errorf("received %+v", got)
	}
	if a := got.Attributes; len(a) != 4 || *a[0].Value.StringValue != "x\x00é" || *a[1].Value.IntValue != "-5" ||
		!*a[2].Value.BoolValue || *a[3].Value.StringValue != "1s" {
		t.Errorf("received the attributes %+v", a)
	}
}

// Spans are sent in batches. A full buffer drops spans, and Add does not wait even if the collector hangs.
func TestFullBuffer(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	hang, began := make(chan struct{}), make(chan struct{}, 100)
	c.answer = func(int, http.ResponseWriter) bool {
		began <- struct{}{}
		<-hang
		return false
	}
	e, n, stop := run(t, Config{Endpoint: c.url, Ratio: 1})
	for range batchMax {
		e.Add(someSpan())
	}
	<-began // the first batch is being sent, and the collector hangs
	for range bufferMax + 100 {
		e.Add(someSpan())
	}
	if dropped := n.get("dropped"); dropped != 100 {
		t.Errorf("%d spans were dropped, want 100", dropped)
	}
	close(hang)
	c.wait(1 + bufferMax/batchMax)
	stop()
	if n.get("sent") != batchMax+bufferMax || len(c.spans) != batchMax+bufferMax {
		t.Errorf("counted %v, and the collector has %d", n.all, len(c.spans))
	}
}

// A collector that is overloaded gets the batch again. One that refuses it does not.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name                 string
		status               []int // of the first requests
		body                 string
		asked, sent, dropped int
	}{
		{"overloaded", []int{503, 429}, "", 3, 2, 0},
		{"always overloaded", []int{503, 503, 503, 503, 503}, "", sendTries, 0, 2},
		{"wrong token", []int{401}, "", 1, 0, 2},
		{"elsewhere", []int{307}, "", 1, 0, 2},
		{"partly", []int{200}, `{"partialSuccess":{"rejectedSpans":"1","errorMessage":"too old"}}`, 1, 1, 1},
		{"more than all", []int{200}, `{"partialSuccess":{"rejectedSpans":"1000"}}`, 1, 0, 2},
		{"less than none", []int{200}, `{"partialSuccess":{"rejectedSpans":-5}}`, 1, 2, 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			c := newCollector(t)
			c.answer = func(n int, w http.ResponseWriter) bool {
				if n > len(x.status) {
					return false
				}
				w.Header().Set("Location", c.url+"/elsewhere")
				w.WriteHeader(x.status[n-1])
				io.WriteString(w, x.body)
				return true
			}
			e, n, stop := run(t, Config{Endpoint: c.url, Ratio: 1})
			e.Add(someSpan())
			e.Add(someSpan())
			c.wait(x.asked)
			stop()
			if c.asked != x.asked || n.get("sent") != x.sent || n.get("dropped") != x.dropped {
				t.Errorf("%d requests, counted %v", c.asked, n.all)
			}
		})
	}
}

// Without a collector, spans are dropped and counted.
func TestNoCollector(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	e, n, stop := run(t, Config{Endpoint: "http://127.0.0.1:1", Ratio: 1})
	e.Add(someSpan())
	stop()
	if n.get("dropped") != 1 || c.asked != 0 {
		t.Errorf("counted %v", n.all)
	}
}

func TestWrongConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{{Endpoint: "collector:4318"}, {Endpoint: ""}, {Endpoint: "http://x", Ratio: 2},
		{Endpoint: "http://x", Ratio: math.NaN()}} {
		if _, err := New(c, slog.New(slog.DiscardHandler), nil); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

// The ratio of sampled emails is about the configured one, and each decision can be repeated from the id.
func TestSampled(t *testing.T) {
	t.Parallel()
	const all = 10_000
	for _, ratio := range []float64{0, 0.25, 1} {
		n := 0
		for range all {
			trace, ok := EmailTrace(id.New())
			if !ok || EmailSpan(trace) == (SpanID{}) {
				t.Fatal("an id of an email is no trace")
			}
			if sampled(trace, ratio) {
				n++
			}
		}
		if got := float64(n) / all; math.Abs(got-ratio) > 0.03 {
			t.Errorf("of a ratio of %v, %v are sampled", ratio, got)
		}
	}
	if (*Exporter)(nil).Sampled(NewTrace()) {
		t.Error("without an exporter, a trace is sampled")
	}
	for _, wrong := range []string{"", "x", "00000000-0000-0000-0000-000000000000"} {
		if _, ok := EmailTrace(wrong); ok {
			t.Errorf("%q is the id of an email", wrong)
		}
	}
}

func TestParseTraceparent(t *testing.T) {
	t.Parallel()
	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for header, want := range map[string]struct{ ok, sampled bool }{
		"00-" + trace + "-" + span + "-01":                 {true, true},
		"00-" + trace + "-" + span + "-00":                 {true, false},
		"cc-" + trace + "-" + span + "-01-what-the-future": {true, true},
		"":                                      {},
		"00-" + trace + "-" + span + "-01-more": {},
		"ff-" + trace + "-" + span + "-01":      {},
		"00-" + trace + "-" + span:              {},
		"00-00000000000000000000000000000000-" + span + "-01": {},
		"00-" + trace + "-0000000000000000-01":                {},
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-" + span + "-01": {},
		"00-" + trace + "-" + span + "-0x":                    {},
		"00-zzf92f3577b34da6a3ce929d0e0e4736-" + span + "-01": {},
		"00-" + trace + "-" + span + "-01\r\nX: y":            {},
		"00_" + trace + "_" + span + "_01":                    {},
		"00-" + trace[1:] + "-" + span + "-01":                {},
		"0-" + trace + "-" + span + "-01":                     {},
		"00-" + trace + "-" + span + "0-01":                   {},
	} {
		p, ok := ParseTraceparent(header)
		if ok != want.ok || ok && (p.Sampled != want.sampled || p.Trace.String() != trace || p.Span.String() != span) {
			t.Errorf("%q: %+v, %t", header, p, ok)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	e, err := New(Config{Endpoint: "http://127.0.0.1:1", Ratio: 1}, slog.New(slog.DiscardHandler), func(string, int) {})
	if err != nil {
		b.Fatal(err)
	}
	s := someSpan()
	for b.Loop() {
		e.Add(s)
	}
}
