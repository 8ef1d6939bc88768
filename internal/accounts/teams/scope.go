package teams

import (
	"slices"
	"strings"
)

// Scope is a right to perform one kind of operation, written `resource:action`. The zero value is not a valid scope; no
// actor ever has it.
type Scope uint8

// The numbers are not stored and may change: clients see only the names.
const (
	EmailsSend Scope = iota + 1
	EmailsRead
	EmailsWrite // reschedule and cancel
	EmailsShare // create public links to a sent or received email
	ReceivingRead
	DomainsRead
	DomainsWrite
	KeysRead
	KeysWrite // also create keys that have at most the actor's own scopes
	SuppressionsRead
	SuppressionsWrite
	WebhooksRead  // read webhooks and the events themselves
	WebhooksWrite // also read the signing secrets of webhooks
	LogsRead
	UsageRead
	TemplatesRead // and render
	TemplatesWrite
	ContactsRead // and properties
	ContactsWrite
	SegmentsRead
	SegmentsWrite
	TopicsRead
	TopicsWrite
	BroadcastsRead
	BroadcastsWrite // also pause, resume and cancel broadcasts; sending a broadcast or test email also needs EmailsSend
	EventsRead      // definitions of custom events
	EventsWrite
	EventsSend
	AutomationsRead // and runs
	AutomationsWrite
	MembersRead // and invitations
	MembersWrite
	OwnersWrite // add and remove the team's owners; API keys never have this scope
	AuditRead
	GrantsRead
	GrantsWrite // revoke OAuth grants
	ApprovalsRead
	ApprovalsRequest // request approval of an email; implied by EmailsSend
	ApprovalsWrite   // approve or reject emails from connected apps; grants have this scope only with full access

	scopeEnd // number of the last scope plus one
)

var scopeNames = [scopeEnd]string{
	EmailsSend:        "emails:send",
	EmailsRead:        "emails:read",
	EmailsWrite:       "emails:write",
	EmailsShare:       "emails:share",
	ReceivingRead:     "receiving:read",
	DomainsRead:       "domains:read",
	DomainsWrite:      "domains:write",
	KeysRead:          "api_keys:read",
	KeysWrite:         "api_keys:write",
	SuppressionsRead:  "suppressions:read",
	SuppressionsWrite: "suppressions:write",
	WebhooksRead:      "webhooks:read",
	WebhooksWrite:     "webhooks:write",
	LogsRead:          "logs:read",
	UsageRead:         "usage:read",
	TemplatesRead:     "templates:read",
	TemplatesWrite:    "templates:write",
	ContactsRead:      "contacts:read",
	ContactsWrite:     "contacts:write",
	SegmentsRead:      "segments:read",
	SegmentsWrite:     "segments:write",
	TopicsRead:        "topics:read",
	TopicsWrite:       "topics:write",
	BroadcastsRead:    "broadcasts:read",
	BroadcastsWrite:   "broadcasts:write",
	EventsRead:        "events:read",
	EventsWrite:       "events:write",
	EventsSend:        "events:send",
	AutomationsRead:   "automations:read",
	AutomationsWrite:  "automations:write",
	MembersRead:       "members:read",
	MembersWrite:      "members:write",
	OwnersWrite:       "owners:write",
	AuditRead:         "audit:read",
	GrantsRead:        "grants:read",
	GrantsWrite:       "grants:write",
	ApprovalsRead:     "approvals:read",
	ApprovalsRequest:  "approvals:request",
	ApprovalsWrite:    "approvals:write",
}

// String returns the scope's name, or "" if the scope does not exist.
func (s Scope) String() string {
	if s < scopeEnd {
		return scopeNames[s]
	}
	return ""
}

// Scopes is a set of scopes, stored as one bit per scope.
type Scopes uint64

const allScopes = Scopes(1<<scopeEnd-1) &^ 1

// NewScopes returns a set that contains the given scopes.
func NewScopes(all ...Scope) (set Scopes) {
	for _, s := range all {
		set |= 1 << s
	}
	return set & allScopes
}

// Has reports whether the scope is in the set.
func (set Scopes) Has(s Scope) bool { return set&(1<<s) != 0 }

// String returns the names of the scopes, separated by spaces (RFC 6749 section 3.3).
func (set Scopes) String() string {
	var names []string
	for s := range scopeEnd {
		if set.Has(s) {
			names = append(names, s.String())
		}
	}
	return strings.Join(names, " ")
}

// Permission names the set of scopes that an API key has.
type Permission string

const (
	FullAccess    Permission = "full_access"
	SendingAccess Permission = "sending_access"
)

// Scopes returns the scopes of keys with the permission. Full access includes all scopes, even those added in later
// releases, except [OwnersWrite]: a leaked key must not allow an attacker to remove the team's owners. Any key may
// revoke a grant, as the specification requires (Authentication). A permission that this release does not know has no
// scopes.
func (p Permission) Scopes() Scopes {
	switch p {
	case FullAccess:
		return allScopes &^ NewScopes(OwnersWrite)
	case SendingAccess:
		return NewScopes(EmailsSend, UsageRead, GrantsWrite)
	}
	return 0
}

// ParseScope returns the scope with the given name.
func ParseScope(name string) (Scope, bool) {
	i := slices.Index(scopeNames[:], name)
	return Scope(max(i, 0)), i > 0
}
