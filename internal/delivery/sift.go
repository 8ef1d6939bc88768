package delivery

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/db"
)

// trusted is for how long a look at the suppressions counts, that at acceptance among them. What comes up within it is
// what a sender cannot tell from what came up while the message was on its way.
const trusted = 30 * time.Second

// sift leaves out the recipients that were suppressed since the last look, unless that was a moment ago: by hand, by
// the bounce of another email, or by a complaint. It is asked before a message is made, and again before the talk, as
// there may be minutes between them. It reports false when nobody is left; then the job has ended.
func (s *Service) sift(ctx context.Context, t *try) (left bool, err error) {
	now := s.p.DB.Now()
	if age := now.Sub(t.looked); age >= 0 && age < s.trusted { // the time of another node's clock may be to come
		return true, nil
	}
	skipped, err := s.p.Emails.Sift(ctx, t.o)
	if err != nil {
		return false, err
	}
	t.looked = now
	t.skipped = append(t.skipped, skipped...)
	if len(t.o.To) > 0 {
		return true, nil
	}
	return false, s.p.DB.Update(ctx, func(tx *db.Tx) error {
		s.p.Queue.Finish(ctx, tx, t.job)
		return s.p.Recorder.Record(ctx, tx, t.skipped...)
	})
}
