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

	"github.com/postrider/postrider/internal/blob"
	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/db/dbtest"
	"github.com/postrider/postrider/internal/domains"
	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/jobs"
	"github.com/postrider/postrider/internal/keyring"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/netguard"
	"github.com/postrider/postrider/internal/submission"
	"github.com/postrider/postrider/internal/suppressions"
	"github.com/postrider/postrider/internal/teams"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const maxSize = 1 << 20

// house is submission with everything below it, listening, and a team with a domain and a key.
type house struct {
	t          *testing.T
	d          *db.DB
	blobs      *blob.Store
	emails     *emails.Service
	domains    *domains.Service
	suppressed *suppressions.Service
	teams      *teams.Service
	limits     *teams.Limiter
	addr       string
	spool      string // folder for large messages
	team       teams.Team
	keyID      string
	token      string
	stop       func() // ends the listener and what is under way
}

func newHouse(t *testing.T, d *db.DB) *house {
	t.Helper()
	return newHouseAt(t, d, t.TempDir())
}

// newHouseAt is newHouse with a place for its blobs.
func newHouseAt(t *testing.T, d *db.DB, place string) *house {
	t.Helper()
	ctx, log := t.Context(), slog.New(slog.DiscardHandler)
	h := &house{t: t, d: d, limits: &teams.Limiter{}}
	keys, err := keyring.New(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	if h.blobs, err = blob.Open(ctx, place); err != nil {
		t.Fatal(err)
	}
	q, recorder := jobs.NewQueue(d), &events.Recorder{}
	h.domains = domains.New(domains.Config{Selector: "postrider", SelectorEd25519: "postrider-ed", TrustDomains: true,
		SandboxDomains: []string{"resend.dev"}}, d, q, recorder, keys, resolve.Fake{}, log)
	h.teams = teams.New(d, log, h.domains.Exists)
	h.suppressed = suppressions.New(d, recorder)
	h.emails = emails.New(emails.Config{MaxSize: maxSize, PublicURL: "http://mail.test"}, emails.Parts{DB: d, Queue: q,
		Recorder: recorder,
		Blobs:    h.blobs, Keys: keys, Guard: netguard.New(netguard.Options{}), Domains: h.domains,
		Suppressions: h.suppressed,
		Teams:        h.teams})
	recorder.Listen(h.emails)
	recorder.Listen(h.suppressed)
	if h.team, err = h.teams.Create(ctx, "Acme", "owner@acme.example"); err != nil {
		t.Fatal(err)
	}
	h.domain("acme.example")
	h.keyID, h.token = h.key(teams.NewKey{Name: "smtp", Permission: teams.SendingAccess})
	h.listen()
	return h
}

func (h *house) domain(name string) string {
	h.t.Helper()
	d, err := h.domains.AddVerified(h.t.Context(), h.team.ID, domains.NewDomain{Name: name})
	if err != nil {
		h.t.Fatal(err)
	}
	return d.ID
}

func (h *house) key(n teams.NewKey) (id, token string) {
	h.t.Helper()
	k, token, err := h.teams.CreateKey(h.t.Context(), teams.System(h.team.ID), n)
	if err != nil {
		h.t.Fatal(err)
	}
	return k.ID, token
}

func (h *house) listen() {
	h.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.t.Fatal(err)
	}
	if h.spool == "" {
		h.spool = filepath.Join(h.t.TempDir(), "spool")
	}
	s, err := submission.New(submission.Config{Hostname: "mx.test", RateLimit: 1000, MaxSize: maxSize, Spool: h.spool},
		submission.Parts{Teams: h.teams, Emails: h.emails, Limits: h.limits})
	if err != nil {
		h.t.Fatal(err)
	}
	server := smtpserver.New(smtpserver.Config{Hostname: "mx.test", Auth: smtpserver.AuthInClear, MaxSize: maxSize,
		MaxErrors:     100,
		MaxRecipients: submission.MaxRecipients}, s, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			h.t.Errorf("Serve: %v", err)
		}
	})
	h.t.Cleanup(h.stop)
	h.addr = l.Addr().String()
}

// client connects, and authenticates with a key unless it is empty.
func (h *house) client(token string) (*smtp.Client, error) {
	h.t.Helper()
	c, err := smtp.Dial(h.addr)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { c.Close() })
	if token == "" {
		return c, nil
	}
	return c, c.Auth(sasl.NewPlainClient("", "postrider", token))
}

// submit sends a message, whose line ends may be LF alone, and returns the id of the email.
func (h *house) submit(token, text string, to ...string) (string, error) {
	h.t.Helper()
	c, err := h.client(token)
	if err != nil {
		return "", err
	}
	return h.send(c, &smtp.MailOptions{}, text, to...)
}

func (h *house) send(c *smtp.Client, o *smtp.MailOptions, text string, to ...string) (string, error) {
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

func (h *house) mustSubmit(text string, to ...string) string {
	h.t.Helper()
	id, err := h.submit(h.token, text, to...)
	if err != nil {
		h.t.Fatal(err)
	}
	return id
}

// outgoing is the message as delivery composes it.
func (h *house) outgoing(id, domain string) (string, *emails.Outgoing) {
	h.t.Helper()
	o, err := h.emails.Outgoing(h.t.Context(), emails.Delivery{EmailID: id, Domain: domain})
	if err != nil {
		h.t.Fatal(err)
	}
	text, err := h.emails.Compose(h.t.Context(), o)
	if err != nil {
		h.t.Fatal(err)
	}
	return string(text), o
}

func (h *house) email(id string) emails.Email {
	h.t.Helper()
	e, err := h.emails.Get(h.t.Context(), h.team.ID, id)
	if err != nil {
		h.t.Fatal(err)
	}
	return e
}

func crlf(text string) string { return strings.ReplaceAll(text, "\n", "\r\n") }

// refused tells an answer as its codes and text.
func refused(err error) (code int, text string) {
	if e, ok := errors.AsType[*smtp.SMTPError](err); ok {
		return e.Code, e.Error()
	}
	return 0, ""
}
