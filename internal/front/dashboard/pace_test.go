package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// A browser that stops reading is cut off, also after it has received a part of the response.
func TestPace(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p := &paced{w: w, grace: time.Millisecond}
		part := make([]byte, 1<<10)
		for { // the buffers of the connection take a part of it
			if _, err := p.Write(part); err != nil {
				ended <- err
				return
			}
		}
	}))
	s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if err := c.(*net.TCPConn).SetWriteBuffer(4 << 10); err != nil {
			t.Error(err)
		}
		return ctx
	}
	s.Start()
	defer s.Close()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("writing ended with %v", err)
		}
	case <-time.After(3 * time.Minute):
		t.Error("a browser that does not read is never cut off")
	}
}

// deadlines records the deadlines that are set before each write.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetWriteDeadline(at time.Time) error { d.set = append(d.set, at); return nil }

// Each further 128 KB of a response have a second more.
func TestPaceAllowsTheMinimumRate(t *testing.T) {
	t.Parallel()
	d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	begun := time.Now()
	p := &paced{w: d, grace: paceGrace}
	if n, err := p.Write(make([]byte, 3*pace)); n != 3*pace || err != nil || p.flush() != nil {
		t.Fatalf("%d bytes written, %v", n, err)
	}
	if n, err := p.Write(make([]byte, pace/2)); n != pace/2 || err != nil {
		t.Fatalf("%d bytes written, %v", n, err)
	}
	if len(d.set) != 4 || d.set[0].Before(begun.Add(paceGrace+time.Second)) || d.set[2].Sub(d.set[0]) != 2*time.Second ||
		d.set[3].Sub(d.set[2]) != time.Second/2 || d.Body.Len() != 3*pace+pace/2 {
		t.Errorf("after %s, the deadlines are %v", begun, d.set)
	}
}
