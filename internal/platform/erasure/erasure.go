// Package erasure helps the packages that store mail to erase all data about one email address. The package finds the
// address in text, defines which teams are affected, and counts the erased rows.
//
// # What is erased
//
// Rows that concern only the address are deleted. In rows with several addresses, [Placeholder] replaces the address.
// Each package changes its own rows, in transactions of a few rows each.
//
// # How it is found
//
// No index supports searching text for an address, because each new email would have to update that index. An erasure
// reads each table once from end to end, in steps and outside of transactions. Letters are compared without regard to
// case, as [message.Address.Key] does. The LOWER function differs between the engines: SQLite converts only ASCII, and
// PostgreSQL follows its locale. SQL therefore only preselects rows with a pattern, and Go code makes the exact
// comparison. A pattern cannot match an address of which any letter may be percent-encoded, as in a clicked link, so
// SQL also preselects the rows that contain escapes.
//
// # Failures
//
// An interrupted erasure must be run again. The next run of the erasure starts from the beginning and skips rows that
// are already erased. Emails that are not yet delivered or counted stay unchanged and are reported.
//
// # Out of scope
//
// Package erasure itself changes only the rows that [Texts] describes.
package erasure

import (
	"context"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
)

// Placeholder replaces an erased address. The placeholder is a valid address in a reserved domain, so that nobody can
// own it (RFC 2606 section 2).
const Placeholder = "erased@erased.invalid"

// PlaceholderDomain is the domain of Placeholder.
const PlaceholderDomain = "erased.invalid"

// Address is an email address to erase.
type Address struct {
	key     string
	local   string   // of the key
	domains []string // the domain in ASCII, and in Unicode if that differs
}

// Parse parses an address. Parse returns an Invalid fault if the address is invalid.
func Parse(text string) (Address, error) {
	parsed, err := message.ParseAddress(text)
	if err != nil {
		return Address{}, fault.Invalidf("address", "The address must be one such as someone@example.com: %s",
			err).Because(err)
	}
	a := Address{key: parsed.Key(), domains: []string{parsed.Domain}}
	a.local = strings.TrimSuffix(a.key, "@"+parsed.Domain)
	if shown, err := idna.Lookup.ToUnicode(parsed.Domain); err == nil && shown != parsed.Domain {
		a.domains = append(a.domains, shown)
	}
	return a, nil
}

// Key returns the address in lower case.
func (a Address) Key() string { return a.key }

// Like returns a pattern for LOWER(column) LIKE $n ESCAPE '\'. The pattern matches every stored spelling of the address
// and may match other addresses, so callers check the result with [Address.Is]. The pattern has wildcards for letters
// that the engines may change: non-ASCII letters, and i, because Turkish has a different lower-case form of I.
func (a Address) Like() string { return like(a.key) }

// Pattern returns the pattern for the condition that [MayContain] returns. On its own, the pattern does not match a
// string in which letters, digits or the characters -._~ of the address are encoded.
func (a Address) Pattern() string {
	// Characters that URLs encode, such as @, may be stored in either form.
	encodable := func(r rune) rune {
		if r < utf8.RuneSelf && !alphanumeric(r) && !strings.ContainsRune("-._~", r) {
			return '"'
		}
		return r
	}
	labels := strings.Split(a.domains[0], ".")
	for i, label := range labels {
		if labels[i] = like(label); strings.HasPrefix(label, "xn--") {
			labels[i] = "%" // wildcard, because stored strings may contain the domain label in Unicode
		}
	}
	return "%" + like(strings.Map(encodable, a.local)) + "%" + strings.Join(labels, ".") + "%"
}

func like(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == 'i':
			b.WriteByte('_')
		case r == '%' || r == '_':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r >= utf8.RuneSelf || r == '"' || r == '\\': // wildcard, because JSON may contain an escape for this character
			b.WriteByte('%')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Is reports whether a mailbox, with or without a display name, has the address.
func (a Address) Is(mailbox string) bool {
	if mailbox == a.key {
		return true
	}
	parsed, err := message.ParseAddress(mailbox)
	return err == nil && parsed.Key() == a.key
}

// Spellings returns the distinct spellings of the address in a list of mailboxes, regardless of case.
func (a Address) Spellings(all []string) []string {
	var some []string
	for _, text := range all {
		if a.Is(text) && !slices.Contains(some, text) {
			some = append(some, text)
		}
	}
	return some
}

// In reports whether a text contains the address as a whole, not as part of a longer address. The text given to In may
// be JSON with escapes, or contain percent-encoded URLs. An address before a file extension such as .csv counts as a
// whole address.
func (a Address) In(text string) bool {
	_, _, found := a.next(text, 0)
	return found
}

// Replace returns the text with each occurrence of the address replaced by the placeholder. Replace can be used on
// JSON, because the placeholder needs no escapes.
func (a Address) Replace(text string) string {
	var b strings.Builder
	done := 0
	for {
		start, end, found := a.next(text, done)
		if !found {
			break
		}
		b.WriteString(text[done:start])
		b.WriteString(Placeholder)
		done = end
	}
	if done == 0 {
		return text
	}
	b.WriteString(text[done:])
	return b.String()
}

// next returns the position of the address's next occurrence at or after the given offset in a text. Longer addresses
// that contain the address are skipped.
func (a Address) next(text string, from int) (start, end int, found bool) {
	for at := from; ; at++ {
		i := strings.IndexAny(text[at:], `@%\`)
		if i < 0 {
			return 0, 0, false
		}
		at += i
		r, size := firstOf(text[at:])
		if r != '@' || text[at] == '\\' && !begins(text, at) {
			continue
		}
		if start, found = cutLocal(text[from:at], a.local); !found {
			continue
		}
		start += from
		for _, domain := range a.domains {
			end, found := cutDomain(text[at+size:], domain)
			if end += at + size; found && isWhole(text[:start], text[end:]) {
				return start, end, true
			}
		}
	}
}

// isWhole reports whether a match between two texts is a whole address and not part of a longer one. In the name of a
// file, an address may follow a separator, as in contacts-someone@example.com.csv.
func isWhole(before, after string) bool {
	if isExtension(after) {
		r, size := lastOf(before)
		return size == 0 || !alphanumeric(r)
	}
	return !continues(before) && !goesOn(after)
}

// fileExtensions are extensions of files whose names may contain an address. None of them is a top-level domain.
var fileExtensions = []string{"csv", "tsv", "txt", "json", "jsonl", "ndjson", "xml", "html", "htm", "xls", "xlsx",
	"pdf",
	"doc", "docx", "odt", "ods", "eml", "msg", "mbox", "vcf", "ics", "log", "gz", "tgz", "png", "jpg", "jpeg", "gif"}

// isExtension reports whether a text starts with one or more file extensions that end the name of a file.
func isExtension(text string) bool {
	rest, ok := strings.CutPrefix(text, ".")
	if !ok {
		return false
	}
	n := 0
	for n < len(rest) && rest[n] < utf8.RuneSelf && alphanumeric(rune(rest[n])) {
		n++
	}
	return slices.Contains(fileExtensions, strings.ToLower(rest[:n])) && (isExtension(rest[n:]) || !goesOn(rest[n:]))
}

// cutLocal looks for a local part at the end of the text and returns the offset at which the local part begins.
func cutLocal(text, local string) (start int, found bool) {
	for start = len(text); local != ""; {
		want, n := utf8.DecodeLastRuneInString(local)
		local = local[:len(local)-n]
		r, size := lastOf(text[:start])
		if size == 0 || message.Lower(r) != want {
			return 0, false
		}
		start -= size
	}
	return start, true
}

// cutDomain looks for a domain at the start of the text and returns the offset at which the domain ends.
func cutDomain(text, domain string) (end int, found bool) {
	for _, want := range domain {
		r, size := firstOf(text[end:])
		if size == 0 || message.Lower(r) != want {
			return 0, false
		}
		end += size
	}
	return end, true
}

// continues reports whether the text before a match ends with a character that is allowed in a local part. If continues
// returns true, the match is only the end of a longer local part.
func continues(before string) bool {
	r, size := lastOf(before)
	return size > 0 && (alphanumeric(r) || strings.ContainsRune("._+-", r))
}

// goesOn reports whether the text after a match continues the domain. If goesOn returns true, the match is only the
// start of a longer domain.
func goesOn(after string) bool {
	r, size := firstOf(after)
	if size > 0 && r == '.' {
		r, size = firstOf(after[size:])
		return size > 0 && alphanumeric(r)
	}
	return size > 0 && (r == '-' || alphanumeric(r))
}

func alphanumeric(r rune) bool {
	if r >= utf8.RuneSelf {
		return !unicode.IsPunct(r) && !unicode.IsSpace(r)
	}
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// Scope is the set of teams whose rows are erased. If DryRun is true, rows are counted but not erased.
type Scope struct {
	Teams  []string // ids
	All    bool     // whether Teams contains all teams
	DryRun bool
	// If Refusals is true, the erasure includes records that prevent mail to the address: suppressions, unsubscriptions
	// and topic opt-outs.
	Refusals bool
}

// Has reports whether a team is in scope.
func (s *Scope) Has(teamID string) bool { return s.All || slices.Contains(s.Teams, teamID) }

// Count is the number of rows of one kind that were erased, or that were kept for the reason named in the kind.
type Count struct {
	Kind string `json:"kind"`
	N    int    `json:"n"`
	Left Left   `json:"left,omitzero"`
}

// Left says when the rows that this run did not erase can be erased.
type Left string

const (
	LeftSoon  Left = "soon"  // the rows can be erased in a few minutes
	LeftLater Left = "later" // the rows can be erased once pending work has ended
	LeftKept  Left = "kept"  // the rows can be erased with another [Scope]
	// LeftAlways means that an erasure never changes the rows. The kind in the report says why.
	LeftAlways Left = "always"
)

// Report counts the erased rows by kind. The kinds in a Report are in the order in which they were first added.
type Report []Count

// Add counts n more rows of a kind.
func (r *Report) Add(kind string, n int) { r.add(Count{Kind: kind, N: n}) }

// Leave counts n rows of one kind that were not erased.
func (r *Report) Leave(kind string, left Left, n int) { r.add(Count{Kind: kind, N: n, Left: left}) }

// Merge adds the counts of another report to this report.
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

// Eraser erases an address from one package's rows for the teams in a scope. An interrupted Eraser is called again.
type Eraser struct {
	Name  string // name of the kind of rows
	Erase func(ctx context.Context, a Address, scope Scope) (Report, error)
}
