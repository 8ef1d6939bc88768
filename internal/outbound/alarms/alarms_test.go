package alarms

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/notifications"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// receiver is a URL of alert_to.
type receiver struct {
	url  string
	got  chan message
	fail func() int // status of the next response; 0 means 204
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{got: make(chan message, 100), fail: func() int { return 0 }}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if status := r.fail(); status != 0 {
			w.WriteHeader(status)
			return
		}
		var m message
		body, err := io.ReadAll(q.Body)
		if err == nil {
			err = json.Unmarshal(body, &m)
		}
		if err != nil || q.Method != http.MethodPost || q.Header.Get("Content-Type") != "application/json" {
			t.Errorf("a request %s of type %s: %v", q.Method, q.Header.Get("Content-Type"), err)
		}
		r.got <- m
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(s.Close)
	r.url = s.URL + "/hook?secret=1"
	return r
}

// next returns the next message.
func (r *receiver) next(t *testing.T) message {
	t.Helper()
	select {
	case m := <-r.got:
		return m
	case <-time.After(20 * time.Second):
		t.Fatal("no alarm arrived")
		return message{}
	}
}

// none fails the test if a message was sent. All jobs must have ended.
func (r *receiver) none(t *testing.T) {
	t.Helper()
	select {
	case m := <-r.got:
		t.Errorf("an alarm too many: %+v", m)
	default:
	}
}

// fixture is a service with a running queue.
type fixture struct {
	*testnode.Node
	*Service
	direct []string // subjects of emails that were sent without the database
}

func newFixture(t *testing.T, d *db.DB, to ...string) *fixture {
	t.Helper()
	f, kinds := newIdle(t, d, nil, to...)
	f.Run(kinds...)
	return f
}

// newIdle returns a service whose queue does not run yet, and the kinds of the queue's jobs.
func newIdle(t *testing.T, d *db.DB, log *slog.Logger, to ...string) (*fixture, []jobs.Kind) {
	t.Helper()
	f := &fixture{Node: testnode.New(t, d, testnode.Options{Log: log})}
	notes := notifications.New(notifications.Config{From: "Postrider <alarms@acme.example>",
		OperatorTeam: f.Acme.TeamID}, d, f.Queue, f.Emails, f.Teams, f.Log)
	var err error
	f.Service, err = New(Config{To: to, Node: "mail1"}, Deps{DB: d, Queue: f.Queue, Log: f.Log, Mail: notes.Mail,
		MailNow: func(_ context.Context, to, subject, _ string) error {
			f.direct = append(f.direct, to+": "+subject)
			return nil
		}})
	f.Must(err)
	return f, []jobs.Kind{f.Jobs(), notes.Kind()}
}

// settled waits until all messages were sent.
func (f *fixture) settled() {
	f.T.Helper()
	testnode.Until(f.T, "all messages are sent", func() bool {
		return f.Count(`SELECT COUNT(*) FROM jobs WHERE kind IN ('alarm', 'notice')`) == 0
	})
}

func full(bad bool) Condition {
	return Condition{Cause: "disk.data_dir", Node: "mail1", Bad: bad, Good: !bad, Title: "the disk is nearly full",
		Text: "Free some space."}
}

// An alarm is sent once when it begins, again after a day, and once when it is over.
func TestAlarm(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := newReceiver(t)
		f := newFixture(t, d, "operator@example.org", r.url)
		report := func(c Condition) {
			t.Helper()
			f.Must(f.Report(t.Context(), c))
			f.settled()
		}
		report(full(false))
		r.none(t)
		report(full(true))
		report(full(true))
		if m := r.next(t); m.State != raised || m.Alarm != "disk.data_dir" || m.Node != "mail1" || m.From != "mail1" ||
			m.Text != "Free some space." || m.Since.IsZero() {
			t.Errorf("raised: %+v", m)
		}
		report(Condition{Cause: "disk.data_dir", Node: "mail1"}) // between the limits
		other := full(false)
		other.Node = "mail2"
		report(other) // another node's disk
		r.none(t)
		text, err := json.Marshal(state{d.Now().Add(-49 * time.Hour), d.Now().Add(-25 * time.Hour)})
		f.Must(err)
		c := full(true)
		f.Must(d.SetFact(t.Context(), c.key(), string(text)))
		report(full(true))
		report(full(true))
		if m := r.next(t); m.State != reminded || !strings.Contains(m.Text, "This has lasted since") {
			t.Errorf("reminded: %+v", m)
		}
		r.none(t)
		report(full(false))
		report(full(false))
		if m := r.next(t); m.State != cleared ||
			!strings.Contains(m.Text, "This problem is over: the disk is nearly full (mail1)") {
			t.Errorf("cleared: %+v", m)
		}
		r.none(t)
		list, _, err := f.Emails.List(t.Context(), f.Acme.TeamID, page.Page{})
		f.Must(err)
		var subjects []string
		for _, e := range list {
			subjects = append(subjects, strings.Join(e.To, ",")+" "+e.Subject)
		}
		want := []string{"operator@example.org Postrider: over: the disk is nearly full (mail1)",
			"operator@example.org Postrider: still: the disk is nearly full (mail1)",
			"operator@example.org Postrider: the disk is nearly full (mail1)"}
		if fmt.Sprint(subjects) != fmt.Sprint(want) || len(f.direct) > 0 {
			t.Errorf("emails %q, %q; want %q", subjects, f.direct, want)
		}
	})
}

// One of several nodes that notice a problem at the same time sends the message.
func TestNodesAgree(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := newReceiver(t)
		f := newFixture(t, d, r.url)
		c := full(true)
		c.Node = ""
		var all sync.WaitGroup
		for range 8 {
			other := f.copyFor("mail2")
			all.Go(func() {
				if err := other.Report(t.Context(), c); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		f.settled()
		if m := r.next(t); m.From != "mail2" || m.Node != "" {
			t.Errorf("%+v", m)
		}
		r.none(t)
	})
}

// copyFor returns the service of another node.
func (s *Service) copyFor(node string) *Service {
	other := &Service{c: Config{s.c.To, node}, p: s.p, client: s.client, unsaved: map[string]state{}}
	other.SetReceivers(s.c.To)
	return other
}

// A URL that does not answer properly gets the message again. The error does not contain the URL.
func TestReceiverFails(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	r := newReceiver(t)
	var once sync.Once
	r.fail = func() (status int) {
		once.Do(func() { status = http.StatusBadGateway })
		return status
	}
	f := newFixture(t, d, r.url)
	f.Must(f.Report(t.Context(), full(true)))
	testnode.Until(t, "the first request has failed", func() bool {
		return f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'alarm' AND failures = 1`) == 1
	})
	var why string
	f.Must(d.QueryRow(t.Context(), `SELECT last_error FROM jobs WHERE kind = 'alarm'`).Scan(&why))
	if !strings.Contains(why, "502") || strings.Contains(why, "secret") {
		t.Errorf("the error is %q", why)
	}
	f.Update(func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE jobs SET run_at = run_at - $1 WHERE kind = 'alarm'`, time.Hour.Microseconds())
		return err
	})
	d.Hint("jobs", "alarm\talarm0\t0")
	if m := r.next(t); m.State != raised {
		t.Errorf("%+v", m)
	}
	if err := f.post(t.Context(), "http://127.0.0.1:1/hook?secret=1", message{}); err == nil ||
		strings.Contains(err.Error(), "secret") {
		t.Errorf("nobody listens: %v", err)
	}
}

// A queued message goes to its URL, at whatever index of alert_to the URL is by then. A message whose URL is gone goes
// to nobody, and the log says so.
func TestReceiversChange(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	gone, stays, added := newReceiver(t), newReceiver(t), newReceiver(t)
	var log testnode.Logged
	f, kinds := newIdle(t, d, slog.New(slog.NewTextHandler(&log, nil)), gone.url, stays.url)
	f.Must(f.Report(t.Context(), full(true)))
	f.SetReceivers([]string{added.url, added.url + "2", stays.url})
	f.Run(kinds...)
	f.settled()
	if m := stays.next(t); m.State != raised || m.Alarm != "disk.data_dir" {
		t.Errorf("%+v", m)
	}
	for _, r := range []*receiver{gone, stays, added} {
		r.none(t)
	}
	if s := log.String(); strings.Count(s, "an alarm was not sent, because its URL is no longer in alert_to") != 1 ||
		!strings.Contains(s, "disk.data_dir") || strings.Contains(s, "hook") {
		t.Errorf("the log is %s", s)
	}
}

// While the disk is full, alarms are sent without the database, and each is still sent once.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	r := newReceiver(t)
	var refuse atomic.Int64 // number of requests to refuse
	r.fail = func() int {
		if refuse.Add(-1) >= 0 {
			return http.StatusBadGateway
		}
		return 0
	}
	f := newFixture(t, d, "operator@example.org", r.url)
	testnode.Until(t, "the runner has started, which needs the disk", func() bool {
		return f.Count(`SELECT COUNT(*) FROM nodes`) == 1
	})
	limit := func(pages int) {
		t.Helper()
		f.Update(func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), fmt.Sprintf(`PRAGMA max_page_count = %d`, pages))
			return err
		})
	}
	limit(1) // SQLite raises the limit to the current size of the file
	for size := 1 << 20; size > 0; size /= 2 {
		for {
			err := d.Update(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), `INSERT INTO installation (name, value) VALUES ($1, $2)`,
					fmt.Sprint("filler.", time.Now().UnixNano()), strings.Repeat("x", size))
				return err
			})
			if errors.Is(err, db.ErrUnavailable) {
				break
			}
			f.Must(err)
		}
	}
	for range 3 {
		if err := f.Report(t.Context(), full(true)); !errors.Is(err, db.ErrUnavailable) {
			t.Fatalf("a full disk: %v", err)
		}
	}
	if m := r.next(t); m.State != raised || len(f.direct) != 1 ||
		f.direct[0] != "operator@example.org: Postrider: the disk is nearly full (mail1)" {
		t.Errorf("%+v, emails %q", m, f.direct)
	}
	r.none(t)
	refuse.Store(1)
	other := full(true)
	other.Node = "mail2"
	second := &Service{c: Config{[]string{r.url}, "mail2"}, p: f.p, client: f.client, unsaved: map[string]state{}}
	second.SetReceivers([]string{r.url})
	for _, taken := range []bool{false, true, false} { // the last report sends nothing, because the second one was taken
		if err := second.Report(t.Context(), other); !errors.Is(err, db.ErrUnavailable) {
			t.Fatalf("a full disk: %v", err)
		}
		if taken {
			if m := r.next(t); m.State != raised || m.Node != "mail2" {
				t.Errorf("%+v", m)
			}
		}
	}
	r.none(t)
	limit(1 << 30)
	f.Must(f.Report(t.Context(), full(true))) // stores the state, and sends nothing
	f.settled()
	r.none(t)
	f.Must(f.Report(t.Context(), full(false)))
	f.settled()
	if m := r.next(t); m.State != cleared {
		t.Errorf("%+v", m)
	}
	if len(f.direct) != 1 {
		t.Errorf("emails %q", f.direct)
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	ago := func(sent time.Duration) *state { return &state{now.Add(-100 * time.Hour), now.Add(-sent)} }
	for _, x := range []struct {
		name      string
		old       *state
		bad, good bool
		want      event
	}{
		{"no problem", nil, false, true, nothing}, {"unclear", nil, false, false, nothing}, {"new", nil, true, false, raised},
		{"lasts", ago(23 * time.Hour), true, false, nothing}, {"lasts a day", ago(24 * time.Hour), true, false, reminded},
		{"over", ago(time.Hour), false, true, cleared}, {"unclear after a day", ago(25 * time.Hour), false, false, nothing},
	} {
		st, got := next(x.old, Condition{Bad: x.bad, Good: x.good}, now)
		if got != x.want {
			t.Errorf("%s: %q", x.name, got)
		}
		if got == reminded && (!st.Sent.Equal(now) || !st.Since.Equal(x.old.Since)) {
			t.Errorf("%s: %+v", x.name, st)
		}
	}
}
