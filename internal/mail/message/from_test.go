package message

import (
	"bytes"
	"io"
	"mime"
	"net/mail"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/idna"
)

// fromForm is a line of testdata/from.txt.
type fromForm struct {
	takers, value, addr string
}

// fromForms reads testdata/from.txt.
func fromForms(t testing.TB) (all []fromForm) {
	t.Helper()
	text, err := os.ReadFile("testdata/from.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		takers, rest, _ := strings.Cut(line, " ")
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		value, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, fromForm{takers, value, strings.TrimSpace(rest[len(quoted):])})
	}
	return all
}

// sameToAll fails unless other readers find addr in the value of a From field: the standard library, readers that
// search for brackets from the left or from the right, readers that search for an @, and Parse.
func sameToAll(t testing.TB, value, addr string) {
	t.Helper()
	readers := map[string]func() string{
		"net/mail":      func() string { return readByNetMail(value) },
		"first bracket": func() string { return readByBracket(value, 0) },
		"last bracket":  func() string { return readByBracket(value, -1) },
		"last @":        func() string { return readByAt(value) },
		"Parse": func() string {
			p := Parse([]byte("From:" + value + "\r\n\r\n"))
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
	all := mail.AddressParser{WordDecoder: &mime.WordDecoder{CharsetReader: func(charset string, r io.Reader) (io.Reader, error) {
		if enc := charsetByName(charset); enc != nil {
			return enc.NewDecoder().Reader(r), nil
		}
		return r, nil // ASCII with a language (RFC 2231 section 5)
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

// readByBracket returns what stands in the first brackets, or with -1 in the last, and the whole when there are none.
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

// canonical returns an address with its domain in lower case and in A-labels, as not every reader does.
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
	for _, f := range fromForms(t) {
		a, err := ReadFrom([]byte(f.value), true)
		taken := f.takers == "both" || f.takers == "smtp"
		switch {
		case (err == nil) != taken:
			t.Errorf("ReadFrom(%q) is %q, %v; it is for %s", f.value, a, err, f.takers)
		case err == nil:
			if a.Addr() != f.addr {
				t.Errorf("ReadFrom(%q) is %s, want %s", f.value, a.Addr(), f.addr)
			}
			sameToAll(t, f.value, f.addr)
			if _, err := ReadFrom([]byte(f.value), false); (err == nil) != isASCII(f.value) {
				t.Errorf("ReadFrom(%q) without SMTPUTF8: %v", f.value, err)
			}
		default:
			checkAddressError(t, f.value, a, err)
		}

		a, err = ParseFrom(f.value)
		taken = f.takers == "both" || f.takers == "api"
		switch {
		case (err == nil) != taken:
			t.Errorf("ParseFrom(%q) is %q, %v; it is for %s", f.value, a, err, f.takers)
		case err == nil:
			if a.Addr() != f.addr {
				t.Errorf("ParseFrom(%q) is %s, want %s", f.value, a.Addr(), f.addr)
			}
			sameToAll(t, composedFrom(t, a), f.addr)
			if general, err := ParseAddress(f.value); err != nil || general != a {
				t.Errorf("ParseAddress(%q) is %+v, %v; ParseFrom reads %+v", f.value, general, err, a)
			}
		default:
			checkAddressError(t, f.value, a, err)
		}
	}
}

func checkAddressError(t *testing.T, value string, a Address, err error) {
	t.Helper()
	if reason, ok := err.(*AddressError); !ok || !strings.HasSuffix(reason.Reason, ".") || a != (Address{}) {
		t.Errorf("%q: error %#v beside %+v", value, err, a)
	}
}

// composedFrom is the value of the From field of a message that is from a.
func composedFrom(t testing.TB, a Address) string {
	t.Helper()
	m := plainMessage()
	m.From = a
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
		if a, err := ReadFrom([]byte(value), true); err == nil {
			t.Errorf("%.40q of %d octets was read as %.40q", value, len(value), a)
		}
	}
}

// FuzzReadFrom checks that every sender that ReadFrom accepts is the same to all readers.
func FuzzReadFrom(f *testing.F) {
	for _, form := range fromForms(f) {
		f.Add(form.value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		// The listener refuses other line ends, and the splitting of the header ensures that each line belongs to the
		// field.
		for i, line := range strings.Split(value, "\r\n") {
			if strings.ContainsAny(line, "\r\n") || i > 0 && (line == "" || !isWSP(line[0])) {
				return
			}
		}
		if a, err := ReadFrom([]byte(value), true); err == nil {
			sameToAll(t, value, a.Addr())
		}
		if a, err := ParseFrom(value); err == nil {
			sameToAll(t, composedFrom(t, a), a.Addr())
		}
	})
}
