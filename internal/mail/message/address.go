package message

import (
	"mime"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Limits from RFC 5321 section 4.5.3.1, in bytes. The constant maxMailbox limits the whole input of ParseAddress,
// including the display name.
const (
	maxLocal   = 64
	maxDomain  = 253
	maxAddress = 254
	maxLabel   = 63
	maxMailbox = 2000
	// A display name with a piece longer than maxNamePiece could exceed the maximum line length. A name with such a
	// piece is written as encoded words, which can be folded.
	maxNamePiece = 400
)

// Address is one mailbox with a display name.
type Address struct {
	// Name is plain UTF-8, without quotes or encoding; it may be empty.
	Name string
	// Local is the local part as written in SMTP commands, quoted only if it needs quotes. The case of the local part
	// is unchanged.
	Local string
	// Domain is in lowercase ASCII; internationalized labels are A-labels (RFC 5890).
	Domain string
}

// AddressError reports why a string is not exactly one valid mailbox.
type AddressError struct {
	// Reason is a sentence that explains the problem to the user.
	Reason string
}

// Error returns Reason.
func (e *AddressError) Error() string { return e.Reason }

// ParseAddress parses exactly one mailbox: `a@b.c`, `<a@b.c>` or `Name <a@b.c>` (RFC 5322 section 3.4, RFC 6531).
// Display names may be quoted, plain UTF-8, or encoded words (RFC 2047) in UTF-8, ISO-8859-1 or US-ASCII.
//
// ParseAddress rejects lists, groups, routes, comments, domain literals and control characters. ParseAddress also
// rejects local parts over 64 bytes, domains over 253 bytes or without a dot, and addresses over 254 bytes. Errors are
// *AddressError.
func ParseAddress(s string) (Address, error) {
	name, spec, err := cutMailbox(s, parsePhrase)
	if err != nil {
		return Address{}, err
	}
	local, domain, err := ParseSpec(strings.Trim(spec, " "))
	if err != nil {
		return Address{}, err
	}
	return Address{Name: name, Local: local, Domain: domain}, nil
}

// cutMailbox splits a mailbox into the display name and the address, and parses the display name with the given
// function. The address is the part between the angle brackets, or the whole input if there are no brackets.
func cutMailbox(s string, phrase func(string) (string, error)) (name, spec string, err error) {
	if len(s) > maxMailbox {
		return "", "", &AddressError{"The address is longer than 2,000 octets; shorten the display name."}
	}
	if reason := unprintable(s); reason != "" {
		return "", "", &AddressError{reason}
	}
	s = strings.Trim(s, " ")
	if s == "" {
		return "", "", &AddressError{"The address is empty; write `user@example.com` or `Name <user@example.com>`."}
	}
	open := angle(s)
	if open < 0 {
		return "", s, nil
	}
	spec, ok := strings.CutSuffix(s[open+1:], ">")
	if !ok {
		return "", "", &AddressError{"The address must end with `>` and name one mailbox only, as in `Name " +
			"<user@example.com>`."}
	}
	if name, err = phrase(s[:open]); err != nil {
		return "", "", err
	}
	return name, spec, nil
}

// Addr returns the address without the display name, as in SMTP commands: local@domain.
func (a Address) Addr() string { return a.Local + "@" + a.Domain }

// Key returns the address in lower case (see [FoldCase]), for comparisons and indexes. According to RFC 5321 section
// 2.4, local parts are case-sensitive, but Key ignores their case, because all large hosts do.
func (a Address) Key() string { return FoldCase(a.Local) + "@" + a.Domain }

// FoldCase converts an address or part of an address to lower case, letter by letter, with [Lower].
func FoldCase(text string) string { return strings.Map(Lower, text) }

// Lower returns the lowercase form of a letter for [Address.Key]. Lower never maps a non-ASCII letter to an ASCII
// letter. Unicode maps the Turkish İ to i and the Kelvin sign to k, but addresses that differ only in such a letter
// belong to different people.
func Lower(r rune) rune {
	if small := unicode.ToLower(r); small >= utf8.RuneSelf || r < utf8.RuneSelf {
		return small
	}
	return r
}

// String returns the address as written in a header field, without folding. Non-ASCII display names are written as
// encoded words (RFC 2047).
func (a Address) String() string { return string(a.appendTo(nil)) }

// NeedsUTF8 reports whether the address is accepted only by hosts that support SMTPUTF8 (RFC 6531).
func (a Address) NeedsUTF8() bool { return !isASCII(a.Local) }

func (a Address) appendTo(dst []byte) []byte {
	if a.Name == "" {
		return append(append(append(dst, a.Local...), '@'), a.Domain...)
	}
	switch {
	case !printableASCII(a.Name) || strings.Contains(a.Name, "=?") || longestPiece(a.Name) > maxNamePiece:
		dst = appendEncodedWords(dst, a.Name, true, len("Reply-To: "))
	case isPhrase(a.Name):
		dst = append(dst, a.Name...)
	default:
		dst = appendQuoted(dst, a.Name)
	}
	dst = append(dst, " <"...)
	dst = append(append(append(dst, a.Local...), '@'), a.Domain...)
	return append(dst, '>')
}

// check returns an error if the Address is not safe to write to a header. Addresses that were not created by
// ParseAddress are validated too.
func (a Address) check(field string) error {
	if unprintable(a.Name) != "" {
		return &FieldError{Name: field, Reason: "The display name in `" + field +
			"` has a control character or is not UTF-8; remove it."}
	}
	local, domain, err := ParseSpec(a.Addr())
	if err != nil {
		return &FieldError{Name: field, Reason: "The address in `" + field + "` cannot be used. " + err.Error()}
	}
	if local != a.Local || domain != a.Domain {
		return &FieldError{Name: field, Reason: "The address in `" + field +
			"` is not in its canonical form; parse it first."}
	}
	return nil
}

// angle returns the index of the first < outside quotes, or -1 if there is none.
func angle(s string) int {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '<' && !quoted:
			return i
		}
	}
	return -1
}

// parsePhrase parses a display name, which may consist of atoms, quoted strings and encoded words. Unlike RFC 5322,
// parsePhrase accepts dots and square brackets outside quotes, because they are unambiguous.
func parsePhrase(s string) (string, error) {
	var name strings.Builder
	encodedBefore, first := false, true
	for s = strings.TrimLeft(s, " "); s != ""; s = strings.TrimLeft(s, " ") {
		word, rest, encoded, err := nextWord(s)
		if err != nil {
			return "", err
		}
		// White space between two encoded words is not part of the text (RFC 2047 section 6.2).
		if !first && !(encoded && encodedBefore) {
			name.WriteByte(' ')
		}
		name.WriteString(word)
		s, encodedBefore, first = rest, encoded, false
	}
	decoded := name.String()
	// Encoded words may contain characters that must not occur in a display name, so the decoded name is checked.
	if reason := unprintable(decoded); reason != "" {
		return "", &AddressError{reason}
	}
	return decoded, nil
}

func nextWord(s string) (word, rest string, encoded bool, err error) {
	if s[0] == '"' {
		content, rest, ok := unquote(s)
		if !ok {
			return "", "", false, &AddressError{
				"The display name has an opening quote without a closing one; add it or remove the quote."}
		}
		return content, rest, false, nil
	}
	token, _, _ := strings.Cut(s, " ")
	if strings.HasPrefix(token, "=?") {
		word, ok, err := decodeWord(token)
		if err != nil {
			return "", "", false, err
		}
		if ok {
			return word, s[len(token):], true, nil
		}
	}
	token, _, _ = strings.Cut(token, `"`)
	if i := strings.IndexAny(token, "(),:;<>@\\"); i >= 0 {
		return "", "", false, &AddressError{"The display name has the character `" + token[i:i+1] +
			"`, which must stand in quotes, as in `\"Example, Inc\" <user@example.com>`; lists, groups and comments are not " +
			"accepted."}
	}
	return token, s[len(token):], false, nil
}

// decodeWord decodes a token if it is exactly one encoded word. If the charset is unknown, decodeWord returns an error,
// because a guess could show the recipient the wrong name.
func decodeWord(token string) (word string, ok bool, err error) {
	if !strings.HasSuffix(token, "?=") || strings.Count(token, "?") != 4 {
		return "", false, nil
	}
	var dec mime.WordDecoder
	word, err = dec.Decode(token)
	if err != nil {
		return "", false, &AddressError{
			"The display name has an encoded word that cannot be read; write the name in plain UTF-8."}
	}
	return word, true, nil
}

// unquote parses the quoted string at the beginning of s and returns its content and the rest of s.
func unquote(s string) (content, rest string, ok bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
			b.WriteByte(s[i])
		case '"':
			return b.String(), s[i+1:], true
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", false
}

// ParseSpec parses an address without a display name or brackets: local@domain (RFC 5322 section 3.4.1, without
// obsolete forms). The results local and domain have the same form as in Address. The length limits are the same as in
// ParseAddress; errors are *AddressError.
func ParseSpec(s string) (local, domain string, err error) {
	if strings.HasPrefix(s, `"`) {
		content, rest, ok := unquote(s)
		if !ok || !strings.HasPrefix(rest, "@") {
			return "", "", &AddressError{"The quoted part of the address must be closed and followed by `@` and a domain."}
		}
		if content == "" || unprintable(content) != "" {
			return "", "", &AddressError{"The quoted part of the address is empty or has a character that cannot be sent."}
		}
		domain = rest[1:]
		local = QuoteLocal(content)
	} else {
		var ok bool
		if local, domain, ok = strings.Cut(s, "@"); !ok {
			return "", "", &AddressError{"The address has no `@`."}
		}
		if !isDotAtom(local) {
			return "", "", &AddressError{"The part before the `@` is empty, begins or ends with a dot, or has a character " +
				"that is not allowed there; an address names one mailbox, as in `user@example.com`."}
		}
	}
	if len(local) > maxLocal {
		return "", "", &AddressError{"The part before the `@` is longer than 64 octets."}
	}
	if domain, err = parseDomain(domain); err != nil {
		return "", "", err
	}
	if len(local)+1+len(domain) > maxAddress {
		return "", "", &AddressError{"The address is longer than 254 octets."}
	}
	return local, domain, nil
}

// parseDomain returns the domain s in lower case, with internationalized labels converted to A-labels.
func parseDomain(s string) (string, error) {
	if strings.HasPrefix(s, "[") {
		return "", &AddressError{"The domain must be a name; addresses in square brackets are not accepted."}
	}
	if isASCII(s) {
		s = strings.ToLower(s)
	}
	if !isASCII(s) || strings.Contains(s, "xn--") {
		ascii, err := idna.Lookup.ToASCII(s)
		if err != nil {
			return "", &AddressError{"The domain is not a valid international domain name."}
		}
		s = ascii
	}
	if len(s) > maxDomain {
		return "", &AddressError{"The domain is longer than 253 octets."}
	}
	start := 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) && s[i] != '.' {
			continue
		}
		if !isLabel(s[start:i]) {
			return "", &AddressError{"The domain is not valid: its labels are 1 to 63 letters, digits and hyphens, joined by " +
				"dots, as in `example.com`."}
		}
		if i < len(s) {
			start = i + 1
		}
	}
	if start == 0 {
		return "", &AddressError{"The domain has no dot; write it in full, as in `example.com`."}
	}
	// No top-level domain begins with a digit, so this is an IP address.
	if '0' <= s[start] && s[start] <= '9' {
		return "", &AddressError{"The domain must be a name, not an IP address."}
	}
	return s, nil
}

// QuoteLocal converts an unquoted local part to the form used in Address.Local by adding quotes if necessary.
func QuoteLocal(s string) string {
	if isDotAtom(s) {
		return s
	}
	return string(appendQuoted(nil, s))
}

func isLabel(s string) bool {
	if s == "" || len(s) > maxLabel || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-') {
			return false
		}
	}
	return true
}

// isDotAtom reports whether s is a dot-atom (RFC 5322 section 3.2.3), which may contain UTF-8 (RFC 6532).
func isDotAtom(s string) bool {
	if s == "" || s[0] == '.' || s[len(s)-1] == '.' || strings.Contains(s, "..") {
		return false
	}
	for _, r := range s {
		switch {
		case r < utf8.RuneSelf:
			if r != '.' && !isAtext(byte(r)) {
				return false
			}
		case r == utf8.RuneError || unicode.IsSpace(r) || unicode.IsControl(r):
			return false
		}
	}
	return true
}

// isPhrase reports whether an ASCII display name consists of atoms separated by single spaces and therefore needs no
// quotes.
func isPhrase(s string) bool {
	space := true
	for i := range len(s) {
		switch {
		case s[i] == ' ':
			if space {
				return false
			}
			space = true
		case isAtext(s[i]):
			space = false
		default:
			return false
		}
	}
	return !space
}

func isAtext(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.IndexByte("!#$%&'*+-/=?^_`{|}~", c) >= 0
}

func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, s[i])
	}
	return append(dst, '"')
}

// unprintable returns a sentence for the user if s is not valid UTF-8 or contains a C0 or C1 control character or a
// line separator. For any other string, unprintable returns "".
func unprintable(s string) string {
	for _, r := range s {
		if r < ' ' || r >= 0x7f && r <= 0x9f || r == '\u2028' || r == '\u2029' {
			return "The address has a control character, such as a line break or a tab; remove it."
		}
	}
	if !utf8.ValidString(s) {
		return "The address is not valid UTF-8."
	}
	return ""
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func printableASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
