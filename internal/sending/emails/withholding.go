package emails

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/domains"
)

// WithholdFor is how long an email is withheld, from the time when it was due, if its sender's domain may not send.
// After that the email fails.
const WithholdFor = 24 * time.Hour

// ReasonDomain is the reason why an email is withheld or fails if its sender's domain may not send.
const ReasonDomain = "domain_not_verified"

// wakeKind is the kind of the jobs that release what is withheld because of a sender's domain.
const wakeKind = "emails.wake"

// withheldKey is the key with which jobs are held that wait for a sender's domain. The key does not contain the team,
// because the jobs of a former team must also run when another team may send from the domain: their emails then fail.
func withheldKey(name string) string { return "sender " + name }

// Withhold suspends a job until its sender's domain may send or the given time has come, and stores j.Payload. The
// caller must have called [domains.Service.LockStanding] in the same transaction.
func (s *Service) Withhold(ctx context.Context, tx *db.Tx, j jobs.Job, name string, until time.Time) {
	s.Queue.HoldUntil(ctx, tx, j, withheldKey(name), until, ReasonDomain)
}

// MarkWithheld records that an email's job is withheld for the recipients in o.To, so that [Service.Cancel] may cancel
// the email. Call MarkWithheld after the event of the delay has been recorded.
func MarkWithheld(ctx context.Context, tx *db.Tx, o *Outgoing) { setWithheld(ctx, tx, o) }

// EndWithheld records that an email is no longer withheld for the recipients in o.To, so that Cancel refuses to cancel
// it. If Cancel was first, EndWithheld returns false.
func EndWithheld(ctx context.Context, tx *db.Tx, o *Outgoing) (bool, error) {
	return unsetWithheld(ctx, tx, o)
}

// WithheldObstacle returns the reason why an email that was withheld must not be sent although its sender's domain may
// send again, or "". For a suspended team and for a connected app, the rules for scheduled emails apply. It does not
// matter whether an API key or a person may still send, as for other emails that were accepted before.
func (s *Service) WithheldObstacle(ctx context.Context, o *Outgoing) (reason string, err error) {
	team, err := s.Teams.Get(ctx, o.TeamID)
	if err != nil {
		return "", err
	}
	if team.Suspended {
		return ReasonSuspended, nil
	}
	if o.row.Actor.Kind != teams.GrantActor || o.BroadcastID != "" { // broadcasts have checks of their own
		return "", nil
	}
	e, err := o.row.email()
	if err != nil {
		return "", err
	}
	return s.actorObstacle(ctx, &e)
}

// OnDomainBack enqueues a job that releases what waits for a domain, if anything does. The caller has made the domain
// able to send in the same transaction.
func (s *Service) OnDomainBack(ctx context.Context, tx *db.Tx, teamID, name string) error {
	found, err := s.Queue.AnyHeld(ctx, tx.Reader, withheldKey(name))
	if err != nil || !found {
		return err
	}
	s.Queue.Insert(ctx, tx, jobs.New{Kind: wakeKind, Lane: teamID, TeamID: teamID, Payload: name})
	return nil
}

// wake handles jobs of the kind wakeKind. Each released job checks the domain again.
func (s *Service) wake(ctx context.Context, j jobs.Job) error {
	key := withheldKey(j.Payload)
	err := s.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return s.Queue.Release(ctx, tx, key) })
	if err != nil {
		return err
	}
	return s.Queue.End(ctx, j)
}

// SenderDomain returns the domain of the email's From address.
func (o *Outgoing) SenderDomain() (string, error) { return senderDomain(&o.row.Email) }

func senderDomain(e *Email) (string, error) {
	a, err := message.ParseAddress(e.From)
	if err != nil {
		return "", fault.Invalidf("from", "The stored sender of email %s cannot be read: %s", e.ID, err).Because(err)
	}
	return a.Domain, nil
}

// Due returns the time when the email was due: when it was accepted or, if it was scheduled, its scheduled time.
func (o *Outgoing) Due() time.Time {
	if o.row.scheduled > 0 {
		return db.Time(o.row.scheduled)
	}
	return o.CreatedAt
}

// domainObstacle returns the reason why a scheduled email may not be sent because of its sender's domain, or "". If no
// team may send from the domain at present, domainObstacle returns "", because package delivery withholds the email. If
// the team has deleted the domain and added it again, the email gets the id of the new domain.
func (s *Service) domainObstacle(ctx context.Context, e *Email) (reason string, err error) {
	name, err := senderDomain(e)
	if err != nil {
		return "", err
	}
	from, err := s.Domains.Sender(ctx, e.TeamID, name)
	switch {
	case err == nil && from.DomainID == e.DomainID:
		return "", nil
	case err == nil:
		e.DomainID = from.DomainID
		return "", s.DB.Update(ctx, func(tx *db.Tx) error {
			return SetDomain(ctx, tx, e.TeamID, e.ID, from.DomainID)
		})
	case fault.Ours(err):
		return "", err
	}
	standing, _, err := s.Domains.Standing(ctx, e.TeamID, name)
	if err == nil && standing == domains.TakenOver {
		reason = ReasonDomain
	}
	return reason, err
}
