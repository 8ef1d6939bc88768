package probe

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// Limits of a mail host's replies.
const (
	replyMax  = 32 << 10 // bytes of all replies before TLS, and of those after it
	replyRows = 100      // lines of one reply
)

// SMTP is what a mail host says.
type SMTP struct {
	Address  string `json:"address"` // of the host, with the port
	Reached  bool   `json:"reached"` // the connection was made
	Greeting string `json:"greeting,omitempty"`
	Name     string `json:"name,omitempty"` // the name that the host gives itself in its reply to EHLO
	StartTLS bool   `json:"starttls"`       // the host offers STARTTLS, or TLS begins with the first byte

	Certificate *Certificate `json:"certificate,omitempty"`
	Problem     string       `json:"problem,omitempty"` // why the conversation ended early; "" if it did not
}

// Mail configures a conversation with a mail host.
type Mail struct {
	Hello    string // name in EHLO
	Host     string // name that the certificate must cover
	Implicit bool   // TLS from the first byte
	Roots    *x509.CertPool
}

// TalkSMTP connects to a mail host at address, which has a port. It says EHLO, STARTTLS, EHLO and QUIT.
func TalkSMTP(ctx context.Context, dial Dial, address string, o Mail) SMTP {
	s := SMTP{Address: address}
	ctx, cancel := context.WithTimeout(ctx, talkTime)
	defer cancel()
	dialing, stop := context.WithTimeout(ctx, dialTime)
	raw, err := dial(dialing, "tcp", address)
	stop()
	if err != nil {
		s.Problem = "no connection: " + reason(err)
		return s
	}
	s.Reached = true
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })()
	if err := s.talk(ctx, raw, o); err != nil {
		s.Problem = err.Error()
	}
	return s
}

func (s *SMTP) talk(ctx context.Context, raw net.Conn, o Mail) error {
	encrypt := func() (net.Conn, error) {
		c := tls.Client(raw, tlsConfig(o.Host, func(chain []*x509.Certificate) {
			s.Certificate = judge(chain, o.Host, o.Roots, time.Now())
		}))
		if err := c.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("TLS failed: %s", reason(err))
		}
		return c, nil
	}
	c, err := raw, error(nil)
	if o.Implicit {
		if c, err = encrypt(); err != nil {
			return err
		}
		s.StartTLS = true
	}
	r := newReplies(c)
	greeting, err := r.expect("the greeting", 220)
	if len(greeting) > 0 {
		s.Greeting = Printable(greeting[0])
	}
	if err != nil {
		return err
	}
	hello, err := r.command("EHLO "+o.Hello, 250)
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(hello[0], " ")
	s.Name = strings.ToLower(Printable(strings.TrimSuffix(first, ".")))
	for _, line := range hello[1:] {
		s.StartTLS = s.StartTLS || strings.EqualFold(strings.TrimSpace(line), "STARTTLS")
	}
	if s.StartTLS && !o.Implicit {
		if _, err := r.command("STARTTLS", 220); err != nil {
			return err
		}
		if c, err = encrypt(); err != nil {
			return err
		}
		r = newReplies(c)
		if _, err := r.command("EHLO "+o.Hello, 250); err != nil {
			return fmt.Errorf("after STARTTLS: %w", err)
		}
	}
	r.command("QUIT", 221) // the answer does not matter
	return nil
}

// replies reads replies to commands.
type replies struct {
	c net.Conn
	r *bufio.Reader
}

func newReplies(c net.Conn) *replies {
	return &replies{c: c, r: bufio.NewReader(io.LimitReader(c, replyMax))}
}

// command sends a line and reads the reply, which must have the given code.
func (r *replies) command(line string, code int) ([]string, error) {
	verb, _, _ := strings.Cut(line, " ")
	if _, err := io.WriteString(r.c, line+"\r\n"); err != nil {
		return nil, fmt.Errorf("%s failed: %s", verb, reason(err))
	}
	return r.expect("the reply to "+verb, code)
}

// expect reads a reply and returns the texts of its lines, which are at least one.
func (r *replies) expect(what string, code int) (lines []string, err error) {
	for len(lines) < replyRows {
		line, err := r.r.ReadString('\n')
		if err != nil {
			if errors.Is(err, io.EOF) {
				return lines, fmt.Errorf("the connection ended before %s", what)
			}
			return lines, fmt.Errorf("%s did not come: %s", what, reason(err))
		}
		line = strings.TrimRight(line, "\r\n")
		var n int
		if len(line) < 3 {
			return lines, fmt.Errorf("%s is not SMTP", what)
		}
		if _, err := fmt.Sscanf(line[:3], "%d", &n); err != nil || n < 200 || n > 599 {
			return lines, fmt.Errorf("%s is not SMTP", what)
		}
		text := strings.TrimPrefix(line[3:], "-")
		lines = append(lines, strings.TrimPrefix(text, " "))
		if len(line) > 3 && line[3] == '-' {
			continue
		}
		if n != code {
			return lines, fmt.Errorf("%s is %d %s", what, n, Printable(lines[0]))
		}
		return lines, nil
	}
	return lines, fmt.Errorf("%s is too long", what)
}
