package grants

import (
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// fullAccess is the name for all scopes that a grant may have (API reference section 24.7).
const fullAccess = string(teams.FullAccess)

// unnamed contains the scopes that no client may request by name. An app must not take the team away from its owners or
// make decisions that are reserved for people. Full access includes approvals:write, as it does for API keys. An app
// with full access may send any email without approval, and could also create an API key with full access.
var unnamed = teams.NewScopes(teams.OwnersWrite, teams.ApprovalsWrite)

// Scopes are the scopes that a client requested or was granted. The zero value of Scopes contains no scopes.
type Scopes struct {
	Full bool         // full_access: all scopes of an API key with full access, including any that later releases add
	Each teams.Scopes // scopes that the client requested by name
}

// ParseScopes parses names separated by spaces (RFC 6749 section 3.3). If a scope is unknown or may not be requested by
// name, ParseScopes returns ok == false.
func ParseScopes(text string) (set Scopes, ok bool) {
	for name := range strings.FieldsSeq(text) {
		if name == fullAccess {
			set.Full = true
			continue
		}
		one, known := teams.ParseScope(name)
		if !known || unnamed.Has(one) {
			return Scopes{}, false
		}
		set.Each |= teams.NewScopes(one)
	}
	return set, true
}

// storedScopes parses the scope names in a database row, and skips names that are unknown to this release.
func storedScopes(text string) (set Scopes) {
	for name := range strings.FieldsSeq(text) {
		one, _ := ParseScopes(name)
		set.Full, set.Each = set.Full || one.Full, set.Each|one.Each
	}
	return set
}

// ScopeNames returns the names of all scopes that a client may request.
func ScopeNames() []string {
	names := strings.Fields(Scopes{Full: true, Each: teams.FullAccess.Scopes() &^ unnamed}.String())
	send := teams.EmailsSend.String()
	rest := slices.DeleteFunc(names[1:], func(name string) bool { return name == send })
	return append([]string{fullAccess, send}, rest...)
}

// All returns the scopes as a set, with full access expanded.
func (set Scopes) All() teams.Scopes {
	if set.Full {
		return teams.FullAccess.Scopes()
	}
	return set.Each &^ unnamed
}

// Empty reports whether the scopes allow nothing.
func (set Scopes) Empty() bool { return set.All() == 0 }

// Covers reports whether a set of scopes includes all scopes of another set.
func (set Scopes) Covers(other Scopes) bool {
	return other.All()&^set.All() == 0 && (set.Full || !other.Full)
}

// Intersect returns the scopes that are also in the given set. The result contains the name full_access only if the
// given set includes every scope of full access. If the given set lacks a scope of full access, the result lists
// individual scopes, so that it does not grow with the user's role.
func (set Scopes) Intersect(may teams.Scopes) Scopes {
	if set.All()&^may == 0 {
		return set
	}
	return Scopes{Each: set.All() & may &^ unnamed}
}

// Names returns the scope names as the client requested them; full access is one name.
func (set Scopes) Names() []string { return strings.Fields(set.String()) }

// String returns the scope names, separated by spaces.
func (set Scopes) String() string {
	if !set.Full {
		return set.Each.String()
	}
	return strings.TrimSpace(fullAccess + " " + set.Each.String())
}
