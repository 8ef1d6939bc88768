package termindex

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// maxWord is the maximum length of a word in the index, in bytes. Longer words are shortened, so a search for one finds
// candidates that the caller must check.
const maxWord = 40

// Words returns the words of a text in the form in which searches compare them: in lower case and without accents. A
// word is a sequence of letters and digits.
func Words(text string) []string {
	text = Fold(text)
	var all []string
	start := -1
	for i, r := range text {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			if start < 0 {
				start = i
			}
		} else if start >= 0 {
			all, start = append(all, text[start:i]), -1
		}
	}
	if start >= 0 {
		all = append(all, text[start:])
	}
	return all
}

// Fold returns a text in lower case and without accents. Invalid UTF-8 is replaced.
func Fold(text string) string {
	ascii := true
	for i := range len(text) {
		if c := text[i]; c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			ascii = false
			break
		}
	}
	if ascii {
		return text
	}
	out := make([]byte, 0, len(text)+8)
	for _, r := range norm.NFKD.String(text) {
		if !unicode.Is(unicode.Mn, r) {
			out = utf8.AppendRune(out, unicode.ToLower(r))
		}
	}
	return string(out)
}

// shorten returns the beginning of a word that the index contains.
func shorten(word string) string {
	if len(word) <= maxWord {
		return word
	}
	n := maxWord
	for n > 0 && !utf8.RuneStart(word[n]) {
		n--
	}
	return word[:n]
}
