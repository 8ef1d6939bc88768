package links_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
)

const rita = "rita@example.org"

// The unsubscribe page states its language and labels each field. Scripts are neither needed nor allowed.
func TestUnsubscribePageIsPlain(t *testing.T) {
	t.Parallel()
	eachPages(t, func(t *testing.T, p *pages) {
		news := p.topic("<b>News</b> & \"more\"", contacts.OptIn, contacts.Public)
		p.topic("Offers", contacts.OptOut, contacts.Public)
		if err := p.Teams.Rename(t.Context(), p.team, "Acme <script>alert(1)</script>"); err != nil {
			t.Fatal(err)
		}
		token := p.token(news.ID)
		for accept, want := range map[string][2]string{
			"":                          {"en", "Emails from "},
			"de":                        {"de", "E-Mails von "},
			"de-AT,de;q=0.9,en;q=0.1":   {"de", "E-Mails von "},
			"fr-CA":                     {"fr", "E-mails de "},
			"es-MX, en;q=0.5":           {"es", "Correos de "},
			"tlh, ja;q=0.3":             {"en", "Emails from "},
			"de;q=broken":               {"en", "Emails from "},
			strings.Repeat("x-y,", 5e3): {"en", "Emails from "},
		} {
			for _, posted := range []bool{false, true} {
				a := p.request(http.MethodGet, token, "", "Accept-Language", accept)
				if posted {
					a = p.request(http.MethodPost, token, "save=1&all=1", "Accept-Language", accept)
				}
				if a.status != 200 {
					t.Fatalf("%s: %d %s", accept, a.status, a.text)
				}
				if lang, _ := attr(a.all("html")[0], "lang"); lang != want[0] || a.header.Get("Content-Language") != want[0] {
					t.Errorf("%.30s: the page says that it is in %s", accept, lang)
				}
				if !posted && a.heading() != want[1]+"Acme <script>alert(1)</script>" {
					t.Errorf("%.30s: the heading is %q", accept, a.heading())
				}
				if textOf(a.all("title")[0]) != a.heading() {
					t.Errorf("the title is %q", textOf(a.all("title")[0]))
				}
				if strings.Contains(a.text, "%!") || strings.Contains(a.text, "%s") {
					t.Errorf("a text lacks its value: %s", a.text)
				}
				if n := len(a.all("script")) + len(a.all("b")) + len(a.all("img")) + len(a.all("link")); n > 0 {
					t.Errorf("%d elements that do not belong there: %s", n, a.text)
				}
				style := a.all("style")
				sum := sha256.Sum256([]byte(style[0].FirstChild.Data))
				policy := a.header.Get("Content-Security-Policy")
				if len(style) != 1 || !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy,
					"style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") || strings.Contains(policy, "unsafe") {
					t.Errorf("the policy is %s", policy)
				}
				for name, value := range map[string]string{"Cache-Control": "private, no-store",
					"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "X-Robots-Tag": "noindex",
					"Vary": "Accept-Language", "Content-Type": "text/html; charset=utf-8"} {
					if a.header.Get(name) != value {
						t.Errorf("%s: %q", name, a.header.Get(name))
					}
				}
			}
			// Each form field has a label, and each description that a field refers to exists.
			a := p.request(http.MethodGet, token, "", "Accept-Language", accept)
			ids := map[string]bool{}
			for n := range a.root.Descendants() {
				if x, ok := attr(n, "id"); ok {
					if ids[x] {
						t.Errorf("two elements have the id %s", x)
					}
					ids[x] = true
				}
			}
			boxes := 0
			for _, input := range a.all("input") {
				if kind, _ := attr(input, "type"); kind == "checkbox" {
					boxes++
					if about, ok := attr(input, "aria-describedby"); !ok || !ids[about] {
						t.Errorf("a field is described by %q, which is not there", about)
					}
				}
			}
			if len(a.choices()) != 3 || boxes != 3 {
				t.Errorf("%d fields, with the labels %q", boxes, a.choices())
			}
		}
		if got := p.request(http.MethodGet, token, "").choices(); got[0] != "+<b>News</b> & \"more\"" ||
			got[1] != "-Offers" || !strings.HasPrefix(got[2], "+Unsubscribe from all emails of Acme") {
			t.Errorf("%q", got)
		}
	})
}

// A GET request for an unsubscribe link changes nothing, whether it comes from a person, a mail program or a scanner.
func TestLookingUnsubscribesNobody(t *testing.T) {
	t.Parallel()
	eachPages(t, func(t *testing.T, p *pages) {
		news := p.topic("News", contacts.OptIn, contacts.Public)
		for _, token := range []string{p.token(news.ID), p.token("")} {
			for _, header := range [][]string{nil, {"Sec-Purpose", "prefetch"}, {"Purpose", "prefetch"},
				{"List-Unsubscribe", "One-Click"}} {
				for _, method := range []string{http.MethodGet, http.MethodHead} {
					if a := p.request(method, token+"?"+oneClick+"&save=1&all=1", "", header...); a.status != 200 {
						t.Errorf("%s %v: %d", method, header, a.status)
					}
				}
			}
			for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions} {
				if a := p.request(method, token, oneClick); a.status != http.StatusMethodNotAllowed {
					t.Errorf("%s: %d", method, a.status)
				}
			}
			for what, body := range map[string]string{"nothing": "", "something else": "a=b", "no form": "a=%zz",
				"another word": "List-Unsubscribe=Yes"} {
				if a := p.post(token, body); a.status != http.StatusBadRequest {
					t.Errorf("a POST of %s: %d", what, a.status)
				}
			}
			if a := p.post(token, oneClick+"&x="+strings.Repeat("x", 64<<10)); a.status != http.StatusRequestEntityTooLarge {
				t.Errorf("a large form: %d", a.status)
			}
		}
		if got := p.holds(); got != "no contact" {
			t.Errorf("there is a contact: %s", got)
		}
		if all := p.seen.Take(); len(all) != 0 {
			t.Errorf("recorded were %v", all)
		}
	})
}

// One-click unsubscribe unsubscribes from the email's topic, or from all emails if the email has no topic. One-click
// unsubscribe accepts each form encoding that RFC 8058 allows, can be repeated, and does not respond with a redirect.
func TestOneClick(t *testing.T) {
	t.Parallel()
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	w.WriteField("List-Unsubscribe", "One-Click")
	w.Close()
	for name, send := range map[string]func(p *pages, token string) *answer{
		"urlencoded": func(p *pages, token string) *answer { return p.post(token, oneClick) },
		"multipart": func(p *pages, token string) *answer {
			return p.request(http.MethodPost, token, form.String(), "Content-Type", w.FormDataContentType())
		},
		"no type":      func(p *pages, token string) *answer { return p.request(http.MethodPost, token, oneClick) },
		"a line break": func(p *pages, token string) *answer { return p.post(token, oneClick+"\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachPages(t, func(t *testing.T, p *pages) {
				news := p.topic("News", contacts.OptIn, contacts.Public)
				p.topic("Offers", contacts.OptIn, contacts.Public)
				for i := range 3 {
					if a := send(p, p.token(news.ID)); a.status != 200 || a.heading() != "You are unsubscribed from “News”" {
						t.Errorf("POST %d: %d %s", i, a.status, a.text)
					}
					if got := p.holds(); got != "Offers" {
						t.Errorf("POST %d: it has %q", i, got)
					}
				}
				for i := range 3 {
					a := send(p, p.token(""))
					if a.status != 200 || a.heading() != "You are unsubscribed from all emails of Acme" {
						t.Errorf("POST %d: %d %s", i, a.status, a.text)
					}
					if got := p.holds(); got != "Offers none" {
						t.Errorf("POST %d: it has %q", i, got)
					}
				}
				var recorded []string
				for _, e := range p.seen.Take() {
					c := e.Data.(*events.Contact)
					recorded = append(recorded, fmt.Sprint(e.Type, " ", c.Email, " ", c.Unsubscribed))
				}
				if want := []string{"contact.created rita@example.org false", "contact.updated rita@example.org true"}; !slices.
					Equal(recorded, want) {
					t.Errorf("recorded were %q", recorded)
				}
			})
		})
	}
}

// If the email's topic has been deleted, one-click unsubscribe unsubscribes from all emails.
func TestOneClickOfADeletedTopic(t *testing.T) {
	t.Parallel()
	eachPages(t, func(t *testing.T, p *pages) {
		gone := p.topic("Gone", contacts.OptIn, contacts.Public)
		token := p.token(gone.ID)
		if err := p.Contacts.DeleteTopic(t.Context(), p.team, gone.ID); err != nil {
			t.Fatal(err)
		}
		if a := p.request(http.MethodGet, token, ""); a.status != 200 || len(a.choices()) != 1 {
			t.Errorf("%d %q", a.status, a.choices())
		}
		if a := p.post(token, oneClick); a.status != 200 || p.holds() != "none" {
			t.Errorf("%d, it has %q", a.status, p.holds())
		}
	})
}

// A contact can change subscriptions on the unsubscribe page, see the result, and undo the change.
func TestChoosing(t *testing.T) {
	t.Parallel()
	eachPages(t, func(t *testing.T, p *pages) {
		p.topic("Offers", contacts.OptOut, contacts.Public)
		news := p.topic("News", contacts.OptIn, contacts.Public)
		p.topic("Events", contacts.OptIn, contacts.Public)
		const everything = "Unsubscribe from all emails of Acme"
		token := p.token(news.ID)
		look := func(want ...string) *answer {
			t.Helper()
			a := p.request(http.MethodGet, token, "")
			if a.status != 200 || !slices.Equal(a.choices(), want) {
				t.Errorf("%d, the page offers %q, not %q", a.status, a.choices(), want)
			}
			return a
		}
		says := func(a *answer, heading, holds string) *answer {
			t.Helper()
			if a.status != 200 || a.heading() != heading || p.holds() != holds {
				t.Errorf("%d, it says %q, and it has %q", a.status, a.heading(), p.holds())
			}
			return a
		}
		page := look("+News", "-Offers", "+Events", "-"+everything)
		says(p.submit(page, token, "Save", nil), "Nothing has changed", "no contact")

		left := says(p.submit(page, token, "Unsubscribe from “News”", nil), "You are unsubscribed from “News”", "Events")
		says(p.submit(left, token, "Undo", nil), "Your choice is saved", "News Events")
		look("+News", "-Offers", "+Events", "-"+everything)

		chosen := says(p.submit(page, token, "Save", []string{"Offers"}), "Your choice is saved", "Offers")
		page = look("-News", "+Offers", "-Events", "-"+everything)
		says(p.submit(chosen, token, "Undo", nil), "Your choice is saved", "News Events")

		none := says(p.submit(page, token, "Save", []string{"News", "Events", everything}),
			"You are unsubscribed from all emails of Acme", "News Events none")
		page = look("+News", "-Offers", "+Events", "+"+everything)
		if strings.Contains(page.text, "One-Click") {
			t.Error("who is unsubscribed is asked to unsubscribe")
		}
		says(p.submit(none, token, "Undo", nil), "Your choice is saved", "News Events")
		// Saving the page does not change the subscription to a topic that was created after the page was shown.
		p.topic("Later", contacts.OptIn, contacts.Public)
		says(p.submit(page, token, "Save", []string{}), "Your choice is saved", "Later")
	})
}

// A link without a topic has a button that unsubscribes from everything, so the page has no checkbox with the same
// label.
func TestOneLabelForEverything(t *testing.T) {
	t.Parallel()
	eachPages(t, func(t *testing.T, p *pages) {
		const everything = "Unsubscribe from all emails of Acme"
		token := p.token("")
		page := p.request(http.MethodGet, token, "")
		if n := strings.Count(page.text, everything); n != 1 || strings.Contains(page.text, "Save") {
			t.Errorf("the page without topics says %d times how to unsubscribe:\n%s", n, page.text)
		}
		p.topic("News", contacts.OptIn, contacts.Public)
		page = p.request(http.MethodGet, token, "")
		if !slices.Equal(page.choices(), []string{"+News"}) || strings.Count(page.text, everything) != 1 {
			t.Errorf("the page with a topic offers %q:\n%s", page.choices(), page.text)
		}
		p.submit(page, token, everything, nil)
		page = p.request(http.MethodGet, token, "")
		if !slices.Equal(page.choices(), []string{"+News", "+" + everything}) {
			t.Errorf("an unsubscribed contact is offered %q", page.choices())
		}
	})
}

// The unsubscribe page shows a private topic to contacts who are subscribed. Contacts who unsubscribed from the topic
// on this page still see it, so that they can subscribe again. No other contacts can see the private topic or subscribe
// to it.
func TestPrivateTopics(t *testing.T) {
	t.Parallel()
	eachPages(t, func(t *testing.T, p *pages) {
		secret := p.topic("Secret", contacts.OptOut, contacts.Private)
		staff := p.topic("Staff", contacts.OptIn, contacts.Private)
		public := p.topic("Public", contacts.OptIn, contacts.Public)
		token := p.token(public.ID)
		offers := func(want ...string) *answer {
			t.Helper()
			a := p.request(http.MethodGet, token, "")
			if got := a.choices(); !slices.Equal(got[:len(got)-1], want) {
				t.Errorf("the page offers %q, not %q", got, want)
			}
			return a
		}
		offers("+Public", "+Staff")
		p.post(token, "save=1&shown="+secret.ID+"&topic="+secret.ID)
		if got := p.holds(); got != "no contact" {
			t.Errorf("somebody entered a private topic: %s", got)
		}
		at, _, err := p.Contacts.Upsert(t.Context(), p.team, rita, contacts.Change{Topics: []contacts.Choice{
			{TopicID: secret.ID, Subscription: contacts.OptIn}}})
		if err != nil {
			t.Fatal(err)
		}
		page := offers("+Public", "+Secret", "+Staff")
		left := p.submit(page, token, "Save", []string{"Public"})
		if got := p.holds(); got != "Public" {
			t.Errorf("it has %q", got)
		}
		offers("+Public", "-Secret", "-Staff")
		p.submit(left, token, "Undo", nil)
		if got := p.holds(); got != "Secret Staff Public" {
			t.Errorf("it has %q", got)
		}
		// If the team unsubscribes the contact from a private topic, the contact cannot subscribe to that topic again.
		out := []contacts.Choice{{TopicID: secret.ID, Subscription: contacts.OptOut},
			{TopicID: staff.ID, Subscription: contacts.OptOut}}
		if err := p.Contacts.Subscribe(t.Context(), p.team, at.ID, out); err != nil {
			t.Fatal(err)
		}
		offers("+Public")
		p.post(token, "save=1&shown="+secret.ID+"&topic="+secret.ID)
		if a := p.post(p.token(secret.ID), oneClick); a.status != 200 || p.holds() != "Public" {
			t.Errorf("%d, it has %q", a.status, p.holds())
		}
	})
}

// If an unsubscribe token has been altered or its team has been deleted, the response is 404 and nothing changes.
func TestUnsubscribeLinksThatLeadNowhere(t *testing.T) {
	t.Parallel()
	eachPages(t, func(t *testing.T, p *pages) {
		token := p.token("")
		data, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil {
			t.Fatal(err)
		}
		data[20] ^= 1
		altered := base64.RawURLEncoding.EncodeToString(data)
		nowhere := func(token string) {
			t.Helper()
			for _, a := range []*answer{p.request(http.MethodGet, token, ""), p.post(token, oneClick)} {
				if a.status != http.StatusNotFound || a.header.Get("Content-Type") != "text/plain; charset=utf-8" ||
					a.text != "There is nothing at this address.\n" {
					t.Errorf("%d %s", a.status, a.text)
				}
			}
		}
		nowhere(altered)
		nowhere("x")
		nowhere(strings.Repeat("A", 9000))
		nowhere(p.Contacts.Token(contacts.Link{TeamID: id.New(), Address: rita}))
		if a := p.request(http.MethodGet, token, ""); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.text)
		}
		if err := p.Teams.Delete(context.WithoutCancel(t.Context()), jobs.NewQueue(p.DB), p.team); err != nil {
			t.Fatal(err)
		}
		nowhere(token)
		if got := p.holds(); got != "no contact" {
			t.Errorf("it has %q", got)
		}
	})
}

// While the database is unavailable, an unsubscribe request gets an error response, so that a mail program can retry.
func TestUnsubscribingWithoutADatabase(t *testing.T) {
	t.Parallel()
	eachPages(t, func(t *testing.T, p *pages) {
		token := p.token("")
		p.DB.Close()
		for _, a := range []*answer{p.request(http.MethodGet, token, ""), p.post(token, oneClick)} {
			if a.status < 500 || strings.Contains(a.text, "sql") || len(a.text) > 100 {
				t.Errorf("%d %s", a.status, a.text)
			}
		}
	})
}

// Repeated changes through one address's unsubscribe links cannot fill the disk. After a limited number of opt-ins, all
// links for that address refuse more opt-ins. Opt-outs are never refused.
func TestOptingInAgainAndAgain(t *testing.T) {
	t.Parallel()
	eachPages(t, func(t *testing.T, p *pages) {
		news := p.topic("News", contacts.OptIn, contacts.Public)
		offers := p.topic("Offers", contacts.OptIn, contacts.Public)
		p.post(p.token(news.ID), oneClick)
		in := url.Values{"save": {"1"}, "shown": {news.ID}, "topic": {news.ID}}.Encode()
		refused := 0
		for range 40 {
			token := p.token(news.ID)
			switch a := p.post(token, in); a.status {
			case 200:
				if p.holds() != "News Offers" || refused > 0 {
					t.Fatalf("after the form %q holds, and %d were refused", p.holds(), refused)
				}
			case 429:
				refused++
				if p.holds() != "Offers" || a.header.Get("Retry-After") == "" || !strings.Contains(a.text, "in an hour") {
					t.Fatalf("%q holds after %s", p.holds(), a.text)
				}
			default:
				t.Fatalf("%d %s", a.status, a.text)
			}
			if a := p.post(token, oneClick); a.status != 200 || p.holds() != "Offers" {
				t.Fatalf("%d %s: %q holds", a.status, a.text, p.holds())
			}
		}
		if refused != 18 { // 20 opt-ins, plus one for each topic, are allowed
			t.Errorf("%d of 40 were refused", refused)
		}
		if n := len(p.seen.Take()); n != 1+2*22 {
			t.Errorf("%d events", n)
		}
		// If an opt-in is refused, the opt-outs in the same form still take effect.
		mixed := url.Values{"save": {"1"}, "shown": {news.ID, offers.ID}, "topic": {news.ID}}.Encode()
		if a := p.post(p.token(""), mixed); a.status != 429 || p.holds() != "" {
			t.Errorf("%d %s: %q holds", a.status, a.text, p.holds())
		}
		if a := p.post(p.token(""), oneClick); a.status != 200 || p.holds() != "none" {
			t.Errorf("%d %s: %q holds", a.status, a.text, p.holds())
		}
		if a := p.post(p.token(""), "save=1"); a.status != 429 || p.holds() != "none" {
			t.Errorf("%d %s: %q holds", a.status, a.text, p.holds())
		}
		// The limit on opt-ins applies to each address separately.
		other := p.Contacts.Token(contacts.Link{TeamID: p.team, EmailID: id.New(), TopicID: news.ID,
			Address: "otto@example.org"})
		p.post(other, oneClick)
		if a := p.post(other, in); a.status != 200 {
			t.Errorf("another address: %d %s", a.status, a.text)
		}
	})
}
