package emails_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/emails"
)

// field returns all values of a header field in a message.
func field(text, name string) (all []string) {
	for _, f := range mailparse.Parse([]byte(text)).Header {
		if strings.EqualFold(f.Name, name) {
			all = append(all, strings.TrimSpace(f.Value))
		}
	}
	return all
}

// link returns the URL in a message's List-Unsubscribe field, and the decoded token in that URL.
func (w *topical) link(text string) (string, contacts.Link) {
	w.t.Helper()
	all := field(text, "List-Unsubscribe")
	if len(all) != 1 {
		w.t.Fatalf("%d fields List-Unsubscribe: %s", len(all), text)
	}
	url := strings.Trim(all[0], "<>")
	token, ok := strings.CutPrefix(url, "https://postrider.test/unsubscribe/")
	if !ok {
		w.t.Fatalf("the link is %s", url)
	}
	l, err := w.Contacts.ReadToken(token)
	if err != nil {
		w.t.Fatal(err)
	}
	return url, l
}

// Each message of an email with a topic contains its only recipient's unsubscribe link. The link is both in the header
// and in place of the placeholders in the bodies.
func TestMessageSaysHowToLeave(t *testing.T) {
	t.Parallel()
	eachTopical(t, func(t *testing.T, w *topical) {
		e := about(w.news, "Ann@x.example", "bob@x.example")
		e.HTML = new(`<a href="{{{POSTRIDER_UNSUBSCRIBE_URL}}}">1</a><a href="{{{ RESEND_UNSUBSCRIBE_URL|none }}}">2</a>` +
			`<a href="{{UNSUBSCRIBE_URL}}">3</a> {{{UNSUBSCRIBE_URLS}}} {{{NAME}}}`)
		e.Text = new("Leave: {{{UNSUBSCRIBE_URL}}}")
		e.Bcc = []string{"bcc@y.example"}
		emailID := w.Send(e)
		all := w.composed(emailID)
		if len(all) != 3 {
			t.Fatalf("%d messages", len(all))
		}
		for to, text := range all {
			url, l := w.link(text)
			if want := (contacts.Link{TeamID: w.Acme.TeamID, EmailID: emailID, TopicID: w.news.ID,
				Address: strings.ToLower(to)}); l != want {
				t.Errorf("the link of %s carries %+v", to, l)
			}
			if got := field(text, "List-Unsubscribe-Post"); !slices.Equal(got, []string{"List-Unsubscribe=One-Click"}) {
				t.Errorf("List-Unsubscribe-Post: %q", got)
			}
			if got := field(text, "List-Id"); !slices.Equal(got, []string{`"Acme" <` + w.news.ID + ".acme.example>"}) {
				t.Errorf("List-Id: %q", got)
			}
			p := mailparse.Parse([]byte(text))
			want := `<a href="` + url + `">1</a><a href="` + url + `">2</a><a href="` + url +
				`">3</a> {{{UNSUBSCRIBE_URLS}}} {{{NAME}}}`
			if got := strings.TrimSpace(p.HTML()); got != want {
				t.Errorf("the HTML is %s", got)
			}
			if got := strings.TrimSpace(p.Text()); got != "Leave: "+url {
				t.Errorf("the text is %s", got)
			}
		}
		shown, err := w.Emails.Get(t.Context(), w.Acme.TeamID, emailID)
		if err != nil || *shown.HTML != *e.HTML {
			t.Errorf("what is shown is %s, %v", *shown.HTML, err)
		}
	})
}

// Unsubscribe fields specified by the sender are kept, and no conflicting fields are added. Emails without a topic get
// no unsubscribe fields.
func TestSendersFieldsStay(t *testing.T) {
	t.Parallel()
	eachTopical(t, func(t *testing.T, w *topical) {
		own := about(w.news, "a@x.example")
		own.Headers = []message.Field{{Name: "list-unsubscribe", Value: "<mailto:leave@acme.example>"},
			{Name: "List-ID", Value: "<news.acme.example>"}}
		plain := testnode.Hello("a@x.example")
		plain.Text = new("{{{UNSUBSCRIBE_URL}}}")
		post := about(w.news, "a@x.example")
		post.Headers = []message.Field{{Name: "List-Unsubscribe-Post", Value: "List-Unsubscribe=One-Click"}}
		for _, c := range []struct {
			name           string
			e              emails.Send
			leave, listID  []string // how the List-Unsubscribe values should begin; the expected List-Id values
			post, textSays string
		}{
			{"its own", own, []string{"<mailto:leave@acme.example>"}, []string{"<news.acme.example>"}, "", "Hello."},
			{"without a topic", plain, nil, nil, "", "{{{UNSUBSCRIBE_URL}}}"},
			{"half of it", post, []string{"<https://postrider.test/unsubscribe/"},
				[]string{`"Acme" <` + w.news.ID + ".acme.example>"}, "List-Unsubscribe=One-Click", "Hello."},
		} {
			for _, text := range w.composed(w.Send(c.e)) {
				if got := field(text, "List-Unsubscribe"); !slices.EqualFunc(got, c.leave, strings.HasPrefix) {
					t.Errorf("%s: List-Unsubscribe %q", c.name, got)
				}
				if got := strings.Join(field(text, "List-Unsubscribe-Post"), " "); got != c.post {
					t.Errorf("%s: List-Unsubscribe-Post %q", c.name, got)
				}
				if got := field(text, "List-Id"); !slices.Equal(got, c.listID) {
					t.Errorf("%s: List-Id %q", c.name, got)
				}
				p := mailparse.Parse([]byte(text))
				if got := strings.TrimSpace(p.Text()); got != c.textSays {
					t.Errorf("%s: the text is %q", c.name, got)
				}
			}
		}
	})
}

// The unsubscribe fields are prepended to a raw message. The other bytes of the message stay unchanged, whether the
// message is small or large.
func TestComposedMessageSaysHowToLeave(t *testing.T) {
	t.Parallel()
	eachTopical(t, func(t *testing.T, w *topical) {
		const from = "From: hello@acme.example\r\n"
		for name, c := range map[string]struct {
			header, body string
			adds         bool
		}{
			"small": {"Subject: x\r\n", "\r\nList-Unsubscribe: {{{UNSUBSCRIBE_URL}}}\r\n", true},
			"large": {"Subject: x\r\n", "\r\n" + strings.Repeat("x\r\n", 40<<10), true},
			"with fields of its own": {"LIST-UNSUBSCRIBE:\r\n <mailto:x@y.example>\r\nlist-id: <z>\r\n", "\r\nx\r\n",
				false},
			"with a field that folds": {"Subject: x\r\n list-unsubscribe: x\r\n", "\r\nx\r\n", true},
		} {
			in := emails.Raw{Send: about(w.news), Header: []byte(from + c.header), Body: []byte(c.body), Trace: "by mx.test"}
			in.Text = nil
			for _, to := range []string{"a@x.example", "b@x.example"} {
				a, err := message.ParseAddress(to)
				if err != nil {
					t.Fatal(err)
				}
				in.Recipients = append(in.Recipients, a)
			}
			emailID, err := w.Emails.SendRaw(t.Context(), w.Acme, in, emails.Idempotency{})
			if err != nil {
				t.Fatal(err)
			}
			all := w.composed(emailID)
			if len(all) != 2 {
				t.Errorf("%s: %d messages", name, len(all))
			}
			for to, text := range all {
				if !strings.HasSuffix(text, from+c.header+c.body) {
					t.Errorf("%s: the message is changed", name)
				}
				if !c.adds {
					if !strings.HasPrefix(text, "Received: ") {
						t.Errorf("%s: fields are added: %.300s", name, text)
					}
					continue
				}
				if _, l := w.link(text); l.Address != to || l.TopicID != w.news.ID {
					t.Errorf("%s: the link carries %+v", name, l)
				}
				if len(field(text, "List-Id")) != 1 || len(field(text, "List-Unsubscribe-Post")) != 1 {
					t.Errorf("%s: %.500s", name, text)
				}
			}
		}
	})
}

// Like other emails, those with shared content respect subscriptions and contain the unsubscribe links in place of the
// placeholders.
func TestSharedContentSaysHowToLeave(t *testing.T) {
	t.Parallel()
	eachTopical(t, func(t *testing.T, w *topical) {
		ctx := t.Context()
		c := content.Content{TeamID: w.Acme.TeamID, From: "hello@acme.example", Subject: "Hi {{{NAME}}}",
			Text: new("Hello {{{NAME}}}, leave: {{{RESEND_UNSUBSCRIBE_URL}}}")}
		w.Update(func(tx *db.Tx) error { return w.Contents.Add(ctx, tx, &c) })
		w.leave(w.news, "out@x.example")
		w.seen.Take()
		m, err := w.Emails.Mailing(ctx, w.Acme, c.ID, false)
		if err != nil {
			t.Fatal(err)
		}
		m.TopicID = w.news.ID
		var entered []emails.EnqueueResult
		w.Update(func(tx *db.Tx) (err error) {
			entered, err = w.Emails.Enqueue(ctx, tx, m, []emails.MailingRecipient{{Address: "ann@x.example",
				Values: map[string]string{"NAME": "Ann"}}, {Address: "out@x.example"}, {Address: "bob@x.example"}})
			return err
		})
		for i, want := range []string{"queued ann:queued", "failed out:failed", "queued bob:queued"} {
			if got := w.states(entered[i].ID); got != want {
				t.Errorf("%s, not %s", got, want)
			}
		}
		if got := w.failed(); !slices.Equal(got, []string{"out topic_opted_out"}) {
			t.Errorf("%q", got)
		}
		for _, i := range []int{0, 2} {
			for to, text := range w.composed(entered[i].ID) {
				url, l := w.link(text)
				p := mailparse.Parse([]byte(text))
				if got := p.Text(); l.Address != to || !strings.HasSuffix(strings.TrimSpace(got), "leave: "+url) {
					t.Errorf("%+v %s", l, got)
				}
			}
		}
		m.TopicID = id.New()
		err = w.DB.Update(ctx, func(tx *db.Tx) error {
			_, err := w.Emails.Enqueue(ctx, tx, m, []emails.MailingRecipient{{Address: "a@x.example"}})
			return err
		})
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("an unknown topic: %v", err)
		}
	})
}

// Unsubscribe links are never tracked, whether or not the sender specifies a List-Unsubscribe field, and with or
// without shared content. Other links are tracked separately for each recipient.
func TestUnsubscribeLinksAreNotTracked(t *testing.T) {
	t.Parallel()
	eachTopical(t, func(t *testing.T, w *topical) {
		ctx := t.Context()
		tracking(w.Node, true, true)
		const body = `<a href="https://shop.example/">shop</a> <a href="{{{UNSUBSCRIBE_URL}}}?lang=de#x">leave</a>`
		const from = "news@" + trackedDomain
		check := func(name, emailID string, want int) {
			t.Helper()
			all := deliveries(t, w.Node, emailID)
			if len(all) != want {
				t.Errorf("%s: %d jobs", name, len(all))
			}
			shop := map[string]bool{}
			for _, d := range all {
				to, html, _ := delivered(t, w.Node, d)
				if len(to) != 1 || strings.Count(html, `href="https://postrider.test/unsubscribe/`) != 1 ||
					strings.Count(html, "/c/") != 1 || strings.Count(html, "/o/") != 1 {
					t.Errorf("%s: %q get %s", name, to, html)
				}
				link, _, _ := strings.Cut(html, ">")
				shop[link] = true
			}
			if len(shop) != want {
				t.Errorf("%s: the tracked links of %d recipients are %v", name, want, shop)
			}
		}
		e := about(w.news, "a@x.example", "b@x.example")
		e.From, e.HTML = from, new(body)
		check("a body of its own", w.Send(e), 2)
		e.Headers = []message.Field{{Name: "List-Unsubscribe", Value: "<https://acme.example/leave>"}}
		check("a field of its own", w.Send(e), 2)

		c := content.Content{TeamID: w.Acme.TeamID, From: from, Subject: "Hi", HTML: new(body)}
		w.Update(func(tx *db.Tx) error { return w.Contents.Add(ctx, tx, &c) })
		m, err := w.Emails.Mailing(ctx, w.Acme, c.ID, false)
		if err != nil {
			t.Fatal(err)
		}
		m.TopicID = w.news.ID
		var entered []emails.EnqueueResult
		w.Update(func(tx *db.Tx) (err error) {
			entered, err = w.Emails.Enqueue(ctx, tx, m, []emails.MailingRecipient{{Address: "a@x.example"}})
			return err
		})
		check("a shared body", entered[0].ID, 1)
	})
}
