package broadcasts_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
)

// An A/B test sends its variants to a share of the audience. The variant that most people opened is then sent to the
// remaining audience. Contacts that are held out receive no email, and the reason is stored in a row.
func TestWinnerGoesToTheRest(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		const n = 900
		s.readers(n)
		draft := s.tracked(30)
		draft.Variants = []broadcasts.Variant{{}, {Subject: new("B"), HTML: new("<p>B</p>")}, {Subject: new("C")}}
		draft.Options = broadcasts.Options{TestShare: 30, Metric: broadcasts.ByOpens, Wait: 60, HoldOut: 10}
		id := s.draft(draft)
		s.send(id)
		s.Run(s.b.Kinds()...)
		waits := func() bool { return s.Count(`SELECT COUNT(*) FROM broadcasts WHERE phase = 'wait'`) == 1 }
		testnode.Until(t, "the test is sent", waits)
		tested, held := int(s.broadcast(id).Entered), int(s.broadcast(id).LeftOut)
		if tested < n/6 || tested > n/2 || held < n/20 || held > n/5 {
			t.Fatalf("%d of %d are tested, %d held out", tested, n, held)
		}
		for variant := range 3 {
			if got := s.Count(`SELECT COUNT(*) FROM broadcast_recipients WHERE variant = $1 AND state = 1 /* waiting */`,
				variant); got < tested/6 {
				t.Errorf("%d of %d got the variant %d", got, tested, variant)
			}
		}
		won := s.Count(`SELECT COUNT(*) FROM broadcast_recipients WHERE variant = 1`)
		for some := range slices.Chunk(s.emailsOf(id), 50) {
			var all []events.Event
			for _, emailID := range some {
				all = append(all, s.event(id, emailID, events.EmailDelivered))
			}
			s.Happen(all...)
		}
		// In this test, people open variant B, and bots open variant C.
		open := func(variant int, machine bool, most int) {
			var all []events.Event
			for _, emailID := range s.emailsOf(id) {
				if s.Count(`SELECT COUNT(*) FROM broadcast_recipients WHERE email_id = $1 AND variant = $2`, db.ID(emailID),
					variant) == 1 && len(all) < most {
					all = append(all, events.Event{TeamID: s.Acme.TeamID, EmailID: emailID, BroadcastID: id,
						Type: events.EmailOpened, Data: &events.Open{Machine: events.Machine{Is: machine}}})
				}
			}
			s.Happen(all...)
		}
		open(0, false, 1)
		open(1, false, 8)
		open(2, true, 20)
		s.Update(func(tx *db.Tx) error { // simulate the passing of the hour
			_, err := tx.Exec(t.Context(), `UPDATE broadcasts SET next_at = $1`, tx.Now().Add(-time.Minute).UnixMicro())
			if err == nil {
				_, err = s.Queue.Move(t.Context(), tx, broadcasts.Kind, s.Acme.TeamID, s.Acme.TeamID, id, tx.Now())
			}
			return err
		})
		s.walked(id, n-held)
		if b := s.broadcast(id); b.Winner != 1 || b.LeftOut != int64(held) {
			t.Errorf("the winner is %d, %d are left out", b.Winner, b.LeftOut)
		}
		s.mustCount(n-held-tested+won, `SELECT COUNT(*) FROM broadcast_recipients WHERE variant = 1`)
		s.mustCount(n-held, `SELECT COUNT(DISTINCT recipient) FROM emails`)
		s.mustCount(n, `SELECT COUNT(*) FROM broadcast_recipients`)
		s.mustCount(held, `SELECT COUNT(*) FROM broadcast_recipients WHERE reason = 'hold_out'`)
		r, err := s.b.Results(t.Context(), s.Acme.TeamID, id)
		s.Must(err)
		if len(r.Variants) != 3 || r.Variants[1].Opened != 8 || r.Variants[2].Opened != 0 || r.Opened != 9 {
			t.Errorf("results %+v", r.Variants)
		}
		if _, ok := r.Broadcast.WinnerSignificant(); !ok {
			t.Error("it is not known whether the winner is significant")
		}
	})
}

// If the winning variant is chosen by hand, while the test is being sent or afterwards, it is sent to the remaining
// audience.
func TestWinnerByHand(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		const n = 200
		s.readers(n)
		id := s.twoVariants(20)
		s.send(id)
		s.Run(s.b.Kinds()...)
		testnode.Until(t, "the test is sent and nothing waits", func() bool {
			return s.Count(`SELECT COUNT(*) FROM broadcasts WHERE phase = 'wait'`) == 1 &&
				s.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'broadcast'`) == 0
		})
		if err := s.b.SetWinner(t.Context(), s.Acme.TeamID, id, 2); fault.KindOf(err) != fault.Invalid {
			t.Errorf("a variant that there is not: %v", err)
		}
		s.Must(s.b.SetWinner(t.Context(), s.Acme.TeamID, id, 1))
		s.walked(id, n)
		if err := s.b.SetWinner(t.Context(), s.Acme.TeamID, id, 0); fault.KindOf(err) != fault.Invalid {
			t.Errorf("another winner: %v", err)
		}
		s.mustCount(n, `SELECT COUNT(DISTINCT recipient) FROM emails`)
	})
}

// The unsubscribe link in a broadcast without a topic unsubscribes the contact. The recipient and the timeline show
// that the contact unsubscribed. The next broadcast leaves out the unsubscribed contact, even if the contact's address
// has changed. The message has the List-Unsubscribe header fields.
func TestLeavingABroadcast(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		id := s.entered(3)
		emailID := s.emailsOf(id)[1]
		to := s.Email(emailID).To[0]
		o, err := s.Emails.Outgoing(t.Context(), emails.Delivery{TeamID: s.Acme.TeamID,
			EmailID: emailID, Domain: "reader.example",
			To: []string{to}, First: true})
		s.Must(err)
		composed, err := s.Emails.Compose(t.Context(), o)
		s.Must(err)
		reader, err := s.Contacts.Get(t.Context(), s.Acme.TeamID, to)
		s.Must(err)
		link := testnode.PublicURL + "/unsubscribe/" + s.Contacts.Token(contacts.Link{TeamID: s.Acme.TeamID,
			EmailID: emailID, ContactID: reader.ID, Address: to})
		text := strings.ReplaceAll(string(composed), "\r\n ", "")
		for _, want := range []string{"List-Unsubscribe: <" + link + ">", "List-Unsubscribe-Post: List-Unsubscribe=One-Click",
			"List-Id: \"Acme\" <" + s.Acme.TeamID + "." + testnode.Domain + ">"} {
			if !strings.Contains(strings.ReplaceAll(text, ": \r\n", ": "), want) {
				t.Errorf("the message lacks %s:\n%.1500s", want, text)
			}
		}
		l, err := s.Contacts.ReadToken(strings.TrimPrefix(link, testnode.PublicURL+"/unsubscribe/"))
		s.Must(err)
		const later = "later@reader.example"
		_, err = s.Contacts.Update(t.Context(), s.Acme.TeamID, reader.ID, contacts.Change{Address: new(later)})
		s.Must(err)
		for range 2 { // unsubscribing a second time changes nothing
			_, _, err = s.Contacts.Unsubscribe(t.Context(), l)
			s.Must(err)
		}
		s.mustCount(1, `SELECT COUNT(*) FROM email_events WHERE email_id = $1 AND type = 13 /* unsubscribed */
			AND broadcast_id = $2 AND recipient = $3`, db.ID(emailID), db.ID(id), to)
		all, _, _, err := s.b.Recipients(t.Context(), s.Acme.TeamID, id, broadcasts.RecipientQuery{Type: "unsubscribed"},
			pageOf(10))
		s.Must(err)
		if len(all) != 1 || all[0].Address != to {
			t.Errorf("unsubscribed: %+v", all)
		}
		next := s.draft(s.news())
		a, err := s.b.Audience(t.Context(), s.Acme.TeamID, next)
		s.Must(err)
		if a.Contacts != 3 || a.Mailed != 2 || a.LeftOut["contact_unsubscribed"] != 1 {
			t.Errorf("the audience is %+v", a)
		}
		s.send(next)
		s.Run(s.b.Kinds()...)
		s.walked(next, 2)
		all, _, _, err = s.b.Recipients(t.Context(), s.Acme.TeamID, next, broadcasts.RecipientQuery{Type: "left_out"},
			pageOf(10))
		s.Must(err)
		if len(all) != 1 || all[0].Address != later || all[0].Reason != "contact_unsubscribed" || all[0].EmailID != "" {
			t.Errorf("left out: %+v", all)
		}
	})
}

// A contact that unsubscribes while an email to it is waiting does not receive that email.
func TestLeavingWhileItWaits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		id := s.entered(3)
		s.Must(s.b.Pause(t.Context(), s.Acme.TeamID, id))
		stop := s.runAll()
		s.held(3, id)
		leave := true
		_, _, err := s.Contacts.Upsert(t.Context(), s.Acme.TeamID, "r1@reader.example", contacts.Change{Unsubscribed: &leave})
		s.Must(err)
		s.Must(s.b.Resume(t.Context(), s.Acme, id))
		s.until(id, broadcasts.Sent)
		stop()
		s.mustCount(1, `SELECT COUNT(*) FROM broadcast_recipients WHERE state = 5 /* failed */
			AND reason = 'contact_unsubscribed'
			AND address = 'r1@reader.example'`)
		s.mustCount(2, `SELECT COUNT(*) FROM broadcast_recipients WHERE state = 3 /* delivered */`)
	})
}

// Clicks are counted per link and per recipient, and recipients are listed in pages.
func TestClickedLinks(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		id := s.entered(3)
		of := s.emailsOf(id)
		click := func(emailID, url string, machine bool) events.Event {
			return events.Event{TeamID: s.Acme.TeamID, EmailID: emailID, BroadcastID: id, Type: events.EmailClicked,
				Data: &events.Click{Link: url, Machine: events.Machine{Is: machine}}}
		}
		long := "https://acme.example/" + strings.Repeat("x", 5000)
		s.Happen(click(of[0], "https://acme.example/a", false), click(of[0], "https://acme.example/a", false),
			click(of[0], long, false), click(of[1], "https://acme.example/a", true))
		s.Happen(click(of[0], "https://acme.example/a", false))
		all, more, err := s.b.Links(t.Context(), s.Acme.TeamID, id, pageOf(1))
		s.Must(err)
		if len(all) != 1 || !more || all[0].URL != "https://acme.example/a" || all[0].Clicks != 4 || all[0].Recipients != 2 {
			t.Fatalf("links %+v, more %v", all, more)
		}
		p := pageOf(1)
		p.After = all[0].Cursor()
		next, more, err := s.b.Links(t.Context(), s.Acme.TeamID, id, p)
		s.Must(err)
		if len(next) != 1 || more || next[0].URL != long || next[0].Clicks != 1 || next[0].Recipients != 1 {
			t.Errorf("the next links are %d, more %v", len(next), more)
		}
		p.After, p.Before = "", next[0].Cursor()
		if back, _, err := s.b.Links(t.Context(), s.Acme.TeamID, id, p); err != nil || len(back) != 1 ||
			back[0].URL != all[0].URL {
			t.Errorf("back: %d, %v", len(back), err)
		}
		clicked, _, _, err := s.b.Recipients(t.Context(), s.Acme.TeamID, id, broadcasts.RecipientQuery{Type: "clicked"},
			pageOf(10))
		s.Must(err)
		if len(clicked) != 2 {
			t.Fatalf("%d have clicked", len(clicked))
		}
		for _, r := range clicked {
			if r.EmailID == of[0] && (r.Clicks != 4 || len(r.Links) != 2 || r.Links[0].Clicks != 3) ||
				r.EmailID == of[1] && (r.Clicks != 1 || len(r.Links) != 1) {
				t.Errorf("%s: %d clicks on %d links", r.Address, r.Clicks, len(r.Links))
			}
		}
		r, err := s.b.Results(t.Context(), s.Acme.TeamID, id)
		s.Must(err)
		if r.Clicked != 1 {
			t.Errorf("%d people have clicked, want 1: the other is a machine", r.Clicked)
		}
	})
}

// SendTest sends a test email only to the given addresses, with placeholders replaced by fallbacks or a contact's
// values. Test emails are not part of the broadcast.
func TestTrial(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		to := s.readers(2)
		draft := s.news()
		draft.ReplyTo = []string{"help@" + testnode.Domain}
		id := s.draft(draft)
		ids, err := s.b.SendTest(t.Context(), s.Acme, id, broadcasts.TestSend{To: []string{"me@elsewhere.example"}})
		s.Must(err)
		if e := s.Email(ids[0]); e.Subject != "News for you" || len(e.ReplyTo) != 0 || e.BroadcastID != "" ||
			len(e.Tags) != 1 || e.Tags[0].Value != id {
			t.Errorf("the test is %+v", e)
		}
		ids, err = s.b.SendTest(t.Context(), s.Acme, id, broadcasts.TestSend{To: []string{"me@elsewhere.example"},
			Contact: to[1]})
		s.Must(err)
		if e := s.Email(ids[0]); e.Subject != "News for Reader 1" {
			t.Errorf("with a contact's values it is %q", e.Subject)
		}
		_, err = s.b.SendTest(t.Context(), s.Acme, id, broadcasts.TestSend{To: []string{"me@elsewhere.example", "nobody"}})
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("to nobody: %v", err)
		}
		s.mustCount(2, `SELECT COUNT(*) FROM emails`)
		s.mustCount(0, `SELECT COUNT(*) FROM broadcast_recipients`)
	})
}

// A placeholder's own fallback overrides the fallback of its contact property. The preview text is inserted as hidden
// text at the start of the body.
func TestPlaceholdersAndPreview(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		ctx := t.Context()
		_, err := s.Contacts.CreateProperty(ctx, s.Acme.TeamID, contacts.NewProperty{Name: "plan", Type: scalar.String,
			Fallback: scalar.OfText("free")})
		s.Must(err)
		s.join("ann@reader.example", "bob@reader.example")
		_, _, err = s.Contacts.Upsert(ctx, s.Acme.TeamID, "bob@reader.example", contacts.Change{
			Properties: map[string]scalar.Value{"plan": scalar.OfText("pro")}})
		s.Must(err)
		draft := s.news()
		draft.HTML = new("<html><head><title>x</title></head><body class=a><p>{{{plan}}}, {{{contact.plan|none}}}, " +
			"{{{LAST_NAME|-}}}{{{unknown|}}}, {{{EMAIL}}}</p></body></html>")
		draft.PreviewText = "For {{{FIRST_NAME|you}}} & others"
		id := s.draft(draft)
		s.send(id)
		s.Run(s.b.Kinds()...)
		s.walked(id, 2)
		for address, want := range map[string]string{"ann@reader.example": "free, none, -, ann@reader.example",
			"bob@reader.example": "pro, pro, -, bob@reader.example"} {
			var emailID string
			s.Must(s.DB.QueryRow(ctx, `SELECT email_id FROM broadcast_recipients WHERE address = $1`,
				address).Scan((*db.ID)(&emailID)))
			html := *s.Email(emailID).HTML
			if !strings.Contains(html, "<p>"+want+"</p>") ||
				!strings.Contains(html, "<body class=a><div style=\"display:none") ||
				!strings.Contains(html, " &amp; others") {
				t.Errorf("%s gets %s", address, html)
			}
		}
		if b := s.broadcast(id); strings.Contains(*b.HTML, "display:none") || b.PreviewText != draft.PreviewText {
			t.Errorf("what was written has become %s", *b.HTML)
		}
	})
}

// The Message-ID of a broadcast email is not stored, but is the same in the message and in lists of emails.
func TestMessageIDOfABroadcast(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		id := s.entered(2)
		for _, emailID := range s.emailsOf(id) {
			want := "<" + emailID + "@" + testnode.Domain + ">"
			o, err := s.Emails.Outgoing(t.Context(), emails.Delivery{TeamID: s.Acme.TeamID,
				EmailID: emailID, Domain: "reader.example",
				To: s.Email(emailID).To, First: true})
			s.Must(err)
			text, err := s.Emails.Compose(t.Context(), o)
			s.Must(err)
			unfolded := strings.ReplaceAll(string(text), "\r\n ", " ")
			if got := s.Email(emailID).MessageID; got != want ||
				!strings.Contains(strings.ReplaceAll(unfolded, "  ", " "), "Message-ID: "+want+"\r\n") {
				t.Errorf("it is %s, want %s, in\n%.900s", got, want, text)
			}
			r, err := s.Emails.BounceTarget(t.Context(), s.Ref(emailID))
			s.Must(err)
			if r.MessageID != want {
				t.Errorf("a report is of %s, want %s", r.MessageID, want)
			}
		}
		s.mustCount(2, `SELECT COUNT(*) FROM emails WHERE broadcast_id = $1 AND message_id = ''`, db.ID(id))
	})
}
