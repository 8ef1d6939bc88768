package report

import "testing"

// Reply codes and enhanced status codes are found within sentences; other numbers are not mistaken for codes.
func TestReplyCodesInSentences(t *testing.T) {
	for _, c := range []struct {
		text     string
		code     int
		enhanced string
	}{
		{"550 5.1.1 No such user", 550, "5.1.1"},
		{"the host said: 451, try later", 451, ""},
		{"550-5.7.26 not signed", 550, "5.7.26"},
		{"550.", 550, ""},
		{"(#5.1.1)", 0, "5.1.1"},
		{"<ann@one.example>: 550", 550, ""},
		{"at first 451, then 550", 451, ""},
		{"5.1.1, and before that 4.2.2", 0, "5.1.1"},
		{"2.0.0 ok", 0, "2.0.0"},
		{"571 refused", 571, ""},
		{"400", 400, ""},
		{"581 is too high", 0, ""},
		{"350 is no refusal", 0, ""},
		{"650 neither", 0, ""},
		{"1550, 5500 and 55", 0, ""},
		{"id550 and 550id and _550", 0, ""},
		{"192.5.1.1 is an address, and 5.1.1.9", 0, ""},
		{"3.1.1, 5.1 and 5.1.1234", 0, ""},
		{"5.123.456", 0, "5.123.456"},
		{"more than 500 kB, or 550 bytes.", 0, ""},
		{"within 400 seconds 552 came", 552, ""},
		{"", 0, ""},
		{"55", 0, ""},
	} {
		if code, enhanced, text := splitReply(c.text); code != c.code || enhanced != c.enhanced || text != c.text {
			t.Errorf("%q: %d %q %q", c.text, code, enhanced, text)
		}
	}
}
