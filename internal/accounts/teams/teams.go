// Package teams manages teams, their API keys, and actors. All data in an installation belongs to some team. An actor
// is an API key, a user, an OAuth grant, or the system, and acts for a team with certain scopes.
//
// # Invariants
//
// Every key belongs to one team. A team can be looked up by its id or its exact name; looking up a name that several
// teams share is an error. An actor may do only what its scopes allow, and cannot create a key with more rights than
// its own. A change to a team or a key takes effect on this node before the method returns, and on other nodes when the
// hint about the change arrives.
//
// Once [Service.Delete] has committed, no look-up returns the team or its keys. A job then deletes the team's data, and
// finally its row (see [Service.EraseJobs]).
//
// # Failures
//
// If a hint is lost, other nodes notice the change within [cacheFor]. If a node crashes, the times of last use that it
// has not yet written are lost.
//
// # Out of scope
//
// Package teams does not decide who may change a team. Operations on teams are for the operator; operations on keys are
// for the team itself. The callers check the required scope.
package teams

import "time"

// Team is one tenant of the installation.
type Team struct {
	ID        string
	Name      string
	Email     string // of its owner, in lower case; "" if unknown
	RateLimit int    // requests per second; 0 means the configured rate
	Suspended bool   // the team may not make requests or submit emails
	Quota
	CreatedAt time.Time
}

// Quota is how many emails a team may send and receive per day and per month (UTC). 0 means no limit. Package quotas
// counts these emails.
type Quota struct{ Daily, Monthly int64 }

// Key is an API key. Only a hash of a key's token is stored.
type Key struct {
	ID         string
	TeamID     string
	Name       string
	Hint       string // the part of the token that may be displayed
	Permission Permission
	DomainID   string
	CreatedAt  time.Time
	LastUsedAt time.Time // zero before the first use; up to ten seconds old
}
