package emails_test

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/blob"
	"github.com/postrider/postrider/internal/content"
	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/db/dbtest"
	"github.com/postrider/postrider/internal/domains"
	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/id"
	"github.com/postrider/postrider/internal/jobs"
	"github.com/postrider/postrider/internal/keyring"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/netguard"
	"github.com/postrider/postrider/internal/page"
	"github.com/postrider/postrider/internal/suppressions"
	"github.com/postrider/postrider/internal/teams"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// world is emails with everything below it, and a team with a verified domain.
type world struct {
	d          *db.DB
	q          *jobs.Queue
	recorder   *events.Recorder
	emails     *emails.Service
	contents   *content.Service
	domains    *domains.Service
	suppressed *suppressions.Service
	teams      *teams.Service
	who        teams.Actor
	domainID   string
	blobs      *blob.Store
	folder     string // of blobs
	logged     *logged
}

// logged is what a service has logged.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newWorld(t testing.TB, d *db.DB) *world {
	t.Helper()
	ctx, log := t.Context(), slog.New(slog.DiscardHandler)
	keys, err := keyring.New(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	blobs, err := blob.Open(ctx, folder)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{d: d, q: jobs.NewQueue(d), recorder: &events.Recorder{}, blobs: blobs, folder: folder, logged: &logged{}}
	w.domains = domains.New(domains.Config{Selector: "postrider", SelectorEd25519: "postrider-ed", TrustDomains: true,
		SandboxDomains: []string{"resend.dev"}}, d, w.q, w.recorder, keys, resolve.Fake{}, log)
	w.teams = teams.New(d, log, w.domains.Exists)
	w.suppressed = suppressions.New(d, w.recorder)
	w.contents = content.New(d)
	w.emails = emails.New(emails.Config{MaxSize: 1 << 20, PublicURL: "http://mail.test"}, emails.Parts{DB: d, Queue: w.q,
		Recorder: w.recorder,
		Blobs:    blobs, Keys: keys, Guard: netguard.New(netguard.Options{AllowLoopback: true}), Domains: w.domains,
		Suppressions: w.suppressed, Teams: w.teams, Contents: w.contents, Log: slog.New(slog.NewTextHandler(w.logged, nil))})
	w.recorder.Listen(w.emails)
	w.recorder.Listen(w.suppressed)
	team, err := w.teams.Create(ctx, "Acme", "owner@acme.example")
	if err != nil {
		t.Fatal(err)
	}
	_, token, err := w.teams.CreateKey(ctx, teams.System(team.ID), teams.NewKey{Name: "k"})
	if err != nil {
		t.Fatal(err)
	}
	if w.who, err = w.teams.Authenticate(ctx, token); err != nil {
		t.Fatal(err)
	}
	dom, err := w.domains.AddVerified(ctx, team.ID, domains.NewDomain{Name: "acme.example"})
	if err != nil {
		t.Fatal(err)
	}
	w.domainID = dom.ID
	return w
}

func each(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { f(t, newWorld(t, d)) })
}

func hello(to ...string) emails.Send {
	text := "Hello."
	return emails.Send{From: "Acme <hello@acme.example>", To: to, Subject: "Hi", Text: &text}
}

func (w *world) send(t *testing.T, s emails.Send) string {
	t.Helper()
	id, err := w.emails.Send(t.Context(), w.who, s, emails.Idempotency{})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (w *world) state(t *testing.T, emailID string) emails.State {
	t.Helper()
	e, err := w.emails.Get(t.Context(), w.who.TeamID, emailID)
	if err != nil {
		t.Fatal(err)
	}
	return e.LastEvent
}

func (w *world) count(t testing.TB, query string, args ...any) (n int) {
	t.Helper()
	if err := w.d.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (w *world) record(t *testing.T, all ...events.Event) {
	t.Helper()
	if err := w.d.Update(t.Context(), func(tx *db.Tx) error {
		return w.recorder.Record(t.Context(), tx,
			all...)
	}); err != nil {
		t.Fatal(err)
	}
}

// release works release jobs until ctx ends or done says that it is enough.
func (w *world) release(t *testing.T, done func() bool) {
	t.Helper()
	r := jobs.NewRunner(w.d, w.q, slog.New(slog.DiscardHandler), time.Second)
	for _, k := range w.emails.Kinds() {
		r.Handle(k)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	limit := time.After(20 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-limit:
			t.Error("the release job was not worked in time")
			cancel()
		}
		if ctx.Err() != nil {
			break
		}
	}
	cancel()
	wg.Wait()
}

func TestSendWritesAJobForEachDestination(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		s := hello("a@one.example", "b@two.example", "A@ONE.example")
		s.Cc, s.Bcc = []string{"C <c@one.example>"}, []string{"d@three.example"}
		s.Tags = []emails.Tag{{Name: "kind", Value: "test"}}
		id := w.send(t, s)
		e, err := w.emails.Get(t.Context(), w.who.TeamID, id)
		if err != nil {
			t.Fatal(err)
		}
		if e.LastEvent != emails.Queued || e.MessageID != "<"+id+"@acme.example>" || len(e.To) != 3 ||
			e.Tags[0].Value != "test" ||
			e.Text == nil || *e.Text != "Hello." || e.HTML != nil {
			t.Errorf("stored %+v", e)
		}
		if n := w.count(t, `SELECT COUNT(*) FROM jobs WHERE kind = 'delivery'`); n != 3 {
			t.Errorf("%d delivery jobs, want one for each of 3 destinations", n)
		}
		to, err := w.emails.Recipients(t.Context(), w.who.TeamID, id)
		if err != nil || len(to) != 4 {
			t.Fatalf("recipients %+v, %v: want each address once", to, err)
		}
		o, err := w.emails.Outgoing(t.Context(), emails.Delivery{EmailID: id, Domain: "one.example"})
		if err != nil || len(o.To) != 2 {
			t.Fatalf("outgoing %+v, %v", o, err)
		}
		raw, err := w.emails.Compose(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := w.emails.Compose(t.Context(), o); string(again) != string(raw) {
			t.Error("composing twice gives different bytes")
		}
		if strings.Contains(string(raw), "three.example") {
			t.Error("a hidden recipient stands in the message")
		}
		if _, err := w.emails.Get(t.Context(), "another team", id); fault.KindOf(err) != fault.NotFound {
			t.Errorf("another team reads it: %v", err)
		}
	})
}

func TestStatesAdvanceByRank(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.send(t, hello("a@one.example", "b@one.example"))
		happen := func(typ events.Type, to string, data any) {
			w.record(t, events.Event{TeamID: w.who.TeamID, EmailID: id, DomainID: w.domainID, Type: typ, Recipient: to,
				Data: data})
		}
		for _, step := range []struct {
			typ  events.Type
			to   string
			want emails.State
		}{
			{events.EmailSent, "", emails.Sent},
			{events.EmailDelayed, "a@one.example", emails.Delayed},
			{events.EmailSent, "", emails.Delayed},
			{events.EmailDelivered, "a@one.example", emails.Delivered},
			{events.EmailClicked, "a@one.example", emails.Clicked},
			{events.EmailOpened, "a@one.example", emails.Clicked},
			{events.EmailSuppressed, "b@one.example", emails.Clicked},
			{events.EmailComplained, "a@one.example", emails.Complained},
			{events.EmailDelivered, "a@one.example", emails.Complained},
		} {
			happen(step.typ, step.to, nil)
			if got := w.state(t, id); got != step.want {
				t.Errorf("after %s: %s, want %s", step.typ, got, step.want)
			}
		}
		timeline, err := w.emails.Timeline(t.Context(), w.who.TeamID, id)
		if err != nil || len(timeline) != 10 || timeline[0].Type != "queued" {
			t.Errorf("timeline of %d, %v: %+v", len(timeline), err, timeline)
		}
	})
}

func TestSuppressedRecipients(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		if _, err := w.suppressed.Add(t.Context(), w.who.TeamID, []string{"Gone@One.example"}); err != nil {
			t.Fatal(err)
		}
		all := w.send(t, hello("gone@one.example"))
		if got := w.state(t, all); got != emails.Suppressed {
			t.Errorf("all suppressed: %s", got)
		}
		if n := w.count(t, `SELECT COUNT(*) FROM jobs`); n != 0 {
			t.Errorf("%d jobs for a suppressed recipient", n)
		}
		some := w.send(t, hello("gone@one.example", "here@one.example"))
		if got := w.state(t, some); got != emails.Queued {
			t.Errorf("one of two suppressed: %s", got)
		}
		o, err := w.emails.Outgoing(t.Context(), emails.Delivery{EmailID: some, Domain: "one.example"})
		if err != nil || len(o.To) != 1 || o.To[0] != "here@one.example" {
			t.Errorf("outgoing to %v, %v", o.To, err)
		}
		// A hard bounce suppresses in the transaction that records it; a test address's does not.
		for address, b := range map[string]*events.Bounce{"hard@one.example": {Type: "Permanent", Suppress: true},
			"soft@one.example": {Type: "Transient"}, "play@one.example": {Type: "Permanent", Suppress: true, Simulated: true}} {
			w.record(t, events.Event{TeamID: w.who.TeamID, EmailID: some, Type: events.EmailBounced, Recipient: address,
				Data: b})
		}
		found, err := w.suppressed.Among(t.Context(), w.d.Reader, w.who.TeamID, []string{"hard@one.example",
			"soft@one.example", "play@one.example"})
		if err != nil || len(found) != 1 || found["hard@one.example"].SourceID != some {
			t.Errorf("suppressed %+v, %v", found, err)
		}
	})
}

func TestScheduleRescheduleCancel(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		s := hello("a@one.example")
		s.ScheduledAt = "in 2 hours"
		id := w.send(t, s)
		if got := w.state(t, id); got != emails.Scheduled {
			t.Fatalf("state %s", got)
		}
		if n := w.count(t, `SELECT COUNT(*) FROM jobs WHERE kind = 'delivery'`); n != 0 {
			t.Error("a scheduled email is being delivered")
		}
		if err := w.emails.Reschedule(t.Context(), w.who.TeamID, id,
			time.Now().Add(time.Second).Format(time.RFC3339)); err != nil {
			t.Fatal(err)
		}
		w.release(t, func() bool { return w.state(t, id) == emails.Queued })
		if n := w.count(t, `SELECT COUNT(*) FROM jobs WHERE kind = 'delivery'`); n != 1 {
			t.Errorf("%d delivery jobs after the release, want 1", n)
		}
		if err := w.emails.Cancel(t.Context(), w.who.TeamID, id); fault.KindOf(err) != fault.Invalid {
			t.Errorf("canceling a released email: %v", err)
		}
		id = w.send(t, s)
		if err := w.emails.Cancel(t.Context(), w.who.TeamID, id); err != nil {
			t.Fatal(err)
		}
		if got := w.state(t, id); got != emails.Canceled {
			t.Errorf("canceled: %s", got)
		}
		if err := w.emails.Reschedule(t.Context(), w.who.TeamID, id, "in 1 hour"); fault.KindOf(err) != fault.Invalid {
			t.Errorf("rescheduling a canceled email: %v", err)
		}
		if n := w.count(t, `SELECT COUNT(*) FROM jobs WHERE kind = 'emails.release'`); n != 0 {
			t.Errorf("%d release jobs are left", n)
		}
	})
}

// An email that is rescheduled while its release is in progress is not sent: the successful answer to the reschedule
// holds.
func TestRescheduleDuringRelease(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		release := w.emails.Kinds()[0]
		for i := range 40 {
			s := hello("a@one.example")
			s.ScheduledAt = "in 2 hours"
			id := w.send(t, s)
			j := jobs.Job{Kind: emails.ReleaseKind, Lane: w.who.TeamID, TeamID: w.who.TeamID, Payload: id, Attempt: 1}
			if err := w.d.Update(t.Context(), func(tx *db.Tx) error {
				tx.Queue(t.Context(), `UPDATE emails SET scheduled_at = 1 WHERE id = $1`, id)
				return tx.QueryRow(t.Context(),
					`UPDATE jobs SET run_at = $2, attempt = 1, holder = 'a worker' WHERE dedupe = $1 RETURNING id`, id,
					time.Now().Add(time.Minute).UnixMicro()).Scan(&j.ID)
			}); err != nil {
				t.Fatal(err)
			}
			var released error
			ended := make(chan struct{})
			work := func() { released = release.Handle(t.Context(), j); close(ended) }
			if i > 0 { // the first time one after the other
				go work()
			}
			err := w.emails.Reschedule(t.Context(), w.who.TeamID, id, "in 1 hour")
			if i == 0 {
				work()
			}
			<-ended
			if released != nil {
				t.Fatal(released)
			}
			want, deliveries, waiting := emails.Queued, 1, 0
			if err == nil {
				want, deliveries, waiting = emails.Scheduled, 0, 1
			} else if fault.KindOf(err) != fault.Invalid {
				t.Fatal(err)
			}
			n := w.count(t, `SELECT COUNT(*) FROM jobs WHERE kind = 'delivery' AND payload LIKE '%`+id+`%'`)
			left := w.count(t, `SELECT COUNT(*) FROM jobs WHERE kind = 'emails.release' AND holder = '' AND dedupe = '`+id+
				`' AND run_at > `+
				fmt.Sprint(time.Now().Add(time.Minute*30).UnixMicro()))
			if got := w.state(t, id); got != want || n != deliveries || left != waiting {
				t.Fatalf("after Reschedule returned %v the email is %s, with %d deliveries and %d releases that wait", err, got, n,
					left)
			}
		}
	})
}

func TestReleaseChecksAgain(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(t *testing.T, w *world)
		reason string
	}{
		"key deleted": {func(t *testing.T, w *world) {
			if err := w.teams.DeleteKey(t.Context(), w.who.TeamID, w.who.ID); err != nil {
				t.Fatal(err)
			}
		}, "invalid_api_key"},
		"domain deleted": {func(t *testing.T, w *world) {
			if err := w.domains.Delete(t.Context(), w.who.TeamID, w.domainID); err != nil {
				t.Fatal(err)
			}
		}, "domain_not_verified"},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, w *world) {
				s := hello("a@one.example")
				s.ScheduledAt = time.Now().Add(2 * time.Second).Format(time.RFC3339)
				id := w.send(t, s)
				c.spoil(t, w)
				w.release(t, func() bool { return w.state(t, id) != emails.Scheduled })
				timeline, err := w.emails.Timeline(t.Context(), w.who.TeamID, id)
				if err != nil {
					t.Fatal(err)
				}
				last := timeline[len(timeline)-1]
				if w.state(t, id) != emails.Failed || !strings.Contains(last.Data, c.reason) {
					t.Errorf("state %s, last event %+v", w.state(t, id), last)
				}
			})
		})
	}
}

func TestAttachments(t *testing.T) {
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w,
			"fetched")
	}))
	defer files.Close()
	each(t, func(t *testing.T, w *world) {
		s := hello("a@one.example")
		s.Attachments = []emails.Upload{{Filename: "a.txt", Content: []byte("given"), HasContent: true},
			{Path: files.URL + "/b.pdf", Filename: "b.pdf"}}
		id := w.send(t, s)
		w.release(t, func() bool { return w.count(t, `SELECT COUNT(*) FROM jobs WHERE kind = 'delivery'`) == 1 })
		all, _, err := w.emails.Attachments(t.Context(), w.who.TeamID, id, page.Page{})
		if err != nil || len(all) != 2 {
			t.Fatalf("attachments %+v, %v", all, err)
		}
		o, err := w.emails.Outgoing(t.Context(), emails.Delivery{EmailID: id, Domain: "one.example"})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := w.emails.Compose(t.Context(), o)
		if err != nil || !strings.Contains(string(raw), "Z2l2ZW4=") || !strings.Contains(string(raw), "ZmV0Y2hlZA==") {
			t.Errorf("composed %v\n%s", err, raw)
		}
		link, expires := w.emails.DownloadURL(&all[0], time.Now())
		if d := time.Until(expires); d < 59*time.Minute || d > time.Hour {
			t.Errorf("the link lives for %v", d)
		}
		token := strings.TrimPrefix(link, "http://mail.test/download/")
		a, content, err := w.emails.Download(t.Context(), token)
		if err != nil {
			t.Fatal(err)
		}
		content.Close()
		if a.ID != all[0].ID {
			t.Errorf("downloaded %s", a.Filename)
		}
		old, _ := w.emails.DownloadURL(&all[0], time.Now().Add(-2*time.Hour))
		if _, _, err := w.emails.Download(t.Context(), strings.TrimPrefix(old, "http://mail.test/download/")); fault.KindOf(
			err) != fault.Forbidden {
			t.Errorf("an expired link: %v", err)
		}
		if _, _, err := w.emails.Download(t.Context(), token+"x"); fault.KindOf(err) != fault.NotFound {
			t.Errorf("a forged link: %v", err)
		}
	})
}

func TestSweepFiles(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		s := hello("a@one.example")
		s.Attachments = []emails.Upload{{Filename: "a.txt", Content: []byte("kept"), HasContent: true}}
		w.send(t, s)
		kept := w.keys(t)
		// One of before attachments had keys of their own.
		old := w.send(t, s)
		for _, key := range w.keys(t) {
			if slices.Contains(kept, key) {
				continue
			}
			kept = append(kept, w.rename(t, key, "attachments/"+old+"/"+id.New()))
		}
		kept = append(kept, "attachments/"+id.New()+"new", "other/stays")
		for _, key := range append([]string{"attachments/" + id.New(), "attachments/" + id.New() + "/" + id.New()},
			kept[2:]...) {
			if _, err := w.blobs.Put(ctx, key, strings.NewReader("stray")); err != nil {
				t.Fatal(err)
			}
		}
		w.age(t)
		if err := w.emails.SweepFiles(ctx); err != nil {
			t.Fatal(err)
		}
		if slices.Sort(kept); !slices.Equal(w.keys(t), kept) {
			t.Errorf("left are %v, want %v", w.keys(t), kept)
		}
		if err := w.emails.EraseTeam(ctx, w.who.TeamID); err != nil {
			t.Fatal(err)
		}
		if left := w.keys(t); len(left) != 2 {
			t.Errorf("left of a team that was erased are %v", left)
		}
	})
}

// keys are those of all blobs, sorted.
func (w *world) keys(t *testing.T) (all []string) {
	t.Helper()
	if err := w.blobs.List(t.Context(), "", func(f blob.Info) error { all = append(all, f.Key); return nil }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// age makes all blobs two hours old, except those whose key ends in "new".
func (w *world) age(t *testing.T) {
	t.Helper()
	old := time.Now().Add(-2 * time.Hour)
	err := filepath.WalkDir(w.folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasSuffix(path, "new") {
			return err
		}
		return os.Chtimes(path, old, old)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// rename gives the blob of an attachment another key, and returns it.
func (w *world) rename(t *testing.T, from, to string) string {
	t.Helper()
	ctx := t.Context()
	r, err := w.blobs.Get(ctx, from)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.blobs.Put(ctx, to, r); err != nil {
		t.Fatal(err)
	}
	if err := w.blobs.Delete(ctx, from); err != nil {
		t.Fatal(err)
	}
	if err := w.d.Update(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE email_attachments SET blob_key = $2 WHERE blob_key = $1`, from, to)
		if err == nil && n != 1 {
			err = fmt.Errorf("%d attachments have the key %s", n, from)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return to
}

func TestFetchThatFailsEndsTheEmail(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	defer gone.Close()
	each(t, func(t *testing.T, w *world) {
		s := hello("a@one.example")
		s.Attachments = []emails.Upload{{Path: gone.URL + "/x"}}
		id := w.send(t, s)
		// Its first tries fail and wait; they are brought forward.
		w.release(t, func() bool {
			if err := w.d.Update(t.Context(), func(tx *db.Tx) error {
				_, err := w.q.Move(t.Context(), tx, emails.FetchKind, w.who.TeamID, id, time.Now().Add(-time.Second))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return w.state(t, id) == emails.Failed
		})
	})
}

func TestIdempotency(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		key := emails.Idempotency{Scope: "POST /emails", Key: "k", Hash: "h"}
		id, err := w.emails.Send(t.Context(), w.who, hello("a@one.example"), key)
		if err != nil {
			t.Fatal(err)
		}
		again, err := w.emails.Send(t.Context(), w.who, hello("a@one.example"), key)
		if err != nil || again != id {
			t.Errorf("replay: %s, %v; want %s", again, err, id)
		}
		other := key
		other.Hash = "another"
		if _, err := w.emails.Send(t.Context(), w.who, hello("a@one.example"),
			other); fault.KindOf(err) != fault.IdempotencyMismatch {
			t.Errorf("another payload: %v", err)
		}
		if n := w.count(t, `SELECT COUNT(*) FROM emails`); n != 1 {
			t.Errorf("%d emails, want 1", n)
		}
		t.Run("a failed request frees its key", func(t *testing.T) {
			key.Key = "fails"
			if _, err := w.emails.Send(t.Context(), w.who, hello("nonsense"), key); err == nil {
				t.Fatal("accepted nonsense")
			}
			if _, err := w.emails.Send(t.Context(), w.who, hello("a@one.example"), key); err != nil {
				t.Error(err)
			}
		})
		t.Run("many at once lead to one email", func(t *testing.T) {
			key.Key = "race"
			before := w.count(t, `SELECT COUNT(*) FROM emails`)
			var wg sync.WaitGroup
			for range 12 {
				wg.Go(func() {
					_, err := w.emails.Send(t.Context(), w.who, hello("a@one.example"), key)
					if err != nil && fault.KindOf(err) != fault.InFlight {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if n := w.count(t, `SELECT COUNT(*) FROM emails`) - before; n != 1 {
				t.Errorf("%d emails, want 1", n)
			}
		})
		t.Run("a key is forgotten after a day", func(t *testing.T) {
			err := w.d.Update(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), `UPDATE idempotency_keys SET created_at = created_at - $1`,
					(25 * time.Hour).Microseconds())
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			key.Key = "k"
			fresh, err := w.emails.Send(t.Context(), w.who, hello("a@one.example"), key)
			if err != nil || fresh == id {
				t.Errorf("after a day: %s, %v", fresh, err)
			}
			if err := w.emails.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
			if n := w.count(t, `SELECT COUNT(*) FROM idempotency_keys`); n != 1 {
				t.Errorf("%d keys after the sweep, want 1", n)
			}
		})
	})
}

func TestBatch(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		good, bad := hello("a@one.example"), hello("nonsense")
		if _, err := w.emails.SendBatch(t.Context(), w.who, []emails.Send{good, bad}, false,
			emails.Idempotency{}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("a strict batch: %v", err)
		}
		if n := w.count(t, `SELECT COUNT(*) FROM emails`); n != 0 {
			t.Errorf("%d emails of a refused batch", n)
		}
		b, err := w.emails.SendBatch(t.Context(), w.who, []emails.Send{good, bad, good}, true, emails.Idempotency{})
		if err != nil || len(b.IDs) != 2 || len(b.Errors) != 1 || b.Errors[0].Index != 1 {
			t.Errorf("a permissive batch: %+v, %v", b, err)
		}
	})
}

func TestSenderRules(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		s := hello("a@one.example")
		s.From = "x@mail.acme.example"
		if _, err := w.emails.Send(t.Context(), w.who, s, emails.Idempotency{}); fault.KindOf(err) != fault.Forbidden {
			t.Errorf("a domain below the verified one: %v", err)
		}
		s.From = "onboarding@resend.dev"
		if _, err := w.emails.Send(t.Context(), w.who, s, emails.Idempotency{}); fault.KindOf(err) != fault.Forbidden {
			t.Errorf("the sandbox sender to a stranger: %v", err)
		}
		s.To = []string{"Owner@acme.example", "delivered@resend.dev"}
		if _, err := w.emails.Send(t.Context(), w.who, s, emails.Idempotency{}); err != nil {
			t.Errorf("the sandbox sender to the owner: %v", err)
		}
		who := w.who
		who.DomainID = "another"
		if _, err := w.emails.Send(t.Context(), who, hello("a@one.example"), emails.Idempotency{}); fault.KindOf(
			err) != fault.Forbidden {
			t.Errorf("a key of another domain: %v", err)
		}
		who = w.who
		who.Suspended = true
		if _, err := w.emails.Send(t.Context(), who, hello("a@one.example"), emails.Idempotency{}); fault.KindOf(
			err) != fault.Suspended {
			t.Errorf("a suspended team: %v", err)
		}
	})
}

func TestShare(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.send(t, hello("a@one.example"))
		link, err := w.emails.Share(t.Context(), w.who.TeamID, id, "2 hours")
		if err != nil {
			t.Fatal(err)
		}
		e, _, err := w.emails.Shared(t.Context(), strings.TrimPrefix(link, "http://mail.test/shared?token="))
		if err != nil || e.ID != id {
			t.Errorf("shared %s, %v", e.ID, err)
		}
		for _, d := range []string{"3 days", "soon", "0 minutes"} {
			if _, err := w.emails.Share(t.Context(), w.who.TeamID, id, d); fault.KindOf(err) != fault.Invalid {
				t.Errorf("shared for %q: %v", d, err)
			}
		}
	})
}

func TestHeaderInjection(t *testing.T) {
	d := dbtest.SQLite(t)
	w := newWorld(t, d)
	for _, evil := range []string{"x\r\nBcc: v@evil.example", "x\nEvil: 1", "x\rEvil: 1", "x\x00y"} {
		for field, spoil := range map[string]func(*emails.Send){
			"from":     func(s *emails.Send) { s.From = evil + " <hello@acme.example>" },
			"to":       func(s *emails.Send) { s.To = []string{evil + " <a@one.example>"} },
			"cc":       func(s *emails.Send) { s.Cc = []string{"a@one.example" + evil} },
			"bcc":      func(s *emails.Send) { s.Bcc = []string{"\"" + evil + "\"@one.example"} },
			"reply_to": func(s *emails.Send) { s.ReplyTo = []string{evil + " <a@one.example>"} },
			"subject":  func(s *emails.Send) { s.Subject = evil },
			"headers":  func(s *emails.Send) { s.Headers = []message.Field{{Name: "X-A", Value: evil}} },
			"headers ": func(s *emails.Send) { s.Headers = []message.Field{{Name: evil, Value: "a"}} },
			"filename": func(s *emails.Send) {
				s.Attachments = []emails.Upload{{Filename: evil, Content: []byte("x"), HasContent: true}}
			},
			"content_id": func(s *emails.Send) {
				s.Attachments = []emails.Upload{{Filename: "a.png", ContentID: evil, Content: []byte("x"), HasContent: true}}
			},
			"content_type": func(s *emails.Send) {
				s.Attachments = []emails.Upload{{Filename: "a.png", ContentType: "image/png; a=\"" + evil + "\"",
					Content: []byte("x"), HasContent: true}}
			},
		} {
			s := hello("a@one.example")
			spoil(&s)
			_, err := w.emails.Send(t.Context(), w.who, s, emails.Idempotency{})
			if k := fault.KindOf(err); k != fault.Invalid && k != fault.BadAttachment {
				t.Errorf("%q in %s: %v", evil, field, err)
			}
		}
	}
	if n := w.count(t, `SELECT COUNT(*) FROM emails`); n != 0 {
		t.Errorf("%d emails were stored", n)
	}
}

// The id of an email is of the transaction that accepts it, by the clock that all nodes share.
func TestIDIsOfTheTransaction(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		e, err := w.emails.Get(t.Context(), w.who.TeamID, w.send(t, hello("a@one.example")))
		if err != nil {
			t.Fatal(err)
		}
		if at, ok := id.Time(e.ID); !ok || !at.Equal(e.CreatedAt.Truncate(time.Millisecond)) {
			t.Errorf("the id is of %v, the email of %v", at, e.CreatedAt)
		}
		events, err := w.emails.Timeline(t.Context(), w.who.TeamID, e.ID)
		if err != nil || len(events) != 1 || events[0].ID <= e.ID {
			t.Errorf("the email %s has the events %v, %v", e.ID, events, err)
		}
	})
}
