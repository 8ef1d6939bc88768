package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/resend/resend-go/v3"

	"github.com/postrider/postrider/internal/lib/freeport"
)

// inject sends a message to a host as most mail servers do: with TLS if the host offers it, without verifying the
// certificate.
func inject(host, to string, raw []byte) error {
	c, err := smtp.DialStartTLS(host, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return err
	}
	defer c.Close()
	return c.SendMail("alice@elsewhere.example", []string{to}, bytes.NewReader(raw))
}

// TestOfficialClientReceives sends a message to the inbound SMTP port and reads it through the official client.
func TestOfficialClientReceives(t *testing.T) {
	mx := freeport.Addr(t)
	n := start(t, nil, "--smtp-in", mx)
	n.addDomainOf(`{"name":"in.acme.example","capabilities":{"sending":"disabled","receiving":"enabled"}}`)
	parts := map[string][]byte{"picture.png": random(t, 5_000), "report.pdf": random(t, 300_000),
		"naïve café.txt": []byte("one\r\ntwo\r\n")}
	if err := inject(mx, "support@in.acme.example", multipart(parts)); err != nil {
		t.Fatal(err)
	}
	if err := inject(mx, "support@elsewhere.example", multipart(parts)); err == nil {
		t.Error("relayed")
	}
	c := client(t, n)
	list, err := c.Emails.Receiving.List()
	if err != nil || len(list.Data) != 1 || len(list.Data[0].Attachments) != 3 {
		t.Fatalf("%+v, %v", list, err)
	}
	e, err := c.Emails.Receiving.Get(list.Data[0].Id)
	if err != nil || e.Object != "email" || e.From != "alice@elsewhere.example" ||
		!strings.Contains(e.Html, "data:image/png;base64,") ||
		e.Headers["return-path"] != "<alice@elsewhere.example>" {
		t.Errorf("%+v, %v", e, err)
	}
	if raw, _ := get(t, e.Raw.DownloadUrl, http.StatusOK); !strings.Contains(raw, "Content-Type: multipart/") {
		t.Errorf("the raw message is\n%.500s", raw)
	}
	page, err := c.Emails.Receiving.ListAttachmentsWithOptions(t.Context(), e.Id,
		&resend.ListOptions{After: &e.Attachments[0].Id, Limit: new(1)})
	if err != nil || len(page.Data) != 1 || page.Data[0].Id != e.Attachments[1].Id || !page.HasMore {
		t.Errorf("second page: %+v, %v", page, err)
	}
	for _, a := range e.Attachments {
		one, err := c.Emails.Receiving.GetAttachment(e.Id, a.Id)
		if err != nil {
			t.Fatal(err)
		}
		if content, _ := get(t, one.DownloadUrl, http.StatusOK); content != string(parts[a.Filename]) {
			t.Errorf("%s: %d bytes that differ", a.Filename, len(content))
		}
		get(t, one.DownloadUrl+"x", http.StatusNotFound)
	}
	var shared struct{ ID, URL string }
	n.must(http.MethodPost, "/emails/"+e.Id+"/share", `{"expires_in":"1 hour"}`, &shared)
	if page, header := get(t, shared.URL, http.StatusOK); shared.ID != e.Id ||
		!strings.Contains(page, "<iframe sandbox srcdoc=") ||
		strings.Count(page, "/download/received/") != len(parts) || header.Get("X-Robots-Tag") != "noindex" {
		t.Errorf("%+v shows\n%.2000s\nwith %v", shared, page, header)
	}
	get(t, shared.URL+"x", http.StatusNotFound)
}

// TestKillWhileReceiving kills the program at random moments while it receives mail. Every message that the program
// accepted with 250 is listed and complete.
func TestKillWhileReceiving(t *testing.T) {
	t.Parallel()
	onEachEngine(t, killReceiving)
}

func killReceiving(t *testing.T, env []string) {
	rounds := setting(t, "POSTRIDER_KILL_ROUNDS", 1)
	mx := freeport.Addr(t)
	n := start(t, env, "--smtp-in", mx, "--check-authentication=false")
	n.addDomainOf(`{"name":"in.acme.example","capabilities":{"receiving":"enabled"}}`)
	var mu sync.Mutex
	taken := map[string]bool{}
	for round := range rounds {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		var clients sync.WaitGroup
		left := 20 + rand.IntN(40)
		reached := make(chan struct{})
		for i := range 6 {
			clients.Go(func() {
				for k := 0; ctx.Err() == nil; k++ {
					name := fmt.Sprintf("%d-%d-%d", round, i, k)
					size := 1000
					if k%7 == 3 {
						size = 100_000
					}
					raw := "Subject: " + name + "\r\n\r\n" + strings.Repeat("Hello.\r\n", size/8)
					if inject(mx, "b@in.acme.example", []byte(raw)) != nil {
						return // the program was killed, so this message may or may not be stored
					}
					mu.Lock()
					taken[name] = true
					if left--; left == 0 {
						close(reached)
					}
					mu.Unlock()
				}
			})
		}
		select {
		case <-reached:
		case <-ctx.Done():
			t.Error("too few messages were taken within a minute")
		}
		n.kill()
		stop()
		clients.Wait()
		n.launch()
	}
	var list struct {
		HasMore bool `json:"has_more"`
		Data    []struct{ ID, Subject string }
	}
	found, after := map[string]string{}, ""
	for {
		n.must(http.MethodGet, "/emails/receiving?limit=100"+after, "", &list)
		for _, e := range list.Data {
			found[e.Subject] = e.ID
		}
		if !list.HasMore {
			break
		}
		after = "&after=" + list.Data[len(list.Data)-1].ID
	}
	for name := range taken {
		var e struct{ Text string }
		if found[name] == "" {
			t.Errorf("message %s was answered 250 and is not there", name)
			continue
		}
		if n.must(http.MethodGet, "/emails/receiving/"+found[name], "", &e); strings.Count(e.Text, "Hello.") < 100 {
			t.Errorf("message %s is not whole", name)
		}
	}
	if len(taken) < 20*rounds {
		t.Errorf("only %d messages were taken: the test tested little", len(taken))
	}
	t.Logf("%d kills; %d messages answered 250, %d there", rounds, len(taken), len(found))
}
