package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/outbound/privacy"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// broadcast calls all broadcast operations.
func (d *driver) broadcast() {
	d.t.Helper()
	ctx := d.t.Context()
	segment := d.do("POST", "/segments", `{"name":"Readers"}`)
	topic := d.do("POST", "/topics", `{"name":"Offers","default_subscription":"opt_in"}`)
	for i := range 5 {
		d.do("POST", "/contacts", fmt.Sprintf(`{"email":"bulk%d@one.example","segments":[%q],"properties":{"plan":"x"}}`, i,
			segment))
	}
	draft := func(more string) string {
		return d.do("POST", "/broadcasts", fmt.Sprintf(`{"from":"a@acme.example","subject":"s","segment_id":%q,
			"html":"<p>{{{plan}}}</p>"%s}`, segment, more))
	}
	id := draft(``)
	d.do("PATCH", "/broadcasts/"+id, fmt.Sprintf(`{"topic_id":%q,"text":"t","variants":[{},{"subject":"b"}]}`, topic))
	d.do("PATCH", "/broadcasts/"+id, `{"variants":null}`)
	d.do("POST", "/broadcasts/"+id+"/audience", "")
	d.do("POST", "/broadcasts/"+id+"/test", `{"to":"b@one.example","contact":"bulk1@one.example"}`)
	d.do("POST", "/broadcasts/"+id+"/send", `{"scheduled_at":"in 1 hour"}`)
	d.do("POST", "/broadcasts/"+id+"/cancel", "")
	d.do("POST", "/broadcasts/"+id+"/send", "")
	d.sent(id, "sent")
	d.do("DELETE", "/broadcasts/"+d.do("POST", "/broadcasts/"+id+"/duplicate", ""), "")
	d.happened(ctx, id)
	for _, kind := range []string{"sent", "delivered", "opened", "clicked", "bounced", "complained", "unsubscribed",
		"suppressed", "left_out", "failed", "canceled", "waiting"} {
		d.do("GET", "/broadcasts/"+id+"/recipients?limit=1&type="+kind, "")
	}
	d.do("GET", "/broadcasts/"+id+"/recipients?type=bounced&bounce_type=permanent&email=bulk1@one.example", "")
	d.do("GET", "/broadcasts/"+id+"/clicked-links?limit=1", "")
	d.do("GET", "/broadcasts/"+id+"/results", "")
	d.pages("/broadcasts")

	// The test sends three broadcasts: a paced broadcast that is paused and resumed, a canceled broadcast, and a
	// broadcast with an A/B test.
	slow := draft(`,"pace":60,"send":true`)
	d.do("POST", "/broadcasts/"+slow+"/pause", "")
	d.do("POST", "/broadcasts/"+slow+"/resume", "")
	eventually(d.t, "the slow one has begun", func() bool {
		return d.count(`SELECT COUNT(*) FROM broadcasts WHERE entered > 0 AND status = 'queued'`) > 0
	})
	d.do("POST", "/broadcasts/"+slow+"/cancel", "")
	tested := draft(`,"variants":[{},{"subject":"b"}],"ab_test":{"share":50,"metric":"manual"},"send":true`)
	eventually(d.t, "the test is sent", func() bool {
		return d.count(`SELECT COUNT(*) FROM broadcasts WHERE phase = 'wait'`) > 0
	})
	d.loseDomain(tested)
	d.do("POST", "/broadcasts/"+tested+"/winner", `{"variant":1}`)
	d.sent(tested, "sent")
	d.do("GET", "/broadcasts/"+tested+"/results", "")
	d.do("DELETE", "/segments/"+segment, "")
}

// loseDomain disables the sender's domain of a broadcast that is being sent, and verifies the domain again when an
// email is withheld.
func (d *driver) loseDomain(broadcastID string) {
	d.t.Helper()
	var domainID string
	if err := d.look.QueryRow(d.t.Context(), `SELECT id FROM domains WHERE name = 'acme.example' AND team_id = $1`,
		db.ID(d.team)).Scan((*db.ID)(&domainID)); err != nil {
		d.t.Fatal(err)
	}
	is := func(emailID, state string) {
		d.t.Helper()
		number := map[string]string{"delivery_delayed": "4", "delivered": "5"}[state]
		eventually(d.t, "the email is "+state, func() bool {
			return d.count(`SELECT COUNT(*) FROM emails WHERE last_event = `+number+` AND id = $1`, db.ID(emailID)) > 0
		})
	}
	scheduled := d.do("POST", "/emails", `{"from":"a@acme.example","to":"late@one.example","subject":"s","text":"t",
		"scheduled_at":"`+time.Now().Add(3*time.Second).Format(time.RFC3339Nano)+`"}`)
	d.do("PATCH", "/domains/"+domainID, `{"capabilities":{"sending":"disabled","receiving":"enabled"}}`)
	d.sent(broadcastID, "paused")
	is(scheduled, "delivery_delayed")
	d.do("PATCH", "/domains/"+domainID, `{"capabilities":{"sending":"enabled"}}`)
	d.do("POST", "/domains/"+domainID+"/verify", "")
	d.sent(broadcastID, "queued")
	is(scheduled, "delivered")
}

// sent waits until a broadcast has the given status.
func (d *driver) sent(broadcastID, status string) {
	d.t.Helper()
	eventually(d.t, "the broadcast is "+status, func() bool {
		return d.count(`SELECT COUNT(*) FROM broadcasts WHERE id = $1 AND status = $2`,
			db.ID(broadcastID), status) > 0
	})
}

// happened records every kind of event for a broadcast email.
func (d *driver) happened(ctx context.Context, broadcastID string) {
	d.t.Helper()
	var emailID, address string
	if err := d.look.QueryRow(ctx, `SELECT email_id, address FROM broadcast_recipients WHERE broadcast_id = $1
		AND email_id IS NOT NULL LIMIT 1`, db.ID(broadcastID)).Scan((*db.ID)(&emailID), &address); err != nil {
		d.t.Fatal(err)
	}
	if err := d.DB.Update(ctx, func(tx *db.Tx) error {
		return d.Broadcasts.Recorded(ctx, tx, []events.Event{{TeamID: d.team, EmailID: emailID, BroadcastID: broadcastID,
			Type: events.EmailClicked, Recipient: address, Data: &events.Click{Link: "https://acme.example/"}},
			{TeamID: d.team, EmailID: emailID, BroadcastID: broadcastID, Type: events.EmailComplained,
				Recipient: address, Data: &events.Complaint{}}})
	}); err != nil {
		d.t.Fatal(err)
	}
	eventually(d.t, "the guard has looked", func() bool {
		return d.count(`SELECT COUNT(*) FROM jobs WHERE kind = 'broadcast.guard'`) == 0
	})
	_, stored := d.ask(d.key, http.MethodGet, "/contacts/"+address+"/export", "")
	var document privacy.Document
	if err := json.Unmarshal([]byte(stored), &document); err != nil || len(document.Broadcasts) != 1 ||
		document.Broadcasts[0].BroadcastID != broadcastID || document.Broadcasts[0].Clicks != 1 {
		d.t.Errorf("what is stored about %s: %s", address, stored)
	}
	link := contacts.Link{TeamID: d.team, EmailID: emailID, Address: address}
	if _, _, err := d.Contacts.Unsubscribe(ctx, link); err != nil {
		d.t.Fatal(err)
	}
}
