//go:build chaos

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// clocksApart runs a cluster whose nodes' clocks differ by 20 minutes. The first attempts of some deliveries and
// webhooks fail, and some emails are scheduled.
func clocksApart(t *testing.T, engine string) sum {
	shifted := buildShifted(t)
	w := newCluster(t, engine, setup{
		end: func(number, n int) ending {
			if number%3 == 0 && n == 1 {
				return refuse
			}
			return take
		},
		env: []string{"POSTRIDER_RETRY_SCHEDULE=3s,3s,3s,3s,3s,3s", "POSTRIDER_WEBHOOK_SCHEDULE=3s,3s,3s,3s,3s,3s"},
		program: func(node int) (string, []string) {
			return shifted, []string{clockShift + "=" + []string{"-600", "600"}[node%2]}
		},
		every: 60 * time.Millisecond,
	})
	hook := &hookLog{tries: map[string]int{}, taken: map[string]int{}}
	server := httptest.NewServer(hook)
	t.Cleanup(server.Close)
	w.nodes[0].must(http.MethodPost, "/webhooks", `{"endpoint":"`+server.URL+`","events":["email.delivered"]}`, nil)
	began := time.Now()
	later := func(i int) time.Time { return began.Add(time.Duration(i)*w.every + 20*time.Second) }
	w.email = func(i int) map[string]any {
		if i%5 != 0 {
			return nil
		}
		return map[string]any{"scheduled_at": later(i).UTC().Format(time.RFC3339Nano)}
	}
	w.during(func() { time.Sleep(45 * time.Second) })
	w.settle()
	s := w.sum()
	within(arrivalWait, func() bool { return hook.count() >= s.accepted })
	time.Sleep(stillness)
	early := 0
	for i := range w.fates {
		if c := w.mail.copies(i); i%5 == 0 && len(c) > 0 && c[0].at.Before(later(i).Add(-time.Second)) {
			early++
		}
	}
	twice := 0
	for _, n := range hook.taken {
		twice += n - 1
	}
	lost := max(s.accepted-hook.count(), 0)
	s.more = fmt.Sprintf("webhooks %d, lost %d, doubled %d; scheduled emails too early %d", hook.count(), lost, twice,
		early)
	if lost > 0 || twice > 0 || early > 0 {
		t.Error(s.more)
	}
	return s
}

// hookLog receives webhooks and rejects the first attempt of every third webhook.
type hookLog struct {
	mu    sync.Mutex
	tries map[string]int
	taken map[string]int
}

func (h *hookLog) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	time.Sleep(latency)
	id := r.Header.Get("svix-id")
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tries[id]++
	if h.tries[id] == 1 && len(h.tries)%3 == 0 {
		http.Error(rw, "later", http.StatusServiceUnavailable)
		return
	}
	h.taken[id]++
}

func (h *hookLog) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.taken)
}

// clockShift is the environment variable that sets the wall-clock shift, in seconds, of programs built by buildShifted.
const clockShift = "CHAOS_CLOCK_SHIFT"

// shiftedNow is Go source code that is appended to package time after the original Now is renamed. It shifts the wall
// clock of time.Now, but not the monotonic clock.
const shiftedNow = `
var clockShift = sync.OnceValue(func() int64 {
	text, _ := syscall.Getenv("` + clockShift + `")
	n, err := atoi(text)
	if err != nil {
		panic("` + clockShift + ` is not a number of seconds: " + text)
	}
	return int64(n)
})

func Now() Time {
	t := trueNow()
	t.addSec(clockShift())
	return t
}
`

var shifted struct {
	once sync.Once
	path string
	err  error
}

// buildShifted builds the program once, with a wall clock that is shifted according to the environment variable
// clockShift.
func buildShifted(t *testing.T) string {
	t.Helper()
	shifted.once.Do(func() { shifted.path, shifted.err = overlaid(filepath.Dir(binary)) })
	if shifted.err != nil {
		t.Fatal(shifted.err)
	}
	return shifted.path
}

// overlaid builds the program into the given folder with a replacement for the standard library file that defines
// time.Now.
func overlaid(dir string) (path string, err error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	text := string(source)
	const now = "\nfunc Now() Time {"
	if strings.Count(text, now) != 1 || strings.Count(text, "\nimport (") != 1 {
		return "", fmt.Errorf("%s is not as it is known to be; shifting the clock has to be written anew", original)
	}
	text = strings.Replace(text, now, "\nfunc trueNow() Time {", 1) + shiftedNow
	text = strings.Replace(text, "\nimport (", "\nimport (\n\t\"sync\"\n\t\"syscall\"", 1)
	changed, list := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay.json")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	for name, content := range map[string][]byte{changed: []byte(text), list: overlay} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return "", err
		}
	}
	path = filepath.Join(dir, "postrider-shifted")
	out, err := exec.Command("go", "build", "-overlay", list, "-o", path, "../cmd/postrider").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the program with a shifted clock: %w: %s", err, out)
	}
	return path, nil
}
