package decode

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

func TestDecodeUTF7(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                            "",
		"plain":                       "plain",
		"Gr+APwA3w-e":                 "Grüße",
		"Hi Mom -+Jjo--!":             "Hi Mom -☺-!", // examples from RFC 2152
		"A+ImIDkQ.":                   "A≢Α.",
		"+ZeVnLIqe-":                  "日本語",
		"Item 3 is +AKM-1.":           "Item 3 is £1.",
		"1 +- 1 = 2":                  "1 + 1 = 2",
		"+2D3cqQ-":                    "💩",
		"+APw":                        "ü", // the end of the text ends a base64 run
		"+APw.":                       "ü.",
		"+APw--":                      "ü-",
		"+APw-+APw-":                  "üü",
		"+APw+APw-":                   "ü㸀\ufffd", // within a base64 run, a + is a base64 digit
		"+":                           "+",
		"+!":                          "+!",
		"C++":                         "C++",
		"C++ and C":                   "C++ and C",
		"+A":                          "+A", // the base64 run is too short for a character
		"+AP-":                        "+AP-",
		"+APwA-":                      "ü\ufffd", // truncated
		"+APx-":                       "ü\ufffd", // the padding bits are not zero
		"+APwAAA-":                    "ü\x00",
		"+2D0-":                       "\ufffd", // half a surrogate pair
		"+3Kk-":                       "\ufffd",
		"+2D0A/A-":                    "\ufffdü",
		"+2D3YPdyp-":                  "\ufffd💩",
		"caf\xc3\xa9 +AOk-":           "café é", // bytes that are invalid in UTF-7
		"caf\xe9 +AOk-":               "café é",
		"~\\":                         "~\\",
		"+ADw-script+AD4-":            "<script>",
		"&Zi8-":                       "&Zi8-", // IMAP's variant of UTF-7 is not decoded
		"+AAA-":                       "\x00",
		"++":                          "++",
		"+++++":                       "ﯯ\ufffd",
		strings.Repeat("+AOk-", 1000): strings.Repeat("é", 1000),
	} {
		if got := decodeUTF7([]byte(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// toUTF7 encodes s as UTF-7, with every non-ASCII character and every + in base64.
func toUTF7(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r < utf8.RuneSelf && r != '+' {
			b.WriteRune(r)
			continue
		}
		var content []byte
		for _, u := range utf16.Encode([]rune{r}) {
			content = append(content, byte(u>>8), byte(u))
		}
		fmt.Fprintf(&b, "+%s-", base64.RawStdEncoding.EncodeToString(content))
	}
	return b.String()
}

func FuzzUTF7(f *testing.F) {
	f.Add("Grüße 💩 1+1", []byte("+APw-+2D0-+A+-+"))
	f.Add("", []byte("\xff+\xff"))
	f.Fuzz(func(t *testing.T, s string, content []byte) {
		s = strings.ToValidUTF8(s, "?")
		if got := decodeUTF7([]byte(toUTF7(s))); got != s {
			t.Errorf("%q became %q", s, got)
		}
		got := decodeUTF7(content)
		if !utf8.ValidString(got) || len(got) > 3*len(content) {
			t.Errorf("%q became %q", content, got)
		}
	})
}
