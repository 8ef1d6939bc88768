package webhooks_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

var update = flag.Bool("update", false, "write the payloads into testdata")

var uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)

// TestPayloads compares the payload of every event type with testdata/payloads.txt byte by byte. The test replaces ids
// and keys with names, and its clock does not advance.
func TestPayloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.SQLite(t), config(), noLoopback)
		domain, err := f.Domains.AddVerified(t.Context(), f.Acme.TeamID, domains.NewDomain{Name: "acme.example",
			Capabilities: domains.Capabilities{Receiving: new(true)}})
		must(t, err)
		email := f.send(t, "Ann <ann@example.net>", "bob@example.net")
		html := "<p>Later</p>"
		plain, err := f.Emails.Send(t.Context(), f.Acme, emails.Send{From: "hello@acme.example",
			To: []string{"ann@example.net"},
			Cc: []string{"carl@example.net"}, Subject: "Later", HTML: &html, ScheduledAt: "in 1 hour"}, emails.Idempotency{})
		must(t, err)
		e := f.endpoint(t, "https://hooks.example.org")
		f.happen(t, everything(domain, email, plain)...)

		var got strings.Builder
		delivered := map[events.Type]bool{}
		all := f.messages(t, e)
		slices.Reverse(all)
		for _, m := range all {
			delivered[m.Type] = true
			one, err := f.Message(t.Context(), f.Acme.TeamID, e.ID, m.ID)
			must(t, err)
			got.WriteString(one.Payload + "\n")
		}
		for _, k := range webhooks.Types() {
			if !delivered[k] {
				t.Errorf("no payload of %s", k)
			}
		}
		names := map[string]string{}
		text := uuids.ReplaceAllStringFunc(got.String(), func(id string) string {
			if names[id] == "" {
				names[id] = fmt.Sprintf("<id%d>", len(names)+1)
			}
			return names[id]
		})
		text = regexp.MustCompile(`p=[\w+/=]{40,}`).ReplaceAllString(text, "p=<key>")
		compare(t, "payloads.txt", text)
	})
}

func compare(t *testing.T, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if diff := gocmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s, -want +got; run with -update to accept it:\n%s", path, diff)
	}
}

// everything returns one event of each type.
func everything(domain domains.Domain, email, plain string) []events.Event {
	at := time.Date(2026, 10, 1, 9, 15, 2, 118_640_211, time.UTC)
	const to = "bob@example.net"
	one := func(k events.Type, recipient string, data any) events.Event {
		return events.Event{Type: k, At: at, EmailID: email, Recipient: recipient, Data: data}
	}
	contact := &events.Contact{ID: "0199d0a1-b2c3-7def-8123-456789abcdef",
		SegmentIDs: []string{"0199d0a1-b2c3-7def-8123-456789abcde0"},
		Email:      "rita@example.org", FirstName: "Rita", Unsubscribed: true, CreatedAt: at.Add(-time.Hour), UpdatedAt: at}
	suppression := suppressions.Suppression{ID: "0199d0a1-b2c3-7def-8123-456789abcde1", Address: "gone@example.org",
		Origin: suppressions.Bounce, SourceID: email, CreatedAt: at}
	byHand := suppression
	byHand.Origin, byHand.SourceID = suppressions.Manual, ""
	return []events.Event{
		{Type: events.EmailScheduled, At: at, EmailID: plain},
		one(events.EmailQueued, "", nil), // neither this event type nor EmailCanceled is sent to endpoints
		{Type: events.EmailCanceled, At: at, EmailID: plain},
		one(events.EmailSent, "", nil),
		one(events.EmailDelayed, to, nil),
		one(events.EmailDelivered, to, nil),
		one(events.EmailBounced, to, &events.Bounce{Type: "Permanent", SubType: "General",
			Message:        "The mailbox does not exist.",
			DiagnosticCode: []string{"smtp; 550 5.1.1 user unknown"}, Simulated: true}),
		one(events.EmailComplained, to, &events.Complaint{Simulated: true}),
		one(events.EmailOpened, to, nil),
		one(events.EmailClicked, to, &events.Click{IPAddress: "203.0.113.9", Link: "https://acme.example/?a=1&b=<2>",
			Timestamp: at, UserAgent: "Mozilla/5.0"}),
		one(events.EmailFailed, "", &events.Failed{Reason: "reached_daily_quota"}),
		one(events.EmailSuppressed, to, &events.Suppressed{Message: "The address is on the list.",
			Type: "OnAccountSuppressionList", Reason: "previous_bounce"}),
		{Type: events.EmailReceived, At: at, Data: &events.Received{ID: "0199d0a1-b2c3-7def-8123-456789abcde2", CreatedAt: at,
			From: "jo@sender.example",
			To:   []string{"support@in.acme.example"}, ReceivedFor: []string{"support@in.acme.example"},
			MessageID: "<abc@sender.example>", Subject: "Hi",
			Attachments: []events.ReceivedFile{{ID: "0199d0a1-b2c3-7def-8123-456789abcde3", Filename: "a.png",
				ContentType: "image/png", Disposition: "inline",
				ContentID: "img1"}, {ID: "0199d0a1-b2c3-7def-8123-456789abcde4", ContentType: "application/octet-stream"}}}},
		{Type: events.EmailReceived, At: at, Data: &events.Received{ID: "0199d0a1-b2c3-7def-8123-456789abcde5", CreatedAt: at,
			From: "jo@sender.example"}},
		{Type: events.ContactCreated, At: at, Data: &events.Contact{ID: contact.ID, Email: contact.Email, CreatedAt: at,
			UpdatedAt: at}},
		{Type: events.ContactUpdated, At: at, Data: contact},
		{Type: events.ContactDeleted, At: at, Data: contact},
		{Type: events.BroadcastPaused, At: at, Data: &events.Broadcast{ID: "0199d0a1-b2c3-7def-8123-456789abcde6",
			Name: "News", Reason: "too_many_bounces", Message: "Too many of its emails bounced.", CreatedAt: at}},
		{Type: events.DomainCreated, At: at, DomainID: domain.ID, Data: domain},
		{Type: events.DomainUpdated, At: at, DomainID: domain.ID, Data: domain},
		{Type: events.DomainDeleted, At: at, DomainID: domain.ID, Data: domain},
		{Type: events.SuppressionAdded, At: at, Data: suppression},
		{Type: events.SuppressionRemoved, At: at, Data: byHand},
	}
}

// If an event's subject no longer exists, the event is recorded without a message.
func TestNothingToTell(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t), config(), noLoopback)
	e := f.endpoint(t, "https://hooks.example.org")
	f.happen(t, events.Event{EmailID: "0199d0a1-b2c3-7def-8123-456789abcdef", Type: events.EmailOpened})
	if all := f.messages(t, e); len(all) != 0 {
		t.Errorf("told %+v", all)
	}
	timeline, _, err := f.Emails.Timeline(context.Background(), f.Acme.TeamID, "0199d0a1-b2c3-7def-8123-456789abcdef",
		page.Page{})
	if err != nil || len(timeline) != 1 {
		t.Errorf("timeline %+v, %v", timeline, err)
	}
}

// If one transaction both accepts an email and records an event about it, the message is complete.
func TestAcceptedEmail(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, config(), noLoopback)
		e := f.endpoint(t, "https://hooks.example.org")
		f.suppress(t, "ann@example.net")
		f.send(t, "ann@example.net", "bob@example.net")
		m, err := f.Message(t.Context(), f.Acme.TeamID, e.ID, f.messages(t, e)[0].ID)
		if err != nil || m.Type != events.EmailSuppressed ||
			!strings.Contains(m.Payload, `"to":["ann@example.net"],"subject":"Your order <&>","tags":{"kind":"receipt"},`+
				`"headers":[{"name":"X-Order","value":"77"}],"suppressed":{`) {
			t.Errorf("%+v, %v", m, err)
		}
	})
}

// Event types that are not in the API reference are sent only to endpoints that select them by name, and contain no
// text from the email.
func TestNamedEvents(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, config(), noLoopback)
		others := f.endpoint(t, "https://hooks.example.org/others")
		named, err := f.Create(t.Context(), f.Acme.TeamID, "https://hooks.example.org/named",
			[]string{"approval.requested", "approval.decided"})
		must(t, err)
		at := time.Date(2026, 10, 1, 9, 0, 0, 0, time.UTC)
		of := events.Approval{ID: "one", State: "pending", From: "hello@acme.example", Recipients: 2, Subject: "Hi",
			By:  "Notes",
			URL: "https://mail.example/app/approvals/one", CreatedAt: at, ExpiresAt: at.Add(72 * time.Hour)}
		decided := of
		decided.State, decided.EmailID = "approved", "two"
		f.happen(t, events.Event{TeamID: f.Acme.TeamID, Type: events.ApprovalRequested, Data: &of},
			events.Event{TeamID: f.Acme.TeamID, Type: events.ApprovalDecided, Data: &decided})
		if got := f.messages(t, others); len(got) != 0 {
			t.Errorf("an endpoint that does not name them has %d messages", len(got))
		}
		got := f.messages(t, named)
		if len(got) != 2 {
			t.Fatalf("%d messages", len(got))
		}
		m, err := f.Message(t.Context(), f.Acme.TeamID, named.ID, got[0].ID)
		must(t, err)
		_, data, _ := strings.Cut(m.Payload, `"data":`)
		const want = `{"id":"one","status":"approved","from":"hello@acme.example","recipients":2,"subject":"Hi",` +
			`"requested_by":"Notes","reason":null,"email_id":"two","url":"https://mail.example/app/approvals/one",` +
			`"created_at":"2026-10-01T09:00:00.000Z","expires_at":"2026-10-04T09:00:00.000Z"}}`
		if data != want {
			t.Errorf("the data is\n%s, want\n%s", data, want)
		}
	})
}

// The events about the MTA-STS policy of a domain reach only endpoints that select them by name.
func TestTransportEvents(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, config(), noLoopback)
		others := f.endpoint(t, "https://hooks.example.org/others")
		named, err := f.Create(t.Context(), f.Acme.TeamID, "https://hooks.example.org/named",
			[]string{"domain.transport_failed", "domain.transport_recovered"})
		must(t, err)
		at := time.Date(2026, 10, 1, 9, 0, 0, 0, time.UTC)
		of := events.Transport{DomainID: "one", Name: "acme.example", Mode: "enforce", Since: at,
			Problems: []events.TransportProblem{{Type: "record", Message: "The TXT record is missing."}}}
		over := of
		over.Problems = nil
		f.happen(t, events.Event{TeamID: f.Acme.TeamID, Type: events.DomainTransportFailed, Data: &of},
			events.Event{TeamID: f.Acme.TeamID, Type: events.DomainTransportRecovered, Data: &over})
		if got := f.messages(t, others); len(got) != 0 {
			t.Errorf("an endpoint that does not name them has %d messages", len(got))
		}
		got := f.messages(t, named)
		if len(got) != 2 {
			t.Fatalf("%d messages", len(got))
		}
		const begin = `{"id":"one","name":"acme.example","mode":"enforce","since":"2026-10-01T09:00:00.000Z","problems":[`
		for i, want := range []string{begin + `]}}`,
			begin + `{"type":"record","message":"The TXT record is missing."}]}}`} {
			m, err := f.Message(t.Context(), f.Acme.TeamID, named.ID, got[i].ID)
			must(t, err)
			if _, data, _ := strings.Cut(m.Payload, `"data":`); data != want {
				t.Errorf("the data is\n%s, want\n%s", data, want)
			}
		}
	})
}
