package smtpclient

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
	"time"
)

var timeZero = time.Time{}

func TestInspect(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		parts []string
		want  traits
	}{
		{"nothing", nil, traits{size: 2}},
		{"empty parts", []string{"", ""}, traits{size: 2}},
		{"lines", []string{"a\r\nb\r\n"}, traits{size: 6}},
		{"no final line end", []string{"a\r\nb"}, traits{size: 6}},
		{"a line end in two parts", []string{"a\r", "\nb\r\n"}, traits{size: 6}},
		{"a line end in two parts with nothing between", []string{"a\r", "", "\nb\r\n"}, traits{size: 6}},
		{"lone LF", []string{"a\nb\r\n"}, traits{size: 5, bare: true}},
		{"lone LF at the start", []string{"\na\r\n"}, traits{size: 4, bare: true}},
		{"lone LF at the start of a part", []string{"a", "\nb\r\n"}, traits{size: 5, bare: true}},
		{"lone CR", []string{"a\rb\r\n"}, traits{size: 5, bare: true}},
		{"lone CR at the end", []string{"a\r\nb\r"}, traits{size: 7, bare: true}},
		{"doubled CR", []string{"a\r\r\n"}, traits{size: 4, bare: true}},
		{"as many CR as LF, none together", []string{"a\rb\nc\r\n"}, traits{size: 7, bare: true}},
		{"eight bits early", []string{"\x80234567890\r\n"}, traits{size: 12, eightBit: true}},
		{"eight bits late", []string{"abcdefgh\xff\r\n"}, traits{size: 11, eightBit: true}},
		{"seven bits", []string{"abcdefgh\x7f\r\n"}, traits{size: 11}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := inspect(split(test.parts...)); got != test.want {
				t.Errorf("inspect() = %+v, want %+v", got, test.want)
			}
		})
	}
}

// hasEightBit finds a non-ASCII byte at any position.
func TestEightBitAnywhere(t *testing.T) {
	t.Parallel()
	for size := range 80 {
		p := bytes.Repeat([]byte{0x7f}, size)
		if hasEightBit(p) {
			t.Errorf("%d bytes of ASCII", size)
		}
		for at := range p {
			for _, c := range []byte{0x80, 0xff} {
				if p[at] = c; !hasEightBit(p) {
					t.Errorf("%#x at %d of %d", c, at, size)
				}
			}
			p[at] = 0x7f
		}
	}
}

func split(parts ...string) [][]byte {
	var out [][]byte
	for _, p := range parts {
		out = append(out, []byte(p))
	}
	return out
}

// wire returns the output of writeBody for the given parts, followed by the terminating dot.
func wire(t *testing.T, parts [][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := bufio.NewWriterSize(&b, 64)
	writeBody(w, parts, inspect(parts).bare)
	w.WriteString(".\r\n")
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestWriteBody(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		parts []string
		want  string
	}{
		{"lines", []string{"a\r\nb\r\n"}, "a\r\nb\r\n.\r\n"},
		{"no final line end", []string{"a"}, "a\r\n.\r\n"},
		{"nothing", nil, ".\r\n"},
		{"dots", []string{".a\r\n..b\r\nc.\r\n.\r\n"}, "..a\r\n...b\r\nc.\r\n..\r\n.\r\n"},
		{"a dot between parts", []string{"a\r\n", ".b\r\n"}, "a\r\n..b\r\n.\r\n"},
		{"a line end between parts", []string{"a\r", "\n", ".b\r\n"}, "a\r\n..b\r\n.\r\n"},
		{"a dot that starts no line", []string{"a", ".b\r\n"}, "a.b\r\n.\r\n"},
		{"lone LF and a dot", []string{"a\n.\r\nb\r\n"}, "a\r\n..\r\nb\r\n.\r\n"},
		{"lone CR and a dot", []string{"a\r.\r\nb\r\n"}, "a .\r\nb\r\n.\r\n"},
		{"lone LF in parts", []string{"a", "\n", "."}, "a\r\n..\r\n.\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := wire(t, split(test.parts...)); string(got) != test.want {
				t.Errorf("wrote %q, want %q", got, test.want)
			}
		})
	}
}

// FuzzDotStuff writes arbitrary messages, split into parts at arbitrary positions, and reads them back as an SMTP
// server does.
func FuzzDotStuff(f *testing.F) {
	for _, seed := range []string{
		"", ".", "\r\n.\r\n", "a\r\n.b\r\n", "a\n.\nb", "\r.\r", "..\r\n..", "a\r\r\n.\r\n", strings.Repeat(".\r\n", 50),
		"\xff\r\n",
	} {
		f.Add([]byte(seed), uint(1), uint(2))
	}
	f.Fuzz(func(t *testing.T, msg []byte, i, j uint) {
		n := uint(len(msg) + 1)
		i, j = i%n, j%n
		i, j = min(i, j), max(i, j)
		got := wire(t, [][]byte{msg[:i], msg[i:j], msg[j:]})
		if whole := wire(t, [][]byte{msg}); !bytes.Equal(got, whole) {
			t.Fatalf("cut at %d and %d it is %q, whole %q", i, j, got, whole)
		}
		end := bytes.Index(append([]byte("\r\n"), got...), []byte("\r\n.\r\n"))
		if end != len(got)-3 {
			t.Fatalf("%q ends at %d", got, end)
		}
		if bytes.Count(got, []byte("\r")) != bytes.Count(got, []byte("\r\n")) ||
			bytes.Count(got, []byte("\n")) != bytes.Count(got, []byte("\r\n")) {
			t.Fatalf("%q has a CR or an LF alone", got)
		}
		if got := unstuff(got); !bytes.Equal(got, paired(msg)) {
			t.Fatalf("a host reads %q, the message is %q", got, paired(msg))
		}
		bare := !bytes.Equal(bytes.TrimSuffix(paired(msg), []byte("\r\n")), bytes.TrimSuffix(msg, []byte("\r\n")))
		if !bare && inspect([][]byte{msg}).size != int64(len(paired(msg))) && len(msg) > 0 {
			t.Fatalf("size %d of %q", inspect([][]byte{msg}).size, msg)
		}
	})
}

// unstuff removes the stuffed dots from a message as an SMTP server does (RFC 5321 section 4.5.2).
func unstuff(wire []byte) []byte {
	var out []byte
	for line := range bytes.SplitAfterSeq(wire, []byte("\r\n")) {
		if string(line) == ".\r\n" {
			break
		}
		out = append(out, bytes.TrimPrefix(line, []byte("."))...)
	}
	return out
}

// paired uses a different algorithm to compute the expected result of pairLineEnds, including a final line ending.
func paired(msg []byte) []byte {
	const mark = "\x00\x01line end\x01\x00"
	s := strings.ReplaceAll(string(msg), "\r\n", mark)
	s = strings.ReplaceAll(s, "\n", mark)
	s = strings.ReplaceAll(s, "\r", " ")
	if s != "" && !strings.HasSuffix(s, mark) {
		s += mark
	}
	return []byte(strings.ReplaceAll(s, mark, "\r\n"))
}

func BenchmarkWriteBody10KB(b *testing.B) {
	body := bytes.Repeat([]byte(strings.Repeat("x", 76)+"\r\n"), 140)
	w := bufio.NewWriterSize(discard{}, writeBuffer)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		parts := [][]byte{body}
		writeBody(w, parts, inspect(parts).bare)
		w.Flush()
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
