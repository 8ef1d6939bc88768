package smtpclient

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestReadReply(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, wire string
		want       Reply
		err        error
	}{
		{name: "one line", wire: "250 ok\r\n", want: Reply{Code: 250, Text: "ok"}},
		{name: "no text", wire: "250\r\n", want: Reply{Code: 250}},
		{name: "no text after the space", wire: "250 \r\n", want: Reply{Code: 250}},
		{name: "line feed alone", wire: "250 ok\n", want: Reply{Code: 250, Text: "ok"}},
		{name: "lines", wire: "250-a\r\n250-\r\n250 b\r\n", want: Reply{Code: 250, Text: "a\n\nb"}},
		{name: "enhanced code", wire: "550 5.1.1 no user\r\n", want: Reply{Code: 550, Enhanced: "5.1.1", Text: "no user"}},
		{name: "enhanced code alone", wire: "550 5.1.1\r\n", want: Reply{Code: 550, Enhanced: "5.1.1"}},
		{
			name: "enhanced code on each line", wire: "550-5.7.26 not\r\n550-5.7.26 signed\r\n550 5.7.26\r\n",
			want: Reply{Code: 550, Enhanced: "5.7.26", Text: "not\nsigned\n"},
		},
		{
			name: "enhanced code on the first line only", wire: "550-5.7.1 not\r\n550 you\r\n",
			want: Reply{Code: 550, Enhanced: "5.7.1", Text: "not\nyou"},
		},
		{name: "another class is text", wire: "550 4.1.1 no\r\n", want: Reply{Code: 550, Text: "4.1.1 no"}},
		{name: "an address is text", wire: "550 5.1.1.9 no\r\n", want: Reply{Code: 550, Text: "5.1.1.9 no"}},
		{name: "a number is text", wire: "550 5.1 no\r\n", want: Reply{Code: 550, Text: "5.1 no"}},
		{name: "long parts are text", wire: "550 5.1234.1 no\r\n", want: Reply{Code: 550, Text: "5.1234.1 no"}},
		{name: "control characters", wire: "550 a\x00b\x1b[1mc\td\r\n", want: Reply{Code: 550, Text: "a\uFFFDb\uFFFD[1mc d"}},
		{name: "latin-1", wire: "550 Empf\xe4nger\r\n", want: Reply{Code: 550, Text: "Empf\uFFFDnger"}},
		{name: "UTF-8", wire: "550 Empfänger\r\n", want: Reply{Code: 550, Text: "Empfänger"}},
		{name: "a line at the limit", wire: "250 " + strings.Repeat("x", 1994) + "\r\n",
			want: Reply{Code: 250, Text: strings.Repeat("x", 1994)}},
		{name: "text over the limit", wire: strings.Repeat("250-"+strings.Repeat("x", 1023)+"\r\n", 3) + "250 y\r\n",
			want: Reply{
				Code: 250, Text: strings.Repeat(strings.Repeat("x", 1023)+"\n", 2),
			}},

		{name: "a line over the limit", wire: "250 " + strings.Repeat("x", 1995) + "\r\n", err: ErrEndless},
		{name: "a line without end", wire: "250 " + strings.Repeat("x", 10_000), err: ErrEndless},
		{name: "lines without end", wire: strings.Repeat("250-x\r\n", 1000), err: ErrEndless},
		{name: "two codes", wire: "250-ok\r\n550 no\r\n", err: ErrProtocol},
		{name: "no code", wire: "ok\r\n", err: ErrProtocol},
		{name: "empty line", wire: "\r\n", err: ErrProtocol},
		{name: "short code", wire: "25 ok\r\n", err: ErrProtocol},
		{name: "long code", wire: "2500 ok\r\n", err: ErrProtocol},
		{name: "short line", wire: "25\r\n", err: ErrProtocol},
		{name: "a letter in the code", wire: "2x0 ok\r\n", err: ErrProtocol},
		{name: "no space", wire: "250ok\r\n", err: ErrProtocol},
		{name: "class 1", wire: "150 ok\r\n", err: ErrProtocol},
		{name: "class 6", wire: "650 ok\r\n", err: ErrProtocol},
		{name: "negative", wire: "-50 ok\r\n", err: ErrProtocol},
		{name: "cut", wire: "250-ok\r\n250 mo", err: io.EOF},
		{name: "nothing", wire: "", err: io.EOF},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := readReply(bufio.NewReaderSize(strings.NewReader(test.wire), readBuffer), func([]byte) {})
			if !errors.Is(err, test.err) || test.err == nil && err != nil {
				t.Errorf("error %v, want %v", err, test.err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("reply (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReplyClasses(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]string{0: "", 199: "", 200: "positive", 299: "positive", 354: "", 400: "temporary",
		499: "temporary", 500: "permanent", 599: "permanent"} {
		r := Reply{Code: code}
		got := ""
		for name, is := range map[string]bool{"positive": r.Positive(), "temporary": r.Temporary(),
			"permanent": r.Permanent()} {
			if is {
				got += name
			}
		}
		if got != want {
			t.Errorf("%d is %q, want %q", code, got, want)
		}
	}
}

func TestReplyString(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]Reply{
		"no reply":           {},
		"250":                {Code: 250},
		"550 5.1.1 no\x20b":  {Code: 550, Enhanced: "5.1.1", Text: "no\nb"},
		"421 try later":      {Code: 421, Text: "try later"},
		"552 5.3.4 too much": {Code: 552, Enhanced: "5.3.4", Text: "too much", Local: true},
	} {
		if got := r.String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
}

// FuzzReply parses arbitrary replies and checks that parsed replies are safe to store.
func FuzzReply(f *testing.F) {
	for _, seed := range []string{
		"250 ok\r\n", "250-a\r\n250 b\r\n", "550 5.1.1 no\r\n", "550-5.7.1 a\r\n550 5.7.1 b\r\n", "250-a\r\n251 b\r\n",
		"\xff\xfe", "250 \x00\xff\r\n", "250-mx\r\n250-SIZE 10\r\n250 AUTH=A B\r\n",
		"250-mx\r\n250 LIMITS RCPTMAX=1 MAILMAX=999999 RCPTDOMAINMAX=0 =\r\n", "250-\r\n250", "999 x\r\n", "250\n",
		strings.Repeat("250-x\n", 200),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		log := newTranscript(0, timeZero)
		r, err := readReply(bufio.NewReaderSize(strings.NewReader(string(wire)), readBuffer),
			func(line []byte) { log.line('S', line) })
		if err != nil {
			if r != (Reply{}) {
				t.Fatalf("an error and a reply: %+v, %v", r, err)
			}
			return
		}
		if r.Code < 200 || r.Code > 599 || len(r.Text) > maxReplyText || !utf8.ValidString(r.Text) {
			t.Fatalf("unfit: %+v", r)
		}
		if r.Enhanced != "" && int(r.Enhanced[0]-'0') != r.Code/100 {
			t.Fatalf("enhanced code %s of %d", r.Enhanced, r.Code)
		}
		for _, c := range r.Text + log.String() {
			if c != '\n' && unicode.IsControl(c) {
				t.Fatalf("a control character is left: %q", r.Text)
			}
		}
		if strings.ContainsAny(r.String(), "\r\n") {
			t.Fatalf("more than a line: %q", r.String())
		}
		e := parseExtensions(r.Text)
		if e.Size < 0 || len(e.Auth) > len(r.Text) {
			t.Fatalf("extensions %+v of %q", e, r.Text)
		}
		for _, limit := range []int{e.Limits.Messages, e.Limits.Recipients, e.Limits.Domains} {
			if limit < 0 || limit > 999999 || limit > 0 && !strings.Contains(strings.ToUpper(r.Text), "LIMITS ") {
				t.Fatalf("limits %+v of %q", e.Limits, r.Text)
			}
		}
	})
}
