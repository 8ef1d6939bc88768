package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/client"
)

// eachEngine runs f with a node on each engine.
func eachEngine(t *testing.T, f func(t *testing.T, n *testNode, c *client.Client)) {
	t.Helper()
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			n, c := start(t, engine, nil)
			f(t, n, c)
		})
	}
}

// try returns the value of a call, and fails the test if the call returned an error.
func try[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// collect returns the values of an iterator.
func collect[T any](t *testing.T, all iter.Seq2[T, error]) (list []T) {
	t.Helper()
	for v, err := range all {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, v)
	}
	return list
}

func TestResources(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, _ *testNode, c *client.Client) {
		ctx := t.Context()
		d := try(c.Domains.Create(ctx, client.CreateDomain{Name: "acme.net", TLS: "enforced", TrackingSubdomain: "links",
			Capabilities: &client.CapabilitiesRequest{Receiving: new("enabled")}}))(t)
		if d.Name != "acme.net" || d.TLS != "enforced" || d.CreatedAt.IsZero() || d.Capabilities.Receiving != "enabled" ||
			d.Capabilities.Sending != "enabled" || len(d.Records) < 4 {
			t.Errorf("the new domain is %+v", d)
		}
		try(c.Domains.Update(ctx, d.ID, client.UpdateDomain{TLS: client.Set("opportunistic"),
			ClickTracking: client.Set(true)}))(t)
		try(c.Domains.Update(ctx, d.ID, client.UpdateDomain{TrackingSubdomain: client.Null[string]()}))(t)
		d = try(c.Domains.Get(ctx, d.ID))(t)
		if d.TLS != "opportunistic" || !d.ClickTracking || d.OpenTracking || d.TrackingSubdomain != nil {
			t.Errorf("the changed domain is %+v", d)
		}
		if gone := try(c.Domains.Delete(ctx, d.ID))(t); !gone.Deleted {
			t.Errorf("the deleted domain is %+v", gone)
		}
		if _, err := c.Domains.Get(ctx, d.ID); !client.IsNotFound(err) {
			t.Errorf("the deleted domain is read with the error %v", err)
		}

		key := try(c.APIKeys.Create(ctx, client.CreateKey{Name: "sender", Permission: "sending_access"}))(t)
		if !strings.HasPrefix(key.Token, "re_") {
			t.Errorf("the new key is %+v", key)
		}
		property := try(c.ContactProperties.Create(ctx, client.CreateProperty{Key: "seats", Type: "number",
			FallbackValue: 3}))(t)
		try(c.ContactProperties.Update(ctx, property.ID, client.UpdateProperty{}))(t)
		if p := try(c.ContactProperties.Get(ctx, property.ID))(t); p.FallbackValue != nil {
			t.Errorf("the fallback is %v", p.FallbackValue)
		}
		contact := try(c.Contacts.Create(ctx, client.CreateContact{Email: "ada@example.org", FirstName: new("Ada"),
			Properties: map[string]any{"seats": 5}}))(t)
		try(c.Contacts.Update(ctx, contact.ID, client.UpdateContact{FirstName: client.Null[string](),
			Unsubscribed: client.Set(true)}))(t)
		who := try(c.Contacts.Get(ctx, "ada@example.org"))(t)
		if who.FirstName != nil || !who.Unsubscribed || who.Properties["seats"].Value != 5.0 {
			t.Errorf("the contact is %+v", who)
		}
		topic := try(c.Topics.Create(ctx, client.CreateTopic{Name: "News", DefaultSubscription: "opt_in"}))(t)
		try(c.Contacts.UpdateTopics(ctx, "ada@example.org",
			[]client.Subscription{{ID: topic.ID, Subscription: "opt_out"}}))(t)
		topics := collect(t, c.Contacts.AllTopics(ctx, "ada@example.org", client.Page{}))
		if len(topics) != 1 || topics[0].Subscription != "opt_out" {
			t.Errorf("the subscriptions are %+v", topics)
		}
		if team := try(c.Team.Get(ctx))(t); team.Name != "Acme" {
			t.Errorf("the team is %+v", team)
		}
	})
}

func TestSending(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, _ *testNode, c *client.Client) {
		ctx := t.Context()
		email := client.SendEmail{From: "Acme <hello@acme.example>", To: []string{"ada@example.org"}, Subject: "Hello",
			Text: new("Hello, Ada."), Headers: map[string]string{"X-Order": "7"}}
		var header http.Header
		first := try(c.Emails.Send(ctx, email, client.WithIdempotencyKey("order-7"), client.WithResponseHeader(&header)))(t)
		again := try(c.Emails.Send(ctx, email, client.WithIdempotencyKey("order-7")))(t)
		if first.ID == "" || first.ID != again.ID || header.Get("X-Request-Id") == "" {
			t.Errorf("the emails are %+v and %+v, the header %v", first, again, header)
		}
		email.Subject = "Another"
		_, err := c.Emails.Send(ctx, email, client.WithIdempotencyKey("order-7"))
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Status != 409 || e.Name != "invalid_idempotent_request" {
			t.Errorf("another email with the same key: %v", err)
		}
		batch := try(c.Emails.SendBatch(ctx, []client.SendEmail{email, {From: "hello@acme.example",
			To: []string{"nobody"}, Subject: "x", Text: new("x")}}, client.WithHeader("x-batch-validation", "permissive")))(t)
		if len(batch.Data) != 1 || batch.Errors == nil || len(batch.Errors) != 1 {
			t.Errorf("the batch is %+v", batch)
		}
		got := try(c.Emails.Get(ctx, first.ID))(t)
		if got.Subject != "Hello" || got.Text == nil || *got.Text != "Hello, Ada." || !got.ScheduledAt.IsZero() {
			t.Errorf("the email is %+v", got)
		}
		if n := len(collect(t, c.Emails.All(ctx, client.EmailsListParams{Subject: "another"}))); n != 1 {
			t.Errorf("%d emails have the subject", n)
		}
		rows := collect(t, c.Emails.Export(ctx, client.EmailsExportParams{}))
		if len(rows) != 2 || rows[1].ID != first.ID || rows[1].Recipients[0].Email != "ada@example.org" {
			t.Errorf("the export is %+v", rows)
		}
		file := try(c.Emails.ExportCSV(ctx, client.EmailsExportParams{}))(t)
		defer file.Close()
		if text := try(io.ReadAll(file))(t); bytes.Count(text, []byte("\n")) != 3 {
			t.Errorf("the export as CSV is %s", text)
		}
	})
}

// An iterator reads all pages, and can stop at any item.
func TestIterators(t *testing.T) {
	t.Parallel()
	n, _ := start(t, "sqlite", nil)
	p := newProxy(t, n, func(_ int, w http.ResponseWriter, r *http.Request, forward http.Handler) {
		forward.ServeHTTP(w, r)
	})
	c, ctx := n.client(t, p.URL), t.Context()
	for batch := range 3 {
		var addresses []string
		for i := range 85 {
			addresses = append(addresses, fmt.Sprintf("p%d-%d@example.org", batch, i))
		}
		try(c.Suppressions.AddBatch(ctx, client.AddSuppressions{Emails: addresses}))(t)
	}
	seen := map[string]bool{}
	for s, err := range c.Suppressions.All(ctx, client.SuppressionsListParams{}) {
		if err != nil {
			t.Fatal(err)
		}
		seen[s.Email] = true
	}
	requests, _ := p.seen()
	if len(seen) != 255 || len(requests) != 3+3 {
		t.Errorf("%d suppressions were read with the requests %q", len(seen), requests)
	}
	read := 0
	for range c.Suppressions.All(ctx, client.SuppressionsListParams{Limit: 10}) {
		if read++; read == 15 {
			break
		}
	}
	if requests, _ = p.seen(); len(requests) != 6+2 {
		t.Errorf("15 items in pages of 10 were read with the requests %q", requests[6:])
	}
	for _, err := range c.Suppressions.All(ctx, client.SuppressionsListParams{Before: "x"}) {
		if err == nil {
			t.Error("an iterator accepts Before")
		}
	}
	for _, err := range c.Suppressions.All(ctx, client.SuppressionsListParams{Origin: "x"}) {
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Status != 422 || e.Field != "origin" {
			t.Errorf("an unknown origin: %v", err)
		}
	}
}

func TestImport(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, _ *testNode, c *client.Client) {
		ctx := t.Context()
		segment := try(c.Segments.Create(ctx, client.CreateSegment{Name: "Customers"}))(t)
		made := try(c.Contacts.CreateImport(ctx, client.CreateImport{
			File: strings.NewReader("Email,Plan\nada@example.org,pro\nnobody,pro\n"), FileName: "people.csv",
			ColumnMap: map[string]any{"email": "Email", "properties": map[string]any{"plan": "Plan"}},
			Segments:  []map[string]string{{"id": segment.ID}},
		}, client.WithIdempotencyKey("people")))(t)
		states := collect(t, c.Contacts.WatchImport(ctx, made.ID))
		if len(states) == 0 {
			t.Fatal("the import has no states")
		}
		last := states[len(states)-1]
		if last.Status != "completed" || last.Counts.Created != 1 || last.Counts.Failed != 1 {
			t.Errorf("the import ended as %+v", last)
		}
		failures := try(c.Contacts.ImportFailures(ctx, made.ID, client.ContactsImportFailuresParams{}))(t)
		defer failures.Close()
		if text := string(try(io.ReadAll(failures))(t)); !strings.Contains(text, "nobody,pro") {
			t.Errorf("the failures are %s", text)
		}
		in := collect(t, c.Segments.AllContacts(ctx, segment.ID, client.Page{}))
		if len(in) != 1 || in[0].Email != "ada@example.org" {
			t.Errorf("the segment has %+v", in)
		}
		all := try(c.Contacts.ExportContact(ctx, "ada@example.org"))(t)
		if all.Contact.Email != "ada@example.org" {
			t.Errorf("all data about the contact: %+v", all)
		}
	})
}

// firstWrite calls a function before the first write.
type firstWrite struct {
	http.ResponseWriter
	call func()
}

func (w *firstWrite) Write(b []byte) (int, error) {
	w.call()
	return w.ResponseWriter.Write(b)
}

func (w *firstWrite) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Listen continues after the connection broke, and yields each event once.
func TestListen(t *testing.T) {
	t.Parallel()
	n, direct := start(t, "sqlite", nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	opened := make(chan int, 10)
	cut := make(chan struct{})
	p := newProxy(t, n, func(i int, w http.ResponseWriter, r *http.Request, forward http.Handler) {
		inner, stop := context.WithCancel(r.Context())
		defer stop()
		if i == 1 {
			go func() {
				select {
				case <-cut:
					stop()
				case <-inner.Done():
				}
			}()
		}
		forward.ServeHTTP(&firstWrite{w, sync.OnceFunc(func() { opened <- i })}, r.WithContext(inner))
	})
	events := make(chan client.LiveEvent)
	ended := make(chan error, 1)
	go func() {
		for e, err := range n.client(t, p.URL).Webhooks.Listen(ctx, "contact.created") {
			if err != nil {
				ended <- err
				return
			}
			events <- e
		}
	}()
	next := func(want string) {
		t.Helper()
		for {
			select {
			case e := <-events:
				var payload struct {
					Data struct{ Email string }
				}
				if err := json.Unmarshal(e.Payload, &payload); err != nil || e.Type != "contact.created" || e.ID == "" ||
					payload.Data.Email != want {
					t.Fatalf("the event is %s %s, want %s", e.Type, e.Payload, want)
				}
				return
			case err := <-ended:
				t.Fatal(err)
			case i := <-opened:
				if i == 1 {
					try(direct.Contacts.Create(ctx, client.CreateContact{Email: want}))(t)
				}
			}
		}
	}
	next("ada@example.org")
	close(cut)
	try(direct.Contacts.Create(ctx, client.CreateContact{Email: "bob@example.org"}))(t)
	next("bob@example.org")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("after the context ended: %v", err)
	}
	refused := try(client.New(n.url, "re_unknown"))(t)
	for _, err := range refused.Webhooks.Listen(t.Context()) {
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Status != 401 {
			t.Errorf("with an unknown key: %v", err)
		}
	}
}

// Listen ends with an error if a further connection would fail for the same reason, and otherwise connects again.
func TestListenEnds(t *testing.T) {
	t.Parallel()
	n, _ := start(t, "sqlite", nil)
	for want, answer := range map[string]http.HandlerFunc{
		`names "https://mail.example.com/webhooks/listen"`: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://user:secret@mail.example.com"+r.URL.Path+"?token=secret", http.StatusPermanentRedirect)
		},
		"304: the server redirects": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) },
		"404: the response is not":  http.NotFound,
		"not a stream of events: check the URL": func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "<html>Welcome</html>")
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		p := newProxy(t, n, func(i int, w http.ResponseWriter, r *http.Request, _ http.Handler) {
			if i > 1 {
				cancel()
			}
			answer(w, r)
		})
		for _, err := range n.client(t, p.URL).Webhooks.Listen(ctx) {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("want %q: %v", want, err)
			}
		}
		cancel()
		if requests, _ := p.seen(); len(requests) != 1 {
			t.Errorf("want %q: the requests are %q", want, requests)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := newProxy(t, n, func(i int, w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		if i == 2 {
			cancel()
		}
		w.WriteHeader(http.StatusRequestTimeout)
	})
	for _, err := range n.client(t, p.URL).Webhooks.Listen(ctx) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("after the status 408: %v", err)
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	n, c := start(t, "sqlite", nil)
	ctx := t.Context()
	_, err := c.Topics.Create(ctx, client.CreateTopic{Name: "News", DefaultSubscription: "perhaps"})
	e, ok := errors.AsType[*client.Error](err)
	if !ok || e.Status != 422 || e.Name != "validation_error" || e.Field != "default_subscription" || e.RequestID == "" ||
		!strings.Contains(e.Error(), "POST /topics: 422: validation_error: ") {
		t.Errorf("a wrong field: %+v", err)
	}
	if _, err := c.Domains.Get(ctx, ""); err == nil || !strings.Contains(err.Error(), "domain_id") {
		t.Errorf("an empty ID: %v", err)
	}
	if _, err := c.Contacts.Delete(ctx, ".."); err == nil {
		t.Error("the path can be left with dots")
	}
	if _, err := c.Contacts.Get(ctx, "a/b?c#d@example.org"); !client.IsNotFound(err) {
		t.Errorf("an address with special characters: %v", err)
	}
	unknown := try(client.New(n.url, "re_unknown"))(t)
	if _, err := unknown.Team.Get(ctx); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("an unknown key: %v", err)
	}
	page := httptest.NewServer(http.NotFoundHandler())
	defer page.Close()
	if _, err := n.client(t, page.URL).Team.Get(ctx); err == nil || !strings.Contains(err.Error(), "not from the API") {
		t.Errorf("another server: %v", err)
	}
	for _, bad := range []struct{ url, key string }{{"", "k"}, {"mail.example.com", "k"}, {"ftp://a", "k"},
		{"http://a?b=c", "k"}, {"http://u:p@a", "k"}, {"http://a", ""}, {"http://a", "a b"}} {
		if _, err := client.New(bad.url, bad.key); err == nil {
			t.Errorf("the URL %q with the key %q is accepted", bad.url, bad.key)
		}
	}
}

// Each client names itself, and follows no redirect to another host with its key.
func TestHeaders(t *testing.T) {
	t.Parallel()
	n, _ := start(t, "sqlite", nil)
	other := newProxy(t, n, func(_ int, w http.ResponseWriter, r *http.Request, forward http.Handler) {
		forward.ServeHTTP(w, r)
	})
	p := newProxy(t, n, func(i int, w http.ResponseWriter, r *http.Request, forward http.Handler) {
		if i == 2 {
			http.Redirect(w, r, other.URL+r.URL.Path, http.StatusFound)
			return
		}
		forward.ServeHTTP(w, r)
	})
	c := n.client(t, p.URL, client.WithUserAgent("billing/1.4"))
	try(c.Team.Get(t.Context()))(t)
	_, headers := p.seen()
	if got := headers[0].Get("User-Agent"); !strings.HasPrefix(got, "billing/1.4 postrider-go/") {
		t.Errorf("the User-Agent is %q", got)
	}
	if _, err := c.Team.Get(t.Context()); err == nil || !strings.Contains(err.Error(), "302") {
		t.Errorf("a redirect: %v", err)
	}
	if requests, _ := other.seen(); len(requests) > 0 {
		t.Errorf("the redirect was followed: %q", requests)
	}
}

func TestTime(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`"2026-04-08 00:11:13.110779+00"`: `"2026-04-08T00:11:13.110779Z"`,
		`"2026-04-08T00:11:13.110Z"`: `"2026-04-08T00:11:13.11Z"`, `null`: `null`, `""`: `null`} {
		var at client.Time
		if err := json.Unmarshal([]byte(text), &at); err != nil {
			t.Error(err)
		}
		if got := string(try(json.Marshal(at))(t)); got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
	var at client.Time
	if json.Unmarshal([]byte(`"yesterday"`), &at) == nil || json.Unmarshal([]byte(`7`), &at) == nil {
		t.Error("a wrong time is accepted")
	}
}

func TestField(t *testing.T) {
	t.Parallel()
	type change struct {
		A client.Field[string]   `json:"a,omitzero"`
		B client.Field[[]string] `json:"b,omitzero"`
	}
	for want, in := range map[string]change{`{}`: {}, `{"a":""}`: {A: client.Set("")},
		`{"a":null}`: {A: client.Null[string]()}, `{"b":[]}`: {B: client.Set[[]string](nil)}} {
		if got := string(try(json.Marshal(in))(t)); got != want {
			t.Errorf("%+v becomes %s, want %s", in, got, want)
		}
	}
	if v, ok := client.Set("x").Value(); v != "x" || !ok {
		t.Error("Set has no value")
	}
	if _, ok := client.Null[string]().Value(); ok {
		t.Error("Null has a value")
	}
	if !slices.Equal([]bool{client.Set(0).IsZero(), client.Null[int]().IsZero(), client.Field[int]{}.IsZero()},
		[]bool{false, false, true}) {
		t.Error("IsZero is wrong")
	}
}
