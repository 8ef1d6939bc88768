// Package members stores which users belong to which teams, their roles, and the invitations to teams.
//
// # Invariants
//
// A user has at most one membership in a team. A team that has members always has an owner. The last owner who is not
// disabled can neither leave nor change role, even if two owners remove each other at the same time. Only an actor with
// the owners:write scope may add, change or remove owners. Members can give a role only if they have all rights of that
// role themselves.
//
// An invitation can be accepted once, within [inviteFor], by a user with the invited address. Only a hash of an
// invitation's token is stored. An address has at most one open invitation to a team; a new invitation replaces the old
// one. An invitation is valid only while its last sender may give the role. A key or grant that sent an invitation must
// still exist; a user who sent one must still be a member and must not be disabled.
//
// A change takes effect on this node before the method returns, and on other nodes when the hint (HintTopic) about the
// change arrives.
//
// # Failures
//
// If a hint is lost, other nodes notice the change within [cacheFor].
//
// # Out of scope
//
// The callers check that an actor has the members:write scope. Package users manages the users themselves. Package
// grants revokes the grants of a member whose membership ends.
package members

import (
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// Membership is a user's membership in a team.
type Membership struct {
	TeamID    string
	TeamName  string
	UserID    string
	Email     string // of the user
	Name      string // the user's name; may be empty
	Role      teams.Role
	CreatedAt time.Time
}

// Invitation invites a person to join a team.
type Invitation struct {
	ID        string
	TeamID    string
	TeamName  string
	Email     string // in lower case
	Role      teams.Role
	By        teams.ActorRef // the last sender
	CreatedAt time.Time
	SentAt    time.Time // time of the last email
	ExpiresAt time.Time

	sends      int
	senderLost bool // the sender may no longer give the role; set only in list results
}
