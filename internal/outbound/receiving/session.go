package receiving

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
)

// Open begins an SMTP session. Open accepts every client; only recipients can be refused.
func (s *Service) Open(_ context.Context, p smtpserver.Peer) (smtpserver.Session, error) {
	o := Origin{Hello: db.Text(p.Hello, 255)}
	if p.Addr.IsValid() {
		o.Addr = p.Addr.Addr().Unmap().String()
	}
	if p.TLS != nil {
		o.TLS = strings.ReplaceAll(tlsName(p.TLS.Version), " ", "")
	}
	return &session{s: s, peer: p, origin: o}, nil
}

// session handles the SMTP session of one client.
type session struct {
	s      *Service
	peer   smtpserver.Peer
	origin Origin
	size   int64 // message size that the client declared
	to     []target
}

// Auth refuses authentication, because receiving mail for local domains requires none.
func (c *session) Auth(context.Context, string, string) error {
	return smtpserver.Refuse(503, "5.5.1", "No authentication here: this port takes mail for its own domains only")
}

// Mail begins an SMTP transaction.
func (c *session) Mail(_ context.Context, from string, o smtpserver.MailOptions) error {
	c.Reset()
	c.origin.MailFrom, c.origin.UTF8, c.size = db.Text(from, 320), o.UTF8, o.Size
	return nil
}

// Rcpt adds a recipient, or refuses the recipient if this server does not accept mail for it.
func (c *session) Rcpt(ctx context.Context, to string) error {
	if len(c.to) >= recipientsMax {
		return smtpserver.Refuse(452, "4.5.3", "Too many recipients; send the rest in another message")
	}
	p, err := c.s.findTarget(ctx, to)
	if err != nil {
		return err
	}
	c.to = append(c.to, p)
	return nil
}

// Reset discards the current SMTP transaction.
func (c *session) Reset() { c.origin.MailFrom, c.origin.UTF8, c.size, c.to = "", false, 0, nil }

// Close ends the SMTP session.
func (c *session) Close() {}

// Data accepts the message and returns the id of its first email, so that the sender's log identifies the email. If
// Data returns no error, the message is durable.
func (c *session) Data(ctx context.Context, r io.Reader) (string, error) {
	m := &incoming{id: id.New(), origin: c.origin, client: c.peer.Addr, network: c.peer.Network(),
		to: distinctTargets(c.to), declared: c.size, at: time.Now()}
	m.trace = c.s.trace(m)
	err := c.s.accept(ctx, m, r)
	if err == nil {
		return append(m.emailIDs, m.id)[0], nil
	}
	if _, ok := errors.AsType[*smtpserver.Refusal](err); ok {
		return "", err
	}
	if errors.Is(err, blob.ErrFull) {
		c.s.p.Log.Error("no disk space for received mail", "error", err)
		return "", smtpserver.Refuse(452, "4.3.1", "No space at present; try again later")
	}
	return "", err
}

// trace returns the Return-Path and Received fields that are prepended to the message (RFC 5321 section 4.4). In values
// that the client chose, unsafe characters are replaced.
func (s *Service) trace(m *incoming) string {
	protocol := "ESMTP"
	if m.origin.UTF8 {
		protocol = "UTF8SMTP" // RFC 6531 section 4.3
	}
	if m.origin.TLS != "" {
		protocol += "S"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Return-Path: <%s>\r\nReceived: from %s ([%s])\r\n\tby %s with %s id %s",
		headerSafe(m.origin.MailFrom), headerSafe(m.origin.Hello), m.origin.Addr, s.c.Hostname, protocol, m.id)
	if len(m.to) == 1 { // several recipients would see each other in the for clause
		fmt.Fprintf(&b, "\r\n\tfor <%s>", headerSafe(m.to[0].address))
	}
	fmt.Fprintf(&b, ";\r\n\t%s\r\n", m.at.UTC().Format("Mon, 02 Jan 2006 15:04:05 -0700"))
	return b.String()
}

// traceLength returns the length of a stored message's trace fields, or 0 if it has none. The date in the trace fields
// follows the first line that ends with a semicolon. A client cannot fake that line, because no line ends with a value
// that the client chose.
func traceLength(raw []byte) int {
	if !bytes.HasPrefix(raw, []byte("Return-Path: <")) {
		return 0
	}
	const beforeDate = ";\r\n\t"
	date := bytes.Index(raw, []byte(beforeDate))
	if date < 0 {
		return 0
	}
	date += len(beforeDate)
	end := bytes.Index(raw[date:], []byte("\r\n"))
	if end < 0 {
		return 0
	}
	return date + end + len("\r\n")
}
