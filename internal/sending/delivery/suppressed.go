package delivery

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// suppressionsMaxAge is how long a look-up of the suppressions counts, including the one at acceptance. A sender
// cannot distinguish a suppression within that time from one that was added while the message was being sent.
const suppressionsMaxAge = 30 * time.Second

// dropSuppressed removes the recipients that were suppressed since the last look-up: by hand, by the bounce of
// another email, or by a complaint. It does nothing if the last look-up is recent. It runs before a message is
// composed and again before it is sent, because minutes may pass in between. If no recipient is left, it finishes the
// job and returns false. If the email's broadcast is paused or canceled, it removes all recipients and returns false.
func (s *Service) dropSuppressed(ctx context.Context, t *try) (left bool, err error) {
	if ok, err := s.broadcastAllows(ctx, t); err != nil || !ok {
		t.o.To = nil
		return false, err
	}
	now := s.p.DB.Now()
	// A time from another node's clock may be in the future.
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
