package teams

import (
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// ActorKind is the kind of an actor.
type ActorKind string

const (
	KeyActor    ActorKind = "key"    // an API key
	UserActor   ActorKind = "user"   // a person
	GrantActor  ActorKind = "grant"  // the OAuth grant for an app that a user connected to the team
	SystemActor ActorKind = "system" // the installation itself; this actor has no id
)

// ActorKinds holds the numbers of the kinds in emails.actor_kind.
var ActorKinds = db.NewNames("emails.actor_kind", map[ActorKind]int16{KeyActor: 1, UserActor: 2, GrantActor: 3,
	SystemActor: 4})

// Actor is a key, user or grant, or the system itself, that performs operations for a team. An actor's scopes determine
// which operations it may perform. The zero value has no scopes.
type Actor struct {
	Kind     ActorKind
	ID       string
	Name     string // name of the key or app, or the user's address; for the audit log
	TeamID   string
	Scopes   Scopes
	DomainID string // if not empty, the only domain that the actor may send from
	Limited  bool   // true for a grant with limits, which may send emails only one at a time
	Resource string // if not empty, the only resource that accepts the access token (RFC 8707); see At

	// RateLimit and Suspended are the team's values at the time when the actor was looked up.
	RateLimit int // requests per second; 0 means the configured rate
	Suspended bool
}

// APIResource is the OAuth resource (RFC 8707) for the API and for SMTP submission. A resource is a path under the
// installation's base URL; each service has its own path.
const APIResource = "/"

// At returns a fault if the actor's access token was issued for a different resource.
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

// DueSend describes emails that an actor asked for earlier and that are due now.
type DueSend struct {
	Bulk       bool // whether the emails belong to a broadcast
	Automation bool // whether an automation sends the emails, which needs automations:write
	Approved   bool // whether a person has approved the email
	Recipients int  // number of recipients of the email; 0 for a broadcast
}

// System returns an actor with all scopes for operations that the installation itself performs for a team.
func System(teamID string) Actor {
	return Actor{Kind: SystemActor, TeamID: teamID, Scopes: allScopes}
}

// Ref returns the ActorRef that identifies the actor in stored data.
func (a *Actor) Ref() ActorRef { return ActorRef{a.Kind, a.ID} }

// Require returns a fault unless the actor has the given scope. The scope EmailsSend implies ApprovalsRequest. API keys
// get a different fault kind from other actors, because the API has different error names for keys and for OAuth.
func (a *Actor) Require(s Scope) error {
	switch {
	case a.Scopes.Has(s), s == ApprovalsRequest && a.Scopes.Has(EmailsSend):
		return nil
	case s == EmailsSend && a.Limited && a.Scopes.Has(ApprovalsRequest):
		return fault.New(fault.OutOfScope, "", "A person approves what this app sends: ask with `POST /approvals`, "+
			"which takes what `POST /emails` takes.")
	case a.Limited:
		return fault.New(fault.OutOfScope, "", "This needs the scope `%s`, which was not granted, or which the limits of "+
			"this app take away. A member of the team can change the limits.", s)
	case a.Kind != KeyActor:
		return fault.New(fault.OutOfScope, "", "This needs the scope `%s`, which has not been granted.", s)
	case a.Scopes.Has(EmailsSend):
		return fault.New(fault.Restricted, "", "This API key is restricted to only send emails. Use a key with full access.")
	}
	return fault.New(fault.Restricted, "", "This API key does not have the scope `%s`. Use a key with full access.", s)
}

// RequireUnlimited returns a fault if the actor is limited to single emails. Operations that send many emails call
// RequireUnlimited, because these emails would not count toward a grant's limits.
func (a *Actor) RequireUnlimited() error {
	if a.Limited {
		return fault.Forbiddenf("", "This app has limits, and so does not send broadcasts. Write a draft, and let "+
			"a person send it.")
	}
	return nil
}

// RequirePublisher returns a fault if the actor is limited and may therefore not publish a template. Other emails, such
// as those of automations, use published templates, and these emails would not count toward a grant's limits.
func (a *Actor) RequirePublisher() error {
	if a.Limited {
		return fault.New(fault.OutOfScope, "", "This app has limits, and so does not publish templates. Let a person "+
			"publish it on the page of connected apps.")
	}
	return nil
}

// mayGrant returns a fault if the new key would have rights that the actor does not have.
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
