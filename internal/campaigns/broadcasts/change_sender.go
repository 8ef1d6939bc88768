package broadcasts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

// mayChangeSender reports whether the sender of a broadcast may be changed although the broadcast is no draft: it waits
// for its sender's domain, or its sender has been changed before. A broadcast that is scheduled or was paused by a user
// waits for its domain if the domain may not send at present.
func (s *Service) mayChangeSender(ctx context.Context, b *Broadcast) (bool, error) {
	switch {
	case b.Status == Paused && (b.Reason == DomainNotVerified || b.Reason == SenderChanged):
		return true, nil
	case b.Status != Scheduled && (b.Status != Paused || b.Reason != ""):
		return false, nil
	}
	names, err := senderDomains(ctx, s.p.DB.Reader, b)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		standing, _, err := s.p.Domains.Standing(ctx, b.TeamID, name)
		if err != nil {
			return false, fmt.Errorf("look up the sender's domain of broadcast %s: %w", b.ID, err)
		}
		if standing != domains.Usable {
			return true, nil
		}
	}
	return false, nil
}

// changeSender changes the sender of a broadcast that waits for its sender's domain. Emails that are already enqueued
// get the new sender when they are delivered; see [Service.CurrentContent]. A paused broadcast stays paused until a
// user resumes it.
func (s *Service) changeSender(ctx context.Context, by teams.Actor, read Broadcast, c Change) (b Broadcast, err error) {
	if err := by.Require(teams.EmailsSend); err != nil {
		return read, err
	}
	b = read
	if err := c.applySenders(&b); err != nil {
		return read, err
	}
	if err := s.check(&b); err != nil {
		return read, err
	}
	senders, err := s.checkSenders(ctx, by, &b)
	if err != nil {
		return read, err
	}
	changed := b
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		now, err := lock(ctx, tx, b.TeamID, b.ID)
		if err != nil {
			return err
		}
		if now.revision != b.revision || now.Status != b.Status || now.Reason != b.Reason {
			return changedMeanwhile()
		}
		changed = now
		changed.Text, changed.Variants = b.Text, slices.Clone(b.Variants)
		changed.revision++
		if changed.Status == Paused {
			changed.Reason = SenderChanged
		}
		if err := s.storeSenders(ctx, tx, &changed, read.From, senders); err != nil {
			return err
		}
		save(ctx, tx, &changed)
		s.invalidate(tx, &changed)
		return nil
	})
	return changed, err
}

// applySenders changes the sender of a broadcast, and the senders of its variants. If the change concerns anything
// else, applySenders returns a fault.
func (c *Change) applySenders(b *Broadcast) error {
	var given []Variant
	if c.Variants != nil {
		given = *c.Variants
	}
	others := c.Name != nil || c.SegmentID != nil || c.TopicID != nil || c.Subject != nil || c.ReplyTo != nil ||
		c.PreviewText != nil || c.HTML != nil || c.Plain != nil || c.Options != nil
	for i := range given {
		others = others || given[i].givenBits()&^fromBit != 0
	}
	if others {
		return fault.Invalidf("", "This broadcast waits for its sender's domain. Only its `from` can be changed, and that "+
			"of its `variants`. To change more, cancel the broadcast.")
	}
	if c.From != nil {
		if b.From = *c.From; strings.TrimSpace(b.From) == "" {
			return fault.MissingField("from")
		}
	}
	if c.Variants == nil {
		return nil
	}
	if len(given) != len(b.Variants) {
		return fault.Invalidf("variants", "The broadcast has %d `variants`, and their number cannot be changed now. Give "+
			"an object for each of them; an empty object changes nothing.", len(b.Variants))
	}
	b.Variants = slices.Clone(b.Variants)
	for i := range given {
		if given[i].From == nil {
			continue
		}
		if b.Variants[i].From == nil {
			field := fmt.Sprintf("variants[%d].from", i)
			return fault.Invalidf(field, "The variant %d (from 0) has no sender of its own. Leave `%s` out, and change "+
				"`from`.", i, field)
		}
		b.Variants[i].From = given[i].From
	}
	return nil
}

// checkSenders checks the senders of a broadcast as Send does, and returns the senders of the contents to send, in the
// order of the variants.
func (s *Service) checkSenders(ctx context.Context, by teams.Actor, b *Broadcast) (senders []string, err error) {
	if err := s.checkPlaceholders(ctx, b, "from"); err != nil {
		return nil, err
	}
	all, err := s.contents(ctx, b)
	if err != nil {
		return nil, err
	}
	stored := b.Variants
	if !b.StartedAt.IsZero() {
		if stored, err = variantContents(ctx, s.p.DB.Reader, b.TeamID, b.ID); err != nil {
			return nil, err
		}
	}
	mailings := make([]*emails.Mailing, len(all))
	for i, c := range all {
		compiled := content.Compile(c)
		if mailings[i], err = s.p.Emails.MailingOf(ctx, by, compiled, true); err != nil {
			return nil, err
		}
		if !b.StartedAt.IsZero() { // the recipients of enqueued emails are not checked again
			if err := mailings[i].RequireAnyRecipient(); err != nil {
				return nil, err
			}
			if err := s.checkEnqueuedValues(ctx, b.TeamID, stored[i].contentID, c.From); err != nil {
				return nil, err
			}
		}
		senders = append(senders, c.From)
	}
	if b.Winner >= 0 {
		return senders, nil
	}
	return senders, b.checkMetric(mailings)
}

// checkEnqueuedValues returns a fault if the emails of a content have no value for a placeholder of a new sender.
func (s *Service) checkEnqueuedValues(ctx context.Context, teamID, contentID, from string) error {
	c, err := s.p.Contents.Get(ctx, teamID, contentID)
	if err != nil {
		return fmt.Errorf("read the content of a broadcast that is being sent: %w", err)
	}
	used := c.Names()
	for _, name := range content.Compile(&content.Content{From: from}).Names() {
		if !slices.Contains(used, name) {
			return fault.Invalidf("from", "The `from` field uses the placeholder %s, for which the emails that wait have no "+
				"value. Use only placeholders that the broadcast has already.", name)
		}
	}
	return nil
}

// storeSenders stores the changed senders of a locked broadcast. The parameter was is its former sender, and senders
// are the results of checkSenders. A content never changes, so each changed sender gets a new content. The former
// contents are kept for the emails that were sent from the former senders.
func (s *Service) storeSenders(ctx context.Context, tx *db.Tx, b *Broadcast, was string, senders []string) (err error) {
	if was != b.From {
		former := b.contentID
		if b.contentID, err = s.p.Contents.CopyWithSender(ctx, tx, b.TeamID, former, b.From); err != nil {
			return err
		}
		setContent(ctx, tx, b)
		s.p.Contents.Delete(ctx, tx, b.TeamID, former) // the emails use the contents of the variants
	}
	stored, err := variantContents(ctx, tx.Reader, b.TeamID, b.ID)
	if err != nil {
		return err
	}
	for i, v := range stored {
		if v.contentID != "" {
			before, err := content.Sender(ctx, tx.Reader, b.TeamID, v.contentID)
			if err != nil {
				return err
			}
			if before != senders[i] {
				s.p.Contents.Release(ctx, tx, b.TeamID, v.contentID)
				if v.contentID, err = s.p.Contents.CopyWithSender(ctx, tx, b.TeamID, v.contentID, senders[i]); err != nil {
					return err
				}
			}
		}
		if i < len(b.Variants) {
			v.From = b.Variants[i].From
			b.Variants[i].contentID = v.contentID
		}
		setVariantSender(ctx, tx, b, i, &v)
	}
	return nil
}

// CurrentContent returns the id of the content from which a contact's email of a broadcast takes its sender. It differs
// from the email's own content if the broadcast's sender was changed after the email was enqueued. If the broadcast or
// the contact's row no longer exists, CurrentContent returns "".
func (s *Service) CurrentContent(ctx context.Context, teamID, broadcastID, contactID string) (string, error) {
	contentID, err := contentOfRecipient(ctx, s.p.DB.Reader, teamID, broadcastID, contactID)
	if errors.Is(err, db.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look up the content for a recipient of broadcast %s: %w", broadcastID, err)
	}
	return contentID, nil
}
