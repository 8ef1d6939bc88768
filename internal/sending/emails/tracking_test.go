package emails_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/render"
)

const (
	trackedDomain = "news.acme.example"
	trackedBody   = `<html><body><p>Hello <a href="https://shop.example/?a=1&amp;b=2">shop</a> ` +
		`<a href="mailto:a@acme.example">write</a> <a href="https://acme.example/u">leave</a></p></body></html>`
)

// tracking adds a verified domain for the team Acme that tracks opens, clicks, or both.
func tracking(n *testnode.Node, opens, clicks bool) domains.Domain {
	return n.Verified(n.Acme.TeamID, domains.NewDomain{Name: trackedDomain, TrackingSubdomain: "links",
		OpenTracking: opens, ClickTracking: clicks})
}

func trackedEmail(to ...string) emails.Send {
	html := trackedBody
	return emails.Send{From: "News <news@" + trackedDomain + ">", To: to, Subject: "News", HTML: &html,
		Headers: []message.Field{{Name: "List-Unsubscribe", Value: "<https://acme.example/u>"}}}
}

// deliveries returns the payloads of an email's delivery jobs, sorted by their first recipients.
func deliveries(t *testing.T, n *testnode.Node, emailID string) []emails.Delivery {
	t.Helper()
	rows, err := n.DB.Query(t.Context(), `SELECT payload, lane FROM jobs WHERE kind = $1`, emails.DeliveryKind)
	all, err := db.Collect(rows, err, func(r db.Row) (d emails.Delivery, err error) {
		var payload, lane string
		if err := r.Scan(&payload, &lane); err != nil {
			return d, err
		}
		return emails.DecodeDelivery(payload, lane)
	})
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(d emails.Delivery) bool { return d.EmailID != emailID })
	slices.SortFunc(all, func(a, b emails.Delivery) int { return strings.Compare(a.To[0], b.To[0]) })
	return all
}

// delivered returns the recipients of a delivery job, along with the HTML and the text of its message.
func delivered(t *testing.T, n *testnode.Node, d emails.Delivery) (to []string, html, text string) {
	t.Helper()
	o, err := n.Emails.Outgoing(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := n.Emails.Compose(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mail.ReadMessage(strings.NewReader(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	read := func(contentType, encoding string, body io.Reader) {
		switch encoding {
		case "quoted-printable":
			body = quotedprintable.NewReader(body)
		case "base64":
			body = base64.NewDecoder(base64.StdEncoding, body)
		}
		content, err := io.ReadAll(body)
		if err != nil {
			t.Fatal(err)
		}
		part := strings.ReplaceAll(string(content), "\r\n", "\n")
		if strings.HasPrefix(contentType, "text/html") {
			html = part
		} else {
			text = part
		}
	}
	kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(kind, "multipart/") {
		read(kind, m.Header.Get("Content-Transfer-Encoding"), m.Body)
		return o.To, html, text
	}
	for parts := multipart.NewReader(m.Body, params["boundary"]); ; {
		p, err := parts.NextRawPart()
		if err == io.EOF {
			return o.To, html, text
		}
		if err != nil {
			t.Fatal(err)
		}
		read(p.Header.Get("Content-Type"), p.Header.Get("Content-Transfer-Encoding"), p)
	}
}

var trackedURL = regexp.MustCompile(`"https://links\.news\.acme\.example/([co])/([^"]*)"`)

// readTracked returns the decoded tokens of all tracked links and pixels in HTML, as strings that begin with c for a
// link and o for a pixel.
func readTracked(t *testing.T, n *testnode.Node, html string) (all []string) {
	t.Helper()
	for _, found := range trackedURL.FindAllStringSubmatch(html, -1) {
		got, err := n.Emails.ReadTracked(found[2], "links."+trackedDomain)
		if err != nil {
			t.Errorf("the token %q: %v", found[2], err)
		}
		all = append(all, fmt.Sprintf("%s %s %d %s", found[1], got.EmailID, got.Position, got.URL))
	}
	return all
}

// Each recipient of a tracked email gets a separate message, whose links identify the recipient.
func TestTrackedEmail(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		tracking(n, true, true)
		s := trackedEmail("a@one.example", "d@two.example")
		s.Cc, s.Bcc = []string{"b@one.example"}, []string{"c@one.example"}
		emailID := n.Send(s)
		jobs := deliveries(t, n, emailID)
		if len(jobs) != 4 {
			t.Fatalf("there are %d jobs for 4 recipients: %+v", len(jobs), jobs)
		}
		for i, to := range []struct {
			address  string
			position int
		}{{"a@one.example", 0}, {"b@one.example", 2}, {"c@one.example", 3}, {"d@two.example", 1}} {
			d := jobs[i]
			if d.Only || d.Domain != to.address[2:] {
				t.Errorf("the job is %+v", d)
			}
			for _, d.First = range []bool{true, false} {
				got, html, text := delivered(t, n, d)
				if !slices.Equal(got, []string{to.address}) {
					t.Errorf("first %v: the job to %s delivers to %q", d.First, to.address, got)
				}
				want := []string{fmt.Sprintf("c %s %d https://shop.example/?a=1&b=2", emailID, to.position),
					fmt.Sprintf("o %s %d ", emailID, to.position)}
				if found := readTracked(t, n, html); !slices.Equal(found, want) {
					t.Errorf("first %v: tracked of %s are %q, want %q", d.First, to.address, found, want)
				}
				for _, part := range []string{`href="mailto:a@acme.example"`, `href="https://acme.example/u"`,
					`width="1" height="1" alt="" style="`, `></body></html>`} {
					if !strings.Contains(html, part) {
						t.Errorf("%q is not in %s", part, html)
					}
				}
				if !strings.Contains(text, "[https://shop.example/?a=1&b=2]") || strings.Contains(text, "links.news") {
					t.Errorf("the text is %q", text)
				}
			}
		}
		e, err := n.Emails.Get(t.Context(), n.Acme.TeamID, emailID)
		if err != nil || *e.HTML != trackedBody {
			t.Errorf("the API shows %+v, %v", e.HTML, err)
		}
	})
}

// If an email is not tracked, it has one delivery job per destination, and its links are not rewritten.
func TestNotTracked(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		tracking(n, true, true)
		text := "https://shop.example/"
		plain := trackedEmail("a@one.example", "b@one.example")
		plain.HTML, plain.Text = nil, &text
		elsewhere := trackedEmail("a@one.example", "b@one.example")
		elsewhere.From = "a@" + testnode.Domain
		for name, s := range map[string]emails.Send{"a text": plain, "of another domain": elsewhere} {
			jobs := deliveries(t, n, n.Send(s))
			if len(jobs) != 1 || len(jobs[0].To) != 2 || !jobs[0].Only || jobs[0].Ordinal != 0 {
				t.Errorf("%s: the jobs are %+v", name, jobs)
				continue
			}
			if _, html, text := delivered(t, n, jobs[0]); strings.Contains(html+text, "links.news") {
				t.Errorf("%s: it is tracked: %s%s", name, html, text)
			}
		}
	})
}

// Opens and clicks can be tracked independently of each other.
func TestTrackedPartly(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		d := tracking(n, true, false)
		emailID := n.Send(trackedEmail("a@one.example"))
		_, html, _ := delivered(t, n, deliveries(t, n, emailID)[0])
		if got := readTracked(t, n, html); !slices.Equal(got, []string{"o " + emailID + " 0 "}) {
			t.Errorf("with opens alone, tracked are %q", got)
		}
		on, off := true, false
		if err := n.Domains.Update(t.Context(), n.Acme.TeamID, d.ID, domains.Change{OpenTracking: &off,
			ClickTracking: &on}); err != nil {
			t.Fatal(err)
		}
		_, html, _ = delivered(t, n, deliveries(t, n, emailID)[0])
		if got := readTracked(t, n, html); !slices.Equal(got, []string{"c " + emailID + " 0 https://shop.example/?a=1&b=2"}) {
			t.Errorf("with clicks alone, tracked are %q", got)
		}
	})
}

// If tracking is enabled only after an email is accepted, its messages may have several recipients. When only one
// recipient of a message remains, the links identify that recipient.
func TestTrackedLater(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		d := tracking(n, false, false)
		emailID := n.Send(trackedEmail("a@one.example", "b@one.example", "c@two.example"))
		jobs := deliveries(t, n, emailID)
		if len(jobs) != 2 {
			t.Fatalf("the jobs are %+v", jobs)
		}
		on := true
		if err := n.Domains.Update(t.Context(), n.Acme.TeamID, d.ID, domains.Change{OpenTracking: &on}); err != nil {
			t.Fatal(err)
		}
		tell := func(d emails.Delivery, to string, position int) {
			t.Helper()
			got, html, _ := delivered(t, n, d)
			want := []string{fmt.Sprintf("o %s %d ", emailID, position)}
			if found := readTracked(t, n, html); strings.Join(got, " ") != to || !slices.Equal(found, want) {
				t.Errorf("to %q, tracked are %q, want %q and %q", got, found, to, want)
			}
		}
		one, two := jobs[0], jobs[1]
		one.First, two.First = true, true
		tell(one, "a@one.example b@one.example", -1)
		tell(two, "c@two.example", 2)
		n.Happen(events.Event{TeamID: n.Acme.TeamID, EmailID: emailID, Type: events.EmailDelivered,
			Recipient: "a@one.example"})
		one.First, two.First = false, false
		tell(one, "b@one.example", 1)
		tell(two, "c@two.example", 2)
	})
}

// Tracked emails have one delivery job per recipient even if they are scheduled or have attachments to fetch.
func TestTrackedAtItsTime(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		tracking(n, true, true)
		s := trackedEmail("a@one.example", "b@one.example")
		s.ScheduledAt = "in 1 hour"
		emailID := n.Send(s)
		if jobs := deliveries(t, n, emailID); len(jobs) != 0 {
			t.Fatalf("before its time, the jobs are %+v", jobs)
		}
		now := time.Now().UTC().Format(time.RFC3339)
		if err := n.Emails.Reschedule(t.Context(), n.Acme.TeamID, emailID, now); err != nil {
			t.Fatal(err)
		}
		n.Run(n.Emails.Kinds()...)
		testnode.Until(t, "the email is released", func() bool { return len(deliveries(t, n, emailID)) > 0 })
		jobs := deliveries(t, n, emailID)
		if len(jobs) != 2 || jobs[0].Ordinal != 1 || jobs[1].Ordinal != 2 || jobs[0].Size < int64(3*len(trackedBody)) {
			t.Errorf("the jobs are %+v", jobs)
		}
	})
}

// In an email with shared content, a tracked link that contains placeholders leads to the rendered URL.
func TestTrackedContent(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		tracking(n, true, true)
		html := `<p>{{{escape NAME}}} <a href="https://shop.example/{{{CODE}}}?a=1&amp;b=2">shop</a>
			<a href="{{{UNSUBSCRIBE_URL}}}">leave</a></p>`
		c := content.Content{TeamID: n.Acme.TeamID, From: "news@" + trackedDomain, Subject: "News for {{{NAME}}}",
			HTML: &html}
		n.Update(func(tx *db.Tx) error { return n.Contents.Add(t.Context(), tx, &c) })
		m, err := n.Emails.Mailing(t.Context(), n.Acme, c.ID, true)
		if err != nil {
			t.Fatal(err)
		}
		var got []emails.EnqueueResult
		n.Update(func(tx *db.Tx) (err error) {
			got, err = n.Emails.Enqueue(t.Context(), tx, m, []emails.MailingRecipient{{Address: "a@one.example",
				Values: render.Values{
					"NAME": "<Ann>", "CODE": "1\" x", render.UnsubscribeURL: "https://unsubscribe.example/1"}}})
			return err
		})
		jobs := deliveries(t, n, got[0].ID)
		if len(jobs) != 1 || jobs[0].Ordinal != 1 || !jobs[0].Only {
			t.Fatalf("the jobs are %+v", jobs)
		}
		jobs[0].First = true
		_, body, text := delivered(t, n, jobs[0])
		want := []string{"c " + got[0].ID + ` 0 https://shop.example/1" x?a=1&b=2`, "o " + got[0].ID + " 0 "}
		if found := readTracked(t, n, body); !slices.Equal(found, want) {
			t.Errorf("tracked are %q, want %q", found, want)
		}
		if !strings.Contains(body, "&lt;Ann&gt;") || !strings.Contains(body, `href="https://unsubscribe.example/1"`) {
			t.Errorf("the HTML is %s", body)
		}
		if !strings.Contains(text, "<Ann> shop [https://shop.example/1]") {
			t.Errorf("the text is %q", text)
		}
	})
}

// If a scanner opens a message before the host has answered, the delivery continues, because the host may still refuse
// the message.
func TestOpenedBeforeDelivered(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		tracking(n, true, true)
		emailID := n.Send(trackedEmail("a@one.example"))
		d := deliveries(t, n, emailID)[0]
		happens := func(types ...events.Type) {
			for _, typ := range types {
				n.Happen(events.Event{TeamID: n.Acme.TeamID, EmailID: emailID, Type: typ, Recipient: "a@one.example"})
			}
		}
		happens(events.EmailDelayed, events.EmailOpened, events.EmailClicked)
		if to, _, _ := delivered(t, n, d); !slices.Equal(to, []string{"a@one.example"}) {
			t.Errorf("it is still to be delivered to %q", to)
		}
		happens(events.EmailDelivered)
		o, err := n.Emails.Outgoing(t.Context(), d)
		if err != nil || len(o.To) != 0 {
			t.Errorf("once it is delivered, it is still to be delivered to %q, %v", o.To, err)
		}
	})
}

// If an email is opened before its first delivery outcome is recorded, email.sent is still recorded exactly once. The
// email's state becomes opened only after delivery.
func TestOpenedBeforeSent(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		tracking(n, true, true)
		emailID := n.Send(trackedEmail("a@one.example", "b@one.example"))
		happens := func(e events.Event) {
			e.TeamID, e.EmailID = n.Acme.TeamID, emailID
			n.Happen(e)
		}
		marked := func() (first bool) {
			n.Update(func(tx *db.Tx) (err error) {
				first, err = emails.MarkSent(t.Context(), tx, n.Acme.TeamID, emailID)
				return err
			})
			return first
		}
		happens(events.Event{Type: events.EmailOpened, Recipient: "a@one.example"})
		if !marked() {
			t.Error("its first outcome does not say that it is sent")
		}
		happens(events.Event{Type: events.EmailSent})
		if marked() {
			t.Error("its second outcome says so again")
		}
		if e, err := n.Emails.Get(t.Context(), n.Acme.TeamID, emailID); err != nil || e.LastEvent != emails.Sent {
			t.Errorf("it is %s, %v", e.LastEvent, err)
		}
	})
}

// If recipients have separate jobs, UnknownAttempts does not count one recipient's attempts as another's.
func TestUnknownAttemptsOfARecipient(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		emailID := n.Send(testnode.Hello("a@one.example", "b@one.example"))
		for _, to := range [][]string{{"a@one.example"}, {"a@one.example", "b@one.example"}, {"c@one.example"}} {
			n.Happen(events.Event{TeamID: n.Acme.TeamID, EmailID: emailID, Type: events.EmailDelayed, Recipient: to[0],
				Attempt: &events.Attempt{Destination: "one.example", Recipients: to, Outcome: emails.OutcomeUnknown,
					StartedAt: time.Now()}})
		}
		for _, c := range []struct {
			to   []string
			want int
		}{{nil, 3}, {[]string{"a@one.example"}, 2}, {[]string{"b@one.example"}, 1},
			{[]string{"b@one.example", "c@one.example"}, 2}, {[]string{"d@one.example"}, 0}} {
			got, err := emails.UnknownAttempts(t.Context(), n.DB.Reader, n.Acme.TeamID, emailID, "one.example", c.to...)
			if err != nil || got != c.want {
				t.Errorf("of %q there are %d, %v; want %d", c.to, got, err, c.want)
			}
		}
	})
}

// A raw message is sent unchanged, even if the domain tracks opens and clicks.
func TestRawIsNotTracked(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		tracking(n, true, true)
		emailID := sendRaw(t, n, n.Acme, "a@one.example", "b@one.example")
		jobs := deliveries(t, n, emailID)
		if len(jobs) != 1 || len(jobs[0].To) != 2 {
			t.Fatalf("the jobs are %+v", jobs)
		}
		if _, html, _ := delivered(t, n, jobs[0]); !strings.Contains(html, `href="https://shop.example/"`) {
			t.Errorf("it is sent as %s", html)
		}
	})
}

// sendRaw sends a message with HTML in the same way as an SMTP submission.
func sendRaw(t *testing.T, n *testnode.Node, by teams.Actor, to ...string) string {
	t.Helper()
	html := `<a href="https://shop.example/">shop</a>`
	in := emails.Raw{Send: emails.Send{From: "news@" + trackedDomain, To: to, Subject: "News", HTML: &html},
		Header: []byte("From: news@" + trackedDomain + "\r\nTo: a@one.example\r\nDate: Mon, 02 Nov 2026 10:00:00 +0000\r\n" +
			"Subject: News\r\nMIME-Version: 1.0\r\nContent-Type: text/html; charset=utf-8\r\n"),
		Body: []byte("\r\n" + html + "\r\n")}
	for _, one := range to {
		a, err := message.ParseAddress(one)
		if err != nil {
			t.Fatal(err)
		}
		in.Recipients = append(in.Recipients, a)
	}
	emailID, err := n.Emails.SendRaw(t.Context(), by, in, emails.Idempotency{})
	if err != nil {
		t.Fatal(err)
	}
	return emailID
}

// With the operator's tracking URL, the emails of a domain without a tracking subdomain are tracked by links to this
// URL. Without it, they are not changed.
func TestTrackingWithoutASubdomain(t *testing.T) {
	for url, host := range map[string]string{"": "", "https://track.postrider.test": "track.postrider.test"} {
		t.Run("URL "+url, func(t *testing.T) {
			testnode.Each(t, testnode.Options{TrackingURL: url}, func(t *testing.T, n *testnode.Node) {
				n.Verified(n.Acme.TeamID, domains.NewDomain{Name: trackedDomain, OpenTracking: true, ClickTracking: true})
				emailID := n.Send(trackedEmail("a@one.example", "b@one.example"))
				jobs := deliveries(t, n, emailID)
				if want := map[bool]int{true: 2, false: 1}[url != ""]; len(jobs) != want {
					t.Fatalf("there are %d jobs, want %d", len(jobs), want)
				}
				_, html, _ := delivered(t, n, jobs[0])
				if url == "" {
					if !strings.Contains(html, `"https://shop.example/?a=1&amp;b=2"`) || strings.Contains(html, "/o/") {
						t.Errorf("the HTML is %s", html)
					}
					return
				}
				_, rest, found := strings.Cut(html, url+"/c/")
				token, _, _ := strings.Cut(rest, `"`)
				got, err := n.Emails.ReadTracked(token, host)
				if !found || err != nil || got.EmailID != emailID || got.URL != "https://shop.example/?a=1&b=2" ||
					!strings.Contains(html, url+"/o/") {
					t.Errorf("the link is %+v, %v, in %s", got, err, html)
				}
			})
		})
	}
}
