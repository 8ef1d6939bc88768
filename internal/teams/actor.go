package teams

import "github.com/postrider/postrider/internal/fault"

// ActorKind says what an actor is.
type ActorKind string

const (
	KeyActor    ActorKind = "key"    // an API key
	UserActor   ActorKind = "user"   // a person
	GrantActor  ActorKind = "grant"  // an OAuth grant: a program that a person lets act for the team
	SystemActor ActorKind = "system" // this installation itself; it has no id
)

// Actor is who does something: for which team, and within which scopes. The zero value has no scopes.
type Actor struct {
	Kind     ActorKind
	ID       string
	TeamID   string
	Scopes   Scopes
	DomainID string // when not empty, the only domain that the actor may send from

	// What is known of the team, as of when the actor was looked up.
	RateLimit int // requests a second; 0 takes the configuration's
	Suspended bool
}

// ActorRef is what is stored of an actor beside what it did.
type ActorRef struct {
	Kind ActorKind
	ID   string
}

// System returns the actor for what the installation does by itself in the name of a team. It has all scopes.
func System(teamID string) Actor {
	return Actor{Kind: SystemActor, TeamID: teamID, Scopes: allScopes}
}

// Ref returns what is stored of the actor.
func (a *Actor) Ref() ActorRef { return ActorRef{a.Kind, a.ID} }

// Require returns a fault unless the actor has the scope. Clients of keys and clients of OAuth know the refusal by
// different names, so they are faults of different kinds.
func (a *Actor) Require(s Scope) error {
	switch {
	case a.Scopes.Has(s):
		return nil
	case a.Kind != KeyActor:
		return fault.New(fault.OutOfScope, "", "This needs the scope `%s`, which has not been granted.", s)
	case a.Scopes.Has(EmailsSend):
		return fault.New(fault.Restricted, "", "This API key is restricted to only send emails. Use a key with full access.")
	}
	return fault.New(fault.Restricted, "", "This API key does not have the scope `%s`. Use a key with full access.", s)
}

// mayGrant returns a fault when a key would be able to do what the actor cannot do itself.
func (a *Actor) mayGrant(n *NewKey) error {
	if missing := n.Permission.Scopes() &^ a.Scopes; missing != 0 {
		return fault.New(fault.OutOfScope, "permission", "The key would have scopes that have not been granted to you: %s.",
			missing)
	}
	if a.DomainID != "" && n.DomainID != a.DomainID {
		return fault.Forbiddenf("domain_id", "The key must be restricted to the domain that you are restricted to.")
	}
	return nil
}
