package smtpserver_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpserver"
)

// FuzzSession sends arbitrary input as a client and then closes the connection. Every accepted message must be within
// the limits and contain no lone CR or LF, every reply must be well formed, and the session must be closed.
func FuzzSession(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txt")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var said strings.Builder
		for line := range strings.SplitSeq(string(text), "\n") {
			if command, ok := strings.CutPrefix(line, "C: "); ok {
				said.WriteString(command + "\r\n")
			}
		}
		f.Add([]byte(said.String()))
	}
	f.Add([]byte("HELO a\r\nMAIL FROM:<>\r\nRCPT TO:<b@b>\r\nDATA\r\n\n.\n\r\n.\r\n"))
	f.Add([]byte("EHLO a\r\nMAIL FROM:<>\r\nRCPT TO:<b@b>\r\nBDAT 2\r\n\r\nBDAT 0 LAST\r\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		h := &handler{}
		addr, stop := start(t, smtpserver.Config{MaxSize: 1000, MaxLine: 100, Auth: smtpserver.AuthInClear}, h)
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		nc.SetDeadline(time.Now().Add(patience))
		go func() {
			nc.Write(said)
			nc.(*net.TCPConn).CloseWrite()
		}()
		heard, _ := io.ReadAll(nc)
		stop()
		for line := range strings.SplitSeq(strings.TrimSuffix(string(heard), "\r\n"), "\r\n") {
			if len(line) < 4 || len(line) > 510 || line[0] < '2' || line[0] > '5' || line[3] != ' ' && line[3] != '-' ||
				strings.ContainsAny(line, "\r\n") {
				t.Errorf("no reply: %q", line)
			}
		}
		for _, m := range h.messages() {
			if len(m) > 1000 || strings.Count(m, "\r") != strings.Count(m, "\r\n") || strings.Count(m, "\n") != strings.Count(m,
				"\r\n") {
				t.Errorf("taken: %q", m)
			}
		}
		if h.sessions() != 0 {
			t.Errorf("%d sessions are open", h.sessions())
		}
	})
}
