package smtpserver_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpserver"
)

// exhausted is a listener that fails several times, as if file descriptors had run out, and then accepts one
// connection.
type exhausted struct {
	failures atomic.Int32
	failed   []time.Time
	one      chan net.Conn
	closed   chan struct{}
}

func (l *exhausted) Accept() (net.Conn, error) {
	if l.failures.Add(-1) >= 0 {
		l.failed = append(l.failed, time.Now())
		return nil, errors.New("too many open files")
	}
	select {
	case c := <-l.one:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *exhausted) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

func (l *exhausted) Addr() net.Addr { return &net.TCPAddr{} }

// If a listener fails temporarily, Serve retries with increasing pauses, and serves clients once the listener works
// again.
func TestListenerThatFailsForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		l := &exhausted{one: make(chan net.Conn, 1), closed: make(chan struct{})}
		l.failures.Store(12)
		l.one <- theirs
		s := smtpserver.New(smtpserver.Config{Hostname: "mx.test"}, &handler{}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(ctx, l) }()
		greeting := make([]byte, 3)
		if _, err := ours.Read(greeting); err != nil || string(greeting) != "220" {
			t.Errorf("%q, %v", greeting, err)
		}
		for i := 2; i < len(l.failed); i++ {
			before, wait := l.failed[i-1].Sub(l.failed[i-2]), l.failed[i].Sub(l.failed[i-1])
			if wait != min(2*before, time.Second) {
				t.Errorf("asked again after %v and %v", before, wait)
			}
		}
		ours.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}
