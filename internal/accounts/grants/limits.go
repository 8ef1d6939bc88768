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
	recipientsMost = 150       // maximum number of recipients per email: 50 each in to, cc and bcc
	emailsMost     = 1_000_000 // maximum value for the daily email limit
)

// Limits restrict the emails that a grant may send. The zero value of Limits means no limits.
type Limits struct {
	Recipients int64 // maximum number of recipients per email; 0 means no limit
	Emails     int64 // maximum number of emails per UTC day, counted by recipient; 0 means no limit
	Approval   bool  // whether a person must approve each email
}

// Any reports whether at least one limit is set.
func (l Limits) Any() bool { return l != Limits{} }

// String describes the limits in the words of the API, for the audit log.
func (l Limits) String() string {
	number := func(n int64) string {
		if n == 0 {
			return "none"
		}
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("recipients_per_email %s, emails_per_day %s, approval %t", number(l.Recipients), number(l.Emails),
		l.Approval)
}

// DefaultLimits returns the limits that the consent page suggests: none for built-in clients.
func (c *Client) DefaultLimits() Limits {
	if !c.Registered {
		return Limits{}
	}
	return Limits{Recipients: 50, Emails: 200}
}

// ParseLimits parses the limits in the fields of an HTML form. An empty number field means no limit. A non-empty
// approval field means that a person must approve each email.
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

// bypassScopes are the scopes with which an app could circumvent its limits. With any of these scopes, an app with
// limits could create a key, member or webhook, change the limits, approve its own emails, or send uncounted emails
// through an automation.
var bypassScopes = teams.NewScopes(teams.KeysWrite, teams.MembersWrite, teams.GrantsWrite, teams.ApprovalsWrite,
	teams.WebhooksWrite, teams.AutomationsWrite, teams.EventsSend)

// restrict returns the given scopes without those that an app with these limits may not have. An approval applies to a
// specific sending time, so a grant that needs approvals may not reschedule emails either. A grant that needs approvals
// may not send emails, but it may request approvals and read their results. Package emails refuses broadcasts from a
// limited grant; see [teams.Actor.Limited].
func (l Limits) restrict(set teams.Scopes) teams.Scopes {
	if !l.Any() {
		return set
	}
	set &^= bypassScopes
	if l.Approval {
		set &^= teams.NewScopes(teams.EmailsWrite) // an app may not reschedule an email after its approval
	}
	if l.Approval && set.Has(teams.EmailsSend) {
		set &^= teams.NewScopes(teams.EmailsSend)
		set |= teams.NewScopes(teams.ApprovalsRequest, teams.ApprovalsRead)
	}
	return set
}

// RemovedScopes returns those of the given scopes that an app with these limits may not have.
func (l Limits) RemovedScopes(set teams.Scopes) teams.Scopes { return set &^ l.restrict(set) }

// AllowedScopes returns the effective scopes of a grant, given the current scopes of the user or key that consented.
func (g *Grant) AllowedScopes(of teams.Scopes) teams.Scopes {
	return g.Limits.restrict(of & g.Scopes.All())
}

// SetLimits changes the limits of an active grant. A change to the limits takes effect immediately on this node, and on
// other nodes when they receive the cache-invalidation hint. The caller checks that the actor may change grants; a
// connected app may never change limits. Any such actor may make limits stricter. An actor may loosen limits only if
// the actor has every scope that the app would regain; otherwise SetLimits returns an OutOfScope fault.
func (s *Service) SetLimits(ctx context.Context, by teams.Actor, grantID string, change func(*Limits) error) (
	g Grant, err error) {
	if by.Kind == teams.GrantActor {
		return g, fault.New(fault.OutOfScope, "", "Connected apps cannot change limits. A person or an API key "+
			"can.")
	}
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		// The row lock serializes concurrent changes, so that none overwrites another.
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
		before := g.Limits
		if err := change(&g.Limits); err != nil {
			return err
		}
		if err := g.Limits.check(); err != nil {
			return err
		}
		if err := g.mayLoosen(by, before); err != nil {
			return err
		}
		if before.Emails == 0 && g.Limits.Emails > 0 {
			g.dailySince = tx.Now()
		}
		saveLimits(ctx, tx, &g)
		audit.Target(ctx, grantID)
		audit.Detail(ctx, fmt.Sprintf("before: %s; now: %s", before, g.Limits))
		s.changed(tx, by.TeamID)
		if !g.Limits.Any() {
			return nil
		}
		return s.OnStop(ctx, tx, by.TeamID, grantID)
	})
	return g, err
}

// loosens reports whether l allows something that the limits in before do not allow.
func (l Limits) loosens(before Limits) bool {
	more := func(now, before int64) bool { return before > 0 && (now == 0 || now > before) }
	return more(l.Recipients, before.Recipients) || more(l.Emails, before.Emails) || before.Approval && !l.Approval
}

// partlyLost are the scopes that an app with limits keeps, but whose operations it may not all perform. Without limits,
// the app could also send, test and resume broadcasts.
var partlyLost = teams.NewScopes(teams.EmailsSend, teams.BroadcastsWrite)

// regained returns the scopes that the app gets back if the limits in before are replaced by the grant's limits. Scopes
// that the app could only partly use count too. The result does not depend on the present role of the user who
// consented, because that user may get a higher role again later.
func (g *Grant) regained(before Limits) teams.Scopes {
	if !g.Limits.loosens(before) {
		return 0
	}
	all := g.Scopes.All()
	back := before.RemovedScopes(all) &^ g.Limits.RemovedScopes(all)
	if !g.Limits.Any() {
		back |= all & partlyLost
	}
	return back | all&teams.NewScopes(teams.EmailsSend) // loosened limits let the app send more emails
}

// mayLoosen returns an OutOfScope fault if the actor lacks a scope that the app would regain; see [Grant.regained].
func (g *Grant) mayLoosen(by teams.Actor, before Limits) error {
	lacks := g.regained(before) &^ by.Scopes
	if lacks == 0 {
		return nil
	}
	return fault.New(fault.OutOfScope, "limits", "The app would get back rights that you do not have (%s). You can make "+
		"its limits stricter. Ask a member who has these rights to loosen them.",
		strings.ReplaceAll(lacks.String(), " ", ", "))
}

// MayLoosen reports whether an actor may remove all limits of the grant, whichever limits it has now or gets later.
func (g *Grant) MayLoosen(by teams.Actor) bool {
	without := *g
	without.Limits = Limits{}
	return without.mayLoosen(by, Limits{Recipients: 1, Emails: 1, Approval: true}) == nil
}

// CurrentActor returns the actor for a grant, with its current scopes, so that an email that a person has approved can
// be sent. The returned actor may send emails even if the grant needs approvals. CurrentActor returns a NotFound fault
// if the grant may no longer act for the team.
func (s *Service) CurrentActor(ctx context.Context, teamID, grantID string) (teams.Actor, error) {
	g, err := getGrant(ctx, s.DB.Reader, teamID, grantID)
	if err == nil && !g.RevokedAt.IsZero() {
		err = fault.NotFoundf("OAuth grant not found")
	}
	var a teams.Actor
	if err == nil {
		a, err = s.grantorActor(ctx, s.DB.Reader, &g)
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

// UserAddress returns the email address of the user who consented to a grant, or "" if an API key consented.
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

// Usage contains the limits of a grant and the number of emails that it has sent today.
type Usage struct {
	Limits
	Sent int64 // today
}

// Usage returns a grant's limits and the number of emails that it has sent today.
func (s *Service) Usage(ctx context.Context, teamID, grantID string) (u Usage, err error) {
	u.Limits, u.Sent, err = limitsOf(ctx, s.DB.Reader, teamID, grantID, dayOf(s.DB.Now()))
	return u, err
}

// ConsumeLimits counts the emails that an actor sends, in the transaction that accepts them. The parameter recipients
// holds the number of recipients of each email. ConsumeLimits does not count emails from users, API keys or grants
// without limits. If an email has too many recipients, ConsumeLimits returns an Invalid fault. If the daily limit is
// exceeded, ConsumeLimits returns a DailyQuota fault, so that clients do not retry before the next day.
func (s *Service) ConsumeLimits(ctx context.Context, tx *db.Tx, by teams.Actor, recipients []int) error {
	if by.Kind != teams.GrantActor {
		return nil
	}
	g, err := getGrant(ctx, tx.Reader, by.TeamID, by.ID)
	if err != nil {
		return err
	}
	return s.consume(ctx, tx, by, g.Limits, recipients)
}

// consume counts emails against the given limits of a grant.
func (s *Service) consume(ctx context.Context, tx *db.Tx, by teams.Actor, l Limits, recipients []int) error {
	day := dayOf(tx.Now())
	used, err := dayUsed(ctx, tx.Reader, by.TeamID, by.ID, day)
	if err != nil {
		return fmt.Errorf("look up what grant %s has sent: %w", by.ID, err)
	}
	sum, err := l.consume(used, recipients)
	if err != nil || l.Emails == 0 {
		return err
	}
	ok, err := countDay(ctx, tx, by.TeamID, by.ID, day, sum-used, l.Emails)
	if err == nil && !ok {
		err = l.exceeded(l.Emails) // concurrent transactions have used the remaining limit
	}
	return err
}

// CheckLimits returns the fault that ConsumeLimits would return now, without counting the emails.
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

// CheckEach checks each email in a batch and returns the fault with which that email would be refused, or nil.
// CheckEach counts nothing; it assumes that every earlier email in the batch is sent unless it has a fault. The
// parameter recipients holds the number of recipients of each email.
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

// consume adds the recipients of a batch of emails to the daily usage, and returns the new total, or a fault if a limit
// is exceeded.
func (l Limits) consume(used int64, recipients []int) (int64, error) {
	sum := used
	for _, n := range recipients {
		if l.Recipients > 0 && int64(n) > l.Recipients {
			return used, fault.Invalidf("to", "The email has %d recipients. This app may write to %d at once, which "+
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
	return fault.New(fault.DailyQuota, "", "This app may send %d emails a day, which the person who granted it has "+
		"set, and has sent %d today. Each recipient counts. The day ends at midnight in UTC.", l.Emails, used)
}

// dayOf returns the number of UTC days since the Unix epoch.
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
