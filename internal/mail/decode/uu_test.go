package decode

import (
	"strings"
	"testing"
)

func TestUU(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in, want, name string
		around, clean  bool
	}{
		{"begin 644 cat.txt\n#0V%T\n`\nend\n", "Cat", "cat.txt", false, true},
		{"begin 644 cat.txt\r\n#0V%T\r\n`\r\nend\r\n", "Cat", "cat.txt", false, true},
		{"\n\nbegin 0644 my cat.txt \n#0V%T\n \nend", "Cat", "my cat.txt", false, true},
		{"begin 644 c\n#0V%T\nend\n", "Cat", "c", false, true},    // without the line that encodes zero bytes
		{"begin 644 c\n#0V%T*\n\nend\n", "Cat", "c", false, true}, // with a checksum
		{"begin 644 c\n\"0V$\n`\nend\n", "Ca", "c", false, true},  // the last group has fewer than four characters
		{"begin 644 c\n#0P\n`\nend\n", "C\x00\x00", "c", false, true},
		{"begin 644 c\n#\n`\nend\n", "\x00\x00\x00", "c", false, true}, // a mail host removed the spaces
		{"begin 644 c\n#0V%T\n#0V%T\n", "CatCat", "c", false, false},   // the file is cut off at the end of a line
		{"begin 644 c\n#0V%T\n#0V%", "CatCa", "c", false, false},       // the file is cut off in the middle of a line
		{"begin 644 c\n#0V%T\n~~~\n#0V%T\nend\n", "CatCat", "c", false, false},
		{"begin 644 c\n#0V%T\nend\nfooter\n", "Cat", "c", true, false},
		{"prose\nbegin 644 c\n#0V%T\nend\n", "Cat", "c", true, false},
		{"begin 644 c\n`\nend\n", "", "c", false, true},
		{"begin 644 \n#0V%T\n`\nend\n", "Cat", "", false, true},
		{"begin 644 c", "begin 644 c", "c", false, false},
		{"begin 64 c\n#0V%T\nend\n", "begin 64 c\n#0V%T\nend\n", "", false, false},
		{"begin 64488 c\n#0V%T\nend\n", "begin 64488 c\n#0V%T\nend\n", "", false, false},
		{"beginning\n", "beginning\n", "", false, false},
		{"#0V%T\n`\nend\n", "#0V%T\n`\nend\n", "", false, false},
		{"begin 644 " + strings.Repeat("x", 1000) + "\n#0V%T\nend\n", "begin 644 " + strings.Repeat("x", 1000) +
			"\n#0V%T\nend\n", "", false, false},
		{"begin 644 a\x00\tb\xfc\n#0V%T\nend\n", "Cat", "a bü", false, true},
		{"", "", "", false, true},
		{" \r\n", " \r\n", "", false, true},
	} {
		got, name, around, clean := UU([]byte(tc.in))
		if string(got) != tc.want || name != tc.name || around != tc.around || clean != tc.clean {
			t.Errorf("%.60q: %q named %q, around %v, clean %v", tc.in, got, name, around, clean)
		}
	}
	// Lines that declare more bytes than they contain must not make the decoded file larger than the message.
	long := "begin 644 c\n" + strings.Repeat("M\n", 10_000)
	if got, _, _, clean := UU([]byte(long)); len(got) > len(long) || clean {
		t.Errorf("%d bytes of %d, clean %v", len(got), len(long), clean)
	}
}
