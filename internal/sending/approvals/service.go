package approvals

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

// Service implements the operations on approvals.
type Service struct {
	d         *db.DB
	recorder  *events.Recorder
	emails    *emails.Service
	grants    *grants.Service
	members   *members.Service
	teams     *teams.Service
	audit     *audit.Log
	publicURL string

	Mail func(ctx context.Context, tx *db.Tx, to, subject, text string) error // as in Deps
}

// Deps are the dependencies of a [Service].
type Deps struct {
	DB       *db.DB
	Recorder *events.Recorder
	Emails   *emails.Service
	Grants   *grants.Service
	Members  *members.Service
	Teams    *teams.Service
	Audit    *audit.Log
	// Mail enqueues an email to one address in tx. If Mail is nil, no notices are sent.
	Mail func(ctx context.Context, tx *db.Tx, to, subject, text string) error `deps:"optional"`
}

// New returns the service. The parameter publicURL is the prefix of links to pages, without a trailing slash. New fails
// if a dependency is missing.
func New(publicURL string, d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	return &Service{d: d.DB, Mail: d.Mail, recorder: d.Recorder, emails: d.Emails, grants: d.Grants, members: d.Members,
		teams: d.Teams, audit: d.Audit, publicURL: publicURL}, nil
}

// URL returns the URL of the page on which a person approves or rejects an email.
func (s *Service) URL(approvalID string) string { return s.publicURL + "/app/approvals/" + approvalID }

// Request stores an email for approval, after the same checks that apply to an email sent immediately. If the same
// actor has used the idempotency key in the last 24 hours, Request returns the earlier approval in its current state.
func (s *Service) Request(ctx context.Context, by teams.Actor, in emails.Send, key emails.Idempotency) (a Approval,
	err error) {
	if by.Kind == teams.GrantActor {
		key.Scope += " " + by.ID // a connected app has its own idempotency keys, because it sees only its own requests
	}
	approvalID, err := s.emails.OnceWithID(ctx, by, key, func(remember rememberID) error {
		a, err = s.request(ctx, by, in, remember)
		return err
	})
	if err == nil && a.ID != approvalID { // an earlier request with the same key created the approval
		return s.Get(ctx, by, approvalID)
	}
	return a, err
}

// rememberID stores an approval's id under the idempotency key of the request.
type rememberID = func(ctx context.Context, tx *db.Tx, id string) error

func (s *Service) request(ctx context.Context, by teams.Actor, in emails.Send,
	remember rememberID) (a Approval, err error) {
	fixed, recipients, err := s.emails.Snapshot(ctx, by, in)
	if err == nil {
		err = s.grants.CheckLimits(ctx, by, recipients)
	}
	if err != nil {
		return a, err
	}
	text, err := encode(&fixed)
	if err != nil {
		return a, err
	}
	to, err := s.owner(ctx, by)
	if err != nil {
		return a, err
	}
	a = Approval{TeamID: by.TeamID, Actor: by.Ref(), ActorName: by.Name, From: fixed.From, Recipients: recipients,
		Subject: fixed.Subject, State: Pending, Email: &fixed}
	err = s.d.Update(ctx, func(tx *db.Tx) error {
		if err := tx.Serialize(ctx, "approvals "+by.ID); err != nil {
			return err
		}
		now := tx.Now()
		pending, _, err := countRequests(ctx, tx.Reader, by.TeamID, by.ID, now.Add(-lifetime), 1<<16)
		if err == nil && pending >= maxPending {
			return fault.Forbiddenf("", "%d emails of this program wait for approval, which is the most. Wait until some "+
				"are decided.", maxPending)
		}
		var today int
		if err == nil {
			_, today, err = countRequests(ctx, tx.Reader, by.TeamID, by.ID, now.Add(-24*time.Hour), mailsPerDay)
		}
		if err != nil {
			return fmt.Errorf("count approvals: %w", err)
		}
		a.ID, a.CreatedAt, a.ExpiresAt = id.At(now), now, now.Add(lifetime)
		insert(ctx, tx, &a, text)
		audit.Target(ctx, a.ID)
		if s.Mail != nil && to != "" && today < mailsPerDay {
			if err := s.Mail(ctx, tx, to, "An email waits for your approval", s.noticeText(&a)); err != nil {
				return err
			}
		}
		if err := s.recordEvent(ctx, tx, events.ApprovalRequested, &a); err != nil {
			return err
		}
		return remember(ctx, tx, a.ID)
	})
	return a, err
}

// owner returns the email address of the user who granted access to a connected app, or "" for other actors.
func (s *Service) owner(ctx context.Context, by teams.Actor) (string, error) {
	if by.Kind != teams.GrantActor {
		return "", nil
	}
	return s.grants.UserAddress(ctx, by.TeamID, by.ID)
}

// noticeText returns the text of the notice that asks the user for approval. The notice includes the name that the
// connected app chose for itself. The notice quotes nothing from the email, because the email's content is not trusted.
func (s *Service) noticeText(a *Approval) string {
	return fmt.Sprintf("%s, which you let act for your team, wants to send an email to %d recipients.\n\n"+
		"See it, and decide:\n\n%s\n\nIt is not sent unless you or others of your team approve it by %s.\n", a.ActorName,
		a.Recipients, s.URL(a.ID), a.ExpiresAt.Format("2 January, 15:04 UTC"))
}

func (s *Service) recordEvent(ctx context.Context, tx *db.Tx, t events.Type, a *Approval) error {
	return s.recorder.Record(ctx, tx, events.Event{TeamID: a.TeamID, Type: t, Data: &events.Approval{ID: a.ID,
		State: string(a.State), From: a.From, Recipients: a.Recipients, Subject: a.Subject, By: a.ActorName,
		Reason: a.Reason, EmailID: a.EmailID, URL: s.URL(a.ID), CreatedAt: a.CreatedAt, ExpiresAt: a.ExpiresAt}})
}

// Get returns an approval; it includes the email while the approval is pending.
func (s *Service) Get(ctx context.Context, by teams.Actor, approvalID string) (Approval, error) {
	a, err := get(ctx, s.d.Reader, by.TeamID, approvalID)
	if err == nil && by.Kind == teams.GrantActor && a.Actor != by.Ref() {
		return Approval{}, fault.NotFoundf("Approval not found")
	}
	return a, err
}

// List returns a page of approvals, newest first. An empty state means all states. A connected app sees only its own
// approvals.
func (s *Service) List(ctx context.Context, by teams.Actor, state State, p page.Page) ([]Approval, bool, error) {
	own := ""
	if by.Kind == teams.GrantActor {
		own = by.ID
	}
	return list(ctx, s.d.Reader, by.TeamID, state, own, p)
}

// errDecided is returned if the approval is no longer pending when the transaction runs.
var errDecided = errors.New("the approval is decided")

// Approve sends the email in a pending approval. If the approval is already approved, Approve returns it unchanged.
// Approve returns an error for rejected, expired and failed approvals. If the email breaks a rule, the approval becomes
// failed and Approve returns no error.
func (s *Service) Approve(ctx context.Context, by teams.Actor, approvalID string) (Approval, error) {
	a, err := s.pending(ctx, by, approvalID, Approved)
	if err != nil || a.State != Pending {
		return a, err
	}
	email := *a.Email
	a.Email, a.State, a.DecidedBy = nil, Approved, by.Ref()
	as, err := s.requester(ctx, &a)
	if at, parseErr := time.Parse(time.RFC3339, email.ScheduledAt); parseErr == nil && !at.After(s.d.Now()) {
		email.ScheduledAt = "" // the scheduled time passed while the approval was pending
	}
	if err == nil {
		_, err = s.emails.SendThen(ctx, as, email, func(ctx context.Context, tx *db.Tx, emailID string) error {
			a.EmailID = emailID
			return s.decideIn(ctx, tx, by, &a)
		})
	}
	if err == nil {
		return a, nil
	}
	if errors.Is(err, errDecided) {
		return s.afterLostDecision(ctx, by, approvalID, Approved)
	}
	if fault.Ours(err) {
		return a, err
	}
	// If a concurrent call has approved the email and used up the quota, return the approval instead of the quota error.
	if now, again := s.pending(ctx, by, approvalID, Approved); again != nil || now.State != Pending {
		return now, again
	}
	switch fault.KindOf(err) {
	case fault.DailyQuota, fault.MonthlyQuota, fault.Suspended, fault.TooFast, fault.Locked:
		return a, err
	}
	a.State, a.Reason, a.EmailID = Failed, truncateReason(err.Error()), ""
	return s.decideWithoutSending(ctx, by, a, Approved)
}

// IsApproved reports whether an email was accepted because a person approved it.
func (s *Service) IsApproved(ctx context.Context, teamID, emailID string) (bool, error) {
	return isApproved(ctx, s.d.Reader, teamID, emailID)
}

// requester returns the actor that requested the approval, with its current rights. If the actor may no longer request
// approvals, requester returns a fault.
func (s *Service) requester(ctx context.Context, a *Approval) (as teams.Actor, err error) {
	gone := ""
	switch a.Actor.Kind {
	case teams.GrantActor:
		return s.grants.CurrentActor(ctx, a.TeamID, a.Actor.ID)
	case teams.KeyActor:
		as, err = s.teams.KeyActor(ctx, s.d.Reader, a.TeamID, a.Actor.ID)
		gone = "The API key that asked has been deleted."
	case teams.UserActor:
		as, err = s.members.Actor(ctx, a.Actor.ID, a.TeamID)
		gone = "The person who asked is not a member of the team any more."
	default:
		return as, fmt.Errorf("an email waits for approval that an actor of the kind %q asked for", a.Actor.Kind)
	}
	if fault.KindOf(err) == fault.NotFound && err != nil {
		return as, fault.NotFoundf("%s", gone).Because(err)
	}
	if err != nil {
		return as, err
	}
	return as, as.Require(teams.ApprovalsRequest)
}

// Reject ends a request without sending the email. The reason is shown to the requester and may be empty.
func (s *Service) Reject(ctx context.Context, by teams.Actor, approvalID, reason string) (Approval, error) {
	reason = strings.TrimSpace(reason)
	if utf8.RuneCountInString(reason) > maxReason || strings.ContainsRune(reason, 0) {
		return Approval{}, fault.Invalidf("reason", "The `reason` field must have at most %d characters, and no NUL.",
			maxReason)
	}
	a, err := s.pending(ctx, by, approvalID, Rejected)
	if err != nil || a.State != Pending {
		return a, err
	}
	a.Email, a.State, a.DecidedBy, a.Reason = nil, Rejected, by.Ref(), reason
	return s.decideWithoutSending(ctx, by, a, Rejected)
}

// pending returns an approval if it is pending or already in the requested state; for any other state it returns an
// error.
func (s *Service) pending(ctx context.Context, by teams.Actor, approvalID string, as State) (Approval, error) {
	if by.Kind == teams.GrantActor {
		return Approval{}, fault.New(fault.OutOfScope, "", "Programs do not decide of approvals. A person does it, or an "+
			"API key.")
	}
	a, err := get(ctx, s.d.Reader, by.TeamID, approvalID)
	if err != nil || a.State == as {
		return a, err
	}
	if a.State == Pending && !s.d.Now().Before(a.ExpiresAt) {
		a.State = Expired
	}
	if a.State != Pending {
		return a, notPending(a.State)
	}
	return a, nil
}

// decideWithoutSending stores the approval's new state in a separate transaction. The last parameter is the state that
// the caller wanted to set.
func (s *Service) decideWithoutSending(ctx context.Context, by teams.Actor, a Approval, as State) (Approval, error) {
	err := s.d.Update(ctx, func(tx *db.Tx) error { return s.decideIn(ctx, tx, by, &a) })
	if errors.Is(err, errDecided) {
		return s.afterLostDecision(ctx, by, a.ID, as)
	}
	return a, err
}

// afterLostDecision returns the result of a decision that came after another decision or after the approval expired.
func (s *Service) afterLostDecision(ctx context.Context, by teams.Actor, approvalID string,
	as State) (Approval, error) {
	a, err := s.pending(ctx, by, approvalID, as)
	if err == nil && a.State == Pending {
		return a, notPending(Expired)
	}
	return a, err
}

func notPending(is State) error {
	return fault.Invalidf("", "This is %s already. Only what is pending can be decided.", is)
}

// actions maps each decision to its name in the audit log.
var actions = map[State]string{Approved: audit.ApprovalApproved, Rejected: audit.ApprovalRejected,
	Failed: audit.ApprovalFailed}

func (s *Service) decideIn(ctx context.Context, tx *db.Tx, by teams.Actor, a *Approval) error {
	a.DecidedAt = tx.Now()
	switch ok, err := decide(ctx, tx, a); {
	case err != nil:
		return err
	case !ok:
		return errDecided
	}
	s.audit.Record(ctx, tx, audit.Entry{TeamID: a.TeamID, ActorKind: string(by.Kind), ActorID: by.ID, ActorName: by.Name,
		Action: actions[a.State], Target: a.ID, Detail: cmp.Or(a.Reason, a.EmailID)})
	return s.recordEvent(ctx, tx, events.ApprovalDecided, a)
}

// truncateReason shortens a reason to 500 characters, the maximum.
func truncateReason(text string) string {
	all := []rune(strings.ToValidUTF8(text, "�"))
	return string(all[:min(len(all), maxReason)])
}
