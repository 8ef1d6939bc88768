//go:build postfix

package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/smtp"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/freeport"
	"github.com/postrider/postrider/internal/mail/smtptest"
)

// relayed returns a node that sends through Postfix and receives the mail that Postfix relays to it. Postfix relays
// mail for far.example to a host that accepts only one address.
func relayed(t *testing.T) (*node, *postfix) {
	t.Helper()
	far := smtptest.NewServer(t, smtptest.Config{Rcpt: func(_, to string) string {
		switch to {
		case "known@far.example":
			return ""
		case "full@far.example":
			return "452 4.2.2 The mailbox is full"
		}
		return "550 5.1.1 No such user here"
	}})
	mx := freeport.Addr(t)
	p := startPostfix(t, "acme.example "+route(mx), ".acme.example "+route(mx), "far.example "+route(far.Addr))
	names := serveDNS(t, `elsewhere.example. 60 IN TXT "v=spf1 ip4:127.0.0.1 -all"`,
		`_dmarc.elsewhere.example. 60 IN TXT "v=DMARC1; p=reject"`)
	n := start(t, []string{"POSTRIDER_DNS_SERVERS=" + names}, "--relay", p.addr, "--relay-tls", "none", "--smtp-in", mx)
	n.addDomainOf(`{"name":"acme.example","capabilities":{"receiving":"enabled"}}`)
	return n, p
}

// route returns a mail destination in the syntax of transport(5).
func route(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	return fmt.Sprintf("smtp:[%s]:%s", host, port)
}

// TestPostfixRelaysToUs sends a message with two attachments and an inline image through Postfix to the node's MX. The
// API returns the received message unchanged.
func TestPostfixRelaysToUs(t *testing.T) {
	n, p := relayed(t)
	parts := map[string][]byte{"picture.png": random(t, 5_000), "report.pdf": random(t, 300_000),
		"naïve café.txt": []byte("one\r\ntwo\r\n")}
	if err := smtp.SendMail(p.addr, nil, "alice@elsewhere.example", []string{"anyone@acme.example"},
		multipart(parts)); err != nil {
		t.Fatal(err)
	}
	type received struct {
		ID, From, Subject, Text, HTML string
		To                            []string
		ReceivedFor                   []string `json:"received_for"`
		Headers                       map[string]string
		Raw                           struct {
			URL string `json:"download_url"`
		}
		Authentication struct {
			SPF, DMARC struct{ Result, Domain string }
			Policy     string `json:"dmarc_policy"`
		}
		Attachments []struct {
			ID, Filename string
			Size         int
		}
	}
	var list struct{ Data []received }
	eventually(t, 20*time.Second, "the message is received", func() bool {
		n.must(http.MethodGet, "/emails/receiving", "", &list)
		return len(list.Data) > 0
	})
	var e received
	n.must(http.MethodGet, "/emails/receiving/"+list.Data[0].ID+"?html_format=cid", "", &e)
	if e.From != "alice@elsewhere.example" || e.Subject != "Grüße through Postfix" ||
		strings.Join(e.To, " ") != "anyone@acme.example" ||
		strings.Join(e.ReceivedFor, " ") != "anyone@acme.example" || strings.TrimSpace(e.Text) != "Hello from afar." ||
		!strings.Contains(e.HTML, "cid:picture") {
		t.Errorf("received %+v", e)
	}
	if !strings.Contains(e.Headers["received"], "relay.postfix.example") {
		t.Errorf("the trace does not show the relay: %q", e.Headers["received"])
	}
	if a := e.Authentication; a.SPF.Result != "pass" || a.DMARC.Result != "pass" ||
		a.DMARC.Domain != "elsewhere.example" || a.Policy != "reject" {
		t.Errorf("authentication: %+v", a)
	}
	if len(e.Attachments) != len(parts) {
		t.Errorf("attachments: %+v", e.Attachments)
	}
	for _, a := range e.Attachments {
		var one struct {
			URL string `json:"download_url"`
		}
		n.must(http.MethodGet, "/emails/receiving/"+e.ID+"/attachments/"+a.ID, "", &one)
		content, _ := get(t, one.URL, http.StatusOK)
		want, ok := parts[a.Filename]
		if !ok || sha256.Sum256([]byte(content)) != sha256.Sum256(want) || a.Size != len(want) {
			t.Errorf("attachment %q: %d bytes, size %d, want %d", a.Filename, len(content), a.Size, len(want))
		}
	}
	if raw, _ := get(t, e.Raw.URL, http.StatusOK); !strings.Contains(raw, "Subject: =?UTF-8?") {
		t.Errorf("the raw message is\n%.500s", raw)
	}
}

// TestPostfixBounces sends mail that Postfix accepts but cannot deliver. Postfix sends its bounce report to the return
// path, and the node records it as an event. The node suppresses an address that does not exist, but not an address
// whose mailbox is full.
func TestPostfixBounces(t *testing.T) {
	n, _ := relayed(t)
	for _, test := range []struct {
		to, last, kind string
		suppressed     int // expected status of GET /suppressions/{address}
	}{
		{"known@far.example", "delivered", "", http.StatusNotFound},
		{"unknown@far.example", "bounced", "Permanent", http.StatusOK},
		{"full@far.example", "bounced", "Transient", http.StatusNotFound},
	} {
		var sent struct{ ID string }
		n.must(http.MethodPost, "/emails", `{"from":"hello@acme.example","to":"`+test.to+
			`","subject":"Hello","text":"Hello."}`, &sent)
		var events struct {
			Data []struct {
				Type, Recipient string
				Data            json.RawMessage
			}
		}
		eventually(t, 30*time.Second, test.to+" is "+test.last, func() bool {
			var email struct {
				Last string `json:"last_event"`
			}
			n.must(http.MethodGet, "/emails/"+sent.ID, "", &email)
			return email.Last == test.last
		})
		n.must(http.MethodGet, "/emails/"+sent.ID+"/events", "", &events)
		bounced := ""
		for _, e := range events.Data {
			if strings.HasSuffix(e.Type, "bounced") {
				bounced += string(e.Data)
			}
		}
		var attempts struct{ Data []struct{ Outcome string } }
		n.must(http.MethodGet, "/emails/"+sent.ID+"/attempts", "", &attempts)
		if len(attempts.Data) != 1 || attempts.Data[0].Outcome != "delivered" {
			t.Errorf("%s: Postfix did not take the message at once: %+v", test.to, attempts.Data)
		}
		if (bounced == "") != (test.kind == "") || !strings.Contains(bounced, test.kind) {
			t.Errorf("%s: bounced with %s, want %q", test.to, bounced, test.kind)
		}
		if status, err := n.call(t.Context(), http.MethodGet, "/suppressions/"+test.to, "", nil); status != test.suppressed {
			t.Errorf("%s: suppression: status %d, %v, want %d", test.to, status, err, test.suppressed)
		}
	}
}
