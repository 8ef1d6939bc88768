package emails_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/sending/emails"
)

// oddTexts returns unusual strings that are tested in every field that becomes part of a header.
func oddTexts() []string {
	all := []string{"", " ", "\t", "a\tb", "\r\nX: y", "\x00", "\x01", "\x7f", "\xff", "\ufffd", "é", "日本語", "😀", "\u2028",
		"\u202e", "a/b", "a/", "/b", "a/b/c",
		"text/plain; charset=\"utf-8", "text/plain; charset=utf-8;", "text/plain; a", "text/plain; a=", "text/plain; =b",
		"text/plain; a=b; a=c", "form-data; name=x",
		"text/plain; a*=utf-8''%e9", "text/plain; a*0=x; a*1=y", "text/plain; a*0*=utf-8''%41; a*1=y",
		"text/plain; a*=utf-8''%0d%0ax", "text/plain; a=\"b\\\"c\"",
		"text/plain; a=\"\"", "text/plain; a=(b)", "TEXT/PLAIN", "text", "text/ plain", "text /plain", "*/*", "a/b;c/d=e",
		"message/rfc822", "multipart/mixed",
		"multipart/mixed; boundary=x", "=?utf-8?q?x?=", "=?utf-8?b?=?=", "<x@y>", "<>", "\"", "\\", "a\\", "\"a", "(", ")",
		",", ";", ":", "@", "..", "a..b", ".a", "%0d%0a",
		"a b  c", " a ", "a.exe", "x.pdf", "-", "--", "_", "'"}
	for _, n := range []int{63, 77, 255, 256, 320, 499, 501, 980, 990, 998, 1000, 1990, 16384} {
		all = append(all, strings.Repeat("x", n), strings.Repeat("é", n/2), strings.Repeat("x ", n/2), "a/"+
			strings.Repeat("b", n),
			"a/b; c="+strings.Repeat("d", n), "a/b; c=\""+strings.Repeat("d e", n/3)+"\"", "a/b; "+strings.Repeat("c", n)+"=d",
			"a/b; c*=utf-8''"+strings.Repeat("%e9", n/3), "a/b"+strings.Repeat("; c", n/3)+"=d", strings.Repeat("\"", n),
			strings.Repeat("\\", n))
	}
	return all
}

// headerFields lists the fields of an email that become part of a header, each with a function that sets it.
var headerFields = map[string]func(s *emails.Send, text string){
	"content_type":    func(s *emails.Send, text string) { s.Attachments[0].ContentType = text },
	"filename":        func(s *emails.Send, text string) { s.Attachments[0].Filename = text },
	"content_id":      func(s *emails.Send, text string) { s.Attachments[0].ContentID = text },
	"header's value":  func(s *emails.Send, text string) { s.Headers = []message.Field{{Name: "X-A", Value: text}} },
	"header's name":   func(s *emails.Send, text string) { s.Headers = []message.Field{{Name: text, Value: "a"}} },
	"header's middle": func(s *emails.Send, text string) { s.Headers = []message.Field{{Name: "X-" + text, Value: text}} },
	"subject":         func(s *emails.Send, text string) { s.Subject = text },
	"tag's name":      func(s *emails.Send, text string) { s.Tags = []emails.Tag{{Name: text, Value: "a"}} },
	"tag's value":     func(s *emails.Send, text string) { s.Tags = []emails.Tag{{Name: "a", Value: text}} },
	"from's name":     func(s *emails.Send, text string) { s.From = text + " <hello@acme.example>" },
	"from's quoted":   func(s *emails.Send, text string) { s.From = fmt.Sprintf("%q <hello@acme.example>", text) },
	"from's local":    func(s *emails.Send, text string) { s.From = text + "@acme.example" },
	"to":              func(s *emails.Send, text string) { s.To = []string{text} },
	"to's name":       func(s *emails.Send, text string) { s.To = []string{text + " <a@example.net>"} },
	"to's local":      func(s *emails.Send, text string) { s.To = []string{text + "@example.net"} },
	"to's domain":     func(s *emails.Send, text string) { s.To = []string{"a@" + text + ".example"} },
	"cc's name":       func(s *emails.Send, text string) { s.Cc = []string{text + " <b@example.net>"} },
	"reply_to's name": func(s *emails.Send, text string) { s.ReplyTo = []string{text + " <c@example.net>"} },
	"reply_to":        func(s *emails.Send, text string) { s.ReplyTo = []string{text} },
}

// Every accepted email can be composed into lines that mail hosts accept. All other emails are refused with an error
// that blames the request, not the server.
func TestWhatIsAcceptedComposes(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		accepted := 0
		for field, set := range headerFields {
			for texts := range slices.Chunk(oddTexts(), emails.MaxBatch) {
				for text, emailID := range f.sendOdd(t, set, texts) {
					accepted++
					f.checkComposed(t, emailID, fmt.Sprintf("%s %.100q", field, text))
				}
			}
		}
		if accepted < 300 {
			t.Errorf("%d emails were accepted", accepted)
		}
	})
}

// sendOdd sends one email for each string and returns the ids of the accepted emails. Emails with attachments are sent
// one by one, and all other emails in a batch.
func (f *fixture) sendOdd(t *testing.T, set func(*emails.Send, string), texts []string) map[string]string {
	t.Helper()
	all := make([]emails.Send, len(texts))
	ids := map[string]string{}
	for i, text := range texts {
		if all[i] = hello("to@example.net"); usesFile(set) {
			all[i].Attachments = []emails.Upload{{Filename: "a.txt", Content: []byte("hi"), HasContent: true}}
		}
		set(&all[i], text)
	}
	if usesFile(set) {
		for i, text := range texts {
			emailID, err := f.Emails.Send(t.Context(), f.Acme, all[i], emails.Idempotency{})
			if err == nil {
				ids[text] = emailID
			} else if fault.KindOf(err) == fault.Internal {
				t.Errorf("%.100q: %v", text, err)
			}
		}
		return ids
	}
	b, err := f.Emails.SendBatch(t.Context(), f.Acme, all, true, emails.Idempotency{})
	if err != nil {
		t.Errorf("%.100q: %v", texts, err)
		return nil
	}
	for i, text := range texts {
		if !slices.ContainsFunc(b.Errors, func(e emails.BatchError) bool { return e.Index == i }) {
			ids[text], b.IDs = b.IDs[0], b.IDs[1:]
		}
	}
	return ids
}

func usesFile(set func(*emails.Send, string)) bool {
	probe := emails.Send{Attachments: make([]emails.Upload, 1)}
	set(&probe, "x")
	a := probe.Attachments[0]
	return a.Filename+a.ContentType+a.ContentID != ""
}

func (f *fixture) checkComposed(t *testing.T, emailID, what string) {
	t.Helper()
	o, err := f.Emails.Outgoing(t.Context(), emails.Delivery{TeamID: f.Acme.TeamID,
		EmailID: emailID, Domain: "example.net"})
	if err != nil {
		t.Fatal(err)
	}
	composed, err := f.Emails.Compose(t.Context(), o)
	if err != nil {
		t.Errorf("%s was accepted and cannot be composed: %v", what, err)
	}
	for line := range bytes.SplitSeq(composed, []byte("\r\n")) {
		if len(line) > 998 || bytes.ContainsAny(line, "\r\n\x00") {
			t.Errorf("%s makes the line %.100q of %d bytes", what, line, len(line))
		}
	}
}

// An email with too many attachments is refused, and neither rows nor files are written.
func TestTooManyAttachments(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := hello("to@example.net")
		for range emails.MaxAttachments + 1 {
			s.Attachments = append(s.Attachments, emails.Upload{Filename: "a.txt", HasContent: true})
		}
		_, err := f.Emails.Send(t.Context(), f.Acme, s, emails.Idempotency{})
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "attachments") {
			t.Errorf("%v", err)
		}
		to, err := message.ParseAddress("to@example.net")
		if err != nil {
			t.Fatal(err)
		}
		raw := emails.Raw{Send: s, Recipients: []message.Address{to}, Header: []byte("From: hello@acme.example\r\n"),
			Body: []byte("\r\n")}
		if _, err := f.Emails.SendRaw(t.Context(), f.Acme, raw, emails.Idempotency{}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("submitted: %v", err)
		}
		if err := f.Blobs.List(t.Context(), "", func(f blob.Info) error {
			return fmt.Errorf("%s was written",
				f.Key)
		}); err != nil {
			t.Error(err)
		}
		if n := f.Count(`SELECT COUNT(*) FROM emails`) + f.Count(`SELECT COUNT(*) FROM email_attachments`); n != 0 {
			t.Errorf("%d rows were written", n)
		}
		s.Attachments = s.Attachments[:emails.MaxAttachments]
		f.Send(s)
	})
}
