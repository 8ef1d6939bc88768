package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// loadResult is the result of a load generator.
type loadResult struct {
	rate     float64 // accepted emails per second
	p50, p99 float64 // milliseconds
	err      error
}

// load posts emails over persistent connections. If rate is 0, load posts as fast as the node answers. Any other rate
// is in emails per second, and the latency of a request is measured from the time at which it was due.
func (b *measurement) load(ctx context.Context, n *measuredNode, count int, rate float64) (loadResult, error) {
	body, err := json.Marshal(map[string]any{"from": "Acme <hello@bench.example>", "to": "user@example.net",
		"subject": "Receipt no. 1234567",
		"html":    b.html(), "tags": []map[string]string{{"name": "category", "value": "receipt"}}})
	if err != nil {
		return loadResult{}, err
	}
	request := []byte(fmt.Sprintf("POST /emails HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nUser-Agent: bench\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", n.addr, apiKey, len(body), body))
	var next atomic.Int64
	var mu sync.Mutex
	var all []time.Duration
	var first error
	start := time.Now()
	var wg sync.WaitGroup
	for range b.conns {
		wg.Go(func() {
			took, err := post(ctx, n.addr, request, func() (due time.Time, ok bool) {
				i := next.Add(1) - 1
				if i >= int64(count) {
					return due, false
				}
				if rate > 0 {
					due = start.Add(time.Duration(float64(i) / rate * float64(time.Second)))
				}
				return due, true
			})
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
			if err != nil && first == nil {
				first = err
			}
		})
	}
	wg.Wait()
	if first != nil {
		return loadResult{}, fmt.Errorf("load: %w", first)
	}
	r := loadResult{rate: float64(len(all)) / time.Since(start).Seconds()}
	slices.Sort(all)
	if len(all) > 0 {
		r.p50, r.p99 = ms(all[len(all)/2]), ms(all[len(all)*99/100])
	}
	return r, nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// post sends requests over one connection until next returns ok == false.
func post(ctx context.Context, addr string, request []byte,
	next func() (time.Time, bool)) (took []time.Duration, err error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	r := bufio.NewReader(c)
	for {
		due, ok := next()
		if !ok {
			return took, nil
		}
		if due.IsZero() {
			due = time.Now()
		} else if wait := time.Until(due); wait > 0 {
			if err := pause(ctx, wait); err != nil {
				return took, err
			}
		}
		if _, err := c.Write(request); err != nil {
			return took, err
		}
		answer, err := http.ReadResponse(r, nil)
		if err != nil {
			return took, err
		}
		if _, err := r.Discard(int(answer.ContentLength)); err != nil {
			return took, err
		}
		if answer.StatusCode != http.StatusOK {
			return took, fmt.Errorf("the node answered %s", answer.Status)
		}
		took = append(took, time.Since(due))
	}
}
