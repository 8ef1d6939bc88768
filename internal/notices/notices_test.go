package notices_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/blob"
	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/db/dbtest"
	"github.com/postrider/postrider/internal/domains"
	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/jobs"
	"github.com/postrider/postrider/internal/keyring"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/netguard"
	"github.com/postrider/postrider/internal/notices"
	"github.com/postrider/postrider/internal/page"
	"github.com/postrider/postrider/internal/suppressions"
	"github.com/postrider/postrider/internal/teams"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// logged is a log that the test can read.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) has(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), part)
}

func TestNotices(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx, out := t.Context(), &logged{}
		log := slog.New(slog.NewTextHandler(out, nil))
		keys, err := keyring.New(make([]byte, keyring.MasterSize))
		must(t, err)
		blobs, err := blob.Open(ctx, t.TempDir())
		must(t, err)
		recorder, q := &events.Recorder{}, jobs.NewQueue(d)
		dom := domains.New(domains.Config{Selector: "postrider", SelectorEd25519: "postrider-ed", TrustDomains: true}, d, q,
			recorder, keys, resolve.Fake{}, log)
		all := teams.New(d, log, dom.Exists)
		suppressed := suppressions.New(d, recorder)
		mail := emails.New(emails.Config{MaxSize: 1 << 20}, emails.Parts{DB: d, Queue: q, Recorder: recorder, Blobs: blobs,
			Keys:  keys,
			Guard: netguard.New(netguard.Options{}), Domains: dom, Suppressions: suppressed, Teams: all})
		recorder.Listen(mail)
		operator, err := all.Create(ctx, "Operator", "")
		must(t, err)
		_, err = dom.AddVerified(ctx, operator.ID, domains.NewDomain{Name: "operator.example"})
		must(t, err)
		reachable, err := all.Create(ctx, "Acme", "owner@acme.example")
		must(t, err)
		silent, err := all.Create(ctx, "Silent", "")
		must(t, err)

		tell := func(from, teamID, subject string) {
			t.Helper()
			s := notices.New(notices.Config{From: from}, d, q, mail, all, log)
			must(t, d.Update(ctx, func(tx *db.Tx) error { return s.Tell(ctx, tx, teamID, subject, "Look at it.") }))
			run(t, d, q, log, s.Kind())
		}
		const from = "Postrider <notices@operator.example>"
		tell(from, reachable.ID, "It fails")
		list, _, err := mail.List(ctx, operator.ID, page.Page{})
		must(t, err)
		if e := list[0]; e.From != from || e.Subject != "It fails" || e.To[0] != "owner@acme.example" {
			t.Errorf("sent %+v", e)
		}
		for _, x := range []struct{ from, team, subject, why string }{
			{"", reachable.ID, "No sender", "set notice_from"}, {from, silent.ID, "No address", "the team has no address"},
			{"x@elsewhere.example", reachable.ID, "Not verified", "its email was refused"},
		} {
			tell(x.from, x.team, x.subject)
			if !out.has(x.why) {
				t.Errorf("%s: the log does not say %q", x.subject, x.why)
			}
		}
		if list, _, err = mail.List(ctx, operator.ID, page.Page{}); err != nil || len(list) != 1 {
			t.Errorf("%d emails were sent, %v", len(list), err)
		}

		other, err := all.Create(ctx, "Other", "owner@other.example")
		must(t, err)
		s := notices.New(notices.Config{From: from}, d, q, mail, all, log)
		must(t, d.Update(ctx, func(tx *db.Tx) error {
			for range 30 {
				must(t, s.Tell(ctx, tx, reachable.ID, "It fails again", "Look at it."))
			}
			return s.Tell(ctx, tx, other.ID, "It fails, too", "Look at it.")
		}))
		runAll(t, d, q, log, s.Kind(), 31)
		list, _, err = mail.List(ctx, operator.ID, page.Page{Limit: 100})
		must(t, err)
		if len(list) != 1+20+1 || !out.has("the team has had enough of them today") {
			t.Errorf("of 30 notices to a team and one to another, %d were sent", len(list)-1)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func waiting(t *testing.T, d *db.DB) (n int) {
	t.Helper()
	must(t, d.QueryRow(t.Context(), `SELECT COUNT(*) FROM jobs WHERE kind = $1`, notices.Kind).Scan(&n))
	return n
}

// run runs one job.
func run(t *testing.T, d *db.DB, q *jobs.Queue, log *slog.Logger, k jobs.Kind) {
	t.Helper()
	runAll(t, d, q, log, k, 1)
}

// runAll runs n jobs.
func runAll(t *testing.T, d *db.DB, q *jobs.Queue, log *slog.Logger, k jobs.Kind, n int) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	handle, worked := k.Handle, make(chan error, n)
	k.Handle = func(ctx context.Context, j jobs.Job) error {
		err := handle(ctx, j)
		worked <- err
		return err
	}
	r := jobs.NewRunner(d, q, log, time.Second)
	r.Handle(k)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	for range n {
		select {
		case err := <-worked:
			must(t, err)
		case <-ctx.Done():
			t.Error("not all jobs were worked")
		}
	}
	stop()
	<-ended
	if n := waiting(t, d); n != 0 {
		t.Errorf("%d jobs are left", n)
	}
}
