package lograte

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// output collects log lines, which timers may write at any time.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// take returns the lines since the last call.
func (o *output) take() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.text.Reset()
	return o.text.String()
}

// countCauses returns the number of causes that h keeps.
func countCauses(h *Handler) int {
	h.shared.mu.Lock()
	defer h.shared.mu.Unlock()
	return len(h.shared.current[0]) + len(h.shared.current[1])
}

// A Handler writes few lines of each cause, and counts the others. Lines of other causes, and lines that are not about
// failures, are not affected.
func TestHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out output
		log := slog.New(NewHandler(slog.NewTextHandler(&out, nil)))
		flood := func() string {
			for i := range 1000 {
				err := fmt.Errorf("sign email %08x-0000: open key of x%d.example: wrong key", i, i)
				log.Warn("a job failed", "kind", "deliver", "job", i, "error", err)
			}
			return out.take()
		}
		if n := strings.Count(flood(), "kind=deliver"); n != Burst {
			t.Errorf("%d lines of the flood", n)
		}
		log.With("node", "a").Warn("a job failed", "kind", "webhook", "error", errors.New("wrong key"))
		log.Warn("a job failed", "kind", "deliver", "error", errors.New("disk full"))
		for range 100 {
			log.Info("received")
		}
		for range 100 {
			log.WarnContext(Unlimited(t.Context()), "notice not sent")
		}
		if text := out.take(); strings.Count(text, "received") != 100 || strings.Count(text, "notice") != 100 ||
			strings.Count(text, "disk full") != 1 ||
			strings.Count(text, "node=a") != 1 {
			t.Errorf("beside the flood: %s", text)
		}
		time.Sleep(Every + time.Second)
		synctest.Wait()
		if got := strings.TrimSpace(out.take()); strings.Count(got, "\n") != 0 ||
			!strings.Contains(got, "job=999") || !strings.HasSuffix(got, fmt.Sprint("more_like_it=", 1000-Burst-1)) {
			t.Errorf("at the end of the period: %s", got)
		}
		if n := strings.Count(flood(), "kind=deliver"); n != Burst-1 {
			t.Errorf("%d lines in the second period", n)
		}
		time.Sleep(3 * Every)
		synctest.Wait()
		out.take()
		if n := strings.Count(flood(), "kind=deliver"); n != Burst {
			t.Errorf("%d lines after a pause", n)
		}
		time.Sleep(3 * Every)
	})
}

// The memory of a Handler is bounded, even if each error has another text.
func TestHandlerIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out output
		h := NewHandler(slog.NewTextHandler(&out, nil))
		for i := range 3 * maxCauses {
			slog.New(h).Error("failed", "error", errors.New(strings.Repeat("x", i%200)+strings.Repeat("y", i/200)))
		}
		if n, lines := countCauses(h), strings.Count(out.take(), "\n"); n > maxCauses+1 || lines > maxCauses+Burst {
			t.Errorf("%d causes, %d lines", n, lines)
		}
		time.Sleep(3 * Every)
		synctest.Wait()
		if n := countCauses(h); n != 0 {
			t.Errorf("%d causes are kept", n)
		}
	})
}

// A flood of warnings with many causes does not suppress errors, and Flush writes what would be lost when the program
// ends.
func TestHandlerKeepsErrorsAndLastLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out output
		h := NewHandler(slog.NewTextHandler(&out, nil))
		log := slog.New(h)
		word := func(i int) error { return errors.New(strings.Repeat("x", i%200) + strings.Repeat("y", i/200)) }
		for i := range 3 * maxCauses {
			log.Warn("flood", "error", word(i))
		}
		for i := range maxCauses {
			log.Error("important", "error", word(i))
		}
		text := out.take()
		if n := strings.Count(text, "important"); n != maxCauses {
			t.Errorf("%d errors are written after a flood of warnings, want %d", n, maxCauses)
		}
		if n := strings.Count(text, "flood"); n != maxCauses+Burst {
			t.Errorf("%d warnings are written", n)
		}
		h.Flush()
		if text := out.take(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "more_like_it=394") {
			t.Errorf("at the end of the program: %s", text)
		}
		h.Flush()
		time.Sleep(3 * Every)
		synctest.Wait()
		if text := out.take(); text != "" || countCauses(h) != 0 {
			t.Errorf("after the flush: %s", text)
		}
	})
}

func TestClassOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"open key 019a-7: wrong key":                         "open key … wrong key",
		"open the key of acme.example: end.":                 "open the key of … end.",
		`lookup "a.example": no host`:                        "lookup …: no host",
		"dial tcp 10.0.0.1:25: connection refused":           "dial tcp … connection refused",
		"email to ann@x.example (try 3) failed":              "email to … (try …) failed",
		"an open \"quote":                                    "an open \"quote",
		"write `a` and `b`":                                  "write … and …",
		"":                                                   "",
		strings.Repeat("word ", 100):                         strings.Repeat("word ", 60),
		"ERROR: deadlock detected (SQLSTATE 40P01); tries=3": "ERROR: deadlock detected (SQLSTATE …); tries=…",
	} {
		if got := classOf(text); got != want {
			t.Errorf("%.60q: %q, want %q", text, got, want)
		}
	}
}
