package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpsink"
	"github.com/postrider/postrider/internal/platform/blob/blobtest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// TestPromote moves a busy installation from SQLite and a folder to PostgreSQL and a bucket. Moves are killed at random
// instants, canceled and begun twice before. Every email that the API accepted arrives in the end, and no answer of the
// API is other than 200 or 503 with Retry-After.
func TestPromote(t *testing.T) {
	t.Parallel()
	p := newPromotion(t)
	p.fill(setting(t, "POSTRIDER_PROMOTE_WAITING", 400))
	stopLoad := p.load()
	defer stopLoad()
	first, second := dbtest.EmptyPostgresURL(t), dbtest.EmptyPostgresURL(t)

	p.killOnceBegun(first)
	if out, errOut, err := p.run("promote", "--to", second); err == nil || !strings.Contains(errOut, "has begun") {
		t.Errorf("a move to another database: %s%s%v", out, errOut, err)
	}
	if out, errOut, err := p.run("promote", "--cancel"); err != nil {
		t.Errorf("cancel: %s%s%v", out, errOut, err)
	}
	limit := time.Duration(setting(t, "POSTRIDER_PROMOTE_MILLISECONDS", 1500)) * time.Millisecond
	for range setting(t, "POSTRIDER_PROMOTE_KILLS", 4) {
		p.kill(second, rand.N(limit))
	}
	out := p.promote(second)
	t.Log(out)
	if m := pauseOf.FindStringSubmatch(out); m != nil {
		if s, err := strconv.ParseFloat(m[1], 64); err != nil || s > 30 {
			t.Errorf("the pause took %s s", m[1])
		}
	}
	p.refuses()
	p.start(second)
	p.awaitAccepted(50)
	stopLoad()
	p.arrives()
	t.Logf("%d emails accepted; the longest time without one was %v", len(p.l.accepted), p.gap)
}

var pauseOf = regexp.MustCompile(`the pause took ([0-9.]+) s`)

// promotion is an installation that is moved.
type promotion struct {
	t      *testing.T
	n      *node
	l      *ledger
	bucket string
	next   int // number of the next email of fill

	mu       sync.Mutex
	restart  bool      // whether the node is being replaced, so that connections may fail
	accepted time.Time // when an email was accepted last
	gap      time.Duration
}

func newPromotion(t *testing.T) *promotion {
	t.Helper()
	p := &promotion{t: t, l: &ledger{accepted: map[int]bool{}, arrived: map[int]int{}}}
	p.bucket, _ = blobtest.Versitygw(t)
	sink, err := smtpsink.Config{OnMessage: func(_ string, _ []string, data []byte) {
		if m := numbered.FindSubmatch(data); m != nil {
			i, _ := strconv.Atoi(string(m[1]))
			p.l.mu.Lock()
			p.l.arrived[i]++
			p.l.mu.Unlock()
		}
	}}.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sink.Close() })
	p.n = prepare(t, binary, []string{"POSTRIDER_LANE_RATE=20", "POSTRIDER_LOG_LEVEL=info"}, "--data-dir",
		filepath.Join(t.TempDir(), "data"), "--relay", sink.Addr(), "--relay-tls", "none")
	p.n.tail = 6000
	p.n.launch()
	p.n.addDomain("acme.example")
	return p
}

// numberedEmail returns email number i.
func numberedEmail(i int) map[string]any {
	return map[string]any{"from": "Acme <hello@acme.example>", "to": fmt.Sprintf("user%d@example.net", i),
		"subject": "Receipt", "html": "<p>Thank you.</p>", "headers": map[string]string{"X-Number": strconv.Itoa(i)}}
}

// fill sends emails in batches, of which most are waiting afterwards, and some with attachments.
func (p *promotion) fill(waiting int) {
	p.t.Helper()
	send := func(path string, body any, n int) {
		text, err := json.Marshal(body)
		if err != nil {
			p.t.Fatal(err)
		}
		p.n.must(http.MethodPost, path, string(text), nil)
		for range n {
			p.l.accepted[p.next] = true
			p.next++
		}
	}
	for p.next < waiting {
		var batch []any
		for i := range min(100, waiting-p.next) {
			batch = append(batch, numberedEmail(p.next+i))
		}
		send("/emails/batch", batch, len(batch))
	}
	for range 20 {
		e := numberedEmail(p.next)
		e["attachments"] = []any{map[string]any{"filename": "a.txt", "content": "aGVsbG8="}}
		send("/emails", e, 1)
	}
}

// load sends single emails from two clients until the returned function is called.
func (p *promotion) load() (stop func()) {
	ctx, cancel := context.WithCancel(p.t.Context())
	var posters sync.WaitGroup
	numbers := make(chan int)
	posters.Go(func() {
		for i := p.next; ; i++ {
			select {
			case numbers <- i:
			case <-ctx.Done():
				return
			}
		}
	})
	p.accepted = time.Now()
	for range 2 {
		posters.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case i := <-numbers:
					p.post(i)
				}
				<-tick.C
			}
		})
	}
	return func() {
		cancel()
		posters.Wait()
	}
}

// restarting reports whether the node is being replaced.
func (p *promotion) restarting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.restart
}

func (p *promotion) setRestarting(is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.restart = is
}

// post sends email number i and judges the answer.
func (p *promotion) post(i int) {
	body, _ := json.Marshal(numberedEmail(i))
	r, err := http.NewRequest(http.MethodPost, "http://"+p.n.addr+"/emails", bytes.NewReader(body))
	if err != nil {
		p.t.Error(err)
		return
	}
	r.Header.Set("Authorization", "Bearer "+key)
	before := p.restarting()
	answer, err := (&http.Client{Timeout: time.Minute}).Do(r)
	if err != nil {
		if !before && !p.restarting() {
			p.t.Errorf("email %d: %v", i, err)
		}
		return
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	switch {
	case answer.StatusCode == http.StatusOK:
		p.l.mu.Lock()
		p.l.accepted[i] = true
		p.l.mu.Unlock()
		p.mu.Lock()
		p.gap, p.accepted = max(p.gap, time.Since(p.accepted)), time.Now()
		p.mu.Unlock()
	case answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "":
		p.t.Errorf("email %d: %d %s", i, answer.StatusCode, text)
	}
}

func (p *promotion) run(args ...string) (out, errOut string, err error) {
	return commandWithin(p.t, 30*time.Minute, nil, append(args, "--data-dir", p.n.dir())...)
}

// kill begins a move and kills it after some time. The node goes on, also if it was paused at that moment.
func (p *promotion) kill(to string, after time.Duration) {
	p.t.Helper()
	c := exec.Command(binary, "promote", "--to", to, "--blob-to", p.bucket, "--data-dir", p.n.dir())
	c.Env = environ()
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		p.t.Fatal(err)
	}
	timer := time.AfterFunc(after, func() { c.Process.Kill() })
	err := c.Wait()
	timer.Stop()
	text := out.String()
	if err == nil || strings.Contains(text, "was moved to") {
		return // it was faster than the kill
	}
	if !strings.Contains(err.Error(), "killed") {
		p.t.Fatalf("a move that should be killed: %v\n%s", err, text)
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	p.t.Logf("killed after %v, after %q", after, lines[len(lines)-1])
	p.awaitAccepted(1)
}

// killOnceBegun begins a move, and kills it when it has begun to record changes.
func (p *promotion) killOnceBegun(to string) {
	p.t.Helper()
	c := exec.Command(binary, "promote", "--to", to, "--data-dir", p.n.dir())
	c.Env = environ()
	var out said
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		p.t.Fatal(err)
	}
	defer func() {
		if p.t.Failed() {
			p.t.Logf("the move said: %s", out.String())
		}
	}()
	file, err := db.OpenFile(filepath.Join(p.n.dir(), "postrider.db"), false)
	if err != nil {
		p.t.Fatal(err)
	}
	defer file.Close()
	eventually(p.t, 10*time.Minute, "the move has begun", func() bool {
		var n int
		err := file.QueryRow(`SELECT COUNT(*) FROM sqlite_schema WHERE name = 'move_changes'`).Scan(&n)
		return err == nil && n == 1
	})
	c.Process.Kill()
	c.Wait()
	p.awaitAccepted(1)
}

// awaitAccepted waits until the API accepts more emails, unless the installation was moved by a move that was killed
// after its last step.
func (p *promotion) awaitAccepted(more int) {
	p.t.Helper()
	count := func() int {
		p.l.mu.Lock()
		defer p.l.mu.Unlock()
		return len(p.l.accepted)
	}
	before := count()
	eventually(p.t, 40*time.Second, "the API accepts emails", func() bool {
		return count() >= before+more || strings.Contains(p.n.out.String(), "was moved: stop this node")
	})
}

// promote runs a move to its end. A second move that is begun during the first one refuses.
func (p *promotion) promote(to string) string {
	p.t.Helper()
	type outcome struct {
		out, errOut string
		err         error
	}
	ended := make(chan outcome, 2)
	for range 2 {
		go func() {
			out, errOut, err := p.run("promote", "--to", to, "--blob-to", p.bucket)
			ended <- outcome{out, errOut, err}
		}()
	}
	a, b := <-ended, <-ended
	if a.err != nil {
		a, b = b, a
	}
	if a.err != nil && !strings.Contains(a.errOut+b.errOut, "already") { // a move that was killed may have been complete
		p.t.Fatalf("promote: %v\n%s%s\n%s", a.err, a.out, a.errOut, b.errOut)
	}
	if b.err == nil || !strings.Contains(b.errOut, "another `postrider promote`") && !strings.Contains(b.errOut, "already") {
		p.t.Errorf("the second move ended with %v and says %q", b.err, b.errOut)
	}
	return a.out
}

// refuses checks that the old installation takes no more emails and does not start.
func (p *promotion) refuses() {
	p.t.Helper()
	eventually(p.t, 10*time.Second, "the old node knows that it was moved", func() bool {
		return strings.Contains(p.n.out.String(), "was moved: stop this node")
	})
	status, err := p.n.call(p.t.Context(), http.MethodPost, "/emails", `{}`, nil)
	if err != nil || status != http.StatusServiceUnavailable {
		p.t.Errorf("the old node answers %d, %v", status, err)
	}
	port := regexp.MustCompile(`smtp_submit=(\S+)`).FindStringSubmatch(p.n.out.String())
	if port == nil {
		p.t.Error("the log has no port of submission")
	} else if err := submit(port[1], key, []byte("From: hello@acme.example\r\nSubject: s\r\n\r\nt\r\n"),
		"bob@example.net"); err == nil || !strings.HasPrefix(err.Error(), "451") {
		p.t.Errorf("submission to the old node: %v", err)
	}
	p.setRestarting(true)
	p.n.cmd.Process.Signal(syscall.SIGTERM)
	if err := p.n.cmd.Wait(); err == nil {
		p.t.Error("the old node ended without an error")
	}
	for _, args := range [][]string{{"serve", "--http-listen", "127.0.0.1:0"}, {"teams", "list"}} {
		if _, errOut, err := p.run(args...); err == nil || !strings.Contains(errOut, "was moved to") {
			p.t.Errorf("%v on the old installation: %s%v", args, errOut, err)
		}
	}
}

// start starts the node on the new database.
func (p *promotion) start(to string) {
	p.t.Helper()
	p.n.env = append(p.n.env, "POSTRIDER_DATABASE_URL="+to, "POSTRIDER_BLOB_URL="+p.bucket, "POSTRIDER_LANE_RATE=0")
	p.n.launch()
	p.setRestarting(false)
}

// arrives waits until every accepted email has arrived.
func (p *promotion) arrives() {
	p.t.Helper()
	eventually(p.t, 20*time.Minute, "every accepted email arrives", func() bool { return p.l.missing() == 0 })
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	twice := 0
	for _, times := range p.l.arrived {
		twice += times - 1
	}
	p.t.Logf("%d copies more than one", twice)
}
