package submission_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/submission"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const maxSize = 1 << 20

// fixture is a node with a submission listener and with an API key for the team Acme that can only send emails.
type fixture struct {
	*testnode.Node
	limits   *teams.Limiter
	addr     string
	spool    string // folder for large messages
	key      teams.Key
	password string // the API key
	stop     func() // closes the listener and ends its sessions
}

func newFixture(t *testing.T, d *db.DB) *fixture {
	t.Helper()
	return newFixtureAt(t, d, t.TempDir())
}

// newFixtureAt is like newFixture, but uses the given blob store.
func newFixtureAt(t *testing.T, d *db.DB, blobs string) *fixture {
	t.Helper()
	f := &fixture{Node: testnode.New(t, d, testnode.Options{MaxSize: maxSize, Blobs: blobs}), limits: &teams.Limiter{}}
	f.key, f.password = f.Key(f.Acme.TeamID, teams.NewKey{Name: "smtp", Permission: teams.SendingAccess})
	f.listen()
	return f
}

func (f *fixture) domain(name string) string {
	f.T.Helper()
	return f.Verified(f.Acme.TeamID, domains.NewDomain{Name: name}).ID
}

func (f *fixture) listen() {
	f.T.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.T.Fatal(err)
	}
	if f.spool == "" {
		f.spool = filepath.Join(f.T.TempDir(), "spool")
	}
	s, err := submission.New(submission.Config{Hostname: "mx.test", RateLimit: 1000, MaxSize: maxSize, Spool: f.spool},
		submission.Deps{Teams: f.Teams, Emails: f.Emails, Limits: f.limits})
	if err != nil {
		f.T.Fatal(err)
	}
	server := smtpserver.New(smtpserver.Config{Hostname: "mx.test", Auth: smtpserver.AuthInClear, MaxSize: maxSize,
		MaxErrors:     100,
		MaxRecipients: submission.MaxRecipients}, s, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			f.T.Errorf("Serve: %v", err)
		}
	})
	f.T.Cleanup(f.stop)
	f.addr = l.Addr().String()
}

// client connects to the listener, and authenticates if the key is not empty.
func (f *fixture) client(token string) (*smtp.Client, error) {
	f.T.Helper()
	c, err := smtp.Dial(f.addr)
	if err != nil {
		f.T.Fatal(err)
	}
	f.T.Cleanup(func() { c.Close() })
	if token == "" {
		return c, nil
	}
	return c, c.Auth(sasl.NewPlainClient("", "postrider", token))
}

// submit sends a message and returns the email's id. Lines in the message may end with a bare LF.
func (f *fixture) submit(token, text string, to ...string) (string, error) {
	f.T.Helper()
	c, err := f.client(token)
	if err != nil {
		return "", err
	}
	return f.send(c, &smtp.MailOptions{}, text, to...)
}

func (f *fixture) send(c *smtp.Client, o *smtp.MailOptions, text string, to ...string) (string, error) {
	if err := c.Mail("anyone@elsewhere.example", o); err != nil {
		return "", err
	}
	for _, r := range to {
		if err := c.Rcpt(r, nil); err != nil {
			return "", err
		}
	}
	w, err := c.Data()
	if err != nil {
		return "", err
	}
	if _, err := w.Write([]byte(crlf(text))); err != nil {
		return "", err
	}
	answer, err := w.CloseWithResponse()
	if err != nil {
		return "", err
	}
	return answer.StatusText[strings.LastIndexByte(answer.StatusText, ' ')+1:], nil
}

func (f *fixture) mustSubmit(text string, to ...string) string {
	f.T.Helper()
	id, err := f.submit(f.password, text, to...)
	if err != nil {
		f.T.Fatal(err)
	}
	return id
}

// outgoing returns the message that delivery would send for an email.
func (f *fixture) outgoing(id, domain string) (string, *emails.Outgoing) {
	f.T.Helper()
	o, err := f.Emails.Outgoing(f.T.Context(), emails.Delivery{TeamID: f.Acme.TeamID, EmailID: id, Domain: domain})
	if err != nil {
		f.T.Fatal(err)
	}
	text, err := f.Emails.Compose(f.T.Context(), o)
	if err != nil {
		f.T.Fatal(err)
	}
	return string(text), o
}

func crlf(text string) string { return strings.ReplaceAll(text, "\n", "\r\n") }

// refused returns the codes and the text from the SMTP reply in err.
func refused(err error) (code int, text string) {
	if e, ok := errors.AsType[*smtp.SMTPError](err); ok {
		return e.Code, e.Error()
	}
	return 0, ""
}
