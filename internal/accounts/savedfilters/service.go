package savedfilters

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

const eraseRows = 500 // rows deleted per transaction

// Deps are the dependencies of a Service.
type Deps struct {
	DB *db.DB
	// ScopesIn returns the current scopes of an actor, or 0 if the actor is not a member any more. The membership cannot
	// end before the transaction does.
	ScopesIn func(ctx context.Context, tx *db.Tx, teamID string, by teams.ActorRef) (teams.Scopes, error)
}

// Service saves, lists and deletes filters.
type Service struct{ Deps }

// New returns a Service, or an error if a dependency is missing.
func New(d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	return &Service{d}, nil
}

// All returns the actor's filters of a list, in the order of their names.
func (s *Service) All(ctx context.Context, by teams.Actor, of List) ([]Filter, error) {
	if err := require(&by, of); err != nil {
		return nil, err
	}
	return list(ctx, s.DB.Reader, by.TeamID, by.ID, of)
}

// Save stores a filter for the actor. Errors concern the field name.
func (s *Service) Save(ctx context.Context, by teams.Actor, f Filter) (Filter, error) {
	if err := require(&by, f.List); err != nil {
		return f, err
	}
	if err := f.check(); err != nil {
		return f, err
	}
	f.ID = id.New()
	err := s.DB.Update(ctx, func(tx *db.Tx) error {
		may, err := s.ScopesIn(ctx, tx, by.TeamID, by.Ref())
		if err != nil {
			return err
		}
		if !may.Has(scopes[f.List]) {
			return fault.Forbiddenf("", "You may not read this list any more.")
		}
		switch n, err := count(ctx, tx.Reader, by.TeamID, by.ID); {
		case err != nil:
			return err
		case n >= Max:
			return fault.Invalidf("name", "You have saved %d filters in this team, which is the most. Delete one first.", n)
		}
		f.CreatedAt = tx.Now()
		added, err := insert(ctx, tx, by.TeamID, by.ID, &f)
		if err == nil && !added {
			return fault.Invalidf("name", "You have a filter with this name. Choose another name, or delete the old filter.")
		}
		return err
	})
	return f, err
}

// Delete deletes one of the actor's filters and returns it.
func (s *Service) Delete(ctx context.Context, by teams.Actor, of List, filterID string) (f Filter, err error) {
	if err := require(&by, of); err != nil {
		return f, err
	}
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		f, err = get(ctx, tx.Reader, by.TeamID, by.ID, of, filterID)
		if err != nil {
			return err
		}
		return remove(ctx, tx, by.TeamID, by.ID, filterID)
	})
	return f, err
}

// OnMemberRemoved deletes a user's filters in a team, in the transaction that ends the membership.
func (s *Service) OnMemberRemoved(ctx context.Context, tx *db.Tx, teamID, userID string) error {
	return removeOf(ctx, tx, teamID, userID)
}

// EraseTeam deletes all filters of a team.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	err := s.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return removeSome(ctx, tx, teamID, eraseRows) })
	if err != nil {
		return fmt.Errorf("erase the saved filters of team %s: %w", teamID, err)
	}
	return nil
}

// require returns a fault unless the actor is a user who may read the list.
func require(by *teams.Actor, of List) error {
	if by.Kind != teams.UserActor {
		return fault.Forbiddenf("", "Only people who are signed in save filters.")
	}
	scope, ok := scopes[of]
	if !ok {
		return fault.NotFoundf("This list does not exist.")
	}
	return by.Require(scope)
}
