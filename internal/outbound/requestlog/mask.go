package requestlog

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// Mask is the text that replaces a secret.
const Mask = "[redacted]"

// linkTokenMin is the minimum length of a download link's token. A token ends with a MAC of 22 characters.
const linkTokenMin = 22

// MaskSecrets replaces all usable credentials in a string with a mask. The replaced values are tokens in download and
// shared links, passwords and signatures in URLs, API keys except for their public part, and signing secrets. The
// string may be JSON source, in which characters are escaped.
func MaskSecrets(s string) string { return string(maskSecrets([]byte(s))) }

// span is a half-open range of byte positions, which includes from but not to.
type span struct{ from, to int }

// HideURL returns a URL with a mask in place of the user information and the query, which may contain credentials.
func HideURL(url string) string { return string(masked([]byte(url), userInfos, queries)) }

// maskSecrets does the same as [MaskSecrets] for a byte slice, which it does not modify. If the slice contains no
// secrets, maskSecrets returns its argument.
func maskSecrets(text []byte) []byte {
	return masked(text, parameters, userInfos, downloads, apiKeys, signingSecrets)
}

// finder appends the ranges of one kind of secret in a text to the given ranges.
type finder func(text []byte, all []span) []span

// masked replaces the ranges that the finders return with the mask. If there are none, masked returns its argument.
func masked(text []byte, finders ...finder) []byte {
	var all []span
	for _, find := range finders {
		all = find(text, all)
	}
	if len(all) == 0 {
		return text
	}
	slices.SortFunc(all, func(a, b span) int { return a.from - b.from })
	out := make([]byte, 0, len(text)+len(all)*len(Mask))
	done := 0
	for _, s := range all {
		if s.from < done {
			done = max(done, s.to) // the span starts within an earlier span
			continue
		}
		out = append(append(out, text[done:s.from]...), Mask...)
		done = s.to
	}
	return append(out, text[done:]...)
}

// parameters finds the values of URL parameters whose names indicate a secret.
func parameters(text []byte, all []span) []span {
	for at := 0; ; at++ {
		i := bytes.IndexByte(text[at:], '=')
		if i < 0 {
			return all
		}
		at += i
		name := at
		for name > 0 && nameMax > at-name && (isToken(text[name-1]) || text[name-1] == '.') {
			name--
		}
		// The separator & may be escaped as &amp; in HTML or as \u0026 in JSON.
		if name == at || name == 0 || strings.IndexByte(`?&;#\`, text[name-1]) < 0 || !secretParameter(text[name:at]) {
			continue
		}
		if to := run(text, at+1, func(c byte) bool { return strings.IndexByte("&\"'<>#", c) < 0 && c > ' ' }); to > at+1 {
			all, at = append(all, span{at + 1, to}), to-1
		}
	}
}

func secretParameter(name []byte) bool {
	lower := strings.ToLower(string(name))
	return isSecret(lower) || lower == "sig" || lower == "u0026sig"
}

// userInfos finds the user name and password before the host name in URLs.
func userInfos(text []byte, all []span) []span {
	for at := 0; ; {
		i := bytes.IndexByte(text[at:], ':')
		if i < 0 {
			return all
		}
		at += i + 1
		from := authority(text, at)
		if from < 0 {
			continue
		}
		to := run(text, from, func(c byte) bool { return strings.IndexByte("/?#\"'<>", c) < 0 && c > ' ' })
		if end := bytes.LastIndexByte(text[from:to], '@'); end > 0 {
			all = append(all, span{from, from + end})
		}
		at = to
	}
}

// authority returns the position after the two slashes that follow the colon of a URL's scheme, or -1 if the text at
// the given position does not begin with two slashes.
func authority(text []byte, at int) int {
	for range 2 {
		c, n := char(text, at)
		if c != '/' {
			return -1
		}
		at += n
	}
	return at
}

// queries finds the queries of URLs, including their fragments.
func queries(text []byte, all []span) []span {
	for at := 0; ; {
		i := bytes.IndexByte(text[at:], ':')
		if i < 0 {
			return all
		}
		at += i + 1
		from := authority(text, at)
		if from < 0 {
			continue
		}
		inURL := func(c byte) bool { return strings.IndexByte("\"<>", c) < 0 && c > ' ' }
		mark := run(text, from, func(c byte) bool { return c != '?' && inURL(c) })
		at = mark
		if c, n := char(text, mark); c == '?' {
			if at = run(text, mark+n, inURL); at > mark+n {
				all = append(all, span{mark + n, at})
			}
		}
	}
}

// downloads finds the tokens in download link paths.
func downloads(text []byte, all []span) []span {
	word := []byte("download")
	for at := 0; ; {
		i := bytes.Index(text[at:], word)
		if i < 0 {
			return all
		}
		at += i + len(word)
		c, n := char(text, at)
		if c != '/' {
			continue
		}
		from := at + n
		for _, sort := range []string{"received", "raw"} {
			if rest, ok := bytes.CutPrefix(text[from:], []byte(sort)); ok {
				if c, n := char(rest, 0); c == '/' {
					from += len(sort) + n
				}
			}
		}
		if to := run(text, from, isToken); to-from >= linkTokenMin {
			all, at = append(all, span{from, to}), to
		}
	}
}

// apiKeys finds the secret parts of API keys. An API key consists of "re_", 8 public characters, "_", and the secret
// part.
func apiKeys(text []byte, all []span) []span {
	const shown = 8
	word := []byte("re_")
	for at := 0; ; {
		i := bytes.Index(text[at:], word)
		if i < 0 {
			return all
		}
		begin := at + i
		at = begin + len(word)
		middle := at + shown
		if begin > 0 && isAlnum(text[begin-1]) || middle >= len(text) || text[middle] != '_' ||
			bytes.ContainsFunc(text[at:middle], func(r rune) bool { return r > 0x7f || !isAlnum(byte(r)) }) {
			continue
		}
		if to := run(text, middle+1, isAlnum); to > middle+1 {
			all, at = append(all, span{middle + 1, to}), to
		}
	}
}

// signingSecrets finds the signing secrets of webhooks.
func signingSecrets(text []byte, all []span) []span {
	word := []byte("whsec_")
	for at := 0; ; {
		i := bytes.Index(text[at:], word)
		if i < 0 {
			return all
		}
		at += i + len(word)
		if to := run(text, at, func(c byte) bool { return isAlnum(c) || strings.IndexByte("+/=-_", c) >= 0 }); to > at {
			all, at = append(all, span{at, to}), to
		}
	}
}

// run returns the end of the longest sequence of characters, starting at the given position, that all satisfy the
// function ok. The sequence may be empty.
func run(text []byte, at int, ok func(c byte) bool) int {
	for at < len(text) {
		c, n := char(text, at)
		if !ok(c) {
			break
		}
		at += n
	}
	return at
}

// char returns the character at a position and the number of bytes that encode it: one byte, or the length of a JSON
// escape. Each byte of a non-ASCII character counts as a character. For escaped quotes, for control characters, and at
// the end of the input, char returns 0.
func char(text []byte, at int) (c byte, n int) {
	if at >= len(text) {
		return 0, 0
	}
	if text[at] != '\\' || at+1 == len(text) {
		return text[at], 1
	}
	switch text[at+1] {
	case '/', '\\':
		return text[at+1], 2
	case 'u':
		if at+6 <= len(text) {
			if r, err := strconv.ParseUint(string(text[at+2:at+6]), 16, 16); err == nil {
				return byte(min(r, 0xff)), 6
			}
		}
	}
	return 0, 2
}

func isAlnum(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' }

// isToken reports whether a character may occur in a signed token or a parameter name.
func isToken(c byte) bool { return isAlnum(c) || c == '-' || c == '_' }
