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
	recipientsMost = 150       // the most recipients of an email: 50 in each of three fields
	emailsMost     = 1_000_000 // the highest limit of emails a day
)

// Limits restrict what a grant may send. The zero value means no limits.
type Limits struct {
	Recipients int64 // recipients of one email; 0 means no limit
	Emails     int64 // recipients of all emails in a day, in UTC; 0 means no limit
	Approval   bool  // a person must approve each email
}

// Any reports whether there is any limit.
func (l Limits) Any() bool { return l != Limits{} }

// DefaultLimits returns the limits that the consent page suggests: none for built-in clients.
func (c *Client) DefaultLimits() Limits {
	if !c.Registered {
		return Limits{}
	}
	return Limits{Recipients: 50, Emails: 200}
}

// ParseLimits parses the fields of a form. An empty number means no limit, and any non-empty approval requires
// approvals.
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

// bypassScopes are the scopes that would circumvent limits: by a new key, member or webhook, by lifting the limits, by
// approving its own emails, or by an automation whose emails are not counted.
var bypassScopes = teams.NewScopes(teams.KeysWrite, teams.MembersWrite, teams.GrantsWrite, teams.ApprovalsWrite,
	teams.WebhooksWrite, teams.AutomationsWrite, teams.EventsSend)

// restrict returns the scopes that remain under the limits. A grant that needs approvals may not send; it may request
// approvals and read their results. Broadcasts are refused by package emails: see [teams.Actor.Limited].
func (l Limits) restrict(set teams.Scopes) teams.Scopes {
	if !l.Any() {
		return set
	}
	set &^= bypassScopes
	if l.Approval {
		set &^= teams.NewScopes(teams.EmailsWrite) // the approval includes the time of sending
	}
	if l.Approval && set.Has(teams.EmailsSend) {
		set &^= teams.NewScopes(teams.EmailsSend)
		set |= teams.NewScopes(teams.ApprovalsRequest, teams.ApprovalsRead)
	}
	return set
}

// RemovedScopes returns the scopes that are lost under the limits.
func (l Limits) RemovedScopes(set teams.Scopes) teams.Scopes { return set &^ l.restrict(set) }

// AllowedScopes returns the scopes of the grant, given the scopes of its grantor.
func (g *Grant) AllowedScopes(of teams.Scopes) teams.Scopes {
	return g.Limits.restrict(of & g.Scopes.All())
}

// SetLimits changes the limits of an active grant. The change takes effect on this node at once, and on another node
// when it is told of the change. The caller checks that the actor may change grants; a grant itself never may.
func (s *Service) SetLimits(ctx context.Context, by teams.Actor, grantID string, change func(*Limits) error) (
	g Grant, err error) {
	if by.Kind == teams.GrantActor {
		return g, fault.New(fault.OutOfScope, "", "Connected apps cannot change limits. A person or an API key "+
			"can.")
	}
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		// The lock on the row makes the later of two concurrent changes apply to the result of the earlier one.
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

// CurrentActor returns the actor of a grant with its present scopes, for sending an email that a person approved. The
// actor may send even though the grant needs approvals. A NotFound fault means that the grant may no longer act.
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
		return a, fault.NotFoundf("The app may no longer act for the team.").Because(err)
	}
	if err != nil {
		return a, err
	}
	a.Kind, a.ID, a.Name, a.Limited = teams.GrantActor, g.ID, g.ClientName, g.Limits.Any()
	a.Scopes &= g.Scopes.All()
	return a, a.Require(teams.ApprovalsRequest)
}

// UserAddress returns the address of the user who consented to a grant; "" if there is none.
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

// Usage is the limits of a grant and how much it has sent.
type Usage struct {
	Limits
	Sent int64 // today
}

// Usage returns the limits of a grant and how many emails it has sent today.
func (s *Service) Usage(ctx context.Context, teamID, grantID string) (u Usage, err error) {
	u.Limits, u.Sent, err = limitsOf(ctx, s.DB.Reader, teamID, grantID, dayOf(s.DB.Now()))
	return u, err
}

// ConsumeLimits counts the emails that an actor sends, in the transaction that accepts them. recipients is the number
// of recipients of each email. Actors other than grants, and grants without limits, are not counted. Too many
// recipients are a fault of the email. Beyond the limit of a day, the fault has the kind DailyQuota: unlike for a rate
// limit, clients do not retry before the next day.
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
		err = l.exceeded(l.Emails) // concurrent transactions used up the rest
	}
	return err
}

// CheckLimits returns the fault that ConsumeLimits would return now. It counts nothing.
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

// CheckEach returns for each of some emails the fault that would refuse it, or nil. It assumes that all earlier emails
// without a fault are sent, and counts nothing. recipients is the number of recipients of each email.
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

// consume returns the sum of the usage so far and the recipients of some emails.
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
