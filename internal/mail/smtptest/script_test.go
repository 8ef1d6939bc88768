package smtptest

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMatches(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true},
		{"", "a", false},
		{"EHLO a", "EHLO a", true},
		{"EHLO a", "EHLO ab", false},
		{"EHLO *", "EHLO ", true},
		{"EHLO *", "EHLO a b", true},
		{"EHLO *", "HELO a", false},
		{"MAIL FROM:<*@b>*", "MAIL FROM:<a@b> SIZE=1", true},
		{"MAIL FROM:<*@b>", "MAIL FROM:<a@b> SIZE=1", false},
		{"*a*a", "banana", true},
		{"*", "", true},
	} {
		if got := matches(test.pattern, test.text); got != test.want {
			t.Errorf("matches(%q, %q) = %v", test.pattern, test.text, got)
		}
	}
}

// recorder is a testing.TB that records errors, and that runs its cleanup functions when finish is called.
type recorder struct {
	testing.TB
	problems []string
	cleanups []func()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) finish() {
	for _, f := range r.cleanups {
		f()
	}
}

// TestScript replays dialogues with a client that sends all its lines in one write. Some of the dialogues match what
// the client sends, and some do not.
func TestScript(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, dialogue, client string
		answer                 string
		problem                string // part of the expected error; empty if no error is expected
	}{
		{"fits", "# x\n\nS: 220-a\nS: 220 b\nC: HELO *\nS: 250 c\n", "HELO x\r\n", "220-a\r\n220 b\r\n250 c\r\n", ""},
		{"raw", `(raw "2\x0020\r\n")` + "\n", "", "2\x0020\r\n", ""},
		{"message", "(data)\nS: 250 ok\n", "a\r\n..\r\n.\r\n", "250 ok\r\n", ""},
		{"some bytes", "(read 4)\nC: b\nS: 250 ok\n", "aa\r\nb\r\n", "250 ok\r\n", ""},
		{"other words", "C: HELO *\nS: 250 c\n", "EHLO x\r\n", "", `line 1: C: HELO *: the client said "EHLO x"`},
		{"no CRLF", "C: HELO *\n", "HELO x\n", "", "without CRLF"},
		{"says too little", "C: HELO *\nC: QUIT\n", "HELO x\r\n", "", "line 2: C: QUIT"},
		{"does not wait", "C: HELO *\n(quiet)\nS: 250 c\n", "HELO x\r\nQUIT\r\n", "", "did not wait"},
		{"cut message", "(data)\n", "a\r\n", "", "ended after 3 bytes"},
		{"too few bytes", "(read 10)\n", "a\r\n", "", "(read 10)"},
		{"not a number", "(read x)\n", "", "", "(read x)"},
		{"not a string", "(raw x)\n", "", "", "(raw x)"},
		{"no such directive", "(sing)\n", "", "", "no such directive"},
		{"does not come back", "S: 220 a\n(next)\nS: 220 a\n", "", "220 a\r\n", "nobody connected"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := &recorder{TB: t}
			s := Script(r, test.dialogue)
			answer := converse(t, s.Addr, test.client)
			r.finish()
			if answer != test.answer {
				t.Errorf("answer %q, want %q", answer, test.answer)
			}
			told := strings.Join(r.problems, "\n")
			if !strings.Contains(told, test.problem) || test.problem == "" && told != "" {
				t.Errorf("told %q, want %q", told, test.problem)
			}
			if strings.Contains(test.dialogue, "(data)") && test.problem == "" {
				if diff := cmp.Diff([]string{test.client}, s.Bodies()); diff != "" {
					t.Errorf("Bodies() (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// converse sends text, closes the sending side of the connection, and returns everything that it receives.
func converse(t *testing.T, addr, text string) string {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(patience))
	io.WriteString(nc, text)
	nc.(*net.TCPConn).CloseWrite()
	heard, _ := io.ReadAll(nc)
	return string(heard)
}
