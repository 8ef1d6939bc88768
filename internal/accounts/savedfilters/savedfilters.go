// Package savedfilters stores the filters of lists that members save under a name, to open them again.
//
// # Invariants
//
// A saved filter belongs to one user in one team, and no other member sees it. A user has at most [Max] saved filters
// in a team. The names of a user's filters of one list differ. A saved filter is deleted with the membership of its
// user, with its team, and with the erasure of an address that it contains.
//
// # Failures
//
// Errors for users are faults that name the field.
//
// # Out of scope
//
// The package does not know what a filter means: it stores the query parameters of the list's address. A filter whose
// domain or key was deleted since then finds nothing.
package savedfilters

import (
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/visible"
)

// Limits of saved filters.
const (
	Max      = 50   // filters of a user in a team, of all lists together
	MaxName  = 60   // characters
	maxQuery = 2000 // bytes
)

// List is the name of a list that can be filtered.
type List string

// The lists.
const (
	Emails       List = "emails"
	Receiving    List = "receiving"
	Logs         List = "logs"
	Suppressions List = "suppressions"
)

// scopes holds what an actor needs to read each list, and therefore to save filters of it.
var scopes = map[List]teams.Scope{Emails: teams.EmailsRead, Receiving: teams.ReceivingRead, Logs: teams.LogsRead,
	Suppressions: teams.SuppressionsRead}

// Filter is a saved filter.
type Filter struct {
	ID        string
	List      List
	Name      string
	Query     url.Values
	CreatedAt time.Time
}

// check normalizes the name of a filter, and checks the filter against the limits.
func (f *Filter) check() error {
	f.Name = strings.Join(strings.Fields(f.Name), " ")
	hidden := func(r rune) bool { return visible.Hidden(r) && !visible.Joiner(r) || r == utf8.RuneError }
	switch {
	case f.Name == "":
		return fault.Invalidf("name", "Enter a name for the filter.")
	case utf8.RuneCountInString(f.Name) > MaxName:
		return fault.Invalidf("name", "The name has more than %d characters. Choose a shorter one.", MaxName)
	case strings.ContainsFunc(f.Name, hidden):
		return fault.Invalidf("name", "The name has characters that cannot be seen. Type it again.")
	case len(f.Query) == 0:
		return fault.Invalidf("name", "No filter is set. Set one before you save it.")
	case len(f.Query.Encode()) > maxQuery:
		return fault.Invalidf("name", "This filter is too long to be saved. Remove a part of it.")
	}
	return nil
}
