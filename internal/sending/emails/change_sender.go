package emails

import (
	"context"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/domains"
)

// ChangeSender gives an email another content, which must differ from the email's own content only in the sender, and
// makes the email's delivery job due again. If the sender's domain may not send, the job withholds the email. If the
// content does not exist, ChangeSender returns a NotFound fault; if its sender is not valid with the email's values, an
// Invalid fault.
func (s *Service) ChangeSender(ctx context.Context, j jobs.Job, o *Outgoing, contentID string) error {
	c, err := s.Contents.Get(ctx, o.TeamID, contentID)
	if err != nil {
		return err
	}
	from := c.From(o.row.shared.values)
	a, err := message.ParseFrom(from)
	if err != nil {
		return fault.Invalidf("from", "The changed sender of email %s cannot be read: %s", o.ID, err).Because(err)
	}
	if all, err := message.ParseFrom(c.From(nil)); err != nil || all.Domain != a.Domain {
		return fault.Invalidf("from", "The variables of email %s make it come from %s, and not from the domain of the other "+
			"emails.", o.ID, a.Domain)
	}
	keptID := ""
	if j.Tries > 0 { // all attempts have the same Message-ID
		keptID = o.row.MessageID
	}
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		standing, domainID, err := s.Domains.LockStanding(ctx, tx, o.TeamID, a.Domain)
		if err != nil {
			return err
		}
		if standing != domains.Usable {
			domainID = ""
		}
		if err := setSender(ctx, tx, &o.row.Email, contentID, from, domainID, keptID); err != nil {
			return err
		}
		s.Contents.MarkUsed(ctx, tx, c.Ref)
		s.Queue.Wait(ctx, tx, j, tx.Now(), "")
		return nil
	})
}
