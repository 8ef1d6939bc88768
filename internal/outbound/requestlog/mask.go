package requestlog

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// mask replaces a secret in a text.
const mask = "[redacted]"

// linkTokenMin is the minimum length of the token of a download link. A token ends with a MAC of 22 characters.
const linkTokenMin = 22

// MaskSecrets replaces secrets in a text that grant access by themselves: tokens of download and shared links,
// passwords and signatures in URLs, API keys except for their public part, and signing secrets. The text may be the
// source of a JSON string.
func MaskSecrets(s string) string { return string(maskSecrets([]byte(s))) }

// span is a part of a text, from the byte at from up to but not including the byte at to.
type span struct{ from, to int }

// maskSecrets is [MaskSecrets] for bytes. It does not change text. If text has no secrets, it returns text itself.
func maskSecrets(text []byte) []byte {
	var all []span
	all = parameters(text, all)
	all = userInfos(text, all)
	all = downloads(text, all)
	all = apiKeys(text, all)
	all = signingSecrets(text, all)
	if len(all) == 0 {
		return text
	}
	slices.SortFunc(all, func(a, b span) int { return a.from - b.from })
	out := make([]byte, 0, len(text)+len(all)*len(mask))
	done := 0
	for _, s := range all {
		if s.from < done {
			done = max(done, s.to) // the span begins within an earlier one
			continue
		}
		out = append(append(out, text[done:s.from]...), mask...)
		done = s.to
	}
	return append(out, text[done:]...)
}

// parameters finds the values of URL parameters whose names are those of secrets.
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
		// An ampersand may be escaped as &amp; in HTML, or as \u0026 in JSON.
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

// userInfos finds the user name and password in front of the host in URLs.
func userInfos(text []byte, all []span) []span {
	for at := 0; ; {
		i := bytes.IndexByte(text[at:], ':')
		if i < 0 {
			return all
		}
		at += i + 1
		from := at
		for range 2 {
			c, n := char(text, from)
			if c != '/' {
				from = -1
				break
			}
			from += n
		}
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

// downloads finds the tokens in the paths of download links.
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

// apiKeys finds the secret part of API keys. A key is "re_", 8 public characters, "_", and the secret.
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

// run returns the end of the run of characters for which ok is true, starting at a position. The run may be empty.
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

// char returns the character at a position, and the number of bytes of its source: one, or that of a JSON escape. Each
// byte of a non-ASCII character counts as a character. Escaped quotes, control characters and the end of the text are
// 0.
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

// isToken reports whether a character may occur in a signed token and in the name of a parameter.
func isToken(c byte) bool { return isAlnum(c) || c == '-' || c == '_' }
