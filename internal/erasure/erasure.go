// Package erasure is what the packages that store mail share when all that is about one email address is to be erased:
// the address as it is looked for, whose rows are meant, and what was found.
//
// # What is erased
//
// What is about the address alone is deleted, and where it is one among others [Placeholder] takes its place. Each
// package does so to its own rows, in transactions of one or a few rows; whatever stops it, doing it again goes on,
// because what is erased is not found any more.
//
// # How it is found
//
// No index leads to an address within a text, and none of addresses is kept for this, because it would be written with
// each email: tables are read once from end to end, by readers and in steps. Letters are compared without regard to
// case, those outside of ASCII only as they are written in lower case.
package erasure

import (
	"context"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/mail/message"
)

// Placeholder stands where an address was. It is a valid address that nobody can have (RFC 2606 section 2).
const Placeholder = "erased@erased.invalid"

// PlaceholderDomain is the domain of the placeholder.
const PlaceholderDomain = "erased.invalid"

// Address is an email address that is to be erased.
type Address struct{ key string }

// Parse reads an address.
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

// Pattern is a pattern for LOWER(column) LIKE $n ESCAPE '\'. It finds each text that names the address, and may find
// others; see [Address.In].
func (a Address) Pattern() string {
	return "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(a.key) + "%"
}

// Is reports whether a mailbox, with a name or without, is the address.
func (a Address) Is(mailbox string) bool {
	if parsed, err := message.ParseAddress(mailbox); err == nil {
		return parsed.Key() == a.key
	}
	return lower(mailbox) == a.key
}

// In reports whether a text names the address.
func (a Address) In(text string) bool { return a.index(lower(text), 0) >= 0 }

// Replace returns the text with the placeholder wherever it names the address. In JSON this changes nothing else: the
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

// index returns where the address stands in a text in lower case, from an offset on, and -1 where it does not: what is
// part of a longer address is another one.
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

// continues reports whether a local part that begins behind a text is only the end of one.
func continues(before string) bool {
	return before != "" && (alphanumeric(before[len(before)-1]) || strings.IndexByte("._+-", before[len(before)-1]) >= 0)
}

// goesOn reports whether a domain before a text is only the beginning of one.
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

// lower is a text with its ASCII letters in lower case: it has the same length.
func lower(text string) string {
	small := []byte(text)
	for i, c := range small {
		if c >= 'A' && c <= 'Z' {
			small[i] = c + 'a' - 'A'
		}
	}
	return string(small)
}

// Scope says whose rows are meant, and whether they are only looked for.
type Scope struct {
	Teams  []string // ids
	All    bool     // the teams are all that there are
	DryRun bool
}

// Has reports whether a team is meant.
func (s *Scope) Has(teamID string) bool { return s.All || slices.Contains(s.Teams, teamID) }

// Count is how much of a kind was erased, or left for a reason that the kind says.
type Count struct {
	Kind string
	N    int
}

// Report counts what was erased, in the order in which kinds were first counted.
type Report []Count

// Add counts n more of a kind.
func (r *Report) Add(kind string, n int) {
	i := slices.IndexFunc(*r, func(c Count) bool { return c.Kind == kind })
	if i < 0 {
		*r = append(*r, Count{Kind: kind})
		i = len(*r) - 1
	}
	(*r)[i].N += n
}

const walkRows = 2000 // that one step of Walk looks at

// Walk goes through the rows of a query in the order of a column of ids, and calls step with the bounds of each part:
// of the ids behind after, up to and with upTo. The query has the table and a condition with its arguments as $1 and
// on, such as "request_logs WHERE team_id = $1"; where has none, it ends with WHERE TRUE.
func Walk(ctx context.Context, r db.Reader, from, column string, args []any, step func(after,
	upTo string) error) error {
	n := len(args)
	text := `SELECT COALESCE(MAX(` + column + `), '') FROM (SELECT ` + column + ` FROM ` + from +
		` AND ` + column + ` > ` + place(n+1) + ` ORDER BY ` + column + ` LIMIT ` + place(n+2) + `) x`
	for after := ""; ; {
		var upTo string
		err := r.QueryRow(ctx, text, append(slices.Clone(args), after, walkRows)...).Scan(&upTo)
		if err != nil || upTo == "" {
			return err
		}
		if err := step(after, upTo); err != nil {
			return err
		}
		after = upTo
	}
}

func place(n int) string { return "$" + string(rune('0'+n)) }
