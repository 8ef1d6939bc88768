package delivery

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/mail/smtptest"
)

func TestPool(t *testing.T) {
	t.Parallel()
	mx := smtptest.NewServer(t, smtptest.Config{})
	p := newPool(2, 2)
	dial := func() (*smtpclient.Conn, error) { return smtpclient.Dial(t.Context(), mx.Addr, smtpclient.Options{}) }
	get := func(name string) (*pooledConn, bool) {
		t.Helper()
		if l := p.get(poolKey{addr: name}, "", 0); l != nil {
			return l, true
		}
		l, err := p.dial(poolKey{addr: name}, dial)
		if err != nil {
			t.Fatal(err)
		}
		return l, false
	}
	send := func(l *pooledConn) {
		t.Helper()
		if _, err := l.Send(t.Context(), smtpclient.Envelope{To: []string{"a@example.net"}},
			[]byte("Subject: x\r\n\r\nx\r\n")); err != nil {
			t.Fatal(err)
		}
	}

	a, kept := get("a")
	if kept {
		t.Error("a new connection was kept")
	}
	send(a)
	if text := a.conversation(false); !strings.Contains(text, "EHLO") {
		t.Errorf("the first conversation has no opening:\n%s", text)
	}
	p.put(a)
	if again, kept := get("a"); again != a || !kept {
		t.Error("the connection was not kept")
	}
	send(a)
	if text := a.conversation(true); strings.Contains(text, "EHLO") ||
		!strings.HasPrefix(text, "0 *: message 2 on this connection\n") ||
		!strings.Contains(text, "C: DATA") {
		t.Errorf("a later conversation:\n%s", text)
	}
	p.put(a)
	if p.has(poolKey{addr: "a"}, "", 0) {
		t.Error("a connection is kept beyond its messages")
	}

	b, _ := get("b")
	p.put(b)
	c, _ := get("c")
	if !p.has(poolKey{addr: "b"}, "", 0) {
		t.Error("an idle connection is closed although there is room")
	}
	d, _ := get("d") // closes the idle connection b, because the limit is two connections
	if p.has(poolKey{addr: "b"}, "", 0) {
		t.Error("an idle connection holds up another destination")
	}
	if _, err := p.dial(poolKey{addr: "e"}, func() (*smtpclient.Conn, error) {
		return nil,
			io.ErrUnexpectedEOF
	}); err == nil {
		t.Error("a failure to dial is kept secret")
	}
	func() {
		defer func() { recover() }()
		p.dial(poolKey{addr: "e"}, func() (*smtpclient.Conn, error) { panic("dial") })
	}()
	p.put(c)
	p.put(d)
	if p.open != 2 {
		t.Errorf("%d connections count as open, want 2", p.open)
	}
	p.prune(time.Now().Add(-time.Minute))
	if !p.has(poolKey{addr: "d"}, "", 0) {
		t.Error("a fresh connection was pruned")
	}
	p.prune(time.Now().Add(time.Minute))
	if len(p.idle) != 0 || p.open != 0 {
		t.Errorf("connections are lost: %v, %d", p.idle, p.open)
	}
}
