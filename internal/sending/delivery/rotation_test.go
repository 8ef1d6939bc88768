package delivery

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	verifier "github.com/emersion/go-msgauth/dkim"

	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/mail/smtpsink"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

const (
	recordTTL  = time.Hour
	aliasName  = "alias.example" // a domain with the set-up cname
	keyServers = 2               // authoritative servers; the second one is a step behind
)

// keyWorld has two domains whose keys are rotated, the servers that publish their records, and receivers with caches of
// different ages. Its time is virtual.
type keyWorld struct {
	*fixture
	now      time.Duration
	domains  []domains.Domain
	servers  [keyServers]map[string]string // records by name
	caches   []map[string]cachedRecord     // of the receivers
	verified []checkedMail

	mu      sync.Mutex
	arrived [][]byte
	pending []pendingMail
	sent    int
}

type cachedRecord struct {
	value string
	until time.Duration
}

// pendingMail is a received message that its receiver verifies at a later time.
type pendingMail struct {
	raw      []byte
	receiver int
	at       time.Duration
}

// checkedMail is a message with the records that its receiver found when it verified the message.
type checkedMail struct {
	raw     []byte
	records map[string]string
}

func newKeyWorld(t *testing.T) *keyWorld {
	w := &keyWorld{}
	sink, err := smtpsink.Config{OnMessage: func(_ string, _ []string, data []byte) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.arrived = append(w.arrived, bytes.Clone(data))
	}}.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sink.Close() })
	n := one(sink.Addr())
	cfg := n.config(1)
	cfg.LaneConnections, cfg.Workers = 10, 16
	w.fixture = newFixture(t, dbtest.SQLite(t), cfg, n.dns)
	w.quiet = true
	w.Domains.Authoritative, w.Domains.GenerateRSA = w.ask, dkim.GenerateRSA // no key comes twice
	alias := w.Verified(w.Acme.TeamID, domains.NewDomain{Name: aliasName})
	w.exec(`UPDATE domains SET setup = 'cname', setup_token = 'token', checks = $2 WHERE id = $1`, db.ID(alias.ID),
		`{"cname-rp":{"status":"verified"},"cname-s1":{"status":"verified"},"cname-s2":{"status":"verified"}}`)
	w.DB.Hint("domains", alias.ID)
	w.domains = []domains.Domain{w.Sender, alias}
	for range 5 {
		w.caches = append(w.caches, map[string]cachedRecord{})
	}
	w.publish()
	w.publish()
	w.run()
	return w
}

func (w *keyWorld) exec(text string, args ...any) {
	w.T.Helper()
	w.Update(func(tx *db.Tx) error { _, err := tx.Exec(w.T.Context(), text, args...); return err })
}

// ask answers as the authoritative servers do.
func (w *keyWorld) ask(_ context.Context, name string) (all []domains.ServerAnswer, _ error) {
	for i, s := range w.servers {
		a := domains.ServerAnswer{Server: strconv.Itoa(i), TTL: recordTTL}
		if value, ok := s[name]; ok {
			a.Texts = []string{value}
		}
		all = append(all, a)
	}
	return all, nil
}

// keys returns the keys of a domain.
func (w *keyWorld) keys(d *domains.Domain) []domains.Key {
	w.T.Helper()
	now, err := w.Domains.Get(w.T.Context(), d.TeamID, d.ID)
	w.Must(err)
	all, err := w.Domains.DKIMKeys(w.T.Context(), &now)
	w.Must(err)
	return all
}

// publish gives the first server the records of this moment, and the second one those that the first one had before.
func (w *keyWorld) publish() {
	w.servers[1] = w.servers[0]
	w.servers[0] = map[string]string{}
	for i := range w.domains {
		for _, k := range w.keys(&w.domains[i]) {
			w.servers[0][k.Name] = k.Value
			if i == 0 && k.State != domains.KeyRevoked { // as in the zones of delegated domains
				w.servers[0][k.Name] = strings.Replace(k.Value, "p=", "s=email:tlsrpt; t=s; p=", 1)
			}
		}
	}
}

// lookUp is a look-up of a receiver, with its cache.
func (w *keyWorld) lookUp(receiver int, name string) string {
	c := w.caches[receiver]
	if old, ok := c[name]; ok && w.now < old.until {
		return old.value
	}
	value := w.servers[rand.N(keyServers)][name]
	c[name] = cachedRecord{value, w.now + recordTTL}
	return value
}

// step sends n emails while the rotations make a step, and lets time pass.
func (w *keyWorld) step(n int, by, delayMax time.Duration) {
	w.T.Helper()
	w.now += by
	w.exec(`UPDATE domain_keys SET created_at = created_at - $1, state_at = state_at - $1,
		stepped_at = stepped_at - $1, seen_at = CASE WHEN seen_at = 0 THEN 0 ELSE seen_at - $1 END`, by.Microseconds())
	w.publish()
	var batch []emails.Send
	for i := range n {
		subject := fmt.Sprintf("Number %d.", w.sent+i)
		text := subject + "\n"
		sender := []string{from, aliasName}[i%2]
		batch = append(batch, emails.Send{From: "hello@" + sender, To: []string{address(i)}, Subject: subject, Text: &text})
	}
	var steps sync.WaitGroup
	steps.Go(func() {
		for i := range w.domains {
			w.rotate(w.domains[i].ID)
		}
	})
	for len(batch) > 0 {
		some := min(len(batch), emails.MaxBatch)
		_, err := w.Emails.SendBatch(w.T.Context(), w.Acme, batch[:some], false, emails.Idempotency{})
		w.Must(err)
		batch = batch[some:]
	}
	w.sent += n
	steps.Wait()
	w.await(func() bool { return w.count(events.EmailDelivered) >= w.sent })
	w.receive(delayMax)
}

// rotate makes a step of a domain's rotation, if one is under way.
func (w *keyWorld) rotate(domainID string) {
	j := jobs.Job{Attempt: 1}
	w.Update(func(tx *db.Tx) error {
		rows, err := tx.Query(w.T.Context(), `UPDATE jobs SET attempt = 1, holder = id WHERE kind = $1 AND payload = $2
			RETURNING id, kind, lane, team_id, payload`, domains.RotateKind, domainID)
		_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
			return none, r.Scan((*db.ID)(&j.ID), &j.Kind, &j.Lane, (*db.ID)(&j.TeamID), &j.Payload)
		})
		return err
	})
	if j.ID != "" {
		w.Must(w.Domains.RotationKind().Handle(w.T.Context(), j))
	}
}

// receive hands the arrived messages to receivers. They verify some at once and others up to limit later.
func (w *keyWorld) receive(limit time.Duration) {
	w.mu.Lock()
	arrived := w.arrived
	w.arrived = nil
	w.mu.Unlock()
	delays := []time.Duration{0, 0, 20 * time.Minute, 3 * time.Hour, 40 * time.Hour, 6 * 24 * time.Hour}
	for _, raw := range arrived {
		w.pending = append(w.pending, pendingMail{raw, rand.N(len(w.caches)), w.now + min(delays[rand.N(len(delays))], limit)})
	}
	var later []pendingMail
	for _, m := range w.pending {
		if m.at > w.now {
			later = append(later, m)
			continue
		}
		w.verify(m)
	}
	w.pending = later
}

func (w *keyWorld) verify(m pendingMail) {
	w.T.Helper()
	found := map[string]string{}
	var mu sync.Mutex // The signatures of a message are verified at the same time.
	all, err := verifier.VerifyWithOptions(bytes.NewReader(m.raw), &verifier.VerifyOptions{
		LookupTXT: func(name string) ([]string, error) {
			mu.Lock()
			defer mu.Unlock()
			name = strings.TrimSuffix(name, ".")
			found[name] = w.lookUp(m.receiver, name)
			return []string{found[name]}, nil
		}})
	if err != nil || len(all) == 0 {
		w.T.Fatalf("%d signatures, %v", len(all), err)
	}
	for _, v := range all {
		if v.Err != nil {
			w.T.Errorf("after %v a signature of %s is invalid: %v\n%v", w.now, v.Domain, v.Err, found)
		}
	}
	w.verified = append(w.verified, checkedMail{m.raw, found})
}

// await waits until done returns true after an event.
func (w *keyWorld) await(done func() bool) {
	w.T.Helper()
	for limit := time.After(5 * time.Minute); ; {
		w.fixture.mu.Lock()
		news := w.news
		w.fixture.mu.Unlock()
		if done() {
			return
		}
		select {
		case <-news:
		case <-limit:
			w.T.Fatal("the emails are not delivered in time")
		}
	}
}

// The keys of two domains are rotated three times, the last time in an emergency. Each email stays valid for receivers
// whose caches have different ages. OpenDKIM and mailauth verify all emails too, if they are installed.
func TestRotationUnderLoad(t *testing.T) {
	t.Parallel()
	total, text := 2000, os.Getenv("POSTRIDER_ROTATION_EMAILS")
	verifiers := presentVerifiers(t, text != "")
	if text != "" {
		var err error
		if total, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	began, w := time.Now(), newKeyWorld(t)
	selectors := map[string]bool{}
	const steps = 3 * (14 + 36) // about
	n := total/steps + 1
	for round := range 3 {
		emergency := round == 2
		delayMax := map[bool]time.Duration{false: 6 * 24 * time.Hour, true: 20 * time.Minute}[emergency]
		// An emergency revokes the records of mail that has been under way for longer than an hour.
		for emergency && len(w.pending) > 0 {
			w.step(0, 6*time.Hour, 0)
		}
		w.step(n, 15*time.Minute, delayMax)
		for i := range w.domains {
			d := &w.domains[i]
			_, err := w.Domains.RotateKeys(t.Context(), d.TeamID, d.ID, emergency)
			w.Must(err)
		}
		waits := func() (waits bool) {
			for i := range w.domains {
				for _, k := range w.keys(&w.domains[i]) {
					waits = waits || k.State == domains.KeyNext
					selectors[k.Name] = true
				}
			}
			return waits
		}
		for k := 0; waits(); k++ {
			if k > 100 {
				t.Fatal("the new keys do not sign")
			}
			w.step(n, 15*time.Minute, delayMax)
		}
		for range 36 { // nine days
			w.step(n, 6*time.Hour, delayMax)
		}
	}
	for w.sent < total {
		w.step(min(n, total-w.sent), 15*time.Minute, 0)
	}
	for len(w.pending) > 0 {
		w.step(0, 6*time.Hour, 0)
	}
	// Four pairs of keys of the first domain, and the two selectors of the second one.
	if len(w.verified) != w.sent || w.sent < total || len(selectors) < 8+2 {
		t.Errorf("%d of %d emails are verified; selectors %v", len(w.verified), w.sent, selectors)
	}
	t.Logf("%d emails were sent and verified (%.0f s)", w.sent, time.Since(began).Seconds())
	w.others(verifiers)
}
