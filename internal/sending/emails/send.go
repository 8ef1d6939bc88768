package emails

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

// Send accepts one email and returns its id. The caller must check that the actor has the scope required for sending.
func (s *Service) Send(ctx context.Context, by teams.Actor, in Send, key Idempotency) (string, error) {
	r, err := s.once(ctx, by, key, func(a *answer) error {
		d, err := s.draft(ctx, by.TeamID, in, false)
		if err != nil {
			return err
		}
		return s.accept(ctx, by, []*draft{d}, a)
	})
	if err != nil {
		return "", err
	}
	return r.IDs[0], nil
}

// SendThen is like Send, but without an idempotency key. SendThen passes the email's id to a callback, in the
// transaction that accepts the email. If the callback returns an error, the email is not accepted. The callback may be
// called more than once.
func (s *Service) SendThen(ctx context.Context, by teams.Actor, in Send,
	then func(ctx context.Context, tx *db.Tx, emailID string) error) (string, error) {
	d, err := s.draft(ctx, by.TeamID, in, false)
	if err != nil {
		return "", err
	}
	a := answer{then: then}
	if err := s.accept(ctx, by, []*draft{d}, &a); err != nil {
		return "", err
	}
	return a.IDs[0], nil
}

// accept writes the drafts, which must have passed all checks, in one transaction.
func (s *Service) accept(ctx context.Context, by teams.Actor, drafts []*draft, a *answer) error {
	senders := make([]domains.Sender, len(drafts))
	var addresses []string
	for i, d := range drafts {
		var err error
		if senders[i], err = s.sender(ctx, by, d); err != nil {
			return err
		}
		for _, r := range d.recipients {
			addresses = append(addresses, r.Key())
		}
	}
	blocked, err := s.Suppressions.SuppressedNow(ctx, by.TeamID, addresses)
	if err != nil {
		return fmt.Errorf("look up suppressions: %w", err)
	}
	blocked = blocking(blocked, len(drafts) == 1 && isPrivate(by.Kind, drafts[0].Tags))
	if err := s.lookUpTopics(ctx, by.TeamID, drafts); err != nil {
		return err
	}
	files := make([][]Attachment, len(drafts))
	for i, d := range drafts {
		if a.dry {
			err = s.checkPaths(d)
		} else {
			files[i], err = s.storeAttachments(ctx, by.TeamID, d)
		}
		if err != nil {
			return err
		}
	}
	// If the transaction fails, the files are kept, because the commit may have succeeded. If the commit failed,
	// SweepFiles deletes the files later.
	write := func(tx *db.Tx) error {
		if err := s.consumeLimit(ctx, tx, by, drafts); err != nil {
			return err
		}
		a.IDs = a.IDs[:0]
		s.useTemplates(ctx, tx, drafts)
		for i, d := range drafts {
			// The id is created inside the transaction, so that the order of ids matches the order of commits. If ids were
			// created earlier, a client that polls the list of emails could miss an email that is committed after another email
			// with a later id.
			d.id = id.At(tx.Now())
			if err := s.write(ctx, tx, by, d, senders[i], files[i], blocked); err != nil {
				return err
			}
			a.IDs = append(a.IDs, d.id)
		}
		if a.then != nil {
			if err := a.then(ctx, tx, a.IDs[0]); err != nil {
				return err
			}
		}
		return s.remember(ctx, tx, by.TeamID, a)
	}
	switch n := countQuota(drafts, blocked); {
	case a.dry: // the team gets no notice, because no email is refused
		err = s.DB.Update(ctx, func(tx *db.Tx) error {
			if err := s.Quotas.Count(ctx, tx, by.TeamID, n); err != nil {
				return err
			}
			return write(tx)
		})
	case by.Limited || a.then != nil:
		// The transaction also locks another row, for which other transactions would have to wait.
		err = s.Quotas.UpdateAlone(ctx, by.TeamID, n, write)
	default:
		err = s.Quotas.Update(ctx, by.TeamID, n, write)
	}
	if errors.Is(err, db.ErrUnknown) {
		return a.unknownError(err)
	}
	if err == nil && !a.dry && len(drafts) > 0 {
		s.accepted(sourceOf(by, drafts[0]), a.IDs)
	}
	return err
}

// accepted reports accepted emails.
func (s *Service) accepted(source string, ids []string) {
	if s.OnAccept != nil {
		s.OnAccept(source, ids)
	}
}

// sourceOf returns where a request for emails came from.
func sourceOf(by teams.Actor, d *draft) string {
	switch {
	case d.raw != nil:
		return "smtp"
	case by.Kind == teams.UserActor:
		return "dashboard"
	case by.Kind == teams.SystemActor:
		return "system"
	}
	return "api"
}

// write inserts one email with its attachments, jobs and events.
func (s *Service) write(ctx context.Context, tx *db.Tx, by teams.Actor, d *draft, from domains.Sender,
	files []Attachment,
	blocked map[string]suppressions.Suppression) error {
	e := Email{ID: d.id, TeamID: by.TeamID, Actor: by.Ref(), DomainID: from.DomainID, MessageID: d.messageID(d.id),
		From: d.From, To: d.To, Cc: d.Cc, Bcc: d.Bcc, ReplyTo: d.ReplyTo, Subject: d.Subject, Tags: d.Tags,
		TopicID: d.TopicID, LastEvent: Queued, ScheduledAt: d.at, CreatedAt: tx.Now()}
	if len(d.recipients) == 1 {
		e.only = d.recipients[0].Addr()
	}
	e.bulk = isBulk(d.Headers) || e.TopicID != ""
	if d.template != nil {
		e.TemplateID, e.shared = d.template.templateID, shared{d.template.content.ID, d.values}
	}
	first := events.Event{ID: e.ID, TeamID: e.TeamID, EmailID: e.ID, DomainID: e.DomainID, Type: events.EmailQueued}
	if !d.at.IsZero() {
		e.LastEvent, first.ID, first.Type = Scheduled, "", events.EmailScheduled
	}
	if d.raw != nil {
		d.name(d.id)
	}
	if err := insertEmail(ctx, tx, &e, d); err != nil {
		return err
	}
	s.Index.Accepted(e.TeamID, 1)
	for i := range files {
		files[i].EmailID = e.ID
		insertAttachment(ctx, tx, &files[i])
	}
	to, refused := splitRefused(&e, d.recipients, d.refused)
	all := append([]events.Event{first}, refused...)
	switch {
	case len(to) == 0: // all recipients were refused, so no job is needed
	case !d.at.IsZero():
		s.Queue.Insert(ctx, tx, releaseJob(e.TeamID, e.ID, d.at))
	case slices.ContainsFunc(files, func(a Attachment) bool { return a.needsFetch() }):
		s.Queue.Insert(ctx, tx, fetchJob(&e))
	default:
		memory := d.memory()
		tracked := isTracking(from.Tracking) && d.raw == nil && d.hasHTML()
		if tracked {
			memory += memoryOfTracking(d.texts())
		}
		e.onePerRecipient = tracked || e.TopicID != ""
		all = append(all, s.dispatch(ctx, tx, &e, memory, to, blocked)...)
	}
	for i := range all {
		all[i].Email = func() (*events.Email, error) { return e.eventSummary(d.Headers), nil }
	}
	return s.Recorder.Record(ctx, tx, all...)
}

// countQuota returns the number of recipients to count against the quota now. Recipients that are refused or suppressed
// do not count. The recipients of a scheduled email are counted when the email is due.
func countQuota(drafts []*draft, blocked map[string]suppressions.Suppression) (n int) {
	for _, d := range drafts {
		if !d.at.IsZero() {
			continue
		}
		n += countMailed(d.recipients, d.refused, blocked)
	}
	return n
}

// countMailed returns the number of recipients that are neither refused nor suppressed.
func countMailed(to []recipient, refused refusals, blocked map[string]suppressions.Suppression) (n int) {
	for _, r := range to {
		_, no := refused[r.Key()]
		if _, suppressed := blocked[r.Key()]; !no && !suppressed {
			n++
		}
	}
	return n
}

// RemainingQuota returns how many emails a team may still send today and this month. If the team has no quota,
// RemainingQuota returns limited == false.
func (s *Service) RemainingQuota(ctx context.Context, teamID string) (n int64, limited bool, err error) {
	u, err := s.Quotas.Usage(ctx, teamID)
	n, limited = u.Left()
	return n, limited, err
}
