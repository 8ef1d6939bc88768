package submission

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/emails"
)

// Two messages with the same idempotency key are considered equal only if their recipients, senders and content are the
// same.
func TestHash(t *testing.T) {
	one := func() *emails.Raw {
		r := &emails.Raw{Recipients: []message.Address{{Local: "a", Domain: "one.example"},
			{Local: "b", Domain: "one.example"}},
			MessageID: "<1>", Header: []byte("h")}
		r.From, r.To, r.Cc, r.ReplyTo = "f@acme.example", []string{"a@one.example"}, []string{"b@one.example"},
			[]string{"r@acme.example"}
		r.Subject, r.HTML, r.Text, r.TopicID = "s", new("<p>"), new("t"), "topic"
		r.Tags = []emails.Tag{{Name: "n", Value: "v"}}
		r.Attachments = []emails.Upload{{Filename: "f", ContentType: "text/plain", Content: []byte("c")}}
		return r
	}
	base := hash(one())
	for name, change := range map[string]func(*emails.Raw){
		"the order of recipients": func(r *emails.Raw) {
			r.Recipients[0], r.Recipients[1] = r.Recipients[1],
				r.Recipients[0]
		},
		"a recipient who is twice":  func(r *emails.Raw) { r.Recipients = append(r.Recipients, r.Recipients[0]) },
		"the Message-ID":            func(r *emails.Raw) { r.MessageID = "<2>" },
		"a field that says nothing": func(r *emails.Raw) { r.Header = []byte("i") },
	} {
		r := one()
		if change(r); hash(r) != base {
			t.Errorf("%s makes another message", name)
		}
	}
	seen := map[string]string{base: "the first"}
	for name, change := range map[string]func(*emails.Raw){
		"a recipient less":  func(r *emails.Raw) { r.Recipients = r.Recipients[:1] },
		"another sender":    func(r *emails.Raw) { r.From = "g@acme.example" },
		"another To":        func(r *emails.Raw) { r.To = nil },
		"another Cc":        func(r *emails.Raw) { r.Cc = nil },
		"To and Cc swapped": func(r *emails.Raw) { r.To, r.Cc = r.Cc, r.To },
		"another Reply-To":  func(r *emails.Raw) { r.ReplyTo = nil },
		"another subject":   func(r *emails.Raw) { r.Subject = "S" },
		"no HTML":           func(r *emails.Raw) { r.HTML = nil },
		"other HTML":        func(r *emails.Raw) { r.HTML = new("<b>") },
		"no text":           func(r *emails.Raw) { r.Text = nil },
		"other text":        func(r *emails.Raw) { r.Text = new("u") },
		"another tag":       func(r *emails.Raw) { r.Tags[0].Value = "w" },
		"a tag's name":      func(r *emails.Raw) { r.Tags[0].Name = "m" },
		"another topic":     func(r *emails.Raw) { r.TopicID = "" },
		"a file's name":     func(r *emails.Raw) { r.Attachments[0].Filename = "g" },
		"a file's type":     func(r *emails.Raw) { r.Attachments[0].ContentType = "text/html" },
		"a file's content":  func(r *emails.Raw) { r.Attachments[0].Content = []byte("d") },
		"no file":           func(r *emails.Raw) { r.Attachments = nil },
	} {
		r := one()
		change(r)
		if other, ok := seen[hash(r)]; ok {
			t.Errorf("%s is the same message as %s", name, other)
		}
		seen[hash(r)] = name
	}
}

// An address is formatted with its display name, which is quoted if it contains a special character.
func TestFormatAddress(t *testing.T) {
	at := func(name string) message.Address {
		return message.Address{Name: name, Local: "a", Domain: "one.example"}
	}
	for name, want := range map[string]string{"": "a@one.example", " \t": "a@one.example", "Ann": "Ann <a@one.example>",
		"Ann\r\nB": "Ann  B <a@one.example>",
		"B, Ann":   `"B, Ann" <a@one.example>`, `a"b\c`: `"a\"b\\c" <a@one.example>`, "Jürgen": "Jürgen <a@one.example>",
		"a.b": "a.b <a@one.example>"} {
		if got := formatAddress(at(name)); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
	all := formatAddresses([]message.Address{at("Ann"), {Local: "root", Domain: "localhost"}, at("")})
	if fmt.Sprint(all) != "[Ann <a@one.example> a@one.example]" {
		t.Errorf("%q", all)
	}
}

// Each kind of fault is converted to a specific SMTP reply. Internal and unknown errors are returned unchanged, so that
// the listener logs them.
func TestRefusalCodes(t *testing.T) {
	cause := errors.New("the disk is away")
	for _, c := range []struct {
		name string
		err  error
		want string // "" means that the error is unchanged
		says string
	}{
		{"nothing of ours", cause, "", "away"},
		{"no room", fmt.Errorf("put: %w", blob.ErrFull), "452 4.3.1", "room"},
		{"a field", fault.Invalidf("subject", "Bad."), "554 5.6.0", "Bad."},
		{"From", fault.Invalidf("from", "Bad."), "550 5.6.0", "Bad."},
		{"To", fault.Invalidf("to", "Bad."), "553 5.1.3", "Bad."},
		{"Bcc", fault.Invalidf("bcc", "Bad."), "553 5.1.3", "Bad."},
		{"too large", fault.Invalidf("attachments", "Bad."), "552 5.3.4", "Bad."},
		{"a domain that is not verified", fault.Forbiddenf("from", "Bad."), "550 5.7.1", "Bad."},
		{"over the quota", fault.New(fault.MonthlyQuota, "", "Used up."), "451 4.7.1", "Used up."},
		{"too fast", fault.New(fault.TooFast, "", "Slow."), "451 4.7.1", "Slow."},
		{"with a cause", fault.Invalidf("subject", "Bad.").Because(cause), "554 5.6.0", "Bad."},
		{"not now", fault.New(fault.Unavailable, "", "Later."), "451 4.3.0", "Later."},
		{"not now, because of ours", fault.New(fault.Unavailable, "", "Later.").Because(cause), "", "away"},
		{"a kind without a code", fault.New(fault.Malformed, "", "What?"), "", "What?"},
		{"a kind without a code, because of ours", fault.New(fault.Malformed, "", "What?").Because(cause), "", "away"},
		{"an unknown fate", fault.New(fault.Unavailable, "", "Later.").Because(fmt.Errorf("commit: %w", db.ErrUnknown)),
			"451 4.3.0", "may have been accepted"},
	} {
		err := refusal(c.err)
		r, ok := errors.AsType[*smtpserver.Refusal](err)
		got := ""
		if ok {
			got = fmt.Sprint(r.Code, " ", r.Enhanced)
		}
		if got != c.want || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}

// Attempts with wrong API keys are counted per IPv4 address or IPv6 /64 network.
func TestAddress(t *testing.T) {
	of := func(addr string) string {
		return (&session{peer: smtpserver.Peer{Addr: netip.MustParseAddrPort(addr)}}).address()
	}
	for addr, want := range map[string]string{"192.0.2.1:5": "192.0.2.1", "[2001:db8:1:2:3:4:5:6]:7": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:7": "fe80::/64"} {
		if got := of(addr); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}

// A session refuses commands before authentication, and its trace information states how the message was submitted.
func TestSessions(t *testing.T) {
	s := &Service{c: Config{Hostname: "mx.test"}}
	c := &session{s: s}
	if got := c.trace(); got != "by mx.test with ESMTPA" {
		t.Error(got)
	}
	c.peer.TLS = &tls.ConnectionState{}
	if got := c.trace(); got != "by mx.test with ESMTPSA" {
		t.Error(got)
	}
	for _, x := range [][2]string{{"", ""}, {"postrider", ""}, {"", "re_key"}} {
		if r, ok := c.Auth(t.Context(), x[0], x[1]).(*smtpserver.Refusal); !ok || r.Code != 535 {
			t.Errorf("user %q, password %q: %v", x[0], x[1], r)
		}
	}
	if r, ok := c.Mail(t.Context(), "", smtpserver.MailOptions{}).(*smtpserver.Refusal); !ok || r.Code != 530 {
		t.Errorf("without a key: %v", r)
	}
	if err := c.Rcpt(t.Context(), "a@one.example"); err != nil || len(c.to) != 1 {
		t.Errorf("%v, %v", c.to, err)
	}
	if r, ok := c.Rcpt(t.Context(), "a@").(*smtpserver.Refusal); !ok || r.Code != 553 || len(c.to) != 1 {
		t.Errorf("no address: %v, %v", r, c.to)
	}
	c.options.UTF8 = true
	if c.Reset(); c.to != nil || c.options.UTF8 {
		t.Errorf("after a reset: %+v", c)
	}
	c.token = "re_key"
	if c.Close(); c.token != "" {
		t.Error("the key is kept")
	}
}

// A Message-ID may have up to 900 bytes, and must occur in the message exactly as it was parsed.
func TestFieldsOfMessages(t *testing.T) {
	c := &session{s: &Service{}}
	of := func(text string) error {
		_, _, err := c.email([]byte("From: a@acme.example\r\nMessage-ID: " + text + "\r\n\r\nx\r\n"))
		return err
	}
	long := func(n int) string { return "<" + strings.Repeat("x", n-len("<@acme.example>")) + "@acme.example>" }
	for text, taken := range map[string]bool{long(maxMessageID): true, long(maxMessageID + 1): false, "": false,
		"<a@b> <c@d>": true} {
		if err := of(text); (err == nil) != taken {
			t.Errorf("%.30q of %d bytes: %v", text, len(text), err)
		}
	}
	_, key, err := c.email([]byte("From: a@acme.example\r\n\r\nx\r\n"))
	if err != nil || key != (emails.Idempotency{}) {
		t.Errorf("without a key: %+v, %v", key, err)
	}
	for _, name := range []string{"Resend-Idempotency-Key", "POSTRIDER-Idempotency-Key"} {
		_, key, err := c.email([]byte("From: a@acme.example\r\n" + name + ":  k \r\n\r\nx\r\n"))
		if err != nil || key.Key != "k" || key.Scope != scope || len(key.Hash) != 64 {
			t.Errorf("%s: %+v, %v", name, key, err)
		}
	}
	in, _, err := c.email([]byte("From: a@acme.example\r\nX-Postrider-Topic-Id: t\r\nX-Postrider-Tag: a = " +
		"b=c\r\nX-Other: 1\r\n\r\nx\r\n"))
	if err != nil || in.TopicID != "t" || len(in.Tags) != 1 || in.Tags[0] != (emails.Tag{Name: "a", Value: "b=c"}) ||
		len(in.Headers) != 2 || in.UTF8 ||
		in.HasDate || in.HTML != nil || in.Text == nil {
		t.Errorf("%+v, %v", in, err)
	}
}

// A message of less than 256 KiB is read into memory, and a larger message is written to the spool folder. In both
// cases, a message that ends early causes an error.
func TestReadLargeMessages(t *testing.T) {
	s, err := newService(Config{Spool: t.TempDir()}, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	cut := errors.New("cut")
	for _, n := range []int{0, 1, smallMessage - 1, smallMessage, smallMessage + 1} {
		for _, declared := range []int64{0, int64(n), smallMessage + 1, 1 << 60} {
			c := &session{s: s, options: smtpserver.MailOptions{Size: declared}}
			c.actor.TeamID = "team"
			text := strings.Repeat("x", n)
			raw, done, err := c.read(t.Context(), strings.NewReader(text))
			if err != nil || string(raw) != text {
				t.Errorf("%d bytes: %d came, %v", n, len(raw), err)
			}
			if held := s.largeSlots.Held("team"); held != map[bool]int64{true: 1}[n >= smallMessage] {
				t.Errorf("%d bytes hold %d places", n, held)
			}
			done()
			if held := s.largeSlots.Held("team"); held != 0 {
				t.Errorf("after %d bytes %d places are held", n, held)
			}
			if _, done, err = c.read(t.Context(), io.MultiReader(strings.NewReader(text), broken{cut})); !errors.Is(err, cut) {
				t.Errorf("%d bytes that break off: %v", n, err)
			}
			done()
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range largeMessages { // all slots
		if !s.largeSlots.TryAcquire(fmt.Sprint("team", i), 1) {
			t.Fatalf("there are %d places", i)
		}
	}
	_, done, err := (&session{s: s}).read(gone, strings.NewReader(strings.Repeat("x", smallMessage)))
	if _, refused := errors.AsType[*smtpserver.Refusal](err); err == nil || refused {
		t.Errorf("a client that has gone: %v", err)
	}
	done()
	if err := os.Remove(string(s.spool)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := (&session{s: s}).read(t.Context(), strings.NewReader(strings.Repeat("x", smallMessage))); err == nil {
		t.Error("a large message is taken without a folder for it")
	}
}

type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// New fails if the spool folder cannot be created.
func TestInvalidSpool(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newService(Config{Spool: file}, Deps{}); err == nil {
		t.Error("a file is a spool")
	}
	// A leftover file that cannot be removed causes an error. A non-empty folder simulates such a file.
	if err := os.MkdirAll(filepath.Join(folder, "message-1", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := newSpool(folder); err == nil {
		t.Error("what was left and stays is not said")
	}
	if err := remove(filepath.Join(folder, "nothing")); err != nil {
		t.Errorf("what another has removed: %v", err)
	}
}
