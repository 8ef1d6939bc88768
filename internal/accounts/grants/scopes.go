package grants

import (
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// fullAccess is the name of all scopes that a grant may have (API reference section 24.7).
const fullAccess = string(teams.FullAccess)

// unnamed are the scopes that no client may ask for by name: a program must not take the team from its owners, nor
// decide itself what a person is to decide. Full access has the second of them, as keys with full access have it: who
// may send whatever it likes evades nothing by it, and could make such a key.
var unnamed = teams.NewScopes(teams.OwnersWrite, teams.ApprovalsWrite)

// Scopes is what a client asks for or was granted. The zero value is nothing.
type Scopes struct {
	Full bool         // full_access: what an API key with that name may do, also in later releases
	Each teams.Scopes // those that are named
}

// ParseScopes reads names separated by spaces (RFC 6749 section 3.3). ok is false if a name is unknown, or names what
// cannot be asked for by name.
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

// storedScopes reads the names that a row has. A name that this release does not know is left out.
func storedScopes(text string) (set Scopes) {
	for name := range strings.FieldsSeq(text) {
		one, _ := ParseScopes(name)
		set.Full, set.Each = set.Full || one.Full, set.Each|one.Each
	}
	return set
}

// ScopeNames are the names of all scopes that a client may ask for.
func ScopeNames() []string {
	names := strings.Fields(Scopes{Full: true, Each: teams.FullAccess.Scopes() &^ unnamed}.String())
	send := teams.EmailsSend.String()
	rest := slices.DeleteFunc(names[1:], func(name string) bool { return name == send })
	return append([]string{fullAccess, send}, rest...)
}

// All returns what the scopes allow.
func (set Scopes) All() teams.Scopes {
	if set.Full {
		return teams.FullAccess.Scopes()
	}
	return set.Each &^ unnamed
}

// Empty reports whether the scopes allow nothing.
func (set Scopes) Empty() bool { return set.All() == 0 }

// Covers reports whether the scopes allow all that others do.
func (set Scopes) Covers(other Scopes) bool {
	return other.All()&^set.All() == 0 && (set.Full || !other.Full)
}

// Intersect returns those of the scopes that somebody may do. Full access remains what it is only if all of it remains:
// otherwise it would grow with the person's role.
func (set Scopes) Intersect(may teams.Scopes) Scopes {
	if set.All()&^may == 0 {
		return set
	}
	return Scopes{Each: set.All() & may &^ unnamed}
}

// Names returns the names as they were granted.
func (set Scopes) Names() []string { return strings.Fields(set.String()) }

// String returns the names, separated by spaces.
func (set Scopes) String() string {
	if !set.Full {
		return set.Each.String()
	}
	return strings.TrimSpace(fullAccess + " " + set.Each.String())
}
