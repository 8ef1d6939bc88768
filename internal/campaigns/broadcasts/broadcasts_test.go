package broadcasts_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// sender is a node with a broadcasts service, which records the notifications that are sent to teams.
type sender struct {
	*testnode.Node
	b *broadcasts.Service

	segment string // of Acme
	mu      sync.Mutex
	notices []string
}

func newSender(t *testing.T, n *testnode.Node) *sender {
	t.Helper()
	s := &sender{Node: n}
	s.b = testnode.Must(broadcasts.New(broadcasts.Config{MaxSize: 1 << 20, BounceLimit: 5, ComplaintLimit: 0.3},
		broadcasts.Deps{DB: n.DB, Queue: n.Queue, Recorder: n.Recorder, Emails: n.Emails, Contents: n.Contents,
			Domains: n.Domains, Contacts: n.Contacts, Teams: n.Teams, Log: n.Log,
			Notify: func(_ context.Context, tx *db.Tx, teamID, subject, text string) error {
				tx.AfterCommit(func() {
					s.mu.Lock()
					defer s.mu.Unlock()
					s.notices = append(s.notices, subject+"\n"+text)
				})
				return nil
			}}))
	n.Recorder.Listen(s.b)
	n.Teams.OnSenderStop = s.b.OnSenderStop
	n.Domains.OnSendingLost = s.b.OnDomainLost
	n.Domains.OnSendingBack = func(ctx context.Context, tx *db.Tx, teamID, name string) error {
		return errors.Join(n.Emails.OnDomainBack(ctx, tx, teamID, name), s.b.OnDomainBack(ctx, tx, teamID, name))
	}
	s.segment = s.newSegment(n.Acme.TeamID)
	return s
}

func each(t *testing.T, f func(t *testing.T, s *sender)) {
	t.Helper()
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) { f(t, newSender(t, n)) })
}

func (s *sender) notifications() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.notices, "\n")
}

func (s *sender) newSegment(teamID string) string {
	s.T.Helper()
	segment, err := s.Contacts.Segments.Create(s.T.Context(), teamID, segments.Definition{Name: "Readers"})
	s.Must(err)
	return segment.ID
}

// readers adds n contacts to the team Acme's segment and returns their addresses.
func (s *sender) readers(n int) (addresses []string) {
	s.T.Helper()
	for i := range n {
		addresses = append(addresses, fmt.Sprintf("r%d@reader.example", i))
	}
	s.join(addresses...)
	return addresses
}

// join inserts contacts and adds them to the team Acme's segment.
func (s *sender) join(addresses ...string) {
	s.T.Helper()
	s.Update(func(tx *db.Tx) error {
		ctx := s.T.Context()
		for i, address := range addresses {
			at := tx.Now().UnixMicro()
			contactID := id.At(tx.Now())
			tx.Queue(ctx, `INSERT INTO contacts (id, team_id, address, first_name, last_name, unsubscribed, source_id,
				created_at, updated_at) VALUES ($1, $2, $3, $4, '', FALSE, NULL, $5, $5)`, db.ID(contactID),
				db.ID(s.Acme.TeamID), address, fmt.Sprint("Reader ", i), at)
			tx.Queue(ctx, `INSERT INTO contact_segments (team_id, segment_id, contact_id, created_at)
				VALUES ($1, $2, $3, $4)`, db.ID(s.Acme.TeamID), db.ID(s.segment), db.ID(contactID), at)
		}
		return nil
	})
}

func (s *sender) news() broadcasts.NewBroadcast {
	html := `<p>Dear {{{FIRST_NAME|reader}}}</p><a href="{{{UNSUBSCRIBE_URL}}}">leave</a>`
	return broadcasts.NewBroadcast{Name: "News", SegmentID: s.segment, Text: broadcasts.Text{
		From: "Acme <news@" + testnode.Domain + ">", Subject: "News for {{{contact.first_name|you}}}", HTML: &html}}
}

// twoVariants creates a draft with an A/B test that sends two variants to the given percentage of the audience. The
// winner of the test is chosen by hand.
func (s *sender) twoVariants(share float64) string {
	n := s.news()
	n.Variants = []broadcasts.Variant{{}, {Subject: new("B")}}
	n.Options = broadcasts.Options{TestShare: share, Metric: broadcasts.ByHand}
	return s.draft(n)
}

func (s *sender) draft(n broadcasts.NewBroadcast) string {
	s.T.Helper()
	b, err := s.b.Create(s.T.Context(), s.Acme.TeamID, n)
	s.Must(err)
	return b.ID
}

func (s *sender) send(broadcastID string) {
	s.T.Helper()
	_, err := s.b.Send(s.T.Context(), s.Acme, broadcastID, "")
	s.Must(err)
}

func (s *sender) broadcast(broadcastID string) broadcasts.Broadcast {
	s.T.Helper()
	b, err := s.b.Get(s.T.Context(), s.Acme.TeamID, broadcastID)
	s.Must(err)
	return b
}

// walked blocks until a broadcast has enqueued the given number of emails.
func (s *sender) walked(broadcastID string, entered int) {
	s.T.Helper()
	testnode.Until(s.T, fmt.Sprintf("%d emails of the broadcast are entered", entered), func() bool {
		return s.broadcast(broadcastID).Entered == int64(entered)
	})
}

func (s *sender) until(broadcastID string, status broadcasts.Status) {
	s.T.Helper()
	testnode.Until(s.T, "the broadcast is "+string(status), func() bool {
		return s.broadcast(broadcastID).Status == status
	})
}

// mustCount checks the result of a counting query.
func (s *sender) mustCount(want int, query string, args ...any) {
	s.T.Helper()
	if got := s.Count(query, args...); got != want {
		s.T.Errorf("%d rows, want %d: %s", got, want, query)
	}
}

// Page by page, a broadcast enqueues one email for each contact, with the placeholders replaced by the contact's
// values. Unsubscribed, suppressed and opted-out contacts receive no email, and the reason is stored in a row.
func TestEachContactGetsOneEmail(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		const n = 1300
		to := s.readers(n)
		leave := true
		_, _, err := s.Contacts.Upsert(t.Context(), s.Acme.TeamID, to[3], contacts.Change{Unsubscribed: &leave})
		s.Must(err)
		_, err = s.Suppressions.Add(t.Context(), s.Acme.TeamID, []string{to[4]})
		s.Must(err)
		id := s.draft(s.news())
		s.send(id)
		s.Run(s.b.Kinds()...)
		s.walked(id, n-2)
		s.mustCount(n-2, `SELECT COUNT(DISTINCT recipient) FROM emails WHERE broadcast_id = $1 AND contact_id IS NOT NULL`,
			db.ID(id))
		s.mustCount(n-2, `SELECT COUNT(*) FROM jobs WHERE kind = 'delivery' AND lane LIKE '%|bulk'`)
		s.mustCount(n, `SELECT COUNT(*) FROM broadcast_recipients WHERE broadcast_id = $1`, db.ID(id))
		s.mustCount(n-2, `SELECT COUNT(*) FROM contact_engagement WHERE mailed = 1`)
		r, err := s.b.Results(t.Context(), s.Acme.TeamID, id)
		s.Must(err)
		if r.Waiting != n-2 || r.LeftOut["suppressed"] != 1 || r.LeftOut["contact_unsubscribed"] != 1 || len(r.LeftOut) != 2 {
			t.Errorf("results %+v", r)
		}
		var emailID string
		s.Must(s.DB.QueryRow(t.Context(), `SELECT email_id FROM broadcast_recipients WHERE broadcast_id = $1
			AND address = $2`, db.ID(id), to[7]).Scan((*db.ID)(&emailID)))
		if e := s.Email(emailID); e.Subject != "News for Reader 7" || !strings.Contains(*e.HTML, "Dear Reader 7") {
			t.Errorf("the email of reader 7 is %q: %s", e.Subject, *e.HTML)
		}
	})
}

// If several concurrent requests send the same draft, one succeeds, and the others fail because the broadcast is no
// longer a draft.
func TestSendingAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		s.readers(3)
		id := s.draft(s.news())
		const senders = 8
		errs := make([]error, senders)
		var wg sync.WaitGroup
		for i := range senders {
			wg.Go(func() { _, errs[i] = s.b.Send(t.Context(), s.Acme, id, "") })
		}
		wg.Wait()
		sent := 0
		for _, err := range errs {
			switch k := fault.KindOf(err); {
			case err == nil:
				sent++
			case k != fault.Invalid:
				t.Errorf("refused with %v", err)
			}
		}
		if sent != 1 {
			t.Errorf("%d sends succeeded, want 1", sent)
		}
		s.mustCount(1, `SELECT COUNT(*) FROM jobs WHERE kind = 'broadcast'`)
		s.Run(s.b.Kinds()...)
		s.walked(id, 3)
		s.mustCount(3, `SELECT COUNT(*) FROM emails`)
	})
}

func pageOf(n int) page.Page { return page.Page{Limit: n} }

// A duplicate of a sent broadcast can be sent, and has the same A/B test variants as the original.
func TestDuplicateOfWhatWasSent(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		const n = 4
		s.readers(n)
		s.runAll()
		plain, tested := s.news(), s.news()
		tested.Variants = []broadcasts.Variant{{}, {Subject: new("B")}}
		tested.Options = broadcasts.Options{TestShare: 100, Metric: broadcasts.ByOpens}
		for _, draft := range []broadcasts.NewBroadcast{plain, tested} {
			id := s.draft(draft)
			s.send(id)
			s.until(id, broadcasts.Sent)
			again, err := s.b.Duplicate(t.Context(), s.Acme.TeamID, id)
			s.Must(err)
			if len(again.Variants) != len(draft.Variants) {
				t.Errorf("the duplicate has %d variants, not %d", len(again.Variants), len(draft.Variants))
			}
			s.send(again.ID)
			s.until(again.ID, broadcasts.Sent)
			s.mustCount(n, `SELECT COUNT(*) FROM emails WHERE broadcast_id = $1`, db.ID(again.ID))
		}
	})
}

// Cancel clears a winner that was chosen before the broadcast started, because the variants of the resulting draft may
// change.
func TestWinnerBeforeACancel(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		const n = 12
		s.readers(n)
		draft := s.news()
		draft.Variants = []broadcasts.Variant{{}, {Subject: new("B")}, {Subject: new("C")}}
		draft.Options = broadcasts.Options{TestShare: 50, Metric: broadcasts.ByHand}
		id := s.draft(draft)
		s.send(id)
		s.Must(s.b.SetWinner(t.Context(), s.Acme.TeamID, id, 2))
		if _, err := s.b.Cancel(t.Context(), s.Acme.TeamID, id); err != nil {
			t.Fatal(err)
		}
		if b := s.broadcast(id); b.Status != broadcasts.Draft || b.Winner != broadcasts.NoWinner {
			t.Errorf("it is %s with the winner %d", b.Status, b.Winner)
		}
		two := draft.Variants[:2]
		_, err := s.b.Update(t.Context(), s.Acme, id, broadcasts.Change{Variants: &two})
		s.Must(err)
		s.send(id)
		s.Run(s.b.Kinds()...)
		testnode.Until(t, "the test is sent and the rest waits for a winner", func() bool {
			return s.Count(`SELECT COUNT(*) FROM broadcasts WHERE phase = 'wait'`) == 1
		})
		s.Must(s.b.SetWinner(t.Context(), s.Acme.TeamID, id, 1))
		s.walked(id, n)
	})
}
