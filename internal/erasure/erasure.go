// Package erasure has what the packages that store mail share for erasing everything about one email address: how to
// find the address in texts, which teams are meant, and a report of what was found.
//
// # What is erased
//
// Rows about the address alone are deleted; where it is one address among others, [Placeholder] replaces it. Each
// package does this to its own rows, in transactions of one or a few rows.
//
// # How it is found
//
// No index finds an address within a text, and no index of addresses is kept for this purpose, because it would be
// written with each email: tables are read once from end to end, in steps and outside of transactions. Letters are
// compared without regard to case; letters outside of ASCII are found only in lower case.
//
// # When it fails
//
// An erasure that was interrupted must be run again. It starts over, and does not find again what it erased. Emails
// that are still to be delivered or counted are left as they are, and reported.
//
// # What it does not do
//
// It reads and changes no rows by itself.
package erasure

import (
	"context"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/mail/message"
)

// Placeholder replaces an erased address. It is a valid address that nobody can have (RFC 2606 section 2).
const Placeholder = "erased@erased.invalid"

// PlaceholderDomain is the domain of the placeholder.
const PlaceholderDomain = "erased.invalid"

// Address is an email address to erase.
type Address struct{ key string }

// Parse parses an address. The error is an Invalid fault.
func Parse(text string) (Address, error) {
	a, err := message.ParseAddress(text)
	if err != nil {
		return Address{}, fault.Invalidf("address", "The address must be one such as someone@example.com: %s",
			err).Because(err)
	}
	return Address{a.Key()}, nil
}

// Key is the address in lower case.
func (a Address) Key() string { return a.key }

// Pattern is a pattern for LOWER(column) LIKE $n ESCAPE '\'. It matches each text that contains the address, and may
// match others; check with [Address.In].
func (a Address) Pattern() string {
	return "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(a.key) + "%"
}

// Is reports whether a mailbox, with or without a name, has the address.
func (a Address) Is(mailbox string) bool {
	if parsed, err := message.ParseAddress(mailbox); err == nil {
		return parsed.Key() == a.key
	}
	return lower(mailbox) == a.key
}

// In reports whether a text contains the address, and not only as part of a longer one.
func (a Address) In(text string) bool { return a.index(lower(text), 0) >= 0 }

// Replace returns the text with the placeholder in each place of the address. It is safe in JSON, since the
// placeholder needs no escapes.
func (a Address) Replace(text string) string {
	small := lower(text)
	i := a.index(small, 0)
	if i < 0 {
		return text
	}
	var b strings.Builder
	from := 0
	for ; i >= 0; i = a.index(small, from) {
		b.WriteString(text[from:i])
		b.WriteString(Placeholder)
		from = i + len(a.key)
	}
	b.WriteString(text[from:])
	return b.String()
}

// index returns the position of the address in a lower-case text, from an offset on, or -1 if it does not occur.
// Where it is part of a longer address, it is another address.
func (a Address) index(small string, from int) int {
	for {
		i := strings.Index(small[from:], a.key)
		if i < 0 {
			return -1
		}
		if i += from; !continues(small[:i]) && !goesOn(small[i+len(a.key):]) {
			return i
		}
		from = i + 1
	}
}

// continues reports whether a local part after this text would only be the end of a longer one.
func continues(before string) bool {
	return before != "" && (alphanumeric(before[len(before)-1]) || strings.IndexByte("._+-", before[len(before)-1]) >= 0)
}

// goesOn reports whether a domain before this text would only be the beginning of a longer one.
func goesOn(after string) bool {
	switch {
	case after == "":
		return false
	case after[0] == '.':
		return len(after) > 1 && alphanumeric(after[1])
	}
	return after[0] == '-' || alphanumeric(after[0])
}

func alphanumeric(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c >= 0x80 }

// lower is a text with its ASCII letters in lower case. Its length is the same.
func lower(text string) string {
	small := []byte(text)
	for i, c := range small {
		if c >= 'A' && c <= 'Z' {
			small[i] = c + 'a' - 'A'
		}
	}
	return string(small)
}

// Scope is the teams whose rows are meant. With DryRun they are only searched.
type Scope struct {
	Teams  []string // ids
	All    bool     // Teams has all teams
	DryRun bool
	// Refusals is whether what keeps the address from being mailed is erased too: that it is suppressed, unsubscribed
	// or opted out.
	Refusals bool
}

// Has reports whether a team is in scope.
func (s *Scope) Has(teamID string) bool { return s.All || slices.Contains(s.Teams, teamID) }

// Count is the number of rows of a kind that were erased, or that were left for a reason that the kind names.
type Count struct {
	Kind string `json:"kind"`
	N    int    `json:"n"`
	Left Left   `json:"left,omitzero"`
}

// Left says that rows were not erased, and when they can be.
type Left string

const (
	LeftSoon  Left = "soon"  // in a few minutes
	LeftLater Left = "later" // once something else has ended
	LeftKept  Left = "kept"  // when [Scope] says so
)

// Report counts what was erased, in the order in which kinds were first counted.
type Report []Count

// Add counts n more of a kind.
func (r *Report) Add(kind string, n int) { r.add(Count{Kind: kind, N: n}) }

// Leave counts n rows that were not erased.
func (r *Report) Leave(kind string, left Left, n int) { r.add(Count{Kind: kind, N: n, Left: left}) }

// Merge adds the counts of another report.
func (r *Report) Merge(other Report) {
	for _, c := range other {
		r.add(c)
	}
}

func (r *Report) add(more Count) {
	i := slices.IndexFunc(*r, func(c Count) bool { return c.Kind == more.Kind && c.Left == more.Left })
	if i < 0 {
		*r = append(*r, more)
		return
	}
	(*r)[i].N += more.N
}

// Eraser erases an address from what one package stores, in the teams of a scope. It may be interrupted, and is then
// called again.
type Eraser struct {
	Name  string // of what is stored
	Erase func(ctx context.Context, a Address, scope Scope) (Report, error)
}
