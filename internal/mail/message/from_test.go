package message_test

import (
	"bytes"
	"io"
	"mime"
	"net/mail"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/idna"

	"github.com/postrider/postrider/internal/mail/decode"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/mail/mailtest"
	"github.com/postrider/postrider/internal/mail/message"
)

// sameToAll checks that other parsers find the same address in the value of a From field. The other parsers are the
// standard library and our lenient parser, and parsers that use the first brackets, the last brackets, or the last word
// with an @.
func sameToAll(t testing.TB, value, addr string) {
	t.Helper()
	readers := map[string]func() string{
		"net/mail":      func() string { return readByNetMail(value) },
		"first bracket": func() string { return readByBracket(value, 0) },
		"last bracket":  func() string { return readByBracket(value, -1) },
		"last @":        func() string { return readByAt(value) },
		"mailparse": func() string {
			p := mailparse.Parse([]byte("From:" + value + "\r\n\r\n"))
			if len(p.From) != 1 {
				return ""
			}
			return p.From[0].Addr()
		},
	}
	for name, read := range readers {
		if got := canonical(read()); got != addr {
			t.Errorf("%q is of %s, and %s reads %q", value, addr, name, got)
		}
	}
}

func readByNetMail(value string) string {
	m, err := mail.ReadMessage(strings.NewReader("From:" + value + "\r\n\r\n"))
	if err != nil {
		return err.Error()
	}
	all := mail.AddressParser{WordDecoder: &mime.WordDecoder{CharsetReader: func(charset string, r io.Reader) (io.Reader,
		error) {
		content, err := io.ReadAll(r)
		return strings.NewReader(decode.Charset(charset, content)), err
	}}}
	a, err := all.Parse(m.Header.Get("From"))
	if err != nil {
		return err.Error()
	}
	return a.Address
}

var (
	inBrackets = regexp.MustCompile(`<([^>]+)>`)
	aroundAt   = regexp.MustCompile(`[^\s<>"(),:;]+@[^\s<>"(),:;]+`)
)

// readByBracket returns what is in the first angle brackets or, if n is -1, in the last angle brackets. Without
// brackets, readByBracket returns the whole value.
func readByBracket(value string, n int) string {
	found := inBrackets.FindAllStringSubmatch(value, -1)
	if len(found) == 0 {
		return strings.TrimSpace(value)
	}
	return found[(n+len(found))%len(found)][1]
}

func readByAt(value string) string {
	found := aroundAt.FindAllString(value, -1)
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}

// canonical returns an address with its domain in lowercase A-labels, because some of the parsers do not convert
// domains.
func canonical(addr string) string {
	local, domain, _ := strings.Cut(addr, "@")
	domain = strings.ToLower(domain)
	if ascii, err := idna.Lookup.ToASCII(domain); err == nil {
		domain = ascii
	}
	return local + "@" + domain
}

func TestFromForms(t *testing.T) {
	t.Parallel()
	for _, f := range mailtest.FromForms(t) {
		a, err := message.ReadFrom([]byte(f.Value), true)
		taken := f.Takers == "both" || f.Takers == "smtp"
		switch {
		case (err == nil) != taken:
			t.Errorf("ReadFrom(%q) is %q, %v; it is for %s", f.Value, a, err, f.Takers)
		case err == nil:
			if a.Addr() != f.Addr {
				t.Errorf("ReadFrom(%q) is %s, want %s", f.Value, a.Addr(), f.Addr)
			}
			sameToAll(t, f.Value, f.Addr)
			if _, err := message.ReadFrom([]byte(f.Value), false); (err == nil) != !strings.ContainsFunc(f.Value,
				func(r rune) bool { return r >= 0x80 }) {
				t.Errorf("ReadFrom(%q) without SMTPUTF8: %v", f.Value, err)
			}
		default:
			checkAddressError(t, f.Value, a, err)
		}

		a, err = message.ParseFrom(f.Value)
		taken = f.Takers == "both" || f.Takers == "api"
		switch {
		case (err == nil) != taken:
			t.Errorf("ParseFrom(%q) is %q, %v; it is for %s", f.Value, a, err, f.Takers)
		case err == nil:
			if a.Addr() != f.Addr {
				t.Errorf("ParseFrom(%q) is %s, want %s", f.Value, a.Addr(), f.Addr)
			}
			sameToAll(t, composedFrom(t, a), f.Addr)
			if general, err := message.ParseAddress(f.Value); err != nil || general != a {
				t.Errorf("ParseAddress(%q) is %+v, %v; ParseFrom reads %+v", f.Value, general, err, a)
			}
		default:
			checkAddressError(t, f.Value, a, err)
		}
	}
}

func checkAddressError(t *testing.T, value string, a message.Address, err error) {
	t.Helper()
	if reason, ok := err.(*message.AddressError); !ok || !strings.HasSuffix(reason.Reason, ".") ||
		a != (message.Address{}) {
		t.Errorf("%q: error %#v beside %+v", value, err, a)
	}
}

// composedFrom composes a message with a as its sender, and returns the value of its From field.
func composedFrom(t testing.TB, a message.Address) string {
	t.Helper()
	m := &message.Message{ID: "<1@example.com>", Date: time.Unix(1772600000, 0), From: a, Text: "text"}
	raw, err := m.Compose()
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := bytes.Cut(raw, []byte("\r\nFrom:"))
	end := 0
	for end = bytes.Index(after, []byte("\r\n")); after[end+2] == ' '; {
		end += 2 + bytes.Index(after[end+2:], []byte("\r\n"))
	}
	return string(after[:end])
}

func TestReadFromIsBounded(t *testing.T) {
	t.Parallel()
	for _, value := range []string{
		strings.Repeat("n", 5000) + " <a@acme.example>",
		strings.Repeat("\r\n n", 2000) + " <a@acme.example>",
		strings.Repeat(`"`, 4001),
		strings.Repeat("=?utf-8?q?n?= ", 300) + " <a@acme.example>",
	} {
		if a, err := message.ReadFrom([]byte(value), true); err == nil {
			t.Errorf("%.40q of %d bytes was read as %.40q", value, len(value), a)
		}
	}
}

// In a sender's display name, consecutive encoded words are decoded together, and other words are separated by a space.
func TestReadFromNames(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"=?utf-8?Q?a?= =?utf-8?Q?b?=": "ab", `Dr. Ann "B. C" Lee`: "Dr. Ann B. C Lee",
		"=?utf-8?Q?a?= =?utf-8?Q?b?= c": "ab c", "": "", "Ann": "Ann",
		`"Ann" =?utf-8?Q?b?=`: "Ann b", "=?ISO-2022-JP?B?GyRCRnwbKEI=?= =?ISO-2022-JP?B?GyRCS1wbKEI=?=": "日本",
	} {
		a, err := message.ReadFrom([]byte(in+" <a@acme.example>"), true)
		if err != nil || a.Name != want {
			t.Errorf("%s: %q, %v; want %q", in, a.Name, err, want)
		}
	}
	for _, r := range "\u202a\u202e\u2066\u2069" {
		if _, err := message.ParseFrom("Ann" + string(r) + " <a@acme.example>"); err == nil {
			t.Errorf("a name with %U was taken", r)
		}
	}
	for _, r := range "\u202f\u200b\u2065\u206a" {
		if _, err := message.ParseFrom("Ann" + string(r) + " <a@acme.example>"); err != nil {
			t.Errorf("a name with %U: %v", r, err)
		}
	}
	if _, err := message.ParseFrom(`"@ann and bob@evil.example" <a@acme.example>`); err == nil {
		t.Error("a name with an address behind an @ alone was taken")
	}
}

// FuzzReadFrom checks that every other parser finds the same sender in each value that ReadFrom accepts.
func FuzzReadFrom(f *testing.F) {
	for _, form := range mailtest.FromForms(f) {
		f.Add(form.Value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		// The SMTP listener accepts only CRLF as the line ending. The value never contains a line from another field,
		// because the header has already been split into fields.
		for i, line := range strings.Split(value, "\r\n") {
			if strings.ContainsAny(line, "\r\n") || i > 0 && (line == "" || line[0] != ' ' && line[0] != '\t') {
				return
			}
		}
		if a, err := message.ReadFrom([]byte(value), true); err == nil {
			sameToAll(t, value, a.Addr())
		}
		if a, err := message.ParseFrom(value); err == nil {
			sameToAll(t, composedFrom(t, a), a.Addr())
		}
	})
}
