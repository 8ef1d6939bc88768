package telemetry

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Statuses of checks and of reports.
const (
	StatusOK          = "ok"
	StatusDegraded    = "degraded"    // the node accepts requests, but something does not work
	StatusUnavailable = "unavailable" // the node cannot accept requests
)

// checkTime is the maximum duration of a check.
const checkTime = 5 * time.Second

// Check is a check of a part that a node needs.
type Check struct {
	Name string
	// Vital means that the node cannot accept requests while the check fails. A vital check runs whenever somebody asks
	// for the report; other checks run at intervals.
	Vital bool
	Every time.Duration // interval of a check that is not vital
	// Run returns an error whose text is shown to anybody who can reach the node, so it must contain no secrets. It
	// should end when ctx ends. At most one call runs at a time.
	Run func(ctx context.Context) error
}

// Result is the result of a check.
type Result struct {
	Name    string `json:"name"`
	Status  string `json:"status"`
	Message string `json:"message,omitempty"` // what is wrong; "" if nothing is
}

// Report says whether a node can accept requests.
type Report struct {
	Status string   `json:"status"`
	Checks []Result `json:"checks,omitempty"`
}

// Health runs checks and remembers their results.
type Health struct {
	checks   []Check
	limit    time.Duration // maximum time for which a report waits for a check
	stopping atomic.Bool

	base   context.Context // of the checks; it ends with Run
	cancel context.CancelFunc
	active sync.WaitGroup // runs of checks

	mu      sync.Mutex
	last    []Result        // of each check
	running []chan struct{} // of each check: nil unless it runs; closed when its result is known
}

// NewHealth returns a Health for the given checks.
func NewHealth(checks ...Check) *Health {
	h := &Health{checks: checks, limit: checkTime, last: make([]Result, len(checks)),
		running: make([]chan struct{}, len(checks))}
	h.base, h.cancel = context.WithCancel(context.Background())
	for i, c := range checks {
		h.last[i] = Result{Name: c.Name, Status: StatusOK}
	}
	return h
}

// Run repeats the checks until ctx ends, and then waits until they have ended, at most for a few seconds. Vital checks
// are repeated too, so that their metrics are true even if nobody asks for the report.
func (h *Health) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for i, c := range h.checks {
		all.Go(func() {
			tick := time.NewTicker(max(c.Every, time.Second))
			defer tick.Stop()
			for {
				h.run(ctx, i)
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
			}
		})
	}
	all.Wait()
	h.mu.Lock() // so that no check begins while the others are waited for
	h.cancel()
	h.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		h.active.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(h.limit):
	}
	return nil
}

// run waits until the result of a check is known, or until ctx ends. Callers that come while the check runs share its
// result, so that many requests for the report cost no more than one.
func (h *Health) run(ctx context.Context, i int) {
	if ctx.Err() != nil {
		return
	}
	known := h.begin(i)
	if known == nil {
		return // the node has stopped
	}
	select {
	case <-known:
	case <-ctx.Done():
	}
}

// begin begins a check, unless it runs already, and returns a channel that is closed when its result is known. After
// Run has ended, begin begins none and may return nil.
func (h *Health) begin(i int) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running[i] == nil && h.base.Err() == nil {
		known := make(chan struct{})
		h.running[i] = known
		h.active.Go(func() { h.watch(i, known) })
	}
	return h.running[i]
}

// errSlow is the result of a check that does not end, such as one of a disk that does not answer.
var errSlow = errors.New("the check does not end")

// watch runs a check. If the check does not end in time, that is its result until it ends.
func (h *Health) watch(i int, known chan struct{}) {
	ctx, cancel := context.WithTimeout(h.base, h.limit)
	defer cancel()
	ended := make(chan error, 1)
	h.active.Go(func() { ended <- h.checks[i].Run(ctx) })
	slow := time.NewTimer(h.limit + h.limit/10) // a check that ends with ctx says more
	defer slow.Stop()
	select {
	case err := <-ended:
		h.store(i, err, true)
		close(known)
	case <-slow.C:
		h.store(i, errSlow, false)
		close(known)
		h.store(i, <-ended, true)
	}
}

// store stores the result of a check, unless the check was interrupted because the node stops.
func (h *Health) store(i int, err error, ended bool) {
	c := &h.checks[i]
	r := Result{Name: c.Name, Status: StatusOK}
	if err != nil {
		if r.Status, r.Message = StatusDegraded, sentence(err); c.Vital {
			r.Status = StatusUnavailable
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.base.Err() == nil {
		h.last[i] = r
	}
	if ended {
		h.running[i] = nil
	}
}

// sentence returns the text of an error as a sentence.
func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// Stop makes all further reports say that the node is stopping.
func (h *Health) Stop() { h.stopping.Store(true) }

// Last returns the last result of each check.
func (h *Health) Last() []Result {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.last)
}

// Report runs the vital checks, and returns their results with the last results of the other checks.
func (h *Health) Report(ctx context.Context) Report {
	if h.stopping.Load() {
		return Report{Status: StatusUnavailable, Checks: []Result{{"stopping", StatusUnavailable, "The node is stopping."}}}
	}
	var all sync.WaitGroup
	for i, c := range h.checks {
		if c.Vital {
			all.Go(func() { h.run(ctx, i) })
		}
	}
	all.Wait()
	r := Report{Status: StatusOK, Checks: h.Last()}
	for _, c := range r.Checks {
		if c.Status == StatusUnavailable || c.Status == StatusDegraded && r.Status == StatusOK {
			r.Status = c.Status
		}
	}
	return r
}
