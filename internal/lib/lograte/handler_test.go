package lograte

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A Handler writes few lines of each cause, and counts the others. Lines of other causes, and lines that are not about
// failures, are not affected.
func TestHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		log := slog.New(NewHandler(slog.NewTextHandler(&b, nil)))
		lines := func(part string) (n int) {
			for line := range strings.Lines(b.String()) {
				if strings.Contains(line, part) {
					n++
				}
			}
			return n
		}
		flood := func() {
			for i := range 1000 {
				err := fmt.Errorf("sign email %08x-0000: open key of x%d.example: wrong key", i, i)
				log.Warn("a job failed", "kind", "deliver", "job", i, "error", err)
			}
		}
		flood()
		log.With("node", "a").Warn("a job failed", "kind", "webhook", "error", errors.New("wrong key"))
		log.Warn("a job failed", "kind", "deliver", "error", errors.New("disk full"))
		for range 100 {
			log.Info("received")
		}
		if got := lines("kind=deliver"); got != Burst+1 || lines("disk full") != 1 || lines("node=a") != 1 ||
			lines("received") != 100 {
			t.Errorf("%d lines of the flood:\n%s", got, b.String())
		}
		b.Reset()
		time.Sleep(Every + time.Second)
		if got := strings.TrimSpace(b.String()); strings.Count(got, "\n") != 0 ||
			!strings.Contains(got, "job=999") || !strings.HasSuffix(got, fmt.Sprint("more_like_it=", 1000-Burst-1)) {
			t.Errorf("at the end of the period: %s", got)
		}
		b.Reset()
		flood()
		if got := lines("kind=deliver"); got != Burst-1 {
			t.Errorf("%d lines in the second period", got)
		}
		time.Sleep(3 * Every)
		b.Reset()
		flood()
		if got := lines("kind=deliver"); got != Burst {
			t.Errorf("%d lines after a pause", got)
		}
		time.Sleep(3 * Every)
	})
}

// The memory of a Handler is bounded, even if each error has another text.
func TestHandlerIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		h := NewHandler(slog.NewTextHandler(&b, nil))
		for i := range 3 * maxCauses {
			slog.New(h).Error("failed", "error", errors.New(strings.Repeat("x", i%200)+strings.Repeat("y", i/200)))
		}
		if n := len(h.shared.current); n > maxCauses+1 || strings.Count(b.String(), "\n") > maxCauses+Burst {
			t.Errorf("%d causes, %d lines", n, strings.Count(b.String(), "\n"))
		}
		time.Sleep(3 * Every)
		if n := len(h.shared.current); n != 0 {
			t.Errorf("%d causes are kept", n)
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
