// Package teams has the teams, to whom everything belongs, their API keys, and the actors that act for them: API keys,
// people, OAuth grants and the system, each with scopes.
//
// # Invariants
//
// Every key names its team, and nothing here takes one team for another: a team is found by its id or by its exact
// name, and a name that two teams have finds neither. An actor may do what its scopes say and nothing else, and a key
// that it creates may not do more than the actor itself. A change of a team or of a key holds on this node when its verb
// returns, and on the others as soon as the hint of it arrives.
//
// # Deletion
//
// A deleted team is nobody from the commit of [Service.Delete] on: its keys are gone, and no look-up here finds it.
// What belongs to it is taken away by a job (see [Service.EraseJobs]), and its own row last.
//
// # When it fails
//
// Where a hint is lost, a change is noticed after [cacheFor].
//
// The package does not decide who may change a team: its verbs are the operator's, and those of keys are the team's
// own. Which scope an operation needs is said where the operation is offered.
package teams

import "time"

// Team is a team.
type Team struct {
	ID        string
	Name      string
	Email     string // of its owner, in lower case; "" when none is known
	RateLimit int    // requests a second; 0 takes the configuration's
	Suspended bool   // it may make no requests and begin no emails
	CreatedAt time.Time
}

// Key is an API key. Its token is not kept, only a hash of it.
type Key struct {
	ID         string
	TeamID     string
	Name       string
	Hint       string // what people may see of the token
	Permission Permission
	DomainID   string
	CreatedAt  time.Time
	LastUsedAt time.Time // zero before the first use; a few seconds behind
}
