// Package teams manages the teams, to which all data belongs, their API keys, and the actors that act for them: API
// keys, users, OAuth grants and the system, each with scopes.
//
// # Invariants
//
// Every key belongs to one team. A team is found by its id or by its exact name, and a name that two teams have finds
// neither. An actor may do only what its scopes allow, and a key that it creates may not do more than the actor itself.
// A change of a team or of a key takes effect on this node before the method returns, and on the others when its hint
// arrives.
//
// From the commit of [Service.Delete] on, no look-up here finds the team or its keys. Its data is then deleted by a job
// (see [Service.EraseJobs]), and its own row last.
//
// # When it fails
//
// If a hint is lost, other nodes notice a change after at most [cacheFor]. The times of last use that a node has not
// written when it crashes are lost.
//
// # What it does not do
//
// It does not decide who may change a team: operations on teams are the operator's, and those on keys are the team's
// own. The callers check which scope an operation needs.
package teams

import "time"

// Team is a team.
type Team struct {
	ID        string
	Name      string
	Email     string // of its owner, in lower case; "" if none is known
	RateLimit int    // requests a second; 0 means the configuration's
	Suspended bool   // it may not make requests or submit emails
	Quota
	CreatedAt time.Time
}

// Quota is how many emails a team may send and receive in a day and in a month of UTC; 0 is without a limit. Package
// volume counts them.
type Quota struct{ Daily, Monthly int64 }

// Key is an API key. Its token is not stored, only a hash of it.
type Key struct {
	ID         string
	TeamID     string
	Name       string
	Hint       string // the part of the token that may be shown
	Permission Permission
	DomainID   string
	CreatedAt  time.Time
	LastUsedAt time.Time // zero before the first use; a few seconds behind
}
