package grants

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	recipientsMost = 150       // addresses that one email can have: 50 in each of three fields
	emailsMost     = 1_000_000 // that a limit of a day may be
)

// Limits are what a person has limited a program to. The zero value is no limit.
type Limits struct {
	Recipients int64 // addresses that one email may go to; 0 is no limit
	Emails     int64 // that it may send in a day of UTC, each address counting as one; 0 is no limit
	Approval   bool  // a person decides of each email
}

// Any reports whether there is any limit.
func (l Limits) Any() bool { return l != Limits{} }

// DefaultLimits returns the limits that a person is shown at first. Programs that have registered themselves have some.
func (c *Client) DefaultLimits() Limits {
	if !c.Registered {
		return Limits{}
	}
	return Limits{Recipients: 50, Emails: 200}
}

// ParseLimits reads what a person has typed: an empty number is no limit, and any approval demands one.
func ParseLimits(recipients, emails, approval string) (l Limits, err error) {
	for _, f := range []struct {
		name, label, text string
		to                *int64
	}{{"recipients_per_email", "Recipients of one email", recipients, &l.Recipients},
		{"emails_per_day", "Emails a day", emails, &l.Emails}} {
		text := strings.TrimSpace(f.text)
		if text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 1 {
			return l, fault.Invalidf(f.name, "“%s” must be a number of at least 1, or empty for no limit. "+
				"Go back and change it.", f.label)
		}
		*f.to = n
	}
	l.Approval = approval != ""
	return l, l.check()
}

func (l Limits) check() error {
	switch {
	case l.Recipients < 0 || l.Recipients > recipientsMost:
		return fault.Invalidf("recipients_per_email", "The limit of recipients of an email must be 1 to %d, or none.",
			recipientsMost)
	case l.Emails < 0 || l.Emails > emailsMost:
		return fault.Invalidf("emails_per_day", "The limit of emails a day must be 1 to %d, or none.", emailsMost)
	}
	return nil
}

// bypassScopes are the scopes by which a program could get round its limits: by a key or a person or a webhook of its own
// making, by lifting them, by approving itself, or by an automation that sends what it has not counted.
var bypassScopes = teams.NewScopes(teams.KeysWrite, teams.MembersWrite, teams.GrantsWrite, teams.ApprovalsWrite,
	teams.WebhooksWrite, teams.AutomationsWrite, teams.EventsSend)

// restrict returns what is left of scopes under the limits. Who needs an approval may not send, but ask for it and see
// what has become of it. That broadcasts are not sent either, package emails sees to: see [teams.Actor.Limited].
func (l Limits) restrict(set teams.Scopes) teams.Scopes {
	if !l.Any() {
		return set
	}
	set &^= bypassScopes
	if l.Approval {
		set &^= teams.NewScopes(teams.EmailsWrite) // the time, too, was approved
	}
	if l.Approval && set.Has(teams.EmailsSend) {
		set &^= teams.NewScopes(teams.EmailsSend)
		set |= teams.NewScopes(teams.ApprovalsRequest, teams.ApprovalsRead)
	}
	return set
}

// RemovedScopes returns what a program with the scopes may not do any more under the limits.
func (l Limits) RemovedScopes(set teams.Scopes) teams.Scopes { return set &^ l.restrict(set) }

// AllowedScopes returns what the grant lets its program do, if whoever let it may do all of the given.
func (g *Grant) AllowedScopes(of teams.Scopes) teams.Scopes {
	return g.Limits.restrict(of & g.Scopes.All())
}

// SetLimits changes the limits of an active grant, at once on this node and on others when the hint arrives. The caller
// checks that the actor may; a grant never may.
func (s *Service) SetLimits(ctx context.Context, by teams.Actor, grantID string, change func(*Limits) error) (
	g Grant, err error) {
	if by.Kind == teams.GrantActor {
		return g, fault.New(fault.OutOfScope, "", "Programs do not change limits of programs. A person does it, or an "+
			"API key.")
	}
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		// It takes the lock of the row: of two changes at the same time the later is made to what the earlier has left.
		_, err := lockRefreshState(ctx, tx, by.TeamID, grantID)
		if errors.Is(err, db.ErrNoRows) {
			return fault.NotFoundf("OAuth grant not found")
		}
		if err != nil {
			return fmt.Errorf("lock grant %s: %w", grantID, err)
		}
		if g, err = getGrant(ctx, tx.Reader, by.TeamID, grantID); err != nil {
			return err
		}
		if err := change(&g.Limits); err != nil {
			return err
		}
		if err := g.Limits.check(); err != nil {
			return err
		}
		saveLimits(ctx, tx, &g)
		audit.Target(ctx, grantID)
		s.changed(tx, by.TeamID)
		return nil
	})
	return g, err
}

// CurrentActor returns a grant as an actor, with all that it may do now: for what a person decides that it asked for. It may
// send, although it needs an approval. A fault of kind NotFound means that it may nothing any more.
func (s *Service) CurrentActor(ctx context.Context, teamID, grantID string) (teams.Actor, error) {
	g, err := getGrant(ctx, s.DB.Reader, teamID, grantID)
	if err == nil && !g.RevokedAt.IsZero() {
		err = fault.NotFoundf("OAuth grant not found")
	}
	var a teams.Actor
	if err == nil {
		a, err = s.grantorActor(ctx, &g)
	}
	if fault.KindOf(err) == fault.NotFound && err != nil {
		return a, fault.NotFoundf("The program may not act for the team any more.").Because(err)
	}
	if err != nil {
		return a, err
	}
	a.Kind, a.ID, a.Name, a.Limited = teams.GrantActor, g.ID, g.ClientName, g.Limits.Any()
	a.Scopes &= g.Scopes.All()
	return a, a.Require(teams.ApprovalsRequest)
}

// UserAddress returns the address of the user who let a grant act; "" if none has.
func (s *Service) UserAddress(ctx context.Context, teamID, grantID string) (string, error) {
	g, err := getGrant(ctx, s.DB.Reader, teamID, grantID)
	if err != nil || g.UserID == "" {
		return "", err
	}
	m, err := s.Members.Get(ctx, teamID, g.UserID)
	if fault.KindOf(err) == fault.NotFound && err != nil {
		return "", nil
	}
	return m.Email, err
}

// Usage is what a grant may send, and has.
type Usage struct {
	Limits
	Sent int64 // today
}

// Usage returns what a grant may send, and has sent today.
func (s *Service) Usage(ctx context.Context, teamID, grantID string) (u Usage, err error) {
	u.Limits, u.Sent, err = limitsOf(ctx, s.DB.Reader, teamID, grantID, dayOf(s.DB.Now()))
	return u, err
}

// ConsumeLimits counts emails that an actor sends, in the transaction that accepts them; recipients is how many addresses each
// of them goes to. Actors other than grants, and grants without limits, send as they like. Beyond the limit of a day it
// returns a fault of the kind DailyQuota, which clients do not repeat before the next day as they repeat one of the
// rate; too many recipients are a fault of the email.
func (s *Service) ConsumeLimits(ctx context.Context, tx *db.Tx, by teams.Actor, recipients []int) error {
	if by.Kind != teams.GrantActor {
		return nil
	}
	day := dayOf(tx.Now())
	l, used, err := limitsOf(ctx, tx.Reader, by.TeamID, by.ID, day)
	if err != nil {
		return err
	}
	sum, err := l.consume(used, recipients)
	if err != nil || l.Emails == 0 {
		return err
	}
	ok, err := countDay(ctx, tx, by.TeamID, by.ID, day, sum-used, l.Emails)
	if err == nil && !ok {
		err = l.exceeded(l.Emails) // others have been counted since
	}
	return err
}

// CheckLimits returns the fault that Spend would return if the emails were sent now. It counts nothing.
func (s *Service) CheckLimits(ctx context.Context, by teams.Actor, recipients ...int) error {
	if by.Kind != teams.GrantActor {
		return nil
	}
	l, used, err := limitsOf(ctx, s.DB.Reader, by.TeamID, by.ID, dayOf(s.DB.Now()))
	if err == nil {
		_, err = l.consume(used, recipients)
	}
	return err
}

// CheckEach returns for each of some emails, of which recipients says how many addresses each goes to, the fault for which
// it could not be sent now beside those before it that could, or nil. It counts nothing.
func (s *Service) CheckEach(ctx context.Context, by teams.Actor, recipients []int) ([]error, error) {
	faults := make([]error, len(recipients))
	if by.Kind != teams.GrantActor {
		return faults, nil
	}
	l, used, err := limitsOf(ctx, s.DB.Reader, by.TeamID, by.ID, dayOf(s.DB.Now()))
	for i := range recipients {
		if err == nil {
			used, faults[i] = l.consume(used, recipients[i:i+1])
		}
	}
	return faults, err
}

// consume returns how much is used when emails are added to it.
func (l Limits) consume(used int64, recipients []int) (int64, error) {
	sum := used
	for _, n := range recipients {
		if l.Recipients > 0 && int64(n) > l.Recipients {
			return used, fault.Invalidf("to", "The email has %d recipients. This program may write to %d at once, which "+
				"the person who granted it has set.", n, l.Recipients)
		}
		sum += int64(n)
	}
	if l.Emails > 0 && sum > l.Emails {
		return used, l.exceeded(used)
	}
	return sum, nil
}

func (l Limits) exceeded(used int64) error {
	return fault.New(fault.DailyQuota, "", "This program may send %d emails a day, which the person who granted it has "+
		"set, and has sent %d today. Each recipient counts. The day ends at midnight in UTC.", l.Emails, used)
}

// dayOf returns the number of a day in UTC.
func dayOf(t time.Time) int64 { return t.Unix() / (24 * 60 * 60) }

func limitsOf(ctx context.Context, r db.Reader, teamID, grantID string, day int64) (l Limits, used int64, err error) {
	g, err := getGrant(ctx, r, teamID, grantID)
	if err != nil {
		return l, 0, err
	}
	if used, err = dayUsed(ctx, r, teamID, grantID, day); err != nil {
		return l, 0, fmt.Errorf("look up what grant %s has sent: %w", grantID, err)
	}
	return g.Limits, used, nil
}
