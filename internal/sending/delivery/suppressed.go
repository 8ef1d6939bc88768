package delivery

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// suppressionsMaxAge is how long a look-up of the suppressions counts, including the one at acceptance. To a sender, a suppression
// within that time looks the same as one while the message was being sent.
const suppressionsMaxAge = 30 * time.Second

// dropSuppressed removes the recipients that were suppressed since the last look-up, by hand, by the bounce of another email, or
// by a complaint. It does nothing if that look-up is recent. It is called before a message is composed and again before
// it is sent, as minutes may pass between them. It reports false when no recipient is left; then it has finished the
// job. It does the same, and leaves no recipient, if the email's broadcast is paused or canceled.
func (s *Service) dropSuppressed(ctx context.Context, t *try) (left bool, err error) {
	if ok, err := s.broadcastAllows(ctx, t); err != nil || !ok {
		t.o.To = nil
		return false, err
	}
	now := s.p.DB.Now()
	if age := now.Sub(t.suppressionsReadAt); age >= 0 && age < s.suppressionsMaxAge { // a time from another node's clock may be in the future
		return true, nil
	}
	skipped, err := s.p.Emails.DropSuppressed(ctx, t.o)
	if err != nil {
		return false, err
	}
	t.suppressionsReadAt = now
	t.skipped = append(t.skipped, skipped...)
	if len(t.o.To) > 0 {
		return true, nil
	}
	return false, s.p.DB.Update(ctx, func(tx *db.Tx) error {
		s.p.Queue.Finish(ctx, tx, t.job)
		return s.p.Recorder.Record(ctx, tx, t.skipped...)
	})
}
