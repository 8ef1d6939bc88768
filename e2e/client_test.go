package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"
	"github.com/resend/resend-go/v3"

	"github.com/postrider/postrider/internal/mail/smtpsink"
)

// client returns the official Go client with the node's base URL.
func client(t *testing.T, n *node) *resend.Client {
	t.Helper()
	c := resend.NewClient(key)
	base, err := url.Parse("http://" + n.addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	c.BaseURL = base
	return c
}

func (n *node) awaitEvent(c *resend.Client, id, want string) *resend.Email {
	n.t.Helper()
	var e *resend.Email
	eventually(n.t, 20*time.Second, "email "+id+" becomes "+want, func() (done bool) {
		var err error
		if e, err = c.Emails.Get(id); err != nil {
			n.t.Fatal(err)
		}
		return e.LastEvent == want
	})
	return e
}

func TestOfficialClientSends(t *testing.T) {
	n := start(t, nil)
	n.addDomain("acme.example")
	c := client(t, n)
	sent, err := c.Emails.Send(&resend.SendEmailRequest{From: "Acmé <hello@acme.example>",
		To: []string{"Bob <bob@example.net>"},
		Cc: []string{"carol@example.org"}, Bcc: []string{"dave@example.net"}, ReplyTo: "help@acme.example", Subject: "Größe",
		Html: `<p>Hello <img src="cid:logo"></p>`, Tags: []resend.Tag{{Name: "kind", Value: "test"}},
		Headers: map[string]string{"X-Entity-Ref-ID": "1"},
		Attachments: []*resend.Attachment{{Content: []byte("PDF"), Filename: "a.pdf"},
			{Content: []byte("PNG"), Filename: "logo.png", ContentId: "logo"}}})
	if err != nil {
		t.Fatal(err)
	}
	e := n.awaitEvent(c, sent.Id, "delivered")
	if e.From != "Acmé <hello@acme.example>" || e.Subject != "Größe" || len(e.To) != 1 || len(e.Cc) != 1 {
		t.Errorf("read back %+v", e)
	}

	t.Run("what would have been sent is signed with both keys", func(t *testing.T) {
		var all struct {
			Data []struct{ ID string }
		}
		// The email goes to two destinations: bob and dave share one message, and carol gets a separate message.
		eventually(t, 20*time.Second, "a message for each of 2 destinations is in the outbox", func() bool {
			n.must(http.MethodGet, "/dev/outbox", "", &all)
			return len(all.Data) == 2
		})
		for _, m := range all.Data {
			var raw string
			n.must(http.MethodGet, "/dev/outbox/"+m.ID+"/raw", "", &raw)
			n.checkSignatures(t, raw)
			if strings.Contains(raw, "dave@example.net") {
				t.Error("a hidden recipient stands in the message")
			}
		}
	})
	t.Run("a test address bounces and is not suppressed", func(t *testing.T) {
		sent, err := c.Emails.Send(&resend.SendEmailRequest{From: "hello@acme.example", To: []string{"bounced+x@resend.dev"},
			Subject: "s", Text: "t"})
		if err != nil {
			t.Fatal(err)
		}
		n.awaitEvent(c, sent.Id, "bounced")
		var list struct{ Data []any }
		n.must(http.MethodGet, "/suppressions", "", &list)
		if len(list.Data) != 0 {
			t.Errorf("suppressed %v", list.Data)
		}
	})
	t.Run("a batch", func(t *testing.T) { sendsBatches(t, c) })
	t.Run("schedule, reschedule, cancel", func(t *testing.T) { n.schedules(t, c) })
	t.Run("an idempotency key", func(t *testing.T) {
		r := &resend.SendEmailRequest{From: "hello@acme.example", To: []string{"bob@example.net"}, Subject: "s", Text: "t"}
		o := &resend.SendEmailOptions{IdempotencyKey: "once"}
		a, err := c.Emails.SendWithOptions(t.Context(), r, o)
		if err != nil {
			t.Fatal(err)
		}
		b, err := c.Emails.SendWithOptions(t.Context(), r, o)
		if err != nil || a.Id != b.Id {
			t.Errorf("%v, %v: want %s", b, err, a.Id)
		}
	})
	t.Run("lists", func(t *testing.T) {
		limit := 2
		page, err := c.Emails.ListWithOptions(t.Context(), &resend.ListOptions{Limit: &limit})
		if err != nil || len(page.Data) != 2 || !page.HasMore {
			t.Fatalf("%+v, %v", page, err)
		}
		after := page.Data[1].Id
		rest, err := c.Emails.ListWithOptions(t.Context(), &resend.ListOptions{Limit: &limit, After: &after})
		if err != nil || len(rest.Data) == 0 || rest.Data[0].Id == after {
			t.Errorf("%+v, %v", rest, err)
		}
	})
}

// sendsBatches sends strict batches and one permissive batch.
func sendsBatches(t *testing.T, c *resend.Client) {
	t.Helper()
	one := &resend.SendEmailRequest{From: "hello@acme.example", To: []string{"bob@example.net"}, Subject: "s", Text: "t"}
	bad := &resend.SendEmailRequest{From: "hello@acme.example", To: []string{"nobody"}, Subject: "s", Text: "t"}
	b, err := c.Batch.Send([]*resend.SendEmailRequest{one, one})
	if err != nil || len(b.Data) != 2 {
		t.Fatalf("%+v, %v", b, err)
	}
	if _, err := c.Batch.Send([]*resend.SendEmailRequest{one, bad}); err == nil || !strings.Contains(err.Error(), "to") {
		t.Errorf("a bad email in a strict batch: %v", err)
	}
	b, err = c.Batch.SendWithOptions(t.Context(), []*resend.SendEmailRequest{one, bad},
		&resend.BatchSendEmailOptions{BatchValidation: resend.BatchValidationPermissive})
	if err != nil || len(b.Data) != 1 || len(b.Errors) != 1 || b.Errors[0].Index != 1 {
		t.Errorf("a permissive batch: %+v, %v", b, err)
	}
}

// schedules schedules an email, reschedules it, and cancels it.
func (n *node) schedules(t *testing.T, c *resend.Client) {
	t.Helper()
	sent, err := c.Emails.Send(&resend.SendEmailRequest{From: "hello@acme.example", To: []string{"bob@example.net"},
		Subject: "s", Text: "t", ScheduledAt: "in 2 hours"})
	if err != nil {
		t.Fatal(err)
	}
	n.awaitEvent(c, sent.Id, "scheduled")
	if _, err := c.Emails.Update(&resend.UpdateEmailRequest{Id: sent.Id,
		ScheduledAt: time.Now().Add(3 * time.Hour).Format(time.RFC3339)}); err != nil {
		t.Error(err)
	}
	if _, err := c.Emails.Cancel(sent.Id); err != nil {
		t.Error(err)
	}
	n.awaitEvent(c, sent.Id, "canceled")
	if _, err := c.Emails.Cancel(sent.Id); err == nil {
		t.Error("canceled twice")
	}
}

// checkSignatures verifies a message's DKIM signatures with the DNS records that the API returns to the domain's owner.
func (n *node) checkSignatures(t *testing.T, raw string) {
	t.Helper()
	var domains struct{ Data []struct{ ID string } }
	n.must(http.MethodGet, "/domains", "", &domains)
	txt := map[string]string{}
	for _, d := range domains.Data {
		var full struct {
			Name    string
			Records []struct{ Record, Name, Value string }
		}
		n.must(http.MethodGet, "/domains/"+d.ID, "", &full)
		for _, r := range full.Records {
			if r.Record == "DKIM" {
				txt[r.Name+"."+full.Name] = r.Value
			}
		}
	}
	all, err := dkim.VerifyWithOptions(bytes.NewReader([]byte(raw)),
		&dkim.VerifyOptions{LookupTXT: func(name string) ([]string, error) {
			if v := txt[name]; v != "" {
				return []string{v}, nil
			}
			return nil, fmt.Errorf("no record %s", name)
		}})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		if v.Err != nil {
			t.Errorf("signature of %s: %v", v.Domain, v.Err)
		}
	}
	if len(all) != 2 {
		t.Errorf("%d signatures, want 2", len(all))
	}
}

func TestOfficialClientManages(t *testing.T) {
	n := start(t, nil)
	c := client(t, n)
	d, err := c.Domains.Create(&resend.CreateDomainRequest{Name: "mail.acme.example", Region: "eu-west-1"})
	if err != nil || len(d.Records) < 3 {
		t.Fatalf("%+v, %v", d, err)
	}
	if d.Status != "not_started" {
		t.Errorf("a new domain is %s", d.Status)
	}
	_, err = c.Emails.Send(&resend.SendEmailRequest{From: "a@mail.acme.example", To: []string{"bob@example.net"},
		Subject: "s", Text: "t"})
	if err == nil || !strings.Contains(err.Error(), "mail.acme.example of the `from` field is not verified") {
		t.Errorf("sending before it is verified: %v", err)
	}
	if ok, err := c.Domains.Verify(d.Id); !ok || err != nil {
		t.Errorf("verify: %v", err)
	}
	eventually(t, 20*time.Second, "the domain is verified", func() bool {
		got, err := c.Domains.Get(d.Id)
		return err == nil && got.Status == "verified"
	})
	if _, err := c.Domains.Update(d.Id, &resend.UpdateDomainRequest{OpenTracking: true,
		Tls: resend.Enforced}); err != nil {
		t.Errorf("update: %v", err)
	}
	if got, err := c.Domains.Get(d.Id); err != nil || got.Status != "verified" || got.Region != "eu-west-1" {
		t.Errorf("get: %+v, %v", got, err)
	}
	if list, err := c.Domains.List(); err != nil || len(list.Data) != 1 {
		t.Errorf("list: %+v, %v", list, err)
	}
	if _, err := c.Domains.Create(&resend.CreateDomainRequest{Name: "mail.acme.example"}); err == nil {
		t.Error("a domain was added twice")
	}
	k, err := c.ApiKeys.Create(&resend.CreateApiKeyRequest{Name: "sender", Permission: "sending_access", DomainId: d.Id})
	if err != nil || !strings.HasPrefix(k.Token, "re_") {
		t.Fatalf("%+v, %v", k, err)
	}
	restricted := client(t, n)
	restricted.ApiKey = k.Token
	if _, err := restricted.Domains.List(); err == nil || !strings.Contains(err.Error(), "restricted") {
		t.Errorf("a sending key lists domains: %v", err)
	}
	if _, err := restricted.Emails.Send(&resend.SendEmailRequest{From: "a@mail.acme.example",
		To: []string{"bob@example.net"}, Subject: "s", Text: "t"}); err != nil {
		t.Errorf("a sending key sends: %v", err)
	}
	if ok, err := c.ApiKeys.Remove(k.Id); !ok || err != nil {
		t.Errorf("remove a key: %v", err)
	}
	if _, err := restricted.Emails.Send(&resend.SendEmailRequest{From: "a@mail.acme.example",
		To: []string{"bob@example.net"}, Subject: "s", Text: "t"}); err == nil {
		t.Error("a removed key sends")
	}
	// This version of the official Go client does not support suppressions.
	var added, gone struct {
		Object, ID string
		Deleted    bool
	}
	n.must(http.MethodPost, "/suppressions", `{"email":"Gone@Example.net"}`, &added)
	n.must(http.MethodDelete, "/suppressions/gone%40example.net", "", &gone)
	if added.ID == "" || gone.ID != added.ID || !gone.Deleted {
		t.Errorf("added %+v, removed %+v", added, gone)
	}
	if ok, err := c.Domains.Remove(d.Id); !ok || err != nil {
		t.Errorf("remove a domain: %v", err)
	}
}

func TestAThousandThroughARelay(t *testing.T) {
	const count = 1000
	var mu sync.Mutex
	arrived := map[string]int{}
	unsigned := 0
	sink, err := smtpsink.Config{OnMessage: func(_ string, to []string, data []byte) {
		mu.Lock()
		defer mu.Unlock()
		for _, a := range to {
			arrived[a]++
		}
		if bytes.Count(data, []byte("DKIM-Signature: ")) != 2 {
			unsigned++
		}
	}}.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	n := start(t, nil, "--relay", sink.Addr())
	n.addDomain("acme.example")
	c := client(t, n)
	for b := range count / 100 {
		var batch []*resend.SendEmailRequest
		for i := range 100 {
			batch = append(batch, &resend.SendEmailRequest{From: "hello@acme.example",
				To: []string{fmt.Sprintf("u%d@d%d.example", b*100+i, i%7)}, Subject: "s", Text: "t"})
		}
		if _, err := c.Batch.Send(batch); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, time.Minute, "all arrive", func() bool { return sink.Count() >= count })
	mu.Lock()
	defer mu.Unlock()
	if len(arrived) != count || sink.Count() != count || unsigned > 0 {
		t.Errorf("%d recipients, %d messages, %d without both signatures", len(arrived), sink.Count(), unsigned)
	}
	if sink.Connections() > 20 {
		t.Errorf("%d connections for %d messages: they are not kept", sink.Connections(), count)
	}
}
