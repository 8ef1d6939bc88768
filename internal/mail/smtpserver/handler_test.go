package smtpserver_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpserver"
)

// handler stores messages. The name in EHLO or the local part of an address determines the error that handler returns.
type handler struct {
	mu    sync.Mutex
	taken []string
	open  int
	peers []smtpserver.Peer
	hold  chan struct{} // if not nil, Data waits until this channel is closed
}

func (h *handler) Open(_ context.Context, p smtpserver.Peer) (smtpserver.Session, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch p.Hello {
	case "unwanted.test":
		return nil, smtpserver.Refuse(554, "5.7.1", "Not you")
	case "full.test":
		return nil, smtpserver.Refuse(421, "4.3.2", "Come back later")
	case "hasty.test":
		return nil, smtpserver.Refuse(450, "4.7.1", "Not so fast")
	case "broken.test":
		return nil, errors.New("the database is away")
	}
	h.open++
	h.peers = append(h.peers, p)
	return &session{h: h}, nil
}

func (h *handler) messages() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.taken...)
}

func (h *handler) sessions() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open
}

// wait waits until all sessions are closed.
func (h *handler) wait(t testing.TB) {
	await(t, "sessions to close", func() bool { return h.sessions() == 0 })
}

// await waits until ok returns true.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("still waiting for %s", what)
		}
	}
}

// session is the handler's session for one client. The race detector would find concurrent calls to its methods.
type session struct {
	h      *handler
	begun  bool
	to     []string
	resets int
	closed bool
}

func (s *session) Auth(_ context.Context, username, password string) error {
	if username == "postrider" && password == "secret" {
		return nil
	}
	return smtpserver.Refuse(535, "5.7.8", "Wrong password")
}

func (s *session) Mail(_ context.Context, from string, _ smtpserver.MailOptions) error {
	if s.begun {
		panic("a message is begun twice")
	}
	if strings.HasPrefix(from, "busy@") {
		return errors.New("the database is away")
	}
	s.begun = true
	return nil
}

func (s *session) Rcpt(_ context.Context, to string) error {
	switch name, _, _ := strings.Cut(to, "@"); name {
	case "unknown":
		return smtpserver.Refuse(550, "5.1.1", "No such user\r\n250 2.0.0 Taken as 7")
	case "busy":
		return errors.New("the database is away")
	case "panic":
		panic("as asked")
	}
	s.to = append(s.to, to)
	return nil
}

func (s *session) Data(ctx context.Context, r io.Reader) (string, error) {
	if s.h.hold != nil {
		select {
		case <-s.h.hold:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	switch s.to[0] {
	case "early@b.test":
		return "", smtpserver.Refuse(554, "5.7.1", "Not that")
	case "lazy@b.test": // the handler accepts the message without reading it
		return "lazy", nil
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return "", err
	}
	if s.to[0] == "full@b.test" {
		return "", errors.New("the disk is full")
	}
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.h.taken = append(s.h.taken, string(text))
	return strconv.Itoa(len(s.h.taken)), nil
}

func (s *session) Reset() { s.begun, s.to, s.resets = false, nil, s.resets+1 }

func (s *session) Close() {
	if s.closed || s.begun {
		panic("closed twice, or with a message begun")
	}
	s.closed = true
	s.h.mu.Lock()
	s.h.open--
	s.h.mu.Unlock()
}

// serve runs a server until the test ends, and returns its address.
func serve(t testing.TB, c smtpserver.Config, h smtpserver.Handler) string {
	addr, _ := start(t, c, h)
	return addr
}

// start runs a server until the returned stop function is called or the test ends. The stop function waits for Serve to
// return.
func start(t testing.TB, c smtpserver.Config, h smtpserver.Handler) (addr string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	s := smtpserver.New(c, h, slog.New(slog.DiscardHandler))
	go func() { ended <- s.Serve(ctx, l) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(stop)
	return l.Addr().String(), stop
}
