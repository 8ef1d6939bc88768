package broadcasts_test

import (
	"errors"
	"testing"

	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// few is the number of contacts in the audience of the crash tests' broadcast. One of the few contacts is left out of
// the broadcast.
const few = 4

// begun adds contacts to the segment, sends them a broadcast with an A/B test, and returns the broadcast's id.
func (s *sender) begun() (broadcastID string) {
	s.T.Helper()
	s.Update(func(tx *db.Tx) error {
		for _, table := range []string{"contact_segments", "contacts", "jobs"} {
			if _, err := tx.Exec(s.T.Context(), `DELETE FROM `+table); err != nil {
				return err
			}
		}
		return nil
	})
	s.readers(few)
	s.Update(func(tx *db.Tx) error {
		_, err := tx.Exec(s.T.Context(), `UPDATE contacts SET unsubscribed = TRUE WHERE address = 'r2@reader.example'`)
		return err
	})
	draft := s.news()
	draft.Variants = []broadcasts.Variant{{}, {Subject: new("B")}}
	id := s.draft(draft)
	s.send(id)
	return id
}

// work calls the handler of a broadcast's job, as the job runner does, or returns false if the job no longer exists.
func (s *sender) work(broadcastID string) (left bool, err error) {
	j := jobs.Job{Kind: broadcasts.Kind, TeamID: s.Acme.TeamID, Payload: broadcastID}
	err = s.DB.QueryRow(s.T.Context(), `SELECT id, attempt FROM jobs WHERE kind = $1 AND dedupe = $2`, broadcasts.Kind,
		broadcastID).Scan((*db.ID)(&j.ID), &j.Attempt)
	if errors.Is(err, db.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	return true, s.b.Kinds()[0].Handle(s.T.Context(), j)
}

// finished completes a broadcast and checks that each contact received one email, or has a row with the reason why it
// received none.
func (s *sender) finished(broadcastID string) {
	s.T.Helper()
	testnode.Until(s.T, "the broadcast is entered", func() bool {
		_, err := s.work(broadcastID)
		s.Must(err)
		return s.Count(`SELECT COUNT(*) FROM broadcasts WHERE id = $1 AND phase = 'settle'`, db.ID(broadcastID)) == 1
	})
	for query, want := range map[string]int{
		`SELECT COUNT(*) FROM emails WHERE broadcast_id = $1`:                  few - 1,
		`SELECT COUNT(DISTINCT recipient) FROM emails WHERE broadcast_id = $1`: few - 1,
		`SELECT COUNT(*) FROM broadcast_recipients WHERE broadcast_id = $1`:    few,
		`SELECT entered FROM broadcasts WHERE id = $1`:                         few - 1,
		`SELECT left_out FROM broadcasts WHERE id = $1`:                        1,
		`SELECT COUNT(*) FROM broadcast_variants WHERE broadcast_id = $1`:      2,
	} {
		s.mustCount(want, query, db.ID(broadcastID))
	}
	s.mustCount(few-1, `SELECT COUNT(*) FROM jobs WHERE kind = 'delivery'`)
}

// If any single SQL statement fails once, the retry neither misses a contact nor mails a contact twice.
func TestBrokenStatements(t *testing.T) {
	t.Parallel()
	dbtest.SQLiteTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		s := newSender(t, testnode.New(t, d, testnode.Options{}))
		var id string
		failed := trace.EachBroken(t, func() { id = s.begun() }, func() error {
			_, err := s.work(id)
			return err
		}, func(error) { s.finished(id) })
		if failed < 30 {
			t.Errorf("%d statements were broken", failed)
		}
	})
}

// If the database connection is lost at any point, even during a commit, no contact is missed or mailed twice.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	d, proxy := dbtest.Proxied(t, 0)
	s := newSender(t, testnode.New(t, d, testnode.Options{}))
	var id string
	failed := dbtest.SomeTorn(t, proxy, 5, func() { id = s.begun() }, func() error {
		_, err := s.work(id)
		return err
	}, func(int, error) { s.finished(id) })
	if failed < 5/dbtest.TornStep(5) {
		t.Errorf("%d runs failed: the test reaches too little", failed)
	}
}
