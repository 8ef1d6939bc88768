//go:build chaos

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/db/dbtest/pgproxy"
)

const (
	postersEach  = 8                // number of posters per node
	answerWait   = 40 * time.Second // the posters' request timeout; the node's own timeout is shorter
	arrivalWait  = 3 * time.Minute  // time limit for accepted emails to arrive after the fault
	burstFrom    = 1_000_000        // number of the first email that is posted in a burst
	stillness    = 3 * time.Second  // wait after the last job, to detect duplicate deliveries
	sharedSecret = "6368616f73206368616f73206368616f73206368616f73206368616f73206368"
)

// fate classifies the API's response to a posted email.
type fate int

const (
	accepted fate = iota // 200
	refused              // an error that means that the email was not accepted
	unclear              // an error after which the email may or may not have been accepted
	silence              // no response or an incomplete response
)

// cluster holds the nodes of a chaos scenario, their database, and the result of each posted email. After the first
// post, only the cluster fields below mu change.
type cluster struct {
	t       *testing.T
	nodes   []*node
	lives   []int // how many times each node was started
	proxies []*pgproxy.Proxy
	server  *dbtest.Server // nil on SQLite
	blobs   string         // folder
	mail    *mailbox

	every time.Duration              // between two emails
	email func(i int) map[string]any // additional JSON fields for email number i

	numbers chan int
	stop    context.CancelFunc
	posters sync.WaitGroup

	bursts int // number of emails posted by burst

	mu      sync.Mutex
	fates   map[int]fate
	posted  map[int]time.Time
	wrong   int            // number of error responses other than 503 with Retry-After
	answers map[string]int // number of error responses by status code and message
	accepts []time.Time    // times of the responses that accepted emails
	again   []int          // emails with an idempotency key that were not accepted and must be posted again
	allowed map[int]int    // number of additional copies that kills may cause, by email number
	kills   []int          // number of additional copies that each kill may cause
}

// setup configures the cluster for a chaos scenario. By default, the cluster's nodes relay to a host that accepts all
// mail.
type setup struct {
	end     func(number, n int) ending // behavior of the receiving host
	direct  bool                       // the scenario provides its own receiving hosts and DNS server in args
	args    []string
	env     []string
	program func(node int) (path string, env []string)
	data    string // data folder of the SQLite node or of the PostgreSQL server
	every   time.Duration
}

// newCluster starts two nodes with PostgreSQL, each connected through its own proxy, or one node with SQLite.
func newCluster(t *testing.T, engine string, s setup) *cluster {
	t.Helper()
	w := &cluster{t: t, mail: newMailbox(t), every: s.every, blobs: filepath.Join(t.TempDir(), "blobs"),
		fates: map[int]fate{}, posted: map[int]time.Time{}, answers: map[string]int{}, allowed: map[int]int{}}
	if w.every == 0 {
		w.every = 40 * time.Millisecond
	}
	args := s.args
	if !s.direct {
		args = append([]string{"--relay", w.mail.listen("127.0.0.1:0", s.end), "--relay-tls", "none"}, args...)
	}
	count := 1
	if engine == "postgres" {
		count = 2
		w.server = dbtest.NewServer(t, s.data)
	}
	for i := range count {
		program, env := binary, slices.Concat([]string{"POSTRIDER_SECRET_KEY=" + sharedSecret, "POSTRIDER_SHUTDOWN_GRACE=30s",
			"POSTRIDER_BLOB_URL=" + w.blobs, "POSTRIDER_ROLES=api,delivery,jobs"}, s.env)
		if s.program != nil {
			path, more := s.program(i)
			program, env = path, append(env, more...)
		}
		if w.server != nil {
			p, err := pgproxy.Start(w.server.URL)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Close)
			w.proxies = append(w.proxies, p)
			env = append(env, "POSTRIDER_DATABASE_URL="+p.URL())
		} else if s.data != "" {
			args = append(args, "--data-dir", s.data)
		}
		n := prepare(t, program, env, args...)
		n.tail = 4000
		t.Cleanup(func() { // a process suspended with SIGSTOP would not handle SIGTERM
			if n.cmd != nil {
				n.cmd.Process.Signal(syscall.SIGCONT)
			}
		})
		w.nodes, w.lives = append(w.nodes, n), append(w.lives, 0)
		w.launch(i)
	}
	w.nodes[0].addDomain("acme.example")
	return w
}

// life returns the EHLO name that a node has used since its last start.
func (w *cluster) life(i int) string { return fmt.Sprintf("life%d.node%d.example", w.lives[i], i) }

// launch starts a node under a new EHLO name.
func (w *cluster) launch(i int) {
	w.t.Helper()
	w.lives[i]++
	n := w.nodes[i]
	n.env = append(slices.Clip(n.env), "POSTRIDER_HOSTNAME="+w.life(i))
	n.launch()
}

// begin starts posting emails to all nodes; end stops posting.
func (w *cluster) begin() {
	ctx, cancel := context.WithCancel(w.t.Context())
	w.stop, w.numbers = cancel, make(chan int)
	w.posters.Go(func() {
		defer close(w.numbers)
		tick := time.NewTicker(w.every)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			select {
			case w.numbers <- i:
			case <-ctx.Done():
				return
			}
		}
	})
	for _, n := range w.nodes {
		for range postersEach {
			w.posters.Go(func() {
				for i := range w.numbers {
					for !w.post(n, i) && ctx.Err() == nil {
						time.Sleep(50 * time.Millisecond)
					}
				}
			})
		}
	}
}

// during posts emails, starting shortly before it calls the function f and stopping when f returns.
func (w *cluster) during(f func()) {
	w.begin()
	time.Sleep(5 * time.Second)
	f()
	w.stop()
	w.posters.Wait()
}

// keyed reports whether email number i is posted with an idempotency key. The test posts emails with an idempotency key
// until they are accepted, as clients should.
func keyed(i int) bool { return i%2 == 1 }

var browser = &http.Client{Timeout: answerWait, Transport: &http.Transport{MaxIdleConnsPerHost: 100}}

// post posts email number i and records the response. If the node did not accept the connection, post returns false.
func (w *cluster) post(n *node, i int) bool {
	idempotency := ""
	if keyed(i) {
		idempotency = "chaos-" + strconv.Itoa(i)
	}
	return w.ask(n, "/emails", idempotency, w.make(i), i)
}

// burst posts many emails in batches and waits briefly, so that the node uses all its connections and claims more jobs.
func (w *cluster) burst(n *node) {
	for range 2 {
		var batch []any
		var numbers []int
		for range 100 {
			numbers = append(numbers, burstFrom+2*w.bursts) // even numbers: these emails have no idempotency key
			w.bursts++
			batch = append(batch, w.make(numbers[len(numbers)-1]))
		}
		w.ask(n, "/emails/batch", "", batch, numbers...)
	}
	time.Sleep(2 * latency)
}

// make returns the JSON body of email number i.
func (w *cluster) make(i int) map[string]any {
	email := map[string]any{"from": "Acme <hello@acme.example>", "to": fmt.Sprintf("u%d@example.net", i),
		"subject": "Receipt", "html": "<p>Thank you.</p>"}
	if w.email != nil {
		maps.Copy(email, w.email(i))
	}
	return email
}

// ask makes one request that contains a batch of emails, and records the response as the fate of each email. If the
// node did not accept the connection, ask returns false.
func (w *cluster) ask(n *node, path, idempotency string, what any, numbers ...int) bool {
	body, err := json.Marshal(what)
	if err != nil {
		w.t.Error(err)
	}
	r, err := http.NewRequest(http.MethodPost, "http://"+n.addr+path, bytes.NewReader(body))
	if err != nil {
		w.t.Error(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	if idempotency != "" {
		r.Header.Set("Idempotency-Key", idempotency)
	}
	at := time.Now()
	answer, err := browser.Do(r)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return false
	}
	told, text := silence, []byte(nil)
	if err == nil {
		text, err = io.ReadAll(answer.Body)
		answer.Body.Close()
	}
	switch {
	case err != nil:
	case answer.StatusCode == http.StatusOK:
		told = accepted
	case strings.Contains(string(text), "may have been"):
		told = unclear
	default:
		told = refused
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if told == accepted {
		w.accepts = append(w.accepts, time.Now())
	}
	if told != accepted && err == nil {
		if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
			w.wrong++
		}
		w.answers[fmt.Sprintf("%s, Retry-After %q: %.200s", answer.Status, answer.Header.Get("Retry-After"), text)]++
	}
	for _, i := range numbers {
		w.fates[i], w.posted[i] = told, at
		if told != accepted && idempotency != "" {
			w.again = append(w.again, i)
		}
	}
	return true
}

// repeat posts again each email that has an idempotency key and was not accepted, until all are accepted, or none is
// accepted for a minute. On a busy machine, thousands of them take longer. The test calls repeat after the fault.
func (w *cluster) repeat() {
	const patience = time.Minute
	left := 0
	for round, over := 0, time.Now().Add(patience); time.Now().Before(over); round++ {
		w.mu.Lock()
		again := w.again
		w.again = nil
		w.mu.Unlock()
		if len(again) == 0 {
			return
		}
		if round > 0 {
			time.Sleep(time.Second)
		}
		for k, i := range again {
			w.post(w.nodes[k%len(w.nodes)], i)
		}
		w.mu.Lock()
		left = len(w.again)
		w.mu.Unlock()
		if left < len(again) {
			over = time.Now().Add(patience)
		}
	}
	w.t.Errorf("%d emails with an idempotency key were not accepted within a minute after the fault", left)
}

// look opens the cluster's database directly, without a proxy.
func (w *cluster) look() (*db.DB, error) {
	url := filepath.Join(w.nodes[0].folder(), "postrider.db")
	if w.server != nil {
		url = w.server.URL
	}
	return db.Open(context.Background(), db.Options{URL: url, MaxConns: 2, Beside: true})
}

// folder returns the node's data folder.
func (n *node) folder() (dir string) {
	for i, a := range n.args {
		if a == "--data-dir" {
			dir = n.args[i+1]
		}
	}
	return dir
}

// recorded returns the emails whose delivery outcome is in the database.
func (w *cluster) recorded() (map[int]bool, error) {
	d, err := w.look()
	if err != nil {
		return nil, err
	}
	defer d.Close()
	rows, err := d.Query(context.Background(), `SELECT address FROM email_recipients WHERE state = 5 /* delivered */
		UNION ALL SELECT recipient FROM emails WHERE recipient <> '' AND last_event = 5 /* delivered */`)
	all := map[int]bool{}
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var address string
		err = r.Scan(&address)
		var i int
		fmt.Sscanf(address, "u%d@", &i)
		all[i] = true
		return none, err
	})
	return all, err
}

// inHand counts the emails that may arrive twice: a host received them from a stopped node, but their outcome is not in
// the database.
func (w *cluster) inHand(i int) {
	w.t.Helper()
	recorded, err := w.recorded()
	if err != nil {
		w.t.Fatal(err)
	}
	life, n := w.life(i), 0
	w.mail.mu.Lock()
	for number, all := range w.mail.arrivals {
		if all[len(all)-1].life == life && !recorded[number] {
			w.allowed[number]++
			n++
		}
	}
	w.mail.mu.Unlock()
	w.kills = append(w.kills, n)
}

// missing returns the emails that the API accepted but that have not arrived.
func (w *cluster) missing() (all []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, f := range w.fates {
		if f == accepted && len(w.mail.copies(i)) == 0 {
			all = append(all, i)
		}
	}
	return all
}

// waiting returns the number of delivery jobs in the database, or -1 if the query fails.
func (w *cluster) waiting() int {
	n := -1
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if status, err := w.nodes[0].call(ctx, http.MethodGet, "/dev/waiting", "", &n); err != nil || status != http.StatusOK {
		return -1
	}
	return n
}

// settle waits after the fault until all emails have arrived. Emails that do not arrive within arrivalWait count as
// lost.
func (w *cluster) settle() {
	w.t.Helper()
	w.repeat()
	if !within(arrivalWait, func() bool { return len(w.missing()) == 0 && w.waiting() == 0 }) {
		w.t.Errorf("not within %v: every email arrives and every outcome is recorded; %d are missing, %d jobs wait",
			arrivalWait, len(w.missing()), w.waiting())
	}
	within(time.Minute, func() bool { return w.mail.quiet(stillness) })
}

func within(limit time.Duration, done func() bool) bool {
	for over := time.Now().Add(limit); !done(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(over) {
			return false
		}
	}
	return true
}
