package message

import (
	"bytes"
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/norm"

	"github.com/postrider/postrider/internal/mail/decode"
)

// A From field names the author of a message, and the domain in it determines which key the message is signed with.
// Mail clients repair malformed From fields in different ways. One client may show as the sender what another client
// treats as part of the display name. From is therefore parsed with a grammar that all clients interpret in the same
// way, and every other form is rejected. Recipient addresses do not claim an identity, so ParseAddress parses them less
// strictly.

// maxFrom is the maximum length of the value of a From or Sender field, in bytes.
const maxFrom = 4 << 10

// ParseFrom parses a sender's mailbox as entered by a user, in UTF-8. ParseFrom is stricter than ParseAddress. Errors
// are *AddressError.
//
// ParseFrom rejects a local part that is quoted, is not ASCII, or looks like an encoded word or the end of a quoted
// string. ParseFrom also rejects spaces within the brackets.
//
// ParseFrom rejects a domain that is written neither in A-labels nor in U-labels, such as a domain in full-width
// letters.
//
// The display name must not contain < or >, an address at a different domain, or characters that change the direction
// of the surrounding text. The decoded display name must not contain an encoded word.
func ParseFrom(s string) (Address, error) {
	name, spec, err := cutMailbox(s, parsePhrase)
	if err != nil {
		return Address{}, err
	}
	return newSender(name, spec)
}

// ReadFrom parses the mailbox in the value of a message's From or Sender field. The value may be folded and does not
// include the line ending. If smtputf8 is true, the value may contain UTF-8 (RFC 6532).
//
// ReadFrom accepts the same addresses as ParseFrom, provided that they have the form given in RFC 5322 section 3.4.
// ReadFrom rejects the obsolete forms from section 4, comments, groups, and special characters outside quotes. A dot in
// an unquoted display name is allowed, because many programs write one and all mail clients interpret it in the same
// way. Encoded words may be in any charset that package decode supports. Errors are *AddressError.
func ReadFrom(value []byte, smtputf8 bool) (Address, error) {
	if len(value) > maxFrom {
		return Address{}, &AddressError{"The field is longer than 4,096 octets; shorten the display name."}
	}
	lines := bytes.Split(value, []byte("\r\n"))
	for _, folded := range lines[1:] {
		// Parsers disagree on whether a folded line that contains only white space ends the field or the whole header
		// (RFC 5322 section 4.2).
		if len(bytes.Trim(folded, " \t")) == 0 {
			return Address{}, &AddressError{"The field has a folded line that is empty."}
		}
	}
	s := strings.ReplaceAll(string(bytes.Join(lines, nil)), "\t", " ")
	if !smtputf8 && !isASCII(s) {
		return Address{}, &AddressError{"The field is not ASCII; encode the display name by RFC 2047, or use SMTPUTF8."}
	}
	name, spec, err := cutMailbox(s, readPhrase)
	if err != nil {
		return Address{}, err
	}
	return newSender(name, spec)
}

func newSender(name, spec string) (Address, error) {
	local, domain, err := ParseSpec(spec)
	if err != nil {
		return Address{}, err
	}
	given := spec[strings.LastIndexByte(spec, '@')+1:]
	switch {
	case spec[0] == '"':
		err = &AddressError{"The part before the `@` is in quotes, which others read in different ways; " +
			"use an address without them."}
	case !isASCII(local):
		err = &AddressError{"The part before the `@` of a sender must be ASCII, so that every host can answer it."}
	case strings.Contains(local, "=?") && strings.Contains(local, "?="):
		err = &AddressError{"The part before the `@` looks like an encoded word; only display names can be encoded."}
	case local[0] == '\'':
		err = &AddressError{"The part before the `@` begins with an apostrophe, which others leave out; " +
			"use an address without it."}
	case !isSpelling(given, domain):
		err = &AddressError{"The domain has characters that stand for others; write it as `" + domain + "`."}
	default:
		err = checkSenderName(name, domain)
	}
	if err != nil {
		return Address{}, err
	}
	return Address{Name: name, Local: local, Domain: domain}, nil
}

// isSpelling reports whether the given string is the domain in A-labels or U-labels, in upper or lower case. UTS 46
// maps other spellings to the same domain, but not every mail client applies UTS 46.
func isSpelling(given, domain string) bool {
	given = strings.ToLower(given)
	if given == domain {
		return true
	}
	unicode, err := idna.Lookup.ToUnicode(domain)
	return err == nil && given == unicode
}

// checkSenderName rejects display names that a recipient could mistake for the address, or that contain a different
// address.
func checkSenderName(name, domain string) error {
	if isASCII(name) && !strings.ContainsAny(name, "<>@?") {
		return nil
	}
	if strings.ContainsFunc(name, turnsText) {
		return &AddressError{"The display name of a sender must not have characters that change the direction of text."}
	}
	// Characters that look like < or @ count as < or @, and invisible characters are ignored.
	seen := norm.NFKC.String(strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, name))
	switch {
	case strings.ContainsAny(seen, "<>"):
		return &AddressError{"The display name of a sender must not have `<` or `>`: others would read an address there."}
	case strings.Contains(seen, "=?"):
		return &AddressError{"The display name of a sender must not have `=?`, which begins an encoded word; " +
			"do not encode it twice or within quotes."}
	}
	// An address with spaces or quotes around its @ still looks like an address.
	seen = besideAt.ReplaceAllString(seen, "@")
	for before, rest, found := strings.Cut(seen, "@"); found; before, rest, found = strings.Cut(rest, "@") {
		if before == "" {
			continue
		}
		end := strings.IndexFunc(rest, func(r rune) bool {
			return r != '-' && r != '.' && r != '。' && !unicode.In(r, unicode.L, unicode.M, unicode.N)
		})
		if end < 0 {
			end = len(rest)
		}
		if other, err := parseDomain(strings.Trim(rest[:end], ".-。")); err == nil && other != domain {
			return &AddressError{"The display name of a sender must not have an address at another domain than its own, " +
				"here at " + other + "."}
		}
	}
	return nil
}

// besideAt matches an @ and any spaces and quotes around it, because they do not stop an address from looking like one.
var besideAt = regexp.MustCompile(`[\s"'` + "`" + `]*@[\s"'` + "`" + `]*`)

// turnsText reports whether a character controls the direction of the text around it: a bidirectional embedding,
// override or isolate (UAX 9).
func turnsText(r rune) bool { return r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069' }

// readPhrase parses the display name in a From or Sender field, which consists of quoted strings, encoded words, and
// atoms that may contain dots.
func readPhrase(s string) (string, error) {
	type part struct {
		text    string
		encoded bool
	}
	var parts []part
	for s = strings.Trim(s, " "); s != ""; s = strings.TrimLeft(s, " ") {
		if s[0] == '"' {
			content, rest, ok := unquote(s)
			if !ok {
				return "", &AddressError{"The display name has an opening quote without a closing one."}
			}
			parts = append(parts, part{text: content})
			s = rest
			continue
		}
		end := strings.IndexAny(s, ` "`)
		if end < 0 {
			end = len(s)
		}
		token := s[:end]
		s = s[end:]
		if i := strings.IndexFunc(token, isSpecial); i >= 0 {
			return "", &AddressError{"The display name has the character `" + token[i:i+1] + "`, which must stand in quotes; " +
				"lists, groups, routes and comments are not accepted."}
		}
		encoded := strings.Contains(token, "=?")
		if encoded && !decode.IsValidWord(token) {
			return "", &AddressError{"The display name has an encoded word that cannot be read, " +
				"or that has a control character."}
		}
		// Adjacent encoded words are decoded together, because a character may be split between two of them.
		if n := len(parts) - 1; encoded && n >= 0 && parts[n].encoded {
			parts[n].text += " " + token
		} else {
			parts = append(parts, part{token, encoded})
		}
	}
	var name strings.Builder
	for i, p := range parts {
		if i > 0 {
			name.WriteByte(' ')
		}
		if p.encoded {
			if p.text = decode.Words(p.text); p.text == "" { // for example, if the words contain only shift sequences
				return "", &AddressError{"The display name has encoded words that hold no text."}
			}
		}
		name.WriteString(p.text)
	}
	if reason := unprintable(name.String()); reason != "" {
		return "", &AddressError{reason}
	}
	return name.String(), nil
}

// isSpecial reports whether a character in a display name must be quoted. RFC 5322 also requires quotes for a dot, but
// an unquoted dot cannot be misinterpreted.
func isSpecial(r rune) bool { return r < 0x80 && r != '.' && !isAtext(byte(r)) }
