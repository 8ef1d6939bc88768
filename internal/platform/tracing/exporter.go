package tracing

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	bufferMax = 8192            // spans that wait to be sent
	batchMax  = 512             // spans in a request
	batchWait = 2 * time.Second // how long spans are collected
	sendTime  = 10 * time.Second
	sendTries = 4
	retryMax  = 30 * time.Second // longest wait before a batch is sent again
	endTime   = 5 * time.Second  // time limit for sending the last spans
)

// Config holds the settings of an exporter.
type Config struct {
	Endpoint string            // base URL of the receiver; the path /v1/traces is added
	Headers  map[string]string // added to each request, for example for authentication
	Ratio    float64           // part of the traces that is sampled, from 0 to 1
	Version  string            // of the program
	Host     string            // name of this node
}

// Exporter sends spans. An Exporter is safe for concurrent use.
type Exporter struct {
	c      Config
	url    string
	client *http.Client
	log    *slog.Logger
	count  func(result string, n int)
	buffer chan Span
	pause  time.Duration // first wait before a batch is sent again
}

// New returns an exporter. The function count is called with the results "sent" and "dropped".
func New(c Config, log *slog.Logger, count func(result string, n int)) (*Exporter, error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is no URL of an OTLP receiver", c.Endpoint)
	}
	if !checkRatio(c.Ratio) {
		return nil, fmt.Errorf("the ratio %v is not between 0 and 1", c.Ratio)
	}
	return &Exporter{c: c, url: strings.TrimSuffix(c.Endpoint, "/") + "/v1/traces", log: log, count: count,
		client: &http.Client{Timeout: sendTime, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // headers with secrets must not go elsewhere
		}},
		buffer: make(chan Span, bufferMax), pause: time.Second}, nil
}

// Sampled reports whether the spans of a trace are sent. A nil exporter samples nothing.
func (e *Exporter) Sampled(t TraceID) bool { return e != nil && sampled(t, e.c.Ratio) }

// Add sends a span later, or drops it if too many spans wait. Add never blocks.
func (e *Exporter) Add(s Span) {
	select {
	case e.buffer <- s:
	default:
		e.count("dropped", 1)
	}
}

// Run sends spans until ctx ends, and then the rest.
func (e *Exporter) Run(ctx context.Context) error {
	batch := make([]Span, 0, batchMax)
	tick := time.NewTicker(batchWait)
	defer tick.Stop()
	// A request in progress may end after ctx.
	sending, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(endTime, cut) })()
	flush := func() {
		if len(batch) > 0 {
			e.deliver(sending, batch)
			batch = batch[:0]
		}
	}
	for {
		select {
		case s := <-e.buffer:
			if batch = append(batch, s); len(batch) == batchMax {
				flush()
			}
			continue
		case <-tick.C:
			flush()
			continue
		case <-ctx.Done():
		}
		for len(e.buffer) > 0 {
			if batch = append(batch, <-e.buffer); len(batch) == batchMax {
				flush()
			}
		}
		flush()
		return nil
	}
}

// refusal is an unsuccessful response of the receiver.
type refusal struct {
	status int
	after  time.Duration // from Retry-After; 0 if the response has none
}

func (r *refusal) Error() string { return "the receiver answered " + strconv.Itoa(r.status) }

// temporary reports whether the same request may succeed later (OTLP specification, "Retryable Response Codes").
func (r *refusal) temporary() bool {
	switch r.status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// deliver sends a batch, repeatedly if that may help, and counts its spans.
func (e *Exporter) deliver(ctx context.Context, batch []Span) {
	body, err := json.Marshal(e.encode(batch))
	if err != nil {
		e.drop(len(batch), err)
		return
	}
	pause := e.pause
	for try := 1; ; try++ {
		rejected, err := e.post(ctx, body)
		if err == nil {
			rejected = min(max(rejected, 0), len(batch)) // a wrong number must not make counters decrease
			e.count("sent", len(batch)-rejected)
			if rejected > 0 {
				e.drop(rejected, errors.New("the receiver rejected some spans"))
			}
			return
		}
		r, answered := errors.AsType[*refusal](err)
		if try == sendTries || answered && !r.temporary() || ctx.Err() != nil {
			e.drop(len(batch), err)
			return
		}
		wait := pause
		if answered {
			wait = cmp.Or(min(r.after, retryMax), pause)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		pause *= 2
	}
}

func (e *Exporter) drop(n int, err error) {
	e.count("dropped", n)
	e.log.Warn("spans of traces could not be sent to otlp_endpoint", "spans", n, "error", err)
}

// post sends a request, and returns how many spans the receiver rejected although it took the request.
func (e *Exporter) post(ctx context.Context, body []byte) (rejected int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "Postrider/"+e.c.Version)
	for name, value := range e.c.Headers {
		r.Header.Set(name, value)
	}
	answer, err := e.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if answer.StatusCode/100 != 2 {
		seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		return 0, &refusal{answer.StatusCode, time.Duration(min(max(seconds, 0), 3600)) * time.Second}
	}
	if err != nil {
		return 0, nil // the receiver took the request
	}
	var out struct {
		PartialSuccess struct {
			RejectedSpans json.Number `json:"rejectedSpans"`
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(text, &out) == nil {
		n, _ := out.PartialSuccess.RejectedSpans.Int64()
		rejected = int(n)
	}
	return rejected, nil
}
