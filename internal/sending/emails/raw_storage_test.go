package emails_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

func (f *fixture) sendRaw(t *testing.T, in emails.Raw) string {
	t.Helper()
	id, err := f.Emails.SendRaw(t.Context(), f.Acme, in, emails.Idempotency{})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// A raw message of up to 64 KB, including the prepended fields, is stored in its row. Small and large messages are sent
// unchanged.
func TestWhereRawIsKept(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		in := composed(message.Address{Local: "a", Domain: "one.example"})
		before := len(f.compose(t, f.sendRaw(t, in))) - len(in.Header) - len(in.Body)
		for _, more := range []int{-1, 0, 1} {
			in.Body = []byte("\r\n" + strings.Repeat("x", 64<<10-before-len(in.Header)-2+more))
			id := f.sendRaw(t, in)
			blobs := 0
			if more > 0 {
				blobs = 1
			}
			if keys := f.keys(t); len(keys) != blobs {
				t.Errorf("with %d bytes more it is kept in %v", more, keys)
			}
			if text := f.compose(t, id); !strings.HasSuffix(text, string(in.Header)+string(in.Body)) || len(text) != 64<<10+
				more {
				t.Errorf("with %d bytes more it has become %d bytes", more, len(text))
			}
			size, err := f.Emails.Size(t.Context(), f.Acme.TeamID, id)
			if want := int64(2*(64<<10) + 1024); err != nil || blobs == 0 && size != want || blobs == 1 && size != 2*(1<<20)+
				1024 {
				t.Errorf("with %d bytes more it is estimated to take %d, %v", more, size, err)
			}
		}
		// The only size limit for a raw message is its total size.
		for more, kind := range []fault.Kind{0, fault.Invalid} {
			in.Body = make([]byte, 1<<20-len(in.Header)+more)
			copy(in.Body, bytes.Repeat([]byte("\r\nHello."), len(in.Body)/8))
			_, err := f.Emails.SendRaw(t.Context(), f.Acme, in, emails.Idempotency{})
			if more == 0 && err != nil || more > 0 && fault.KindOf(err) != kind {
				t.Errorf("a message of %d bytes more than may be: %v", more, err)
			}
		}
	})
}

// Header fields that are missing from a raw message are added once, and existing fields stay unchanged.
func TestWhatRawLacks(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for _, c := range []struct {
			id      string
			hasDate bool
		}{{"", false}, {"<own@acme.example>", false}, {"", true}, {"<own@acme.example>", true}} {
			in := composed(message.Address{Local: "a", Domain: "one.example"})
			if in.MessageID, in.HasDate = c.id, c.hasDate; c.id != "" {
				in.Header = append(in.Header, "Message-ID: "+c.id+"\r\n"...)
			}
			if c.hasDate {
				in.Header = append(in.Header, "Date: Thu, 01 Jan 2026 00:00:00 +0000\r\n"...)
			}
			emailID := f.sendRaw(t, in)
			want := c.id
			if want == "" {
				want = "<" + emailID + "@acme.example>"
			}
			e, err := f.Emails.Get(t.Context(), f.Acme.TeamID, emailID)
			if err != nil || e.MessageID != want {
				t.Errorf("%+v: its Message-ID is %s, want %s; %v", c, e.MessageID, want, err)
			}
			text := f.compose(t, emailID)
			for _, field := range []string{"\r\nMessage-ID: " + want + "\r\n", "\r\nDate: ", "Received: by mx.test"} {
				if n := strings.Count(text, field); n != 1 {
					t.Errorf("%+v: %q stands there %d times:\n%s", c, field, n, text)
				}
			}
		}
	})
}

// A description of a raw message is stored along with the message.
func TestWhatIsKeptOfRaw(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		html, text := "<p>Hello.\x00", "Hello."
		in := composed(message.Address{Local: "a", Domain: "one.example"}, message.Address{Local: "A", Domain: "one.example"},
			message.Address{Local: "b", Domain: "one.example"})
		in.Send.To, in.HTML, in.Text = []string{"a@one.example"}, &html, &text
		in.Headers = []message.Field{{Name: "Precedence", Value: "bulk"}}
		in.Attachments = []emails.Upload{{Filename: strings.Repeat("x", 260), Content: []byte("file")}}
		in.Header = append(in.Header, "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n"...)
		in.Body = []byte("\r\n--b\r\n\r\nHello.\r\n--b\r\nContent-Disposition: attachment; " +
			"filename=x\r\n\r\nfile\r\n--b--\r\n")
		in.UTF8 = true
		id := f.sendRaw(t, in)
		e, err := f.Emails.Get(t.Context(), f.Acme.TeamID, id)
		if err != nil || e.HTML == nil || *e.HTML != "<p>Hello." || e.Text == nil || *e.Text != text ||
			!slices.Equal(e.Bcc, []string{"b@one.example"}) {
			t.Errorf("%+v, %v", e, err)
		}
		o, err := f.Emails.Outgoing(t.Context(), emails.Delivery{TeamID: f.Acme.TeamID, EmailID: id, Domain: "one.example"})
		if err != nil || !o.UTF8 || len(o.To) != 2 {
			t.Errorf("%+v, %v", o, err)
		}
		lane := emails.Lane("one.example", f.Acme.TeamID, true)
		if n := f.Count(`SELECT COUNT(*) FROM jobs WHERE lane = $1`, lane); n != 1 {
			t.Errorf("%d jobs in the lane %s", n, lane)
		}
		files, _, err := f.Emails.Attachments(t.Context(), f.Acme.TeamID, id, page.Page{})
		if err != nil || len(files) != 1 || files[0].Filename != strings.Repeat("x", 255) {
			t.Fatalf("%+v, %v", files, err)
		}
		if content, err := f.read(t, &files[0]); err != nil || content != "file" {
			t.Errorf("its file is %q, %v", content, err)
		}
		// If an attachment's key refers to a file that does not exist in the message, the read fails instead of returning
		// another file.
		for _, key := range []string{"#1", "#x"} {
			f.change(`UPDATE email_attachments SET blob_key = $2 WHERE email_id = $1`, db.ID(id), key)
			if content, err := f.read(t, &files[0]); err == nil {
				t.Errorf("the file %s is %q", key, content)
			}
		}
	})
}

// The other rules for emails apply to raw messages too, with exactly the same limits.
func TestRulesOfRaw(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		many := func(n int) (all []message.Address) {
			for i := range n {
				all = append(all, message.Address{Local: fmt.Sprintf("a%d", i), Domain: "one.example"})
			}
			return all
		}
		for name, c := range map[string]struct {
			spoil func(in *emails.Raw)
			kind  fault.Kind
			says  string
		}{
			"no sender":             {func(in *emails.Raw) { in.From = "" }, fault.Missing, "`from`"},
			"a sender that is none": {func(in *emails.Raw) { in.From = "nobody" }, fault.Invalid, "`from`"},
			"50 recipients":         {func(in *emails.Raw) { in.Recipients = many(50) }, 0, ""},
			"51 recipients":         {func(in *emails.Raw) { in.Recipients = many(51) }, fault.Invalid, "`bcc`"},
			"50 and one twice":      {func(in *emails.Raw) { in.Recipients = append(many(50), many(1)...) }, 0, ""},
			"50 and one that is named": {func(in *emails.Raw) {
				in.Send.To, in.Recipients = []string{"b@two.example"},
					append(many(50), message.Address{Local: "b", Domain: "two.example"})
			}, 0, ""},
			"a test domain": {func(in *emails.Raw) {
				in.Recipients = append(many(2), message.Address{Local: "a", Domain: "example.com"})
			}, fault.Invalid, "example.com"},
			"a program": {func(in *emails.Raw) {
				in.Attachments = []emails.Upload{{Filename: "a.txt"}, {Filename: "a.exe"}}
			}, fault.BadAttachment, "a.exe"},
			"a tag that is none": {func(in *emails.Raw) { in.Tags = []emails.Tag{{Name: "é", Value: "x"}} }, fault.Invalid,
				"tag"},
		} {
			in := composed(many(1)...)
			c.spoil(&in)
			_, err := f.Emails.SendRaw(t.Context(), f.Acme, in, emails.Idempotency{})
			if c.says == "" && err != nil || c.says != "" && (fault.KindOf(err) != c.kind ||
				!strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
