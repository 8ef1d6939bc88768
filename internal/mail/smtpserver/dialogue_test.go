package smtpserver_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/mail/smtptest"
)

// patience is how long a test waits for a reply from the server.
const patience = 10 * time.Second

// TestDialogues replays the SMTP sessions in the testdata files. The lines in these files have the following forms;
// consecutive C and R lines are sent in one write:
//
//	# a remark
//	(auth clear) (auth tls) (notls) (size 100) (recipients 2) (errors 3) (commands 5) (line 100)   the listener
//	C: EHLO a.test          the client sends this line
//	R: "x\n.\r\n"           the client sends exactly these bytes
//	S: 250 *                the server must send this; a star at the end matches anything
//	(starttls)              a TLS handshake
//	(hang up)               the client closes the connection
//	(closed)                the server must have closed the connection
//	M: "text"               at the end, the messages that were accepted
func TestDialogues(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dialogues: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			play(t, string(text))
		})
	}
}

// player is the client that replays a dialogue file.
type player struct {
	t    *testing.T
	ca   *smtptest.CA
	nc   net.Conn
	in   *bufio.Reader
	out  bytes.Buffer
	want []string // messages that the server must have accepted
}

func play(t *testing.T, text string) {
	ca := smtptest.NewCA(t)
	c := smtpserver.Config{Hostname: "mx.test",
		TLS: &tls.Config{Certificates: []tls.Certificate{ca.Certificate("mx.test")}}}
	lines := strings.Split(text, "\n")
	for _, line := range lines {
		configure(&c, line)
	}
	h := &handler{}
	addr := serve(t, c, h)
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(patience))
	p := &player{t: t, ca: ca, nc: nc, in: bufio.NewReader(nc)}
	for i, line := range lines {
		if err := p.step(line); err != nil {
			t.Fatalf("line %d: %s: %v", i+1, line, err)
		}
	}
	p.nc.Close()
	h.wait(t)
	if got := h.messages(); fmt.Sprint(got) != fmt.Sprint(p.want) {
		t.Errorf("messages taken: %q, want %q", got, p.want)
	}
}

func configure(c *smtpserver.Config, line string) {
	switch {
	case line == "(auth clear)":
		c.Auth = smtpserver.AuthInClear
	case line == "(auth tls)":
		c.Auth = smtpserver.AuthOverTLS
	case line == "(notls)":
		c.TLS = nil
	}
	var size int64
	for form, n := range map[string]any{"(size %d)": &size, "(recipients %d)": &c.MaxRecipients,
		"(errors %d)":   &c.MaxErrors,
		"(commands %d)": &c.MaxCommands, "(line %d)": &c.MaxLine} {
		fmt.Sscanf(line, form, n)
	}
	if size > 0 {
		c.MaxSize = size
	}
}

func (p *player) step(line string) error {
	if kind, text, ok := strings.Cut(line, ": "); ok && len(kind) == 1 {
		switch kind {
		case "C":
			p.out.WriteString(text + "\r\n")
		case "R":
			raw, err := strconv.Unquote(text)
			p.out.WriteString(raw)
			return err
		case "M":
			raw, err := strconv.Unquote(text)
			p.want = append(p.want, raw)
			return err
		case "S":
			return p.hear(text)
		}
		return nil
	}
	switch line {
	case "(starttls)":
		p.say()
		c := tls.Client(p.nc, &tls.Config{RootCAs: p.ca.Pool(), ServerName: "mx.test"})
		p.nc, p.in = c, bufio.NewReader(c)
		return c.Handshake()
	case "(hang up)":
		p.say()
		return p.nc.Close()
	case "(closed)":
		p.say()
		if text, err := p.in.ReadString('\n'); !errors.Is(err, io.EOF) {
			return fmt.Errorf("heard %q, %v", text, err)
		}
	}
	return nil
}

func (p *player) say() {
	p.nc.Write(p.out.Bytes()) // an error becomes apparent when the next reply is read
	p.out.Reset()
}

func (p *player) hear(want string) error {
	p.say()
	got, err := p.in.ReadString('\n')
	if err != nil {
		return fmt.Errorf("heard %q, %w", got, err)
	}
	got, ok := strings.CutSuffix(got, "\r\n")
	begin, open := strings.CutSuffix(want, "*")
	if !ok || got != want && !(open && strings.HasPrefix(got, begin)) {
		return fmt.Errorf("heard %q", got)
	}
	return nil
}
