package teams

import (
	"context"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	maxTeamName = 100 // characters
	maxSameName = 20  // maximum number of teams that an error message lists for one name
	// MaxRate is the highest rate limit that a team can have, in requests per second.
	MaxRate = math.MaxInt32
	// MaxQuota is the highest daily or monthly quota that a team can have, in emails.
	MaxQuota = 1_000_000_000_000
)

// newTeam validates a name and an email address and returns a new team that has them.
func newTeam(name, email string) (t Team, err error) {
	t = Team{ID: id.New(), CreatedAt: db.Now()}
	if t.Name, err = checkTeamName(name); err != nil {
		return t, err
	}
	t.Email, err = checkEmail(email)
	return t, err
}

func checkTeamName(name string) (string, error) {
	if name = strings.TrimSpace(name); name == "" {
		return "", fault.MissingField("name")
	}
	if !utf8.ValidString(name) || utf8.RuneCountInString(name) > maxTeamName ||
		strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return "", fault.Invalidf("name", "The name of a team must have at most %d characters and no control characters.",
			maxTeamName)
	}
	if id.Valid(name) {
		return "", fault.Invalidf("name", "The name of a team must not look like an id: %s could mean another team.", name)
	}
	return name, nil
}

func checkEmail(email string) (string, error) {
	if email = strings.TrimSpace(email); email == "" {
		return "", nil
	}
	a, err := message.ParseAddress(email)
	if err != nil {
		return "", fault.Invalidf("email", "The owner's address must be one such as owner@example.com: %s.", err).Because(err)
	}
	return a.Key(), nil
}

// Create creates a team. Names need not be unique, but a team cannot be looked up by a name that several teams have.
// The email address may be empty.
func (s *Service) Create(ctx context.Context, name, email string) (Team, error) {
	t, err := newTeam(name, email)
	if err != nil {
		return Team{}, err
	}
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		audit.Team(ctx, t.ID)
		audit.Target(ctx, t.ID)
		return s.add(ctx, tx, &t)
	})
	return t, err
}

// CreateIn is Create in the caller's transaction, which also adds the team's first owner.
func (s *Service) CreateIn(ctx context.Context, tx *db.Tx, name, email string) (Team, error) {
	t, err := newTeam(name, email)
	if err == nil {
		err = s.add(ctx, tx, &t)
	}
	return t, err
}

// add inserts a team. Every team except the first gets the configured quota for new teams; the first team is the
// operator's and has no quota.
func (s *Service) add(ctx context.Context, tx *db.Tx, t *Team) error {
	if trial := *s.trial.Load(); trial != (Quota{}) {
		switch _, err := oldestTeam(ctx, tx.Reader); {
		case err == nil:
			t.Quota = trial
		case fault.KindOf(err) != fault.NotFound:
			return err
		}
	}
	short, err := newShortID(ctx, tx)
	if err == nil {
		insertTeam(ctx, tx, t, short)
	}
	return err
}

// Find returns the team with the given id or exact name. If several teams have the name, the error lists their ids.
func (s *Service) Find(ctx context.Context, idOrName string) (Team, error) {
	return find(ctx, s.DB.Reader, idOrName)
}

// FindIn is like Find, for callers without a Service, such as a command that must work without the secret key.
func FindIn(ctx context.Context, r db.Reader, idOrName string) (Team, error) {
	return find(ctx, r, idOrName)
}

func find(ctx context.Context, r db.Reader, idOrName string) (Team, error) {
	if idOrName = strings.TrimSpace(idOrName); idOrName == "" {
		return Team{}, fault.MissingField("team")
	}
	if !utf8.ValidString(idOrName) || strings.IndexByte(idOrName, 0) >= 0 {
		return Team{}, fault.Invalidf("team", "The name of a team must be UTF-8 text.")
	}
	if id.Valid(idOrName) {
		t, err := getTeam(ctx, r, strings.ToLower(idOrName))
		if fault.KindOf(err) == fault.NotFound && err != nil {
			err = fault.NotFoundf("There is no team with the id %s.", idOrName)
		}
		return t, err
	}
	named, err := teamsNamed(ctx, r, idOrName, maxSameName)
	switch {
	case err != nil:
		return Team{}, fmt.Errorf("look for a team by its name: %w", err)
	case len(named) == 0:
		return Team{}, fault.NotFoundf("There is no team with the name %q.", idOrName)
	case len(named) > 1:
		var ids []string
		for _, t := range named {
			ids = append(ids, t.ID)
		}
		return Team{}, fault.Invalidf("team", "Several teams have the name %q: %s. Give the id of one.", idOrName,
			strings.Join(ids, ", "))
	}
	return named[0], nil
}

// Get returns a team.
func (s *Service) Get(ctx context.Context, teamID string) (Team, error) {
	return getTeam(ctx, s.DB.Reader, teamID)
}

// GetIn is Get with the caller's reader.
func (s *Service) GetIn(ctx context.Context, r db.Reader, teamID string) (Team, error) {
	return getTeam(ctx, r, teamID)
}

// LockSenders returns a team. Until the transaction ends, SetSuspended, Delete and DeleteKey wait, so that the team and
// its keys keep the right to send. A transaction must call LockSenders before it locks a broadcast, because
// SetSuspended and DeleteKey lock the team first.
func (s *Service) LockSenders(ctx context.Context, tx *db.Tx, teamID string) (Team, error) {
	return lockTeam(ctx, tx, teamID, "FOR SHARE")
}

// CheckActive returns a fault if the team has been deleted. Handlers for public links call CheckActive, so that a
// deleted team's links stop working even before its data is deleted.
func (s *Service) CheckActive(ctx context.Context, teamID string) error {
	_, err := s.Get(ctx, teamID)
	if fault.KindOf(err) == fault.NotFound {
		return fault.NotFoundf("There is nothing at this address.")
	}
	return err
}

// List returns a page of at most limit teams, oldest first, starting after the given id.
func (s *Service) List(ctx context.Context, after string, limit int) ([]Team, error) {
	return listTeams(ctx, s.DB.Reader, after, limit)
}

// Operator returns the operator's team: the configured team, or the oldest team if none is configured.
func (s *Service) Operator(ctx context.Context, configured string) (Team, error) {
	return OperatorIn(ctx, s.DB.Reader, configured)
}

// OperatorIn is like Operator, for callers without a Service.
func OperatorIn(ctx context.Context, r db.Reader, configured string) (Team, error) {
	if configured != "" {
		return getTeam(ctx, r, strings.ToLower(configured))
	}
	return oldestTeam(ctx, r)
}

// Rename changes a team's name.
func (s *Service) Rename(ctx context.Context, teamID, name string) error {
	name, err := checkTeamName(name)
	if err != nil {
		return err
	}
	return s.change(ctx, teamID, "name", name)
}

// SetEmail changes the address of a team's owner, which gets the team's notices.
func (s *Service) SetEmail(ctx context.Context, teamID, email string) error {
	email, err := checkEmail(email)
	if err != nil {
		return err
	}
	return s.change(ctx, teamID, "email", email)
}

// SetSuspended withdraws or restores a team's right to make requests, to submit mail, and to send broadcasts and
// scheduled mail. A suspension pauses the team's broadcasts in the same transaction; they stay paused after the team is
// restored. Other mail that was accepted for immediate delivery is still delivered.
func (s *Service) SetSuspended(ctx context.Context, teamID string, suspended bool) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		s.changed(tx, teamID)
		if err := setTeam(ctx, tx, teamID, "suspended", suspended); err != nil || !suspended {
			return err
		}
		return s.OnSenderStop(ctx, tx, teamID, ActorRef{})
	})
}

// SetRateLimit sets a team's rate limit, in requests per second; 0 means the configured rate.
func (s *Service) SetRateLimit(ctx context.Context, teamID string, perSecond int) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error { return s.SetRateLimitIn(ctx, tx, teamID, perSecond) })
}

// SetRateLimitIn is SetRateLimit in the caller's transaction.
func (s *Service) SetRateLimitIn(ctx context.Context, tx *db.Tx, teamID string, perSecond int) error {
	if perSecond < 0 || perSecond > MaxRate {
		return fault.Invalidf("rate", "The rate must be a number of requests a second from 1 to %d, or 0 for the one of "+
			"the configuration.",
			MaxRate)
	}
	s.changed(tx, teamID)
	return setTeam(ctx, tx, teamID, "rate_limit", perSecond)
}

// SetQuotaIn changes a team's quota in the caller's transaction. Only package quotas may call SetQuotaIn, because it
// must change its counters in the same transaction.
func (s *Service) SetQuotaIn(ctx context.Context, tx *db.Tx, teamID string, q Quota) error {
	for _, x := range []struct {
		field, column string
		n             int64
	}{{"daily", "daily_quota", q.Daily}, {"monthly", "monthly_quota", q.Monthly}} {
		if x.n < 0 || x.n > MaxQuota {
			return fault.Invalidf(x.field, "The %s quota must be a number of emails from 1 to %d, or 0 for none.", x.field,
				int64(MaxQuota))
		}
		if err := setTeam(ctx, tx, teamID, x.column, x.n); err != nil {
			return err
		}
	}
	s.changed(tx, teamID)
	return nil
}

func (s *Service) change(ctx context.Context, teamID, column string, value any) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		s.changed(tx, teamID)
		return setTeam(ctx, tx, teamID, column, value)
	})
}

// changed sends a hint after the commit so that all nodes discard what they have cached about the team and its keys.
func (s *Service) changed(tx *db.Tx, teamID string) {
	tx.AfterCommit(func() { s.DB.Hint(HintTopic, teamID) })
}
