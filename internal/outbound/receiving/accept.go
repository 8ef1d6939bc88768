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
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/mail/smtpserver"
)

// incoming is a message during its SMTP transaction.
type incoming struct {
	id       string   // id of the message in its trace fields, in the log, and for the content filter
	emailIDs []string // ids of the emails that store the message
	origin   Origin
	client   netip.AddrPort
	network  netip.Addr // the client's network
	to       []target
	declared int64 // message size that the client declared, or 0
	at       time.Time
	trace    string // header fields that Postrider prepends to the message

	raw     []byte // the whole message, starting with the trace fields
	blobKey string // blob key of raw if the message is large
	memory  *reservation

	parsed *mailparse.Parsed
	auth   *authres.Results
	spam   *Spam
}

// body returns the message without the prepended trace fields, as the client sent it.
func (m *incoming) body() []byte { return m.raw[len(m.trace):] }

// accept reads a message, checks it, and stores it.
func (s *Service) accept(ctx context.Context, m *incoming, r io.Reader) error {
	defer func() { m.memory.shrink(0) }()
	if err := s.read(ctx, m, r); err != nil {
		return err
	}
	m.parsed = s.parse(m.id, m.body())
	if err := s.judge(ctx, m); err != nil {
		s.deleteBlob(ctx, m.blobKey)
		return err
	}
	needsRaw, err := s.store(ctx, m)
	if err != nil {
		// Keep the blob, because the commit may have succeeded. If no row refers to the blob, the sweep deletes it.
		return err
	}
	if !needsRaw {
		s.deleteBlob(ctx, m.blobKey)
	}
	if s.p.CountDMARC != nil && m.auth != nil && !carriesReport(m.parsed) {
		s.p.CountDMARC(m.auth.Facts)
	}
	if s.p.Observe != nil {
		result := "report"
		if len(m.emailIDs) > 0 {
			result = "stored"
		}
		s.p.Observe(result)
	}
	s.p.Log.Info("received", "id", m.id, "emails", m.emailIDs, "from", m.origin.MailFrom, "client", m.origin.Addr,
		"recipients", len(m.to),
		"size", len(m.raw), "took", time.Since(m.at).Round(time.Millisecond))
	return nil
}

// read reads the complete message from the client. A message that is too large for a database row is written to a blob
// while it arrives, so that slow clients do not occupy memory. When enough memory is available for the message, read
// loads the blob.
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
		s.deleteBlob(ctx, key)
		m.blobKey = ""
	}
	if errors.Is(err, errNoMemory) {
		return smtpserver.Refuse(451, "4.3.2", "Too many large messages at present; try again later")
	}
	return err
}

// deleteBlob deletes a blob that no row refers to; an empty key is allowed. If the deletion fails, the sweep deletes
// the blob later.
func (s *Service) deleteBlob(ctx context.Context, key string) {
	if key == "" {
		return
	}
	if err := s.p.Blobs.Delete(context.WithoutCancel(ctx), key); err != nil {
		s.p.Log.Warn("could not delete an unused raw message", "blob", key, "error", err)
	}
}

// unreadable is the defect that is reported for a message on which the parser panics.
const unreadable = "The message could not be read."

// parse parses a message. If the parser panics, parse returns only a defect, so that the message can still be stored.
func (s *Service) parse(id string, raw []byte) (p *mailparse.Parsed) {
	if !s.catchPanic(id, func() { p = mailparse.Parse(raw) }) {
		p = &mailparse.Parsed{Defects: []string{unreadable}}
	}
	return p
}

// parseStored parses a stored message, and parses its trace fields separately. If the client's header begins with a
// malformed line, parsing it together with the trace fields could give different results from those stored in the row.
func (s *Service) parseStored(id string, raw []byte) *mailparse.Parsed {
	n := traceLength(raw)
	p := s.parse(id, raw[n:])
	p.Header = append(mailparse.ParseHeader(raw[:n]), p.Header...)
	return p
}

// catchPanic calls the function read, which parses the message with the given id. If read panics, catchPanic logs the
// panic and returns false.
func (s *Service) catchPanic(id string, read func()) (ok bool) {
	defer func() {
		if v := recover(); v != nil {
			s.p.Log.Error("reading a message failed", "id", id, "panic", v, slog.String("stack", string(debug.Stack())))
		}
	}()
	read()
	return true
}

func tlsName(version uint16) string { return tls.VersionName(version) }

// headerSafe replaces characters that are unsafe in a header field.
func headerSafe(text string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == 0x7f || r == '(' || r == ')' || r == '<' || r == '>' {
			return '?'
		}
		return r
	}, text)
}
