package delivery

import (
	"context"
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
	get := func(name string) (*link, bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		l, kept, err := p.get(ctx, poolKey{addr: name}, dial)
		if err != nil {
			t.Fatal(err)
		}
		return l, kept
	}
	send := func(l *link) {
		t.Helper()
		if _, err := l.Send(t.Context(), smtpclient.Envelope{To: []string{"a@example.net"}}, []byte("Subject: x\r\n\r\nx\r\n")); err != nil {
			t.Fatal(err)
		}
	}

	a, kept := get("a")
	if kept {
		t.Error("a new connection was kept")
	}
	send(a)
	if text := a.conversation("a", "", false); !strings.Contains(text, "EHLO") {
		t.Errorf("the first conversation has no opening:\n%s", text)
	}
	p.put(a)
	if again, kept := get("a"); again != a || !kept {
		t.Error("the connection was not kept")
	}
	send(a)
	if text := a.conversation("a", "", true); strings.Contains(text, "EHLO") || !strings.HasPrefix(text, "* over a connection that was kept, to a, in the clear\n") ||
		!strings.Contains(text, "C: DATA") {
		t.Errorf("a later conversation:\n%s", text)
	}
	p.put(a)
	if p.has(poolKey{addr: "a"}) {
		t.Error("a connection is kept beyond its messages")
	}

	b, _ := get("b")
	p.put(b)
	c, _ := get("c")
	d, _ := get("d") // closes b, which is idle, because two are all
	if p.has(poolKey{addr: "b"}) {
		t.Error("an idle connection holds up another destination")
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, _, err := p.get(short, poolKey{addr: "e"}, dial); err == nil {
		t.Error("a third connection was opened")
	}
	got := make(chan *link)
	go func() {
		l, _, err := p.get(context.WithoutCancel(t.Context()), poolKey{addr: "e"}, dial)
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	for waiting := 0; waiting == 0; { // until the other is in line
		p.mu.Lock()
		waiting = p.waiting
		p.mu.Unlock()
	}
	p.put(c) // goes to who waits
	p.put(<-got)
	p.put(d)
	p.prune(time.Now().Add(-time.Minute))
	if !p.has(poolKey{addr: "d"}) {
		t.Error("a fresh connection was pruned")
	}
	p.prune(time.Now().Add(time.Minute))
	if len(p.idle) != 0 || !p.open.TryAcquire(2) {
		t.Errorf("connections are lost: %v", p.idle)
	}
}
