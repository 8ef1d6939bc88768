package members

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

const (
	cacheFor   = 5 * time.Second // how long a change on another node may go unnoticed if its hint is lost
	cacheMax   = 10_000          // cached actors
	maxMembers = 200             // limit per team
	maxTeams   = 200             // limit per user
)

// HintTopic is the topic of the hints sent to other nodes after a change that may take a right away from a member. The
// payload of a hint is the team's id.
const HintTopic = "members"

// Deps are the dependencies of a Service.
type Deps struct {
	DB    *db.DB
	Users *users.Service
	Audit *audit.Log
	// Link returns the URL of the page that accepts an invitation, given the invitation's token.
	Link func(token string) string
	// OnMemberRemoved runs in the transaction that ends a membership.
	OnMemberRemoved func(ctx context.Context, tx *db.Tx, teamID, userID string) error
	// ScopesOf returns the current scopes of an API key or a grant, or 0 if the key was deleted or the grant revoked.
	ScopesOf func(ctx context.Context, r db.Reader, teamID string, by teams.ActorRef) (teams.Scopes, error)
	// Mail enqueues an email to one address in tx. If Mail is nil, only the operator can invite.
	Mail func(ctx context.Context, tx *db.Tx, to, subject, text string) error `deps:"optional"`
	// Now returns the current time. If Now is nil, the database clock is used.
	Now func() time.Time `deps:"optional"`
}

// Service implements the operations on members and invitations.
type Service struct {
	Deps

	mu    sync.Mutex
	cache map[cacheKey]cached
	epoch int // incremented by forget; results that were read before the last increment are not cached
}

type cacheKey struct{ userID, teamID string }

type cached struct {
	teams.Actor
	until time.Time
}

// New returns a Service, or an error if a dependency is missing.
func New(d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	s := &Service{Deps: d, cache: map[cacheKey]cached{}}
	for _, topic := range []string{HintTopic, teams.HintTopic, users.HintTopic} {
		d.DB.OnHint(topic, func(string) { s.forget() })
	}
	return s, nil
}

func (s *Service) forget() {
	s.mu.Lock()
	s.cache = map[cacheKey]cached{}
	s.epoch++
	s.mu.Unlock()
}

func (s *Service) now() time.Time {
	if s.Now != nil {
		return s.Now().UTC().Truncate(time.Microsecond)
	}
	return s.DB.Now()
}

// Actor returns a user as an actor in a team, with the scopes of the user's role. Actor returns a NotFound fault if the
// user is not a member or is disabled, or if the team has been deleted.
func (s *Service) Actor(ctx context.Context, userID, teamID string) (teams.Actor, error) {
	key, now := cacheKey{userID, teamID}, time.Now()
	s.mu.Lock()
	c, ok := s.cache[key]
	epoch := s.epoch
	s.mu.Unlock()
	if ok && now.Before(c.until) {
		return c.Actor, nil
	}
	a, err := s.ActorNow(ctx, s.DB.Reader, userID, teamID)
	if err != nil {
		return teams.Actor{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch == s.epoch {
		if len(s.cache) >= cacheMax {
			clear(s.cache)
		}
		s.cache[key] = cached{a, now.Add(cacheFor)}
	}
	return a, nil
}

// ActorNow is Actor without the cache. Callers that cache the result themselves should use ActorNow; otherwise the
// lifetimes of the two caches would add up.
func (s *Service) ActorNow(ctx context.Context, r db.Reader, userID, teamID string) (teams.Actor, error) {
	a, err := actor(ctx, r, userID, teamID)
	if errors.Is(err, db.ErrNoRows) {
		return teams.Actor{}, fault.NotFoundf("You are not a member of this team.")
	}
	if err != nil {
		return teams.Actor{}, fmt.Errorf("look up a member: %w", err)
	}
	return a, nil
}

// ScopesIn is like Scopes, but for a transaction that creates a row that must be deleted when the membership ends.
// ScopesIn locks the team's members so that the membership cannot end before the transaction does.
func (s *Service) ScopesIn(ctx context.Context, tx *db.Tx, teamID string, by teams.ActorRef) (teams.Scopes, error) {
	if err := lock(ctx, tx, teamID); err != nil {
		return 0, err
	}
	return s.Scopes(ctx, tx.Reader, teamID, by)
}

// Scopes returns the current scopes of an actor, or 0 if the actor no longer exists. Unlike Actor, Scopes reads from
// the database and not from a cache.
func (s *Service) Scopes(ctx context.Context, r db.Reader, teamID string, by teams.ActorRef) (teams.Scopes, error) {
	switch {
	case by.Kind == teams.SystemActor:
		a := teams.System(teamID)
		return a.Scopes, nil
	case by.Kind == teams.UserActor:
		a, err := actor(ctx, r, by.ID, teamID)
		if errors.Is(err, db.ErrNoRows) {
			return 0, nil
		}
		if err != nil {
			return 0, fmt.Errorf("look up a member: %w", err)
		}
		return a.Scopes, nil
	}
	return s.ScopesOf(ctx, r, teamID, by)
}

// ListByUser returns a user's memberships, sorted by team name.
func (s *Service) ListByUser(ctx context.Context, userID string) ([]Membership, error) {
	return teamsOf(ctx, s.DB.Reader, userID)
}

// Get returns a member.
func (s *Service) Get(ctx context.Context, teamID, userID string) (Membership, error) {
	return get(ctx, s.DB.Reader, teamID, userID)
}

// List returns a page of a team's members, sorted by user id, newest first.
func (s *Service) List(ctx context.Context, teamID string, p page.Page) ([]Membership, bool, error) {
	return list(ctx, s.DB.Reader, teamID, p)
}

// AddIn makes a user a member in the caller's transaction. The caller checks the actor's rights and records the change.
// AddIn returns a NotFound fault if the team does not exist.
func (s *Service) AddIn(ctx context.Context, tx *db.Tx, teamID, userID string, role teams.Role) error {
	if role.Scopes() == 0 {
		return unknownRole(role)
	}
	if !id.Valid(teamID) {
		return fault.NotFoundf("Team not found")
	}
	if err := lock(ctx, tx, teamID); err != nil {
		return err
	}
	if _, _, err := getTeam(ctx, tx.Reader, teamID); err != nil {
		return err
	}
	switch n, err := count(ctx, tx.Reader, teamID); {
	case err != nil:
		return err
	case n >= maxMembers:
		return fault.Forbiddenf("", "This team has %d members, which is the most that a team can have.", maxMembers)
	}
	// The number of memberships per user is limited, because the code that selects a team or deletes a user reads all
	// of the user's memberships at once.
	if err := tx.Serialize(ctx, "teams of "+userID); err != nil {
		return err
	}
	switch all, err := teamsOf(ctx, tx.Reader, userID); {
	case err != nil:
		return err
	case len(all) >= maxTeams:
		return fault.Forbiddenf("", "This user is in %d teams, which is the most that a user can be in. Leave one "+
			"first.", maxTeams)
	}
	added, err := insert(ctx, tx, teamID, userID, role)
	if err != nil {
		return fmt.Errorf("add a member: %w", err)
	}
	if !added {
		return fault.Invalidf("email", "This user is a member of the team already.")
	}
	s.changed(tx, teamID)
	return nil
}

// SetRole changes a member's role.
func (s *Service) SetRole(ctx context.Context, by teams.Actor, userID string, role teams.Role) (Membership, error) {
	if err := checkMayGrant(&by, role); err != nil {
		return Membership{}, err
	}
	var m Membership
	err := s.DB.Update(ctx, func(tx *db.Tx) (err error) {
		if m, err = s.prepareChange(ctx, tx, by, userID, role); err != nil || m.Role == role {
			return err
		}
		if err := setRole(ctx, tx, by.TeamID, userID, role); err != nil {
			return err
		}
		if err := s.revokeInvitations(ctx, tx, by, userID, role); err != nil {
			return err
		}
		s.record(ctx, tx, by, audit.MemberRoleChanged, userID, m.Email+": "+string(m.Role)+" to "+string(role))
		m.Role = role
		return nil
	})
	return m, err
}

// Remove ends a membership.
func (s *Service) Remove(ctx context.Context, by teams.Actor, userID string) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		m, err := s.prepareChange(ctx, tx, by, userID, "")
		if err != nil {
			return err
		}
		s.record(ctx, tx, by, audit.MemberRemoved, userID, m.Email)
		return s.end(ctx, tx, by, userID)
	})
}

// Leave ends a membership at the user's own request.
func (s *Service) Leave(ctx context.Context, teamID, userID string) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		by := teams.Actor{Kind: teams.UserActor, ID: userID, TeamID: teamID, Scopes: teams.Owner.Scopes()}
		m, err := s.prepareChange(ctx, tx, by, userID, "")
		if err != nil {
			return err
		}
		by.Name = m.Email
		s.record(ctx, tx, by, audit.MemberLeft, userID, m.Email)
		return s.end(ctx, tx, by, userID)
	})
}

// revokeInvitations revokes a user's open invitations that the user's new role no longer allows. Without this step, a
// removed member could rejoin through an open invitation.
func (s *Service) revokeInvitations(ctx context.Context, tx *db.Tx, by teams.Actor, userID string,
	role teams.Role) error {
	var gone []string
	for _, r := range teams.Roles {
		if !mayInvite(role.Scopes(), r) {
			gone = append(gone, string(r))
		}
	}
	all, err := revokeOf(ctx, tx, by.TeamID, userID, gone)
	for _, v := range all {
		s.record(ctx, tx, by, audit.InvitationRevoked, v.ID, v.Email)
	}
	return err
}

// mayInvite reports whether an actor with the given scopes may invite people to a role.
func mayInvite(may teams.Scopes, role teams.Role) bool {
	return may.Has(teams.MembersWrite) && role.Scopes()&^may == 0
}

// prepareChange checks that the actor may change a member's role or, if role is "", end the membership, and returns the
// member. Changes to members are serialized per team, because no database constraint protects the last owner.
func (s *Service) prepareChange(ctx context.Context, tx *db.Tx, by teams.Actor, userID string,
	role teams.Role) (Membership,
	error) {
	if err := lock(ctx, tx, by.TeamID); err != nil {
		return Membership{}, err
	}
	m, err := get(ctx, tx.Reader, by.TeamID, userID)
	if err != nil {
		return m, err
	}
	if m.Role == teams.Owner && role != teams.Owner {
		if err := requireOwner(&by); err != nil {
			return m, err
		}
		switch other, err := otherOwner(ctx, tx.Reader, by.TeamID, userID); {
		case err != nil:
			return m, err
		case !other:
			return m, fault.Forbiddenf("role", "This is the last owner of the team. Make another member an owner "+
				"first.")
		}
	}
	s.changed(tx, by.TeamID)
	return m, nil
}

// OnUserDelete ends all memberships of a user who is being deleted. OnUserDelete returns a fault if the user is the
// last owner of a team.
func (s *Service) OnUserDelete(ctx context.Context, tx *db.Tx, userID string) error {
	all, err := teamsOf(ctx, tx.Reader, userID)
	if err != nil {
		return err
	}
	for _, m := range all {
		if _, err := s.prepareChange(ctx, tx, teams.System(m.TeamID), userID, ""); err != nil {
			return fmt.Errorf("leave team %s: %w", m.TeamName, err)
		}
		s.record(ctx, tx, teams.System(m.TeamID), audit.MemberRemoved, userID, m.Email)
		if err := s.end(ctx, tx, teams.System(m.TeamID), userID); err != nil {
			return err
		}
	}
	return nil
}

// end deletes a membership, revokes the invitations that the user sent, and calls OnMemberRemoved.
func (s *Service) end(ctx context.Context, tx *db.Tx, by teams.Actor, userID string) error {
	if err := s.revokeInvitations(ctx, tx, by, userID, ""); err != nil {
		return err
	}
	if err := s.OnMemberRemoved(ctx, tx, by.TeamID, userID); err != nil {
		return err
	}
	return remove(ctx, tx, by.TeamID, userID)
}

// changed sends a hint after the commit so that all nodes discard their cached members of the team.
func (s *Service) changed(tx *db.Tx, teamID string) {
	tx.AfterCommit(func() { s.DB.Hint(HintTopic, teamID) })
}

// record writes an entry about a membership change to the audit log.
func (s *Service) record(ctx context.Context, tx *db.Tx, by teams.Actor, action, target, detail string) {
	s.Audit.Record(ctx, tx, audit.Entry{TeamID: by.TeamID, ActorKind: string(by.Kind), ActorID: by.ID,
		ActorName: by.Name, Action: action, Target: target, Detail: detail})
}

// checkMayGrant returns a fault if a role has scopes that the actor does not have.
func checkMayGrant(by *teams.Actor, role teams.Role) error {
	scopes := role.Scopes()
	switch missing := scopes &^ by.Scopes; {
	case scopes == 0:
		return unknownRole(role)
	case missing.Has(teams.OwnersWrite):
		return requireOwner(by)
	case missing != 0:
		return fault.New(fault.OutOfScope, "role", "The role `%s` has scopes that have not been granted to you: %s.",
			role,
			missing)
	}
	return nil
}

// requireOwner returns a fault unless the actor may add, change and remove owners.
func requireOwner(by *teams.Actor) error {
	if by.Kind == teams.KeyActor && !by.Scopes.Has(teams.OwnersWrite) {
		return fault.New(fault.Restricted, "role", "API keys do not make, change or remove owners. An owner does it, "+
			"signed in.")
	}
	return by.Require(teams.OwnersWrite)
}

func unknownRole(role teams.Role) error {
	if role == "" {
		return fault.MissingField("role")
	}
	return fault.Invalidf("role", "The `role` field must be `owner`, `admin`, `member` or `viewer`.")
}
