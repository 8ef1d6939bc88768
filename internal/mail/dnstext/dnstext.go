// Package dnstext compares the values of TXT records at a name with a wanted SPF or DKIM record.
//
// # Invariants
//
//   - Quotation marks that a zone editor has added to a value do not matter.
//   - A value with backslashes is not the wanted record, because receivers find no valid one: with "v=DKIM1\;", the
//     version is wrong. Only zone files write semicolons in this way. Such a value therefore verifies no domain, and
//     package dnsadvice names the mistake.
//
// # Failures
//
// The package returns no errors. A value that it cannot read is not the wanted record.
//
// # Out of scope
//
// The package makes no look-ups. It does not check whether a record with the wanted part has mistakes in other parts.
package dnstext

import (
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/mail/spf"
)

// Unquote returns a TXT value without the quotation marks that some zone editors add.
func Unquote(text string) string {
	return strings.TrimSpace(strings.NewReplacer(`" "`, "", `"`, "").Replace(text))
}

// HasBackslash reports whether a value has backslashes, so that it is no valid record.
func HasBackslash(text string) bool { return strings.Contains(text, `\`) }

// Tag returns the value of a tag of a DKIM or DMARC record without its white space, and whether the record has the tag.
func Tag(record, name string) (value string, ok bool) {
	for t := range strings.SplitSeq(record, ";") {
		n, v, ok := strings.Cut(t, "=")
		if ok && strings.TrimSpace(n) == name {
			return strings.Join(strings.Fields(v), ""), true
		}
	}
	return "", false
}

// Key returns the public key of a DKIM record, or "".
func Key(text string) string {
	key, _ := Tag(Unquote(text), "p")
	return key
}

// SameKey reports whether text is a DKIM record with the key of the wanted one. The order and spacing of the tags in a
// DKIM record do not matter (RFC 6376 section 3.6.1).
func SameKey(text, want string) bool {
	key := Key(want)
	return key != "" && Key(text) == key && !HasBackslash(text)
}

// Include returns the first include term of an SPF record in lower case, or "".
func Include(record string) string {
	for _, term := range strings.Fields(strings.ToLower(record)) {
		if strings.HasPrefix(term, "include:") {
			return term
		}
	}
	return ""
}

// SameInclude reports whether text is an SPF record with the first include of the wanted one.
func SameInclude(text, want string) bool {
	record, term := Unquote(text), Include(want)
	if term == "" || !spf.IsRecord(record) || HasBackslash(text) {
		return false
	}
	terms := strings.Fields(strings.ToLower(record))
	return slices.Contains(terms, term) || slices.Contains(terms, "+"+term)
}
