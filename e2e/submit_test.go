package e2e

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/smtp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/freeport"
	"github.com/postrider/postrider/internal/mail/smtpsink"
)

// submit sends a message with the standard library's SMTP client over STARTTLS. The server's certificate is
// self-signed, so submit does not verify it.
func submit(addr, password string, raw []byte, to ...string) error {
	c, err := smtp.Dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.StartTLS(&tls.Config{InsecureSkipVerify: true}); err != nil {
		return err
	}
	host, _, _ := net.SplitHostPort(addr)
	if err := c.Auth(smtp.PlainAuth("", "resend", password, host)); err != nil {
		return err
	}
	if err := c.Mail("hello@acme.example"); err != nil {
		return err
	}
	for _, r := range to {
		if err := c.Rcpt(r); err != nil {
			return err
		}
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	if _, err := w.Write(raw); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return c.Quit()
}

// TestSubmission submits a message over SMTP. The relay receives the submitted message unchanged except for a
// signature, and the API shows it like any other email.
func TestSubmission(t *testing.T) {
	var mu sync.Mutex
	arrived := map[string][]byte{}
	sink, err := smtpsink.Config{OnMessage: func(_ string, to []string, data []byte) {
		mu.Lock()
		defer mu.Unlock()
		for _, a := range to {
			arrived[a] = bytes.Clone(data)
		}
	}}.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	addr := freeport.Addr(t)
	n := start(t, nil, "--relay", sink.Addr(), "--smtp-submit", addr)
	n.addDomain("acme.example")
	raw := []byte(strings.ReplaceAll(`Subject: As it is
From: Acme <hello@acme.example>
To: bob@one.example
Date: Mon, 02 Jan 2006 15:04:05 +0000
Message-ID: <x1@acme.example>

  one
.two
`, "\n", "\r\n"))
	if err := submit(addr, key, raw, "bob@one.example", "hidden@two.example"); err != nil {
		t.Fatal(err)
	}
	if err := submit(addr, "re_other", raw, "bob@one.example"); err == nil || !strings.HasPrefix(err.Error(), "535 ") {
		t.Errorf("another key: %v", err)
	}
	c := client(t, n)
	list, err := c.Emails.List()
	if err != nil || len(list.Data) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	eventually(t, 20*time.Second, "the email is delivered", func() bool {
		e, err := c.Emails.Get(list.Data[0].Id)
		return err == nil && e.LastEvent == "delivered" && e.Subject == "As it is" && len(e.Bcc) == 1
	})
	eventually(t, 20*time.Second, "both messages arrive", func() bool { return sink.Count() == 2 })
	mu.Lock()
	defer mu.Unlock()
	for _, to := range []string{"bob@one.example", "hidden@two.example"} {
		got := arrived[to]
		if !bytes.HasSuffix(got, raw) || bytes.Count(got, []byte("DKIM-Signature: ")) != 2 ||
			bytes.Contains(got, []byte("hidden@")) {
			t.Errorf("%s got\n%s", to, got)
		}
	}
}

// TestImplicitTLS submits a message over a connection with implicit TLS.
func TestImplicitTLS(t *testing.T) {
	addr := freeport.Addr(t)
	start(t, []string{"POSTRIDER_SMTP_SUBMITS_LISTEN=" + addr})
	nc, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	greeting := make([]byte, 4)
	if _, err := io.ReadFull(nc, greeting); err != nil || string(greeting) != "220 " {
		t.Errorf("heard %q, %v", greeting, err)
	}
}
