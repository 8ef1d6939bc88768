package emails_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

// composedFields returns the values of a field in the only message of an email.
func composedFields(t *testing.T, n *testnode.Node, emailID, name string) []string {
	t.Helper()
	jobs := deliveries(t, n, emailID)
	if len(jobs) != 1 {
		t.Fatalf("%d jobs", len(jobs))
	}
	o, err := n.Emails.Outgoing(t.Context(), jobs[0])
	if err != nil {
		t.Fatal(err)
	}
	text, err := n.Emails.Compose(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return field(string(text), name)
}

// Feedback-ID names the campaign, the stream, the team and the operator, and nothing that differs between two messages
// of the same kind.
func TestFeedbackID(t *testing.T) {
	t.Parallel()
	testnode.Each(t, testnode.Options{FeedbackSender: "examplecom"}, func(t *testing.T, n *testnode.Node) {
		one := func(e emails.Send) string {
			t.Helper()
			all := composedFields(t, n, n.Send(e), "Feedback-ID")
			if len(all) != 1 {
				t.Fatalf("Feedback-ID: %q", all)
			}
			return all[0]
		}
		plain := one(testnode.Hello("ann@one.example"))
		if !regexp.MustCompile(`^:transactional:team-[a-z2-7]{10}:examplecom$`).MatchString(plain) {
			t.Errorf("Feedback-ID: %q", plain)
		}
		if again := one(testnode.Hello("bob@two.example")); again != plain {
			t.Errorf("another message has %q", again)
		}
		bulk := testnode.Hello("ann@one.example")
		bulk.Headers = []message.Field{{Name: "List-Unsubscribe", Value: "<https://acme.example/u>"}}
		if got, want := one(bulk), strings.Replace(plain, "transactional", "bulk", 1); got != want {
			t.Errorf("bulk mail has %q, want %q", got, want)
		}
		own := testnode.Hello("ann@one.example")
		own.Headers = []message.Field{{Name: "feedback-id", Value: "a:b:c:acme1"}}
		if got := one(own); got != "a:b:c:acme1" {
			t.Errorf("the sender's field became %q", got)
		}
		n.Verified(n.Other.TeamID, domains.NewDomain{Name: "other.example"})
		other := testnode.Hello("ann@one.example")
		other.From = "hello@other.example"
		otherID, err := n.Emails.Send(t.Context(), n.Other, other, emails.Idempotency{})
		if err != nil {
			t.Fatal(err)
		}
		if got := composedFields(t, n, otherID, "Feedback-ID"); len(got) != 1 || got[0] == plain ||
			!strings.HasSuffix(got[0], ":examplecom") {
			t.Errorf("another team has %q", got)
		}
	})
}

// The campaign in Feedback-ID is the end of the id of the broadcast or of the template. A broadcast without a topic has
// the team as its list.
func TestFeedbackIDOfCampaigns(t *testing.T) {
	t.Parallel()
	testnode.Each(t, testnode.Options{FeedbackSender: "examplecom"}, func(t *testing.T, n *testnode.Node) {
		f := &fixture{Node: n}
		c := news()
		c.From = `"Acme, News" <news@acme.example>`
		m := f.mailing(t, f.add(t, c))
		broadcast, template := id.New(), id.New()
		for _, campaign := range []struct{ broadcast, template, want string }{
			{broadcast, "", "b-" + broadcast[len(broadcast)-12:] + ":bulk:team-"},
			{"", template, "t-" + template[len(template)-12:] + ":bulk:team-"},
		} {
			m.BroadcastID, m.TemplateID = campaign.broadcast, campaign.template
			e := f.enqueue(t, m, emails.MailingRecipient{Address: "ann@one.example"})[0]
			if e.Err != nil {
				t.Fatal(e.Err)
			}
			got := composedFields(t, n, e.ID, "Feedback-ID")
			if len(got) != 1 || !strings.HasPrefix(got[0], campaign.want) {
				t.Errorf("Feedback-ID: %q, want %s", got, campaign.want)
				continue
			}
			parts := strings.Split(got[0], ":")
			slices.Sort(parts)
			if len(slices.Compact(parts)) != 4 || strings.Contains(got[0], "@") {
				t.Errorf("Feedback-ID: %q", got)
			}
			var list []string
			if campaign.broadcast != "" {
				list = []string{`"Acme, News" <` + n.Acme.TeamID + ".acme.example>"}
			}
			if got := composedFields(t, n, e.ID, "List-Id"); !slices.Equal(got, list) {
				t.Errorf("List-Id: %q, want %q", got, list)
			}
		}
	})
}

// A raw message gets the field before its own, unless it has one.
func TestFeedbackIDOfRawMessages(t *testing.T) {
	t.Parallel()
	testnode.Each(t, testnode.Options{FeedbackSender: "examplecom"}, func(t *testing.T, n *testnode.Node) {
		for header, want := range map[string]string{
			"Subject: x\r\n": ":examplecom",
			"Subject: x\r\nFEEDBACK-ID: a:b:c:acme1\r\n": "a:b:c:acme1",
			"Subject: x\r\n Feedback-ID: folded\r\n":     ":examplecom",
		} {
			in := composed(message.Address{Local: "ann", Domain: "one.example"})
			in.Header = []byte("From: hello@acme.example\r\n" + header)
			emailID, err := n.Emails.SendRaw(t.Context(), n.Acme, in, emails.Idempotency{})
			if err != nil {
				t.Fatal(err)
			}
			if got := composedFields(t, n, emailID, "Feedback-ID"); len(got) != 1 || !strings.HasSuffix(got[0], want) {
				t.Errorf("%q: Feedback-ID %q, want %s", header, got, want)
			}
		}
	})
}
