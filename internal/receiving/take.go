package receiving

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/smtpserver"
)

// incoming is a message on its way in.
type incoming struct {
	id       string   // of the message on its way: in its trace, in the log, and for the content filter
	emailIDs []string // of what it became
	origin   Origin
	client   netip.AddrPort
	network  netip.Addr // the client's
	to       []place
	declared int64 // size by the client's word; 0 when it said nothing
	at       time.Time
	trace    string // what is put before it

	raw     []byte // whole, trace first
	blobKey string // where raw lies too, when it is large
	memory  *reserved

	parsed *message.Parsed
	auth   *authres.Results
	spam   *Spam
}

// body is the message as the client sent it.
func (m *incoming) body() []byte { return m.raw[len(m.trace):] }

// take reads a message, judges it, and stores what comes of it.
func (s *Service) take(ctx context.Context, m *incoming, r io.Reader) error {
	defer func() { m.memory.shrink(0) }()
	if err := s.read(ctx, m, r); err != nil {
		return err
	}
	m.parsed = s.parse(m.id, m.body())
	if err := s.judge(ctx, m); err != nil {
		s.drop(ctx, m.blobKey)
		return err
	}
	kept, err := s.store(ctx, m)
	if err != nil {
		return err // Whether the commit came through may be unknown, so the blob stays; the sweep finds out.
	}
	if !kept {
		s.drop(ctx, m.blobKey)
	}
	s.p.Log.Info("received", "id", m.id, "emails", m.emailIDs, "from", m.origin.MailFrom, "client", m.origin.Addr, "recipients", len(m.to),
		"size", len(m.raw), "took", time.Since(m.at).Round(time.Millisecond))
	return nil
}

// read reads the message whole. What is larger than a row takes goes to a blob as it comes, so that slow clients hold
// no memory; it is read back once there is memory for it.
func (s *Service) read(ctx context.Context, m *incoming, r io.Reader) error {
	size := 16 << 10
	if m.declared > 0 {
		size = int(min(m.declared+512, inRow))
	}
	buf := bytes.NewBuffer(make([]byte, 0, size+len(m.trace)))
	buf.WriteString(m.trace)
	n, err := io.CopyN(buf, r, inRow-int64(len(m.trace))+1)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	m.raw = buf.Bytes()
	if err != nil || n+int64(len(m.trace)) <= inRow {
		return nil
	}
	key := rawPrefix + m.id
	total, err := s.p.Blobs.Put(ctx, key, io.MultiReader(bytes.NewReader(m.raw), r))
	if err != nil {
		return err
	}
	m.blobKey, m.raw = key, nil
	if m.raw, m.memory, err = s.load(ctx, key, total, "network "+m.network.String(), s.c.TakeWait); err != nil {
		s.drop(ctx, key)
		m.blobKey = ""
	}
	if errors.Is(err, errNoMemory) {
		return smtpserver.Refuse(451, "4.3.2", "Too many large messages at present; try again later")
	}
	return err
}

// drop removes a blob that no row names, if there is one. If that fails the sweep does it.
func (s *Service) drop(ctx context.Context, key string) {
	if key == "" {
		return
	}
	if err := s.p.Blobs.Delete(context.WithoutCancel(ctx), key); err != nil {
		s.p.Log.Warn("could not remove a raw message that is not needed", "blob", key, "error", err)
	}
}

// unreadable is the defect of a message on which our reading fails.
const unreadable = "The message could not be read."

// parse reads a message. Should our reading ever fail on one, it is kept all the same, with nothing known of it.
func (s *Service) parse(id string, raw []byte) (p *message.Parsed) {
	if !s.guard(id, func() { p = message.Parse(raw) }) {
		p = &message.Parsed{Defects: []string{unreadable}}
	}
	return p
}

// parseStored reads a message as it is stored, with the trace before it. That is read apart: behind its fields, a
// message whose header begins with what is no field would be another one than when it came, with other attachments
// than in its row.
func (s *Service) parseStored(id string, raw []byte) *message.Parsed {
	n := traceLength(raw)
	p := s.parse(id, raw[n:])
	p.Header = append(message.ParseHeader(raw[:n]), p.Header...)
	return p
}

// guard reports whether read, which reads the message of that id, came to its end: a panic in it is logged.
func (s *Service) guard(id string, read func()) (ok bool) {
	defer func() {
		if v := recover(); v != nil {
			s.p.Log.Error("reading a message failed", "id", id, "panic", v, slog.String("stack", string(debug.Stack())))
		}
	}()
	read()
	return true
}

func tlsName(version uint16) string { return tls.VersionName(version) }

// bounded is a text of a stranger's as it may be stored: valid UTF-8 without NUL, and not longer than n octets.
func bounded(text string, n int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
	if len(text) > n {
		text = strings.ToValidUTF8(text[:n], "")
	}
	return text
}

// oneWord is a text of a stranger's as it may stand in a header field.
func oneWord(text string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == 0x7f || r == '(' || r == ')' || r == '<' || r == '>' {
			return '?'
		}
		return r
	}, text)
}
