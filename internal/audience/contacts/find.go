package contacts

import (
	"context"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
)

// maxFind is the maximum length of the text that Find looks for, in bytes. No address is longer.
const maxFind = 320

// Find returns up to limit of a team's contacts whose address, first name, full name or last name begins with a text,
// or whose id it is. The case of letters does not matter, except for letters beyond ASCII that are not the first one.
// The cost does not depend on the number of contacts. Find returns none for an empty or too long text.
func (s *Service) Find(ctx context.Context, teamID, text string, limit int) (all []Contact, err error) {
	text = strings.Join(strings.Fields(text), " ")
	if text == "" || len(text) > maxFind || !utf8.ValidString(text) || strings.Contains(text, "\x00") {
		return nil, nil
	}
	if id.Valid(text) {
		c, err := contactByID(ctx, s.DB.Reader, teamID, strings.ToLower(text))
		if fault.KindOf(err) == fault.NotFound {
			return nil, nil
		}
		return []Contact{c}, err
	}
	add := func(by key, prefix string) error {
		if len(all) >= limit {
			return nil
		}
		some, err := contactsWithPrefix(ctx, s.DB.Reader, teamID, by, prefix, limit)
		for _, c := range some {
			if len(all) < limit && !slices.ContainsFunc(all, func(x Contact) bool { return x.ID == c.ID }) {
				all = append(all, c)
			}
		}
		return err
	}
	if err = add(byAddress, strings.ToLower(text)); err != nil || strings.Contains(text, "@") {
		return all, err
	}
	for _, prefix := range spellings(text) {
		for _, by := range []key{byName, byLastName} {
			if err = add(by, prefix); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// spellings returns the forms that a name in the index may have: its ASCII letters are in lower case, others are as
// they were written, so that the first one normally is a capital.
func spellings(text string) []string {
	lower := strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf {
			return unicode.ToLower(r)
		}
		return r
	}, text)
	first, n := utf8.DecodeRuneInString(lower)
	if other := unicode.ToUpper(first); first >= utf8.RuneSelf && other != first {
		return []string{lower, string(other) + lower[n:]}
	}
	return []string{lower}
}
