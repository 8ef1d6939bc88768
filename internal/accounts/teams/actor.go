package teams

import "github.com/postrider/postrider/internal/lib/fault"

// ActorKind is the kind of an actor.
type ActorKind string

const (
	KeyActor    ActorKind = "key"    // an API key
	UserActor   ActorKind = "user"   // a person
	GrantActor  ActorKind = "grant"  // an OAuth grant: an app that a user connected to the team
	SystemActor ActorKind = "system" // the installation itself; it has no id
)

// Actor performs operations for a team, with certain scopes. The zero value has no scopes.
type Actor struct {
	Kind     ActorKind
	ID       string
	Name     string // name of the key or the app, or the user's address; for the audit log
	TeamID   string
	Scopes   Scopes
	DomainID string // if not empty, the only domain from which the actor may send
	Limited  bool   // the actor is a grant with limits, and may send only single emails
	Resource string // if not empty, the only resource that accepts the access token (RFC 8707); see At

	// The state of the team when the actor was looked up.
	RateLimit int // requests a second; 0 means the configured rate
	Suspended bool
}

// APIResource is the resource of the API and of SMTP submission. A resource is a path below the address of the
// installation; other services of the installation have other paths.
const APIResource = "/"

// At returns a fault if the actor's access token was issued for another resource.
func (a *Actor) At(resource string) error {
	if a.Resource != "" && a.Resource != resource {
		return fault.New(fault.BadCredential, "", "The access token was issued for another resource of this server. Ask "+
			"for one whose `resource` is this one, or none.")
	}
	return nil
}

// ActorRef identifies an actor in stored data.
type ActorRef struct {
	Kind ActorKind
	ID   string
}

// System returns the actor for operations of the installation itself on behalf of a team. It has all scopes.
func System(teamID string) Actor {
	return Actor{Kind: SystemActor, TeamID: teamID, Scopes: allScopes}
}

// Ref returns the reference to the actor that is stored.
func (a *Actor) Ref() ActorRef { return ActorRef{a.Kind, a.ID} }

// Require returns a fault unless the actor has the scope. An actor that may send may also request approvals. The API's
// errors for keys and for OAuth have different names, so the kinds of the faults differ.
func (a *Actor) Require(s Scope) error {
	switch {
	case a.Scopes.Has(s), s == ApprovalsRequest && a.Scopes.Has(EmailsSend):
		return nil
	case s == EmailsSend && a.Limited && a.Scopes.Has(ApprovalsRequest):
		return fault.New(fault.OutOfScope, "", "A person approves what this program sends: ask with `POST /approvals`, "+
			"which takes what `POST /emails` takes.")
	case a.Kind != KeyActor:
		return fault.New(fault.OutOfScope, "", "This needs the scope `%s`, which has not been granted.", s)
	case a.Scopes.Has(EmailsSend):
		return fault.New(fault.Restricted, "", "This API key is restricted to only send emails. Use a key with full access.")
	}
	return fault.New(fault.Restricted, "", "This API key does not have the scope `%s`. Use a key with full access.", s)
}

// RequireUnlimited returns a fault if the actor is limited to single emails. It protects operations that send many
// emails, which the limits would not count.
func (a *Actor) RequireUnlimited() error {
	if a.Limited {
		return fault.Forbiddenf("", "This program has limits, and so does not send broadcasts. Write a draft, and let "+
			"a person send it.")
	}
	return nil
}

// mayGrant returns a fault if the key would have rights that the actor does not have.
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
