package delivery

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	verifier "github.com/emersion/go-msgauth/dkim"

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
	w.Domains.Authoritative = w.ask
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

// receive gives the arrived messages to receivers, which verify some of them at once and others up to max later.
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

// Three rotations of the keys of two domains, the last one in an emergency, leave every email valid for receivers whose
// caches have different ages. OpenDKIM and mailauth verify all emails, too, if they are there.
func TestRotationUnderLoad(t *testing.T) {
	t.Parallel()
	total := 2000
	if text := os.Getenv("POSTRIDER_ROTATION_EMAILS"); text != "" {
		var err error
		if total, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	w := newKeyWorld(t)
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
	w.others()
}

// others lets other programs verify all messages. Messages are grouped by what their receivers found in the DNS.
func (w *keyWorld) others() {
	type group struct {
		records map[string]string
		mails   [][]byte
	}
	var groups []*group
next:
	for _, m := range w.verified {
		for _, g := range groups {
			same := true
			for name, value := range m.records {
				old, ok := g.records[name]
				same = same && (!ok || old == value)
			}
			if same {
				maps.Copy(g.records, m.records)
				g.mails = append(g.mails, m.raw)
				continue next
			}
		}
		groups = append(groups, &group{m.records, [][]byte{m.raw}})
	}
	counts := map[string]int{}
	for _, g := range groups {
		folder := w.T.(*testing.T).TempDir()
		var files []string
		for i, raw := range g.mails {
			files = append(files, filepath.Join(folder, strconv.Itoa(i)))
			w.Must(os.WriteFile(files[i], raw, 0o600))
		}
		for name, verify := range map[string]func(string, []string, map[string]string) int{"opendkim": w.openDKIM,
			"mailauth": w.mailauth} {
			if valid := verify(folder, files, g.records); valid >= 0 {
				counts[name] += valid
			}
		}
	}
	for name, valid := range counts {
		if valid != len(w.verified) {
			w.T.Errorf("%s says that %d of %d emails are valid", name, valid, len(w.verified))
		}
	}
	w.T.Logf("%d emails in %d groups; valid: %v", len(w.verified), len(groups), counts)
}

// openDKIM returns the number of messages that opendkim verifies, or -1 if it is not installed.
func (w *keyWorld) openDKIM(folder string, files []string, records map[string]string) (valid int) {
	program, err := exec.LookPath("opendkim")
	if err != nil {
		w.T.Log("opendkim is not installed")
		return -1
	}
	var list strings.Builder
	for name, value := range records {
		fmt.Fprintf(&list, "%s %s\n", name, value)
	}
	w.Must(os.WriteFile(filepath.Join(folder, "keys"), []byte(list.String()), 0o600))
	conf := "Mode v\nTestPublicKeys " + filepath.Join(folder, "keys") + "\n"
	w.Must(os.WriteFile(filepath.Join(folder, "conf"), []byte(conf), 0o600))
	for len(files) > 0 {
		some := min(len(files), 200)
		cmd := exec.CommandContext(w.T.Context(), program, "-x", filepath.Join(folder, "conf"), "-vv", "-t",
			strings.Join(files[:some], ","))
		// Both streams in one would break the lines of each other.
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		out := stdout.String() + "\n" + stderr.String()
		succeeded := strings.Count(out, "2048-bit key) succeeded")
		if err != nil || succeeded != some {
			w.T.Errorf("opendkim: %v; %d of %d\n%.2000s", err, succeeded, some, out)
		}
		valid, files = valid+succeeded, files[some:]
	}
	return valid
}

// mailauthScript prints the number of messages that have a signature and only valid ones.
const mailauthScript = `
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
const { dkimVerify } = createRequire(process.env.POSTRIDER_MAILAUTH + '/')('mailauth/lib/dkim/verify');
const { files, records } = JSON.parse(readFileSync(0, 'utf8'));
const resolver = async (name) => {
	if (records[name]) return [[records[name]]];
	throw Object.assign(new Error('no record'), { code: 'ENOTFOUND' });
};
let valid = 0;
for (const file of files) {
	const { results } = await dkimVerify(readFileSync(file), { resolver });
	if (results.length && results.every((r) => r.status.result === 'pass')) valid++;
	else console.error(file, JSON.stringify(results.map((r) => [r.selector, r.status])));
}
console.log(valid);
`

// mailauth returns the number of messages all of whose signatures mailauth verifies, or -1 if POSTRIDER_MAILAUTH does
// not name a folder in which it is installed. POSTRIDER_NODE names the program node.
func (w *keyWorld) mailauth(folder string, files []string, records map[string]string) int {
	if os.Getenv("POSTRIDER_MAILAUTH") == "" {
		return -1
	}
	program := os.Getenv("POSTRIDER_NODE")
	if program == "" {
		program = "node"
	}
	script := filepath.Join(folder, "verify.mjs")
	w.Must(os.WriteFile(script, []byte(mailauthScript), 0o600))
	input, err := json.Marshal(map[string]any{"files": files, "records": records})
	w.Must(err)
	cmd := exec.CommandContext(w.T.Context(), program, script)
	cmd.Stdin = bytes.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	valid, err2 := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil || err2 != nil || valid != len(files) {
		w.T.Errorf("mailauth: %v, %v; %d of %d\n%.2000s", err, err2, valid, len(files), stderr.String())
	}
	return valid
}
