package delivery

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// suppressionsMaxAge is how long the result of a look-up in the same attempt may be used. To a sender, a suppression
// added within suppressionsMaxAge looks like a suppression added during the SMTP conversation.
const suppressionsMaxAge = time.Second

// dropSuppressed removes recipients that must no longer get the email: they were suppressed, have unsubscribed, or
// their contact was deleted. The statement that loads an email looks all of this up, see
// [emails.Outgoing.MayBeRefused], so most attempts need no other look-up. The recipients are checked again before the
// message is sent if it has waited for longer than suppressionsMaxAge, because several minutes may pass after the
// message was composed. If all recipients were removed, dropSuppressed finishes the job and returns false. If the
// email's broadcast is paused or canceled, dropSuppressed removes all recipients and returns false.
func (s *Service) dropSuppressed(ctx context.Context, t *try) (left bool, err error) {
	if ok, err := s.broadcastAllows(ctx, t); err != nil || !ok {
		t.o.To = nil
		return false, err
	}
	now := s.p.DB.Now()
	// The clock of the database may have stepped back, so suppressionsReadAt may be in the future.
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
