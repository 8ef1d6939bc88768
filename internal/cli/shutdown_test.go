package cli

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// TestStopWithAnUpload stops a node during an upload that never ends. The node waits for the grace period and then
// stops without an error.
func TestStopWithAnUpload(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		p.vars["POSTRIDER_SHUTDOWN_GRACE"] = "1s"
		key := p.key("Acme")
		n := p.start()
		c, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST /emails HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nExpect: 100-continue\r\n"+
			"Content-Length: 1000\r\n\r\n", strings.TrimSpace(key))
		if _, err := c.Read(make([]byte, 100)); err != nil { // 100 Continue means that the node is reading the request body
			t.Fatal(err)
		}
		began := time.Now()
		n.end()
		if took := time.Since(began); took < time.Second || took > 20*time.Second {
			t.Errorf("it took %v to stop", took)
		}
		c.SetReadDeadline(time.Now().Add(5 * time.Second))
		_, err = io.Copy(io.Discard, c)
		if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
			t.Error("the connection is open after the stop")
		}
	})
}
