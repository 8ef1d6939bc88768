package delivery

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// suppressionsMaxAge is how long the result of a suppression look-up may be used, including the look-up when the email
// was accepted. To a sender, a suppression added within suppressionsMaxAge looks like a suppression added during the
// SMTP conversation.
const suppressionsMaxAge = 30 * time.Second

// dropSuppressed removes recipients that have been suppressed since the last look-up: manually, after a bounce of
// another email, or after a complaint. If the last look-up is recent, dropSuppressed keeps all recipients. The
// suppressions are checked before a message is composed and again before it is sent, because several minutes may pass
// in between. If all recipients were removed, dropSuppressed finishes the job and returns false. If the email's
// broadcast is paused or canceled, dropSuppressed removes all recipients and returns false.
func (s *Service) dropSuppressed(ctx context.Context, t *try) (left bool, err error) {
	if ok, err := s.broadcastAllows(ctx, t); err != nil || !ok {
		t.o.To = nil
		return false, err
	}
	now := s.p.DB.Now()
	// If suppressionsReadAt comes from another node's clock, it may be in the future.
	if age := now.Sub(t.suppressionsReadAt); age >= 0 && age < s.suppressionsMaxAge {
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
