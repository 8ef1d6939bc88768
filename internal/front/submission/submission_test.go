package submission_test

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/emersion/go-smtp"
	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

// odd is a message with many unusual details that would be lost if the message were parsed and recomposed.
const odd = `Return-Path: <me@acme.example>
X-Odd:  two  spaces	and a tab 
From: =?utf-8?q?J=C3=BCrgen?= "von" Acme
 <hello@ACME.example>
to:Ann <ann@one.example>,
	bob@TWO.example
Cc: undisclosed:;
BCC: hidden@three.example,
 other@three.example
Subject: =?utf-8?b?R3LDvMOfZQ==?=
MESSAGE-ID:<one@acme.example>
Date: Mon, 2 Jan 2006 15:04:05 -0700 (a remark)
X-Postrider-Tag: kind = greeting
X-Postrider-Tag: n=1
Postrider-Idempotency-Key: k
X-Entity-Ref-ID: 7
List-Unsubscribe: <https://acme.example/u>
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=b

A preamble.
--b
Content-Type: text/html; charset=utf-8
Content-Transfer-Encoding: 8bit

<p>Grüße</p>   
.
..dots
--b
Content-Type: text/plain; name=a.txt
Content-Disposition: attachment; filename=a.txt
Content-Transfer-Encoding: base64

aGVsbG8=
--b--
An epilogue.


`

// The message that delivery would send is identical to the submitted message, byte for byte.
func TestByteForByte(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		id := f.mustSubmit(odd, "ann@one.example", "hidden@three.example")
		got, o := f.outgoing(id, "one.example")
		trace, rest, _ := strings.Cut(got, "X-Odd:")
		if !strings.HasPrefix(trace, "Received: by mx.test with ESMTPA id "+id+";\r\n ") || strings.Count(trace, "\n") != 2 {
			t.Errorf("the trace is %q", trace)
		}
		want := crlf(odd)
		for _, gone := range []string{"Return-Path: <me@acme.example>\n",
			"BCC: hidden@three.example,\n other@three.example\n",
			"X-Postrider-Tag: kind = greeting\n", "X-Postrider-Tag: n=1\n", "Postrider-Idempotency-Key: k\n"} {
			want = strings.Replace(want, crlf(gone), "", 1)
		}
		if diff := cmp.Diff(want, "X-Odd:"+rest); diff != "" {
			t.Errorf("the message was changed (-sent +got):\n%s", diff)
		}
		if o.UTF8 || !slices.Equal(o.To, []string{"ann@one.example"}) {
			t.Errorf("to %q, UTF8 %v", o.To, o.UTF8)
		}

		e := f.Email(id)
		for what, pair := range map[string][2]string{
			"from":       {e.From, "Jürgen von Acme <hello@acme.example>"},
			"to":         {fmt.Sprint(e.To), "[Ann <ann@one.example> bob@two.example]"},
			"cc":         {fmt.Sprint(e.Cc), "[]"},
			"bcc":        {fmt.Sprint(e.Bcc), "[hidden@three.example]"},
			"subject":    {e.Subject, "Grüße"},
			"message id": {e.MessageID, "<one@acme.example>"},
			"tags":       {fmt.Sprint(e.Tags), "[{kind greeting} {n 1}]"},
			"html":       {strings.TrimSpace(*e.HTML), "<p>Grüße</p>   \n.\n..dots"},
			"key":        {string(e.Actor.Kind) + " " + e.Actor.ID, "key " + f.key.ID},
		} {
			if pair[0] != pair[1] {
				t.Errorf("%s is %q, want %q", what, pair[0], pair[1])
			}
		}
		to, err := f.Emails.Recipients(t.Context(), f.Acme.TeamID, id)
		if err != nil || len(to) != 2 || to[0].Kind != "to" || to[0].Address != "ann@one.example" || to[1].Kind != "bcc" {
			t.Errorf("recipients %v, %v", to, err)
		}
		f.hasFile(id, "a.txt", "hello")
	})
}

// hasFile checks that the email has exactly one attachment, with the given name and content.
func (f *fixture) hasFile(id, name, want string) {
	f.T.Helper()
	files, _, err := f.Emails.Attachments(f.T.Context(), f.Acme.TeamID, id, page.Page{Limit: 10})
	if err != nil || len(files) != 1 || files[0].Filename != name || files[0].Size != int64(len(want)) {
		f.T.Fatalf("attachments %v, %v", files, err)
	}
	link, _ := f.Emails.DownloadURL(&files[0], db.Now())
	_, content, err := f.Emails.Download(f.T.Context(), link[strings.LastIndexByte(link, '/')+1:])
	if err != nil {
		f.T.Fatal(err)
	}
	defer content.Close()
	if got, err := io.ReadAll(content); err != nil || string(got) != want {
		f.T.Errorf("the attachment is %q, %v", got, err)
	}
}

func TestMissingFieldsAreAdded(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	id := f.mustSubmit("From: hello@acme.example\n", "ann@one.example")
	got, _ := f.outgoing(id, "one.example")
	if !strings.Contains(got, "\r\nDate: ") || !strings.Contains(got, "\r\nMessage-ID: <"+id+"@acme.example>\r\n") ||
		!strings.HasSuffix(got, "\r\nFrom: hello@acme.example\r\n\r\n") {
		t.Errorf("%q", got)
	}
	if e := f.Email(id); e.MessageID != "<"+id+"@acme.example>" || e.HTML != nil || len(e.To) != 0 || len(e.Bcc) != 1 {
		t.Errorf("%+v", e)
	}
}

// Each message in TestRefusals is refused for a different reason.
func TestRefusals(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	topic, err := f.Contacts.CreateTopic(t.Context(), f.Acme.TeamID, contacts.NewTopic{Name: "News",
		Default: contacts.OptIn})
	if err != nil {
		t.Fatal(err)
	}
	topicID := topic.ID
	many := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf("a%d@one.example", i))
		}
		return strings.Join(list, ", ")
	}
	for _, c := range []struct {
		name, text string
		want       string
	}{
		{"unverified", "From: a@other.example\n\nx\n",
			"550 5.7.1 The domain other.example of the `from` field is not verified"},
		{"sandbox", "From: onboarding@resend.dev\n\nx\n", "550 5.7.1"},
		{"no from", "Subject: x\n\nx\n", "550 5.6.0 The header has no From"},
		{"two from", "From: a@acme.example\nFrom: b@acme.example\n\nx\n",
			"550 5.6.0 The header has the field from more than once"},
		{"two authors", "From: a@acme.example, b@acme.example\n\nx\n", "550 5.6.0 The field from must have one address"},
		{"bad from", "From: nobody\n\nx\n", "550 5.6.0"},
		{"UTF-8 from", "From: jürgen@acme.example\n\nx\n", "550 5.6.0"},
		{"no header", "Hello,\n\nthis is no message\n", "554 5.6.0 Line 1 of the header"},
		{"text without an empty line", "From: a@acme.example\nHello there\n", "554 5.6.0 Line 2 of the header"},
		{"NUL", "From: a@acme.example\n\nx\x00\n", "554 5.6.0 The message has a NUL"},
		{"message id", "From: a@acme.example\nMessage-ID: none\n\nx\n", "554 5.6.0 The Message-ID"},
		{"tag", "From: a@acme.example\nX-Postrider-Tag: none\n\nx\n", "554 5.6.0 Write the field X-Postrider-Tag"},
		{"tag characters", "From: a@acme.example\nX-Postrider-Tag: a=b c\n\nx\n", "554 5.6.0"},
		{"topic", "From: a@acme.example\nX-Postrider-Topic: t\n\nx\n", "554 5.6.0"},
		{"empty topic", "From: a@acme.example\nX-Postrider-Topic:\n\nx\n",
			"554 5.6.0 The field X-Postrider-Topic is empty"},
		{"two topics", "From: a@acme.example\nX-Postrider-Topic: " + topicID + "\nX-Postrider-Topic-Id: " + topicID +
			"\n\nx\n", "554 5.6.0 The header names a topic more than once"},
		{"empty key", "From: a@acme.example\nPostrider-Idempotency-Key: \n\nx\n",
			"554 5.6.0 The field Postrider-Idempotency-Key is empty"},
		{"two keys", "From: a@acme.example\nPostrider-Idempotency-Key: a\nResend-Idempotency-Key: b\n\nx\n",
			"554 5.6.0 The field Resend-Idempotency-Key is empty, or differs"},
		{"long subject", "From: a@acme.example\nSubject: " + strings.Repeat("x", 999) + "\n\nx\n", "554 5.6.0"},
		{"many in to", "From: a@acme.example\nTo: " + many(51) + "\n\nx\n", "553 5.1.3"},
		{"many fields", "From: a@acme.example\n" + strings.Repeat("X: y\n", 1001) + "\nx\n",
			"554 5.6.0 The header is too large"},
		{"circle", "From: a@acme.example\n" + strings.Repeat("Received: by x\n", 51) + "\nx\n", "554 5.4.6"},
		{"program", "From: a@acme.example\nContent-Type: application/octet-stream; name=a.exe\n" +
			"Content-Disposition: attachment; filename=a.exe\n\nMZ\n", "554 5.7.1"},
		{"too large", "From: a@acme.example\n\n" + strings.Repeat(strings.Repeat("x", 70)+"\n", maxSize/70), "552 5.3.4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := f.submit(f.password, c.text, "ann@one.example")
			code, text := refused(err)
			e, ok := errors.AsType[*smtp.SMTPError](err)
			if !ok {
				t.Fatalf("it was not refused: %v", err)
			}
			got := fmt.Sprintf("%d %d.%d.%d %s", code, e.EnhancedCode[0], e.EnhancedCode[1], e.EnhancedCode[2], e.Message)
			if !strings.HasPrefix(got, c.want) {
				t.Errorf("%s (%s), want %s", got, text, c.want)
			}
		})
	}
	if list, _, err := f.Emails.List(t.Context(), f.Acme.TeamID, page.Page{Limit: 10}); err != nil || len(list) != 0 {
		t.Errorf("refused and taken: %v, %v", list, err)
	}
}

const hello = "From: hello@acme.example\nTo: ann@one.example\nSubject: Hi\n\nHello.\n"

func TestRecipients(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	for to, want := range map[string]int{"ann@example.com": 553, "ann@one": 553, "ann@[127.0.0.1]": 553,
		"postmaster": 553} {
		if _, err := f.submit(f.password, hello, to); code(err) != want {
			t.Errorf("%s: %v, want %d", to, err, want)
		}
	}
	var hidden []string
	for i := range 51 {
		hidden = append(hidden, fmt.Sprintf("a%d@one.example", i))
	}
	if _, err := f.submit(f.password, hello, hidden...); code(err) != 553 {
		t.Errorf("51 hidden recipients: %v", err)
	}
	if _, err := f.Suppressions.Add(t.Context(), f.Acme.TeamID, []string{"no@one.example"}); err != nil {
		t.Fatal(err)
	}
	id := f.mustSubmit(hello, "No@one.example", "no@one.example")
	if e := f.Email(id); e.LastEvent != emails.Suppressed {
		t.Errorf("mail to a suppressed address is %s", e.LastEvent)
	}
}

func code(err error) int {
	n, _ := refused(err)
	return n
}

func TestWhoMaySend(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	if _, err := f.submit("re_nobody", hello, "ann@one.example"); code(err) != 535 {
		t.Errorf("an unknown key: %v", err)
	}
	if _, err := f.submit("", hello, "ann@one.example"); code(err) != 530 {
		t.Errorf("no key: %v", err)
	}
	_, other := f.Key(f.Acme.TeamID, teams.NewKey{Name: "other", Permission: teams.SendingAccess,
		DomainID: f.domain("two.example")})
	if _, err := f.submit(other, hello, "ann@one.example"); code(err) != 550 {
		t.Errorf("a key of another domain: %v", err)
	}
	if _, err := f.submit(other, strings.Replace(hello, "acme.example", "two.example", 1), "ann@one.example"); err != nil {
		t.Errorf("a key of the domain: %v", err)
	}

	c, err := f.client(f.password)
	if err != nil {
		t.Fatal(err)
	}
	none, token := f.Key(f.Acme.TeamID, teams.NewKey{Name: "of a release with other permissions"})
	if err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE api_keys SET permission = 'unknown' WHERE id = $1`, db.ID(none.ID))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.submit(token, hello, "ann@one.example"); code(err) != 550 ||
		!strings.Contains(err.Error(), "emails:send") {
		t.Errorf("a key without the scope: %v", err)
	}
	if _, err := f.send(c, nil, hello, "ann@one.example"); err != nil {
		t.Fatal(err)
	}
	for range 2000 { // API requests count towards the same limit
		f.limits.Count(f.Acme.TeamID, 1000)
	}
	if _, err := f.send(c, nil, hello, "ann@one.example"); code(err) != 451 {
		// The message is accepted if that second has already ended, because the rate limit then no longer applies.
		if _, used := f.limits.Count(f.Acme.TeamID, 1000); !used {
			t.Errorf("over the rate: %v", err)
		}
	}
	if err := f.Teams.DeleteKey(t.Context(), f.Acme.TeamID, f.key.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := f.send(c, nil, hello, "ann@one.example"); code(err) != 535 {
		t.Errorf("a key deleted meanwhile: %v", err)
	}
}

func TestSuspendedTeam(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	if err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE teams SET suspended = TRUE WHERE id = $1`, db.ID(f.Acme.TeamID))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.submit(f.password, hello, "ann@one.example"); code(err) != 550 {
		t.Errorf("a suspended team: %v", err)
	}
	c, err := f.client(f.password)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Mail("a@acme.example", nil); code(err) != 550 {
		t.Errorf("a suspended team hears of it only with its message: %v", err)
	}
}

func TestIdempotency(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		with := func(n int, text string) string {
			return fmt.Sprintf("Resend-Idempotency-Key: k\nFrom: hello@acme.example\nMessage-ID: "+
				"<%d@acme.example>\nMIME-Version: 1.0\n"+
				"Content-Type: multipart/alternative; boundary=b%d\n\n--b%d\nContent-Type: text/plain\n\n%s\n--b%d--\n", n, n, n,
				text, n)
		}
		first := f.mustSubmit(with(1, "Hello."), "ann@one.example")
		if again := f.mustSubmit(with(2, "Hello."), "ann@one.example"); again != first {
			t.Errorf("the same again became another email: %s, %s", first, again)
		}
		for name, change := range map[string]func() (string, error){
			"text":      func() (string, error) { return f.submit(f.password, with(1, "Bye."), "ann@one.example") },
			"recipient": func() (string, error) { return f.submit(f.password, with(1, "Hello."), "bob@one.example") },
		} {
			if id, err := change(); code(err) != 554 {
				t.Errorf("the key with another %s: %q, %v", name, id, err)
			}
		}
	})
}

func TestSMTPUTF8(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	c, err := f.client(f.password)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(hello, "Subject: Hi", "Subject: Grüße", 1)
	id, err := f.send(c, &smtp.MailOptions{UTF8: true}, text, "ann@one.example")
	if err != nil {
		t.Fatal(err)
	}
	if _, o := f.outgoing(id, "one.example"); !o.UTF8 {
		t.Error("a header in UTF-8 is sent to any host")
	}
	if id, err = f.send(c, &smtp.MailOptions{UTF8: true}, hello, "ann@one.example"); err != nil {
		t.Fatal(err)
	}
	if _, o := f.outgoing(id, "one.example"); o.UTF8 {
		t.Error("a header in ASCII needs SMTPUTF8")
	}
}

// If the database cannot store a message, the client gets a temporary error.
func TestDatabaseClosed(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	c, err := f.client(f.password)
	if err != nil {
		t.Fatal(err)
	}
	f.DB.Close()
	if _, err := f.send(c, nil, hello, "ann@one.example"); code(err) != 451 {
		t.Errorf("without a database: %v", err)
	}
}

// A large message requires a memory slot and is stored as a blob.
func TestLargeMessage(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		text := strings.Replace(odd, "An epilogue.", strings.Repeat(strings.Repeat("x", 70)+"\n", 10_000), 1)
		id := f.mustSubmit(text, "ann@one.example")
		if got, _ := f.outgoing(id, "one.example"); !strings.HasSuffix(got,
			crlf(text[strings.Index(text, "MIME-Version"):])) {
			t.Errorf("%d bytes came back", len(got))
		}
		f.hasFile(id, "a.txt", "hello")
	})
}

const head = "From: hello@acme.example\nTo: a@one.example\nSubject: Large\n\n"

var large = head + strings.Repeat(strings.Repeat("x", 70)+"\n", 8000)

// half sends the first part of a large message.
func (f *fixture) half(token string) io.WriteCloser {
	f.T.Helper()
	c, err := f.client(token)
	if err != nil {
		f.T.Fatal(err)
	}
	if err := c.Mail("x@elsewhere.example", nil); err != nil {
		f.T.Fatal(err)
	}
	if err := c.Rcpt("a@one.example", nil); err != nil {
		f.T.Fatal(err)
	}
	w, err := c.Data()
	if err != nil {
		f.T.Fatal(err)
	}
	if _, err := io.WriteString(w, crlf(large)); err != nil {
		f.T.Fatal(err)
	}
	return w
}

// Clients that are slow to send large messages do not delay other clients.
func TestSlowLargeMessages(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	for range 12 {
		f.half(f.password)
	}
	if _, err := f.submit(f.password, large, "b@one.example"); err != nil {
		t.Errorf("behind slow clients: %v", err)
	}
}

// When a node starts, it removes files that a killed process left in the spool folder. Messages that another node is
// receiving into the same folder are not affected.
func TestSpool(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	if info, err := os.Stat(f.spool); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder is %v, %v", info.Mode(), err)
	}
	under := f.half(f.password)
	left := filepath.Join(f.spool, "message-1234")
	if err := os.WriteFile(left, []byte(large), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(f.spool, 0o755); err != nil {
		t.Fatal(err)
	}
	f.listen() // a second node
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was left stays: %v", err)
	}
	if info, err := os.Stat(f.spool); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder is %v, %v", info.Mode(), err)
	}
	if err := under.Close(); err != nil {
		t.Errorf("a message under way: %v", err)
	}
	f.mustSubmit(large, "b@one.example")
	list, _, err := f.Emails.List(t.Context(), f.Acme.TeamID, page.Page{Limit: 10})
	if err != nil || len(list) != 2 {
		t.Errorf("%d emails, %v", len(list), err)
	}
}

// If the API key is deleted while a message is arriving, the message is refused.
func TestKeyDeletedDuringAMessage(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		c, err := f.client(f.password)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Mail("a@acme.example", nil), c.Rcpt("b@one.example", nil)); err != nil {
			t.Fatal(err)
		}
		w, err := c.Data()
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Teams.DeleteKey(t.Context(), f.Acme.TeamID, f.key.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, "From: a@acme.example\r\nTo: b@one.example\r\n\r\nHello\r\n"); err != nil {
			t.Fatal(err)
		}
		if e, ok := errors.AsType[*smtp.SMTPError](w.Close()); !ok || e.Code != 535 {
			t.Errorf("the message is answered with %v", e)
		}
	})
}

// An OAuth access token works as a password if it was issued for the API or for all resources.
func TestTokens(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f, ctx := newFixture(t, d), t.Context()
		const redirect, verifier = "http://127.0.0.1/oauth/callback", "0123456789012345678901234567890123456789012"
		hash := sha256.Sum256([]byte(verifier))
		for resource, works := range map[string]bool{"": true, testnode.PublicURL: true,
			testnode.PublicURL + "/mcp": false} {
			r, err := f.Grants.CheckRequest(ctx, grants.Params{ClientID: grants.CLI, ResponseType: "code",
				RedirectURI: redirect, Resource: resource, ChallengeMethod: "S256",
				Challenge: base64.RawURLEncoding.EncodeToString(hash[:])})
			f.Must(err)
			code, _, err := f.Grants.Approve(ctx, r, f.Acme)
			f.Must(err)
			tokens, err := f.Grants.Exchange(ctx, grants.ExchangeParams{ClientID: grants.CLI, Code: code,
				RedirectURI: redirect, Verifier: verifier})
			f.Must(err)
			if _, err := f.client(tokens.Access); (err == nil) != works ||
				err != nil && !strings.Contains(err.Error(), "535") {
				t.Errorf("a token for %q: %v", resource, err)
			}
		}
	})
}
