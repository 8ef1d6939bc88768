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

// logged is a log that can be read.
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
		hall, q := &events.Hallway{}, jobs.NewQueue(d)
		dom := domains.New(domains.Config{Selector: "postrider", SelectorEd25519: "postrider-ed", TrustDomains: true}, d, q, hall, keys, resolve.Fake{}, log)
		all := teams.New(d, log, dom.Exists)
		suppressed := suppressions.New(d, hall)
		mail := emails.New(emails.Config{MaxSize: 1 << 20}, emails.Parts{DB: d, Queue: q, Hallway: hall, Blobs: blobs, Keys: keys,
			Guard: netguard.New(netguard.Options{}), Domains: dom, Suppressions: suppressed, Teams: all})
		hall.Listen(mail)
		operator, err := all.Create(ctx, "Operator", "")
		must(t, err)
		_, err = dom.Create(ctx, operator.ID, domains.NewDomain{Name: "operator.example"})
		must(t, err)
		reachable, err := all.Create(ctx, "Acme", "owner@acme.example")
		must(t, err)
		silent, err := all.Create(ctx, "Silent", "")
		must(t, err)

		tell := func(from string, teamID, subject string, done func() bool) {
			t.Helper()
			s := notices.New(notices.Config{From: from}, d, q, mail, all, log)
			must(t, d.Update(ctx, func(tx *db.Tx) error { return s.Tell(ctx, tx, teamID, subject, "Look at it.") }))
			run(t, d, q, log, s.Kind(), func() bool { return done() && waiting(t, d) == 0 })
		}
		sent := func(n int) func() bool {
			return func() bool {
				list, _, err := mail.List(ctx, operator.ID, page.Page{})
				return err == nil && len(list) == n
			}
		}
		const from = "Postrider <notices@operator.example>"
		tell(from, reachable.ID, "It fails", sent(1))
		list, _, err := mail.List(ctx, operator.ID, page.Page{})
		must(t, err)
		if e := list[0]; e.From != from || e.Subject != "It fails" || e.To[0] != "owner@acme.example" {
			t.Errorf("sent %+v", e)
		}
		tell("", reachable.ID, "No sender", func() bool { return out.has("set notice_from") })
		tell(from, silent.ID, "No address", func() bool { return out.has("the team has no address") })
		tell("x@elsewhere.example", reachable.ID, "Not verified", func() bool { return out.has("its email was refused") })
		if !sent(1)() {
			t.Error("more than one email was sent")
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

// run works jobs until it is done.
func run(t *testing.T, d *db.DB, q *jobs.Queue, log *slog.Logger, k jobs.Kind, done func() bool) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := jobs.NewRunner(d, q, log, time.Second)
	r.Handle(k)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Error("it is not done")
			break
		}
	}
	stop()
	<-ended
}
