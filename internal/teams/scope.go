package teams

import "strings"

// Scope is the right to do one kind of thing, written `resource:action`. The zero value is no scope, and nobody has it.
type Scope uint8

// The numbers are not stored and may change; the names are what other programs know.
const (
	EmailsSend Scope = iota + 1
	EmailsRead
	EmailsWrite // reschedule and cancel
	EmailsShare // make links by which anybody can read a sent or received email
	ReceivingRead
	DomainsRead
	DomainsWrite
	KeysRead
	KeysWrite // also create keys, with scopes that the actor has itself
	SuppressionsRead
	SuppressionsWrite
	WebhooksRead  // and the events themselves
	WebhooksWrite // and the secrets that events are signed with
	LogsRead
	UsageRead

	scopeEnd // one more than the last
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
}

// String returns the scope's name, or "" when there is no such scope.
func (s Scope) String() string {
	if s < scopeEnd {
		return scopeNames[s]
	}
	return ""
}

// Scopes is a set of scopes, a bit for each.
type Scopes uint64

const allScopes = Scopes(1<<scopeEnd-1) &^ 1

// NewScopes returns the set of some scopes.
func NewScopes(all ...Scope) (set Scopes) {
	for _, s := range all {
		set |= 1 << s
	}
	return set & allScopes
}

// Has reports whether the scope is in the set.
func (set Scopes) Has(s Scope) bool { return set&(1<<s) != 0 }

// String returns the names, separated by spaces (RFC 6749 section 3.3).
func (set Scopes) String() string {
	var names []string
	for s := range scopeEnd {
		if set.Has(s) {
			names = append(names, s.String())
		}
	}
	return strings.Join(names, " ")
}

// Permission is how an API key names its scopes.
type Permission string

const (
	FullAccess    Permission = "full_access"
	SendingAccess Permission = "sending_access"
)

// Scopes returns what keys with the permission may do. Full access has all scopes, those of later releases included. A
// permission that this release does not know gives none.
func (p Permission) Scopes() Scopes {
	switch p {
	case FullAccess:
		return allScopes
	case SendingAccess:
		return NewScopes(EmailsSend, UsageRead)
	}
	return 0
}
