package report

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// returnedMail returns the messages in testdata/returned, each with its envelope sender and recipients. The tests in
// package receiving check how these messages change the state of an email.
func returnedMail(t testing.TB) (all []struct{ name, raw, from, to string }) {
	names, err := filepath.Glob("testdata/returned/*.eml")
	if err != nil || len(names) < 300 {
		t.Fatalf("%d messages, error %v", len(names), err)
	}
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(strings.TrimSuffix(name, ".eml") + ".want")
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(want), "\n")
		all = append(all, struct{ name, raw, from, to string }{filepath.Base(name), string(raw),
			strings.Trim(strings.TrimPrefix(lines[0], "from: "), "<>"), strings.TrimPrefix(lines[1], "to: ")})
	}
	return all
}

func returned(raw []byte, from string, to []string) Report { return ReadReturned(raw, from).About(to) }

// TestReturnedMail compares the report for each message in testdata/returned with testdata/returned.want.
// POSTRIDER_UPDATE=1 rewrites it.
func TestReturnedMail(t *testing.T) {
	t.Parallel()
	const golden = "testdata/returned.want"
	var got strings.Builder
	for _, m := range returnedMail(t) {
		fmt.Fprintf(&got, "%s\n%s\n", m.name, summary(returned([]byte(m.raw), m.from, strings.Fields(m.to))))
	}
	if os.Getenv("POSTRIDER_UPDATE") != "" {
		if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestReturnedSources checks that the samples written from documents and sources name them, and that they follow the
// rules for their kind: a delay never suppresses, and neither does a full mailbox under 5.1.1 or an expired message.
func TestReturnedSources(t *testing.T) {
	t.Parallel()
	sourced, kinds := 0, map[string]int{}
	for _, m := range returnedMail(t) {
		want, err := os.ReadFile("testdata/returned/" + strings.TrimSuffix(m.name, ".eml") + ".want")
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(want)), "\n")
		source, ok := strings.CutPrefix(lines[2], "source: ")
		if !ok {
			continue
		}
		if sourced++; len(source) < 10 || len(lines) < 4 {
			t.Errorf("%s has the source %q and the lines %q", m.name, source, lines)
		}
		verdict := strings.Join(lines[3:], "\n")
		for kind, prefix := range map[string]string{"-delayed-": "delayed ",
			"-expired-": "bounced ann@dest.example Transient ",
			"full-511-": "bounced ann@dest.example Transient MailboxFull", "gone-": "bounced ann@dest.example Permanent ",
			"x400-": "", "domino-": "", "qmail-": ""} {
			if !strings.Contains(m.name, kind) {
				continue
			}
			kinds[kind]++
			if !strings.HasPrefix(verdict, prefix) ||
				prefix != "" && strings.Contains(verdict, "suppress") != (kind == "gone-") {
				t.Errorf("%s: %s", m.name, verdict)
			}
		}
	}
	if sourced < 113 || len(kinds) != 7 {
		t.Errorf("%d samples name their source; %v", sourced, kinds)
	}
}

// The result depends neither on the line endings, which may even be mixed, nor on a Return-Path field.
func TestReturnedLineEnds(t *testing.T) {
	t.Parallel()
	for _, m := range returnedMail(t) {
		to := strings.Fields(m.to)
		want := summary(returned([]byte(m.raw), m.from, to))
		mixed := ""
		for i, line := range strings.SplitAfter(m.raw, "\n") {
			if i%2 == 0 {
				line = strings.Replace(line, "\n", "\r\n", 1)
			}
			mixed += line
		}
		for name, raw := range map[string]string{"CRLF": strings.ReplaceAll(m.raw, "\n", "\r\n"), "mixed": mixed,
			"field": "Return-Path: <>\n" + m.raw} {
			if got := summary(returned([]byte(raw), m.from, to)); got != want {
				t.Errorf("%s, %s:\n got %s\nwant %s", m.name, name, got, want)
			}
		}
	}
}

// A bounce that names no recipient is about all recipients of the email. A bounce that names no recipient suppresses an
// address only if the email had a single recipient.
func TestReturnedNamesNobody(t *testing.T) {
	t.Parallel()
	const raw = "From: MAILER-DAEMON@d.example\nSubject: failure notice\n\n550 5.1.1 user unknown\n"
	for _, to := range [][]string{{"a@d.example"}, {"a@d.example", "b@d.example"}} {
		r := returned([]byte(raw), "", to)
		if len(r.Recipients) != len(to) {
			t.Fatalf("%d recipients of %q", len(r.Recipients), to)
		}
		for i, one := range r.Recipients {
			if one.Final != to[i] || one.Class().Suppress != (len(to) == 1) {
				t.Errorf("of %q: %+v, %+v", to, one, one.Class())
			}
		}
	}
	if r := returned([]byte(raw), "", nil); len(r.Recipients) != 0 {
		t.Errorf("of nobody: %+v", r)
	}
}

// A message may arrive at a hundred return paths, so the running time of About must not depend on the size of the
// message.
func TestReturnedIsReadOnce(t *testing.T) {
	const head = "From: MAILER-DAEMON@d.example\nContent-Type: multipart/mixed; boundary=b\n\n" +
		"--b\n\n<a@d.example>: 550 5.1.1 unknown\n--b\nContent-Type: application/octet-stream\nContent-Transfer-Encoding: " +
		"base64\n\n"
	r := ReadReturned([]byte(head+strings.Repeat("QUFB\n", 1<<20)+"--b--\n"), "")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 10 {
		if got := r.About([]string{"a@d.example"}); len(got.Recipients) != 1 || got.Recipients[0].Status != "5.1.1" {
			t.Fatalf("%+v", got)
		}
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / 10; n > 1<<20 {
		t.Errorf("%d bytes of memory for one look", n)
	}
}

// Even if a report lists many recipients, its text is searched only for as many recipients as one email can have.
func TestReturnedExplainsFew(t *testing.T) {
	t.Parallel()
	var fields, words strings.Builder
	for i := range 100 {
		fmt.Fprintf(&fields, "Final-Recipient: rfc822; a%d@d.example\nAction: failed\nStatus: 5.0.0\n", i)
		fields.WriteString("Diagnostic-Code: smtp; 550 no\n\n")
		fmt.Fprintf(&words, "a%d@d.example\nuser unknown\n\n", i)
	}
	const head = "From: MAILER-DAEMON@d.example\nContent-Type: multipart/report; boundary=b\n\n--b\n\n"
	const status = "--b\nContent-Type: message/delivery-status\n\n"
	r := returned([]byte(head+words.String()+status+fields.String()+"--b--\n"), "", []string{"a0@d.example"})
	explained := 0
	for _, one := range r.Recipients {
		if one.Class() != unclear {
			explained++
		}
	}
	if len(r.Recipients) != 100 || explained != maxExplained {
		t.Errorf("%d of %d recipients are explained, want %d", explained, len(r.Recipients), maxExplained)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	to := newNames([]string{"Ann@D.example", "joann@d.example", "x+y@d.example", "no address", "é@d.example"})
	for text, want := range map[string][]string{
		"<ann@d.example>": {"Ann@D.example"}, "[SMTP:ANN@d.EXAMPLE]": {"Ann@D.example"},
		"JoAnn@d.example.":  {"joann@d.example"},
		"ann@d.example.com": nil, "收件人：ann@d.example，": nil, "收件人:ann@d.example ，": {"Ann@D.example"}, "@": nil, "": nil,
		"'x+y@d.example'": {"x+y@d.example"}, "z+x+y@d.example": nil, "joann@d.example ann@d.example": {"Ann@D.example",
			"joann@d.example"},
		"mailto:é@d.example": {"é@d.example"}, "y@d.example": nil, "@d.example": nil,
	} {
		if got := to.in(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// If a code is vague, or the words of the reply contradict the code, the words determine the class.
func TestWordsAndCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code           int
		enhanced, text string
		typ, sub       string
		suppress       bool
	}{
		{550, "5.7.1", "user unknown", Permanent, General, true},
		{554, "5.0.0", "no such recipient", Permanent, General, true},
		{550, "5.7.0", "no mailbox here by that name", Permanent, General, true},
		{550, "5.7.1", "unknown user agent is not allowed by policy", Permanent, General, true},
		{550, "5.7.133", "no such recipient", Transient, General, false},
		// the standard text for reply code 550 fits any cause
		{550, "5.7.1", "Requested action not taken: mailbox unavailable", Transient, General, false},
		{550, "", "Requested action not taken: mailbox unavailable", Permanent, General, true},
		{550, "5.1.1", "mailbox is full", Transient, MailboxFull, false},
		{550, "5.1.1", "Empfänger unbekannt", Permanent, General, true},
		{550, "", "El usuario no existe", Permanent, General, true},
		{550, "", "почтовый ящик переполнен", Transient, MailboxFull, false},
		{550, "5.1.1", "rejected for policy reasons", Transient, General, false},
		{550, "5.1.1", "Host or domain name not found", Permanent, General, false},
		{550, "5.1.1", "mail loop detected", Permanent, General, false},
		{550, "5.1.1", "too many hops", Permanent, General, false},
		{550, "5.1.1", "connection refused by mx", Transient, General, false},
		{550, "5.1.1", "relay access denied", Transient, General, false},
		{550, "5.2.1", "account is temporarily disabled", Transient, General, false},
		{550, "5.1.1", "local configuration error", Transient, General, false},
		{550, "5.1.1", "refused as spam", Transient, ContentRejected, false},
		{550, "5.1.1", "User unknown in relay recipient table", Permanent, General, true},
		{550, "5.1.1", "ann not listed in Domino Directory", Permanent, General, true},
		{550, "5.1.1", "your server is listed in a list", Transient, General, false},
	} {
		if got := Classify(c.code, c.enhanced, c.text); got.Type != c.typ || got.SubType != c.sub ||
			got.Suppress != c.suppress {
			t.Errorf("%d %s %s: %+v", c.code, c.enhanced, c.text, got)
		}
	}
	// Words about a recipient are ignored if the host has not yet received the recipient's address.
	for _, scope := range []Scope{ScopeSender, ScopeSession} {
		if c := (Refusal{Code: 550, Enhanced: "5.7.1", Text: "user unknown", Scope: scope}).Class(); c.Suppress {
			t.Errorf("scope %d: %+v", scope, c)
		}
	}
}

func FuzzReturned(f *testing.F) {
	for _, m := range returnedMail(f) {
		f.Add([]byte(m.raw), m.from, m.to)
	}
	f.Add([]byte("\n@d.example a@d.example \xff@d.example\n\n550"), "", "a@d.example")
	f.Fuzz(func(t *testing.T, raw []byte, from, to string) {
		near := strings.Fields(strings.ToValidUTF8(to, ""))
		r := returned(raw, from, near)
		if len(near) == 0 || r.Kind != Delivery {
			return
		}
		for i, one := range r.Recipients {
			c := one.Class()
			if c.Type == "" || c.Suppress && (c.Type != Permanent || one.Unnamed) {
				t.Errorf("recipient %d, %+v: %+v", i, one, c)
			}
		}
	})
}
