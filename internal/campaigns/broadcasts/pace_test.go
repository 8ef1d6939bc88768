package broadcasts_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// afterCommit calls a function after each transaction that records events.
type afterCommit func()

func (f afterCommit) Recorded(_ context.Context, tx *db.Tx, _ []events.Event) error {
	tx.AfterCommit(f)
	return nil
}

// Only contacts that receive an email count toward the pace of a broadcast. Contacts that are left out do not delay the
// next page.
func TestPaceCountsWhoGetsIt(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		const pace, page = 3600, 4
		to := s.readers(3 * page)
		draft := s.news()
		draft.Options.Pace = pace
		var stop context.CancelFunc
		s.Recorder.Listen(afterCommit(func() { stop() }))
		for left := range page {
			if left > 0 {
				_, _, err := s.Contacts.Upsert(t.Context(), s.Acme.TeamID, to[left], contacts.Change{Unsubscribed: new(true)})
				s.Must(err)
			}
			id := s.draft(draft)
			s.send(id)
			j := jobs.Job{Kind: broadcasts.Kind, TeamID: s.Acme.TeamID, Payload: id}
			s.Must(s.DB.QueryRow(t.Context(), `SELECT id, attempt FROM jobs WHERE kind = $1 AND dedupe = $2`, j.Kind,
				id).Scan((*db.ID)(&j.ID), &j.Attempt))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stop = cancel
			if err := s.b.Kinds()[0].Handle(ctx, j); !errors.Is(err, context.Canceled) { // canceled after the first page
				t.Fatalf("it ends with %v", err)
			}
			s.mustCount(page-left, `SELECT COUNT(*) FROM emails WHERE broadcast_id = $1`, db.ID(id))
			waits := s.Count(`SELECT next_at - (SELECT MAX(e.created_at) FROM emails e WHERE e.broadcast_id = b.id)
				FROM broadcasts b WHERE b.id = $1`, db.ID(id))
			if got, want := time.Duration(waits)*time.Microsecond, time.Duration(page-left)*time.Hour/pace; got != want {
				t.Error(fmt.Sprintf("%d of %d are left out: ", left, page), "the next page comes after ", got, ", not ", want)
			}
		}
	})
}
