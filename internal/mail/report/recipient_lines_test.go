package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The text about a recipient continues after an empty line if the preceding text is unfinished or if the next line
// contains a reply code.
func TestLinesBelowARecipient(t *testing.T) {
	for words, want := range map[string]string{
		"<ann@one.example>: host unknown\n":                                         "host unknown",
		"<ann@one.example>:\n\nUser unknown\n":                                      "User unknown",
		"<ann@one.example>: refused\nby the host\n":                                 "refused by the host",
		"<ann@one.example>: refused\n\nGood-bye.\n":                                 "refused",
		"<ann@one.example>: refused\n\n550 5.1.1 No such user\n\nGood-bye.\n":       "refused 550 5.1.1 No such user",
		"<ann@one.example>: refused\n\n5.1.1 No such user\n":                        "refused 5.1.1 No such user",
		"<ann@one.example>: 550 5.1.1 No such user\n\n451 4.0.0 Something else\n":   "550 5.1.1 No such user",
		"<ann@one.example>: refused\n> 550 a quotation\n\n> 5.1.1 another\n\nEnd\n": "refused",
	} {
		var r Report
		r.readLines(words, Failed)
		if len(r.Recipients) != 1 || r.Recipients[0].Final != "ann@one.example" {
			t.Errorf("%q: %+v", words, r.Recipients)
			continue
		}
		if d := cmp.Diff(want, r.Recipients[0].Diagnostic); d != "" {
			t.Errorf("%q: %s", words, d)
		}
	}
}
