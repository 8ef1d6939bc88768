// Package members keeps which people belong to which teams, in which roles, and the invitations by which they join.
//
// # Invariants
//
// A user is once a member of a team. A team that has members has an owner: the last one who is not disabled neither
// leaves nor gets another role, also when two owners remove each other at the same time. Only who has the scope
// owners:write makes, changes and removes owners, and nobody gives a role that may do more than the giver.
//
// An invitation is accepted once, within [inviteFor], by a user with the address that it was sent to. Its token is not
// stored, only a hash of it. An address has one open invitation to a team: another one takes its place. It is accepted
// only while who sent it last may give its role: while the key or the grant is there, or the member is neither gone nor
// disabled.
//
// A change takes effect on this node before the method returns, and on the others when its hint arrives.
//
// # When it fails
//
// If a hint is lost, other nodes notice a change after at most [cacheFor].
//
// # What it does not do
//
// It does not check that an actor may change members at all: the callers check the scope members:write. It does not
// keep users, which are package users', nor end what programs were granted by a member: that is for who is told by Ended.
package members

import (
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// Membership is a user in a team.
type Membership struct {
	TeamID    string
	TeamName  string
	UserID    string
	Email     string // of the user
	Name      string // of the user; may be empty
	Role      teams.Role
	CreatedAt time.Time
}

// Invitation asks somebody to join a team.
type Invitation struct {
	ID        string
	TeamID    string
	TeamName  string
	Email     string // in lower case
	Role      teams.Role
	By        teams.ActorRef // who sent it last
	CreatedAt time.Time
	SentAt    time.Time // last
	ExpiresAt time.Time

	sends      int
	senderLost bool // who sent it may not give the role any more; of a list
}
