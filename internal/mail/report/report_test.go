package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/mailtest"
)

// summary returns the parts of a report that the tests compare.
func summary(r Report) string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			b.WriteString(name + ": " + value + "\n")
		}
	}
	line("kind", string(r.Kind))
	line("feedback", r.Feedback)
	if r.Kind == Complaint {
		line("complains", fmt.Sprint(r.Complains()))
	}
	line("id", r.MessageID)
	line("to", strings.Join(r.To, " "))
	line("mail from", r.MailFrom)
	for _, f := range r.Original {
		if strings.EqualFold(f.Name, "Subject") {
			line("original subject", f.Value)
		}
	}
	for _, to := range r.Recipients {
		line("recipient", strings.Join([]string{to.Original, to.Final, to.Action, to.Status, to.RemoteMTA, to.Diagnostic},
			" | "))
		if to.Action == Failed || to.Action == Delayed {
			c := to.Class()
			line("class", fmt.Sprintf("%s %s, fault %s, suppress %v: %s", c.Type, c.SubType, c.Fault, c.Suppress, c.Say))
		}
	}
	return b.String()
}

// TestReturned parses testdata/*.eml and compares the results with the .want files in the same folder, which are empty
// for messages from people. POSTRIDER_UPDATE=1 rewrites these.
func TestReturned(t *testing.T) {
	t.Parallel()
	mailtest.Golden(t, "testdata/*.eml", 40, func(t *testing.T, raw []byte) string {
		got := summary(again(raw))
		if lf := summary(again([]byte(strings.ReplaceAll(string(raw), "\r\n", "\n")))); lf != got {
			t.Errorf("with LF alone (-want +got):\n%s", cmp.Diff(got, lf))
		}
		return got
	})
}

// again parses a message that arrived at the return path for an email to Ann and Bob. If the first field is
// Return-Path, it contains the envelope sender.
func again(raw []byte) Report {
	from := ""
	if first := read(raw).Header; len(first) > 0 && first[0].Name == "Return-Path" {
		from = bareAddress(first[0].Value)
	}
	return returned(raw, from, []string{"ann@dest.example", "bob@dest.example"})
}

func TestSplitReply(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in       string
		code     int
		enhanced string
	}{
		{"550 5.1.1 unknown", 550, "5.1.1"}, {"550-5.1.1 unknown", 550, "5.1.1"}, {"unknown (#5.1.1)", 0, "5.1.1"},
		{"", 0, ""},
		{"host mx[192.0.2.1] said: 452 4.2.2 full", 452, "4.2.2"}, {"192.168.5.1.1", 0, ""}, {"user550@x 5.1.1.7", 0, ""},
		{"on 2026-03-04 at 10:45", 0, ""}, {"[550] no", 550, ""}, {"5.1.10", 0, "5.1.10"}, {"5.1.1000", 0, ""},
		{"v5.1.1", 0, ""}, {"999", 0, ""},
		{"your mail of 501 kilobytes is too large", 0, ""}, {"after 450 minutes: 554 no", 554, ""},
		{"550 Messages are refused", 550, ""},
	} {
		if code, enhanced, _ := splitReply(tc.in); code != tc.code || enhanced != tc.enhanced {
			t.Errorf("%q: %d %q, want %d %q", tc.in, code, enhanced, tc.code, tc.enhanced)
		}
	}
}

func TestTypedAddress(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"rfc822; a@b.c": "a@b.c", "RFC822;a@b.c": "a@b.c", "a@b.c": "a@b.c", "rfc822; <a@b.c>": "a@b.c",
		"rfc822;\"a b\"@b.c":    "\"a b\"@b.c",
		"utf-8; jos\\x{E9}@b.c": "josé@b.c", "utf-8;\\x{1F600}@b.c": "😀@b.c", "utf-8;\\x{zz}@b.c": "\\x{zz}@b.c",
		"utf-8;\\x{":   "",
		"x400; /C=de/": "", "": "", "rfc822;": "", "rfc822; @b.c": "", "rfc822; a@": "", "unknown; a@b.c, d@e.f": "",
	} {
		if got := typedAddress(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// checkReport checks properties that every Report must have.
func checkReport(t *testing.T, r Report) {
	t.Helper()
	if len(r.Recipients) > maxRecipients || len(r.To) > maxRecipients {
		t.Errorf("%d recipients, %d in To", len(r.Recipients), len(r.To))
	}
	if r.Kind == None && len(r.Recipients) > 0 || (r.Kind == Complaint) != (r.Feedback != "") {
		t.Errorf("%+v", r)
	}
	for _, to := range r.Recipients {
		c := to.Class()
		if c.Suppress && c.Type != Permanent {
			t.Errorf("%+v suppresses without being permanent", to)
		}
		if r.Kind == Delivery && to.Action == "" || !utf8.ValidString(to.Original+to.Final+to.Diagnostic+to.RemoteMTA) {
			t.Errorf("%+v", to)
		}
		for _, a := range []string{to.Original, to.Final} {
			if a != "" && (!strings.Contains(a, "@") || strings.ContainsAny(a, "\r\n\x00<>")) {
				t.Errorf("address %q", a)
			}
		}
		if to.Status != "" && !isStatus(to.Status) {
			t.Errorf("status %q", to.Status)
		}
	}
}

func TestReturnedHostile(t *testing.T) {
	t.Parallel()
	const head = "From: MAILER-DAEMON@x.example\nSubject: failure notice\nContent-Type: multipart/report; " +
		"report-type=delivery-status; boundary=b\n\n--b\nContent-Type: message/delivery-status\n\n"
	const prose = "From: MAILER-DAEMON@x.example\nSubject: failure notice\n\ncould not be delivered:\n"
	for name, raw := range map[string]string{
		"recipients": head + strings.Repeat("Final-Recipient: rfc822; a@b.c\nAction: failed\n\n", 100000),
		"one group":  head + strings.Repeat("Final-Recipient: rfc822; a@b.c\n", 100000),
		"diagnostics": head + strings.Repeat("Final-Recipient: rfc822; a@b.c\nDiagnostic-Code: smtp; "+
			strings.Repeat("5.1.1 ", 1000)+"\n\n", 100),
		"blank":     head + strings.Repeat("\n", 1<<20),
		"colons":    head + strings.Repeat("a:\n\n", 1<<18),
		"addresses": prose + strings.Repeat("<a@b.c>: 550 no\n", 1<<16),
		"names":     prose + strings.Repeat("a@b.c\n\n", 1<<16),
		"digits":    prose + strings.Repeat("1", 1<<20),
		"dots":      prose + "a@b.c\n" + strings.Repeat("5.", 1<<19),
		"long fold": prose + "İİİİ" + strings.Repeat("K", 1000) + " could not be delivered to a@b.c",
		"indented":  prose + strings.Repeat("   Message-ID: <a@b>\n   From: x\n\n", 1<<14),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkReport(t, again([]byte(raw)))
			checkReport(t, ReadComplaint([]byte(raw)))
		})
	}
}

func fuzz(f *testing.F, prefixes ...string) {
	for _, prefix := range prefixes {
		names, err := filepath.Glob("testdata/" + prefix + "*.eml")
		if err != nil || len(names) == 0 {
			f.Fatalf("%d messages, error %v", len(names), err)
		}
		for _, name := range names {
			raw, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(raw)
		}
	}
	for _, seed := range []string{
		"Content-Type: text/html\n\n<!----!><!----!>550 5.1.1 <a@b.example>",
		"\n<a@b.example>: 550 5.1.1 \n<a@b.example>\n> a\n550-550 5.5.5.5",
		"Content-Type: message/delivery-status\n\nAction: failed\nDiagnostic-Code: smtp; 550 \xff\xff\n Final-Recipient: " +
			"rfc822;\n\n",
		"Content-Type: message/feedback-report\n\nFeedback-Type: abuse\nOriginal-Rcpt-To: <<a@b>\n\nReturn-Path: " +
			"<b-a@b.example>\n",
	} {
		f.Add([]byte("From: mailer-daemon@b.example\nReturn-Path: <>\nSubject: Undelivered\n" + seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		checkReport(t, again(raw))
		checkReport(t, ReadComplaint(raw))
	})
}

func FuzzDSN(f *testing.F) { fuzz(f, "dsn-", "prose-", "auto-", "person") }

func FuzzARF(f *testing.F) { fuzz(f, "arf-", "jmrp") }
