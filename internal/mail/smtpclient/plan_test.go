package smtpclient

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestParseExtensions(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, text string
		want       Extensions
	}{
		{"none", "mx.test", Extensions{}},
		{"the greeting is none", "PIPELINING", Extensions{}},
		{"all", "mx.test\nPIPELINING\nSIZE 1000\n8BITMIME\nSMTPUTF8\nENHANCEDSTATUSCODES\nSTARTTLS\nAUTH PLAIN " +
			"LOGIN\nCHUNKING", Extensions{
			Pipelining: true, Size: 1000, EightBitMIME: true, SMTPUTF8: true, EnhancedCodes: true, StartTLS: true,
			Auth: []string{"LOGIN", "PLAIN"},
		}},
		{"any case", "mx.test\npipelining\nAuth plain", Extensions{Pipelining: true, Auth: []string{"PLAIN"}}},
		{"no size", "mx.test\nSIZE", Extensions{}},
		{"size without limit", "mx.test\nSIZE 0", Extensions{}},
		{"size in words", "mx.test\nSIZE big", Extensions{}},
		{"negative size", "mx.test\nSIZE -5", Extensions{}},
		{"size beyond numbers", "mx.test\nSIZE 99999999999999999999", Extensions{}},
		{"old AUTH", "mx.test\nAUTH PLAIN\nAUTH=PLAIN LOGIN", Extensions{Auth: []string{"LOGIN", "PLAIN"}}},
		{"limits", "mx.test\nLIMITS MAILMAX=3 rcptmax=20 RCPTDOMAINMAX=1 OTHER=7\nSIZE 9", Extensions{Size: 9,
			Limits: Limits{Messages: 3, Recipients: 20, Domains: 1}}},
		{"limits of nothing", "mx.test\nLIMITS", Extensions{}},
		{"limits that are none", "mx.test\nLIMITS MAILMAX=0 RCPTMAX=-1 RCPTDOMAINMAX MAILMAX= RCPTMAX=many RCPTMAX=+5 " +
			"RCPTMAX=1000000 RCPTMAX=99999999999999999999", Extensions{}},
		{"the highest limit", "mx.test\nLIMITS RCPTMAX=999999", Extensions{Limits: Limits{Recipients: 999999}}},
		{"limits twice", "mx.test\nLIMITS RCPTMAX=5 RCPTMAX=3 RCPTMAX=4", Extensions{Limits: Limits{Recipients: 3}}},
		{"longer words are others", "mx.test\nPIPELININGS\nX-8BITMIME", Extensions{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, parseExtensions(test.text)); diff != "" {
				t.Errorf("parseExtensions() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidPath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"":                        true,
		"a@b.example":             true,
		"δ@b.example":             true,
		`"a b"@b.example`:         true,
		`"a>b"@b.example`:         true,
		`"a\"b>"@b.example`:       true,
		`"a\ b"@b.example`:        true,
		"\"a\\\x7f\"@b.example":   false,
		`a\"b@b.example`:          false,
		`"a@b.example`:            false,
		`"a\`:                     false,
		"\"a\\\r\"@b.example":     false,
		"a b@b.example":           false,
		"a@b.example> SIZE=1":     false,
		"a@b.example>\r\nDATA":    false,
		"<a@b.example":            false,
		"a\x00@b.example":         false,
		"a\x7f@b.example":         false,
		"a@b.example\n":           false,
		strings.Repeat("x", 500):  true,
		strings.Repeat("x", 501):  false,
		"a+b=c/d@b.example":       true,
		"bounce+abc-1.2@b.exampl": true,
	} {
		if got := validPath(path); got != want {
			t.Errorf("validPath(%q) = %v", path, got)
		}
	}
}

func TestValidHello(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"mx.example": true, "[192.0.2.1]": true, "~!": true, "a b": false, "a\x7f": false, "a\r\nb": false,
		"é.example": false, strings.Repeat("x", 255): true,
		strings.Repeat("x", 256): false,
	} {
		if got := validHello(name); got != want {
			t.Errorf("validHello(%.20q) = %v", name, got)
		}
	}
}

// TestPlan checks that the commands and parameters that plan chooses depend on the extensions that the host offers.
func TestPlan(t *testing.T) {
	t.Parallel()
	const eight = "a\x80\r\n"
	for _, c := range []struct {
		name string
		ext  Extensions
		env  Envelope
		msg  string
		mail string // the MAIL command, or the local reply in its place
		rcpt []int  // local replies to recipients; 0 means that RCPT is sent
	}{
		{"nothing offered", Extensions{}, Envelope{From: "a@b.example", To: []string{"c@d.example"}}, eight,
			"MAIL FROM:<a@b.example>", []int{0}},
		{"null path", Extensions{Size: 9}, Envelope{To: []string{"c@d.example"}}, "x\r\n", "MAIL FROM:<> SIZE=3", []int{0}},
		{"as large as it may be", Extensions{Size: 4}, Envelope{To: []string{"c@d.example"}}, eight, "MAIL FROM:<> SIZE=4",
			[]int{0}},
		{"an octet too large", Extensions{Size: 3}, Envelope{To: []string{"c@d.example"}}, eight, "552", []int{0}},
		{"8 bits", Extensions{EightBitMIME: true}, Envelope{To: []string{"c@d.example"}, Require8Bit: true}, eight,
			"MAIL FROM:<> BODY=8BITMIME", []int{0}},
		{"8 bits that are required", Extensions{}, Envelope{To: []string{"c@d.example"}, Require8Bit: true}, eight, "554",
			[]int{0}},
		{"8 bits that there are not", Extensions{}, Envelope{To: []string{"c@d.example"}, Require8Bit: true}, "x\r\n",
			"MAIL FROM:<>", []int{0}},
		{"7 bits", Extensions{EightBitMIME: true}, Envelope{To: []string{"c@d.example"}}, "x\r\n", "MAIL FROM:<>", []int{0}},
		{"UTF-8 header", Extensions{SMTPUTF8: true}, Envelope{To: []string{"c@d.example"}, UTF8: true}, "x\r\n",
			"MAIL FROM:<> SMTPUTF8", []int{0}},
		{"UTF-8 header, not offered", Extensions{}, Envelope{To: []string{"c@d.example"}, UTF8: true}, "x\r\n", "550",
			[]int{0}},
		{"UTF-8 sender", Extensions{SMTPUTF8: true}, Envelope{From: "é@b.example", To: []string{"c@d.example"}}, "x\r\n",
			"MAIL FROM:<é@b.example> SMTPUTF8", []int{0}},
		{"UTF-8 sender, not offered", Extensions{}, Envelope{From: "é@b.example", To: []string{"c@d.example"}}, "x\r\n",
			"550", []int{0}},
		{"UTF-8 recipient", Extensions{SMTPUTF8: true}, Envelope{To: []string{"c@d.example", "é@d.example"}}, "x\r\n",
			"MAIL FROM:<> SMTPUTF8", []int{0, 0}},
		{"UTF-8 recipient, not offered", Extensions{}, Envelope{To: []string{"é@d.example", "c@d.example"}}, "x\r\n",
			"MAIL FROM:<>", []int{550, 0}},
		{"recipients that are none", Extensions{}, Envelope{To: []string{"", "a b@d.example"}}, "x\r\n", "250",
			[]int{553, 553}},
		{"sender that is none", Extensions{}, Envelope{From: "a b@d.example", To: []string{"c@d.example"}}, "x\r\n", "553",
			[]int{0}},
	} {
		tr := transaction{c: &Conn{ext: c.ext, log: newTranscript(0, time.Now())}, env: c.env,
			traits: inspect([][]byte{[]byte(c.msg)})}
		tr.res.Rcpt = make([]Reply, len(c.env.To))
		mail := ""
		if tr.plan() {
			mail = string(tr.mailCommand())
		} else {
			mail = fmt.Sprint(tr.res.Mail.Code)
		}
		var rcpt []int
		for _, r := range tr.res.Rcpt {
			rcpt = append(rcpt, r.Code)
		}
		if mail != c.mail || !slices.Equal(rcpt, c.rcpt) {
			t.Errorf("%s: %q, %d; want %q, %d", c.name, mail, rcpt, c.mail, c.rcpt)
		}
	}
}

// Error.Timeout is true only if the host sent no reply.
func TestErrorTimeout(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		e    Error
		want bool
	}{
		{Error{Err: os.ErrDeadlineExceeded}, true},
		{Error{Err: fmt.Errorf("read: %w", os.ErrDeadlineExceeded)}, true},
		{Error{Err: os.ErrDeadlineExceeded, Reply: &Reply{Code: 421}}, false},
		{Error{Err: ErrProtocol}, false},
		{Error{}, false},
	} {
		if got := c.e.Timeout(); got != c.want {
			t.Errorf("%v: %v", &c.e, got)
		}
	}
}

// FuzzPath writes valid addresses into a command and checks that it remains a single command with a single path.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{"a@b.example", `"a>b"@c.example`, "a@b>\r\nDATA", `"\"> SIZE=1`, "δ@b.example", "\x00",
		`"\`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if !validPath(path) {
			return
		}
		line := "RCPT TO:<" + path + ">"
		if len(line) > 510 || strings.ContainsFunc(line, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			t.Fatalf("%q is no command line", line)
		}
		quoted := regexp.MustCompile(`"(\\.|[^"\\])*"`)
		if bare := quoted.ReplaceAllString(path, ""); strings.ContainsAny(bare, "\"<> ") {
			t.Fatalf("%q leaves its brackets: %q", path, bare)
		}
	})
}

// TestTranscriptIsBounded writes far more text than a transcript can hold. The transcript must keep the beginning and
// the end.
func TestTranscriptIsBounded(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 1024, 2000, 16 << 10} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			log := newTranscript(limit, time.Now())
			for i := range 10 {
				log.line('S', fmt.Appendf(nil, "opening %d", i))
			}
			log.endOpening()
			for message := range 3 {
				log.next(time.Now())
				for i := range 2000 {
					log.line('C', fmt.Appendf(nil, "message %d line %d ä%s", message, i, strings.Repeat("x", i%1500)))
				}
				log.note("the end")
				text := log.String()
				if len(text) > max(limit, minTranscript) || !utf8.ValidString(text) {
					t.Fatalf("%d bytes", len(text))
				}
				if !strings.Contains(text, "opening 0\n") || !strings.Contains(text, "lines left out\n") ||
					!strings.HasSuffix(text, " *: the end\n") {
					t.Fatalf("something is missing:\n%s", text)
				}
				if message > 0 && strings.Contains(text, "message 0") {
					t.Fatalf("an earlier message is left:\n%s", text)
				}
			}
		})
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]*Error{
		"smtp mail":                          {Stage: StageMail},
		"smtp greeting: 554 5.7.1 no":        refused(StageGreeting, Reply{Code: 554, Enhanced: "5.7.1", Text: "no"}),
		"smtp tls: " + ErrNoTLS.Error():      broken(StageTLS, ErrNoTLS),
		"smtp data: protocol error: 250 yes": {Stage: StageData, Err: ErrProtocol, Reply: &Reply{Code: 250, Text: "yes"}},
	} {
		if e.Error() != want {
			t.Errorf("Error() = %q, want %q", e.Error(), want)
		}
	}
}
