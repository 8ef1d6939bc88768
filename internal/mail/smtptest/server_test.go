package smtptest_test

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/smtptest"
)

// client connects with the SMTP client from the library that the server uses. If config is not nil, STARTTLS is used.
func client(t *testing.T, addr string, config *tls.Config) *smtp.Client {
	t.Helper()
	var c *smtp.Client
	var err error
	if config == nil {
		c, err = smtp.Dial(addr)
	} else {
		c, err = smtp.DialStartTLS(addr, config)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestServerKeepsMessages(t *testing.T) {
	t.Parallel()
	ca := smtptest.NewCA(t)
	s := smtptest.NewServer(t, smtptest.Config{
		TLS: ca.ServerTLS("mx.test", "127.0.0.1"), Users: map[string]string{"u": "p"}, UTF8: true,
	})
	c := client(t, s.Addr, &tls.Config{RootCAs: ca.Pool(), ServerName: "mx.test"})
	if err := c.Mail("a@b.example", nil); err == nil {
		t.Error("MAIL without AUTH is taken")
	}
	if err := c.Auth(sasl.NewPlainClient("", "u", "p")); err != nil {
		t.Fatal(err)
	}
	if err := c.SendMail("a@b.example", []string{"c@d.example", "e@f.example"},
		strings.NewReader("A: b\r\n\r\n.c\r\n")); err != nil {
		t.Fatal(err)
	}
	want := []smtptest.Message{{
		From: "a@b.example", To: []string{"c@d.example", "e@f.example"}, Data: []byte("A: b\r\n\r\n.c\r\n"), TLS: true,
		User: "u", Body: "8BITMIME",
	}}
	if diff := cmp.Diff(want, s.Wait(1)); diff != "" {
		t.Errorf("Wait(1) (-want +got):\n%s", diff)
	}
	if n := s.Connections(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestServerRefuses(t *testing.T) {
	t.Parallel()
	s := smtptest.NewServer(t, smtptest.Config{
		MaxSize: 1000,
		Mail: func(from string) string {
			if from == "spam@b.example" {
				return "550 5.7.1 go away"
			}
			return ""
		},
		Rcpt: func(from, to string) string {
			if to == "gone@d.example" {
				return "550 no such user"
			}
			return ""
		},
		Data: func(m smtptest.Message) string {
			if strings.Contains(string(m.Data), "virus") {
				return "451 4.7.1 come again later"
			}
			return ""
		},
	})
	c := client(t, s.Addr, nil)
	for _, test := range []struct{ from, to, data, want string }{
		{"spam@b.example", "c@d.example", "x", "SMTP error 550: go away"},
		{"a@b.example", "gone@d.example", "x", "SMTP error 550: no such user"},
		{"a@b.example", "c@d.example", "a virus", "SMTP error 451: come again later"},
		{"a@b.example", "c@d.example", strings.Repeat("x\r\n", 1000), "SMTP error 552: Maximum message size exceeded"},
		{"a@b.example", "c@d.example", "x", ""},
	} {
		got := ""
		if err := c.SendMail(test.from, []string{test.to}, strings.NewReader(test.data)); err != nil {
			got = err.Error()
			c.Reset()
		}
		if got != test.want {
			t.Errorf("from %s to %s: %q, want %q", test.from, test.to, got, test.want)
		}
	}
	if got := s.Messages(); len(got) != 1 {
		t.Errorf("kept %d messages", len(got))
	}
}

func TestServerGreets(t *testing.T) {
	t.Parallel()
	first := true
	s := smtptest.NewServer(t, smtptest.Config{Domain: "other.test", Greet: func() string {
		if first {
			first = false
			return "421 4.3.2 busy"
		}
		return ""
	}})
	for _, want := range []string{"421 4.3.2 busy\r\n", "220 other.test"} {
		nc, err := net.Dial("tcp", s.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		line := make([]byte, len(want))
		if _, err := nc.Read(line); err != nil || string(line) != want {
			t.Errorf("greeted with %q, %v", line, err)
		}
	}
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	ca, stranger := smtptest.NewCA(t), smtptest.NewCA(t)
	for _, test := range []struct {
		name, server string
		cert         tls.Certificate
		ok           bool
	}{
		{"name", "mx.test", ca.Certificate("mx.test"), true},
		{"second name", "mx2.test", ca.Certificate("mx.test", "mx2.test"), true},
		{"address", "127.0.0.1", ca.Certificate("127.0.0.1"), true},
		{"other name", "other.test", ca.Certificate("mx.test"), false},
		{"expired", "mx.test", ca.Expired("mx.test"), false},
		{"other authority", "mx.test", stranger.Certificate("mx.test"), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{test.cert}})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				if nc, err := l.Accept(); err == nil {
					io.Copy(io.Discard, nc)
					nc.Close()
				}
			}()
			nc, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{ServerName: test.server, RootCAs: ca.Pool()})
			if err == nil {
				nc.Close()
			}
			if (err == nil) != test.ok {
				t.Errorf("handshake: %v", err)
			}
		})
	}
}
