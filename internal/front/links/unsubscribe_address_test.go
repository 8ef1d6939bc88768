package links_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/id"
)

// later is the new address of a contact whose earlier address was rita.
const later = "later@example.org"

// movedPages serves unsubscribe pages with the topics News (opt-out by default) and Offers (opt-in by default).
type movedPages struct {
	*pages
	news, offers contacts.Topic
}

func eachMovedPages(t *testing.T, f func(t *testing.T, p *movedPages)) {
	t.Parallel()
	eachPages(t, func(t *testing.T, p *pages) {
		f(t, &movedPages{p, p.topic("News", contacts.OptOut, contacts.Public), p.topic("Offers", contacts.OptIn,
			contacts.Public)})
	})
}

// optIn returns a change that opts a contact in to News.
func (p *movedPages) optIn() contacts.Change {
	return contacts.Change{Topics: []contacts.Choice{{TopicID: p.news.ID, Subscription: contacts.OptIn}}}
}

// moved creates a contact who is opted in to News, changes the contact's address from rita to later, and returns the
// contact's id.
func (p *movedPages) moved() string {
	p.t.Helper()
	at, _, err := p.Contacts.Upsert(p.t.Context(), p.team, rita, p.optIn())
	if err == nil {
		_, err = p.Contacts.Update(p.t.Context(), p.team, at.ID, contacts.Change{Address: new(later)})
	}
	p.Must(err)
	return at.ID
}

// tokenOf returns the unsubscribe token from an email that was sent to a contact at the address rita.
func (p *movedPages) tokenOf(contactID, topicID string) string {
	return p.Contacts.Token(contacts.Link{TeamID: p.team, EmailID: id.New(), TopicID: topicID, ContactID: contactID,
		Address: rita})
}

// state returns the names of the topics that the contact is opted in to, followed by "none" if the contact is
// unsubscribed from all emails.
func (p *movedPages) state(address string) string {
	p.t.Helper()
	at, err := p.Contacts.Get(p.t.Context(), p.team, address)
	if err != nil {
		return "no contact"
	}
	all, err := p.Contacts.Subscriptions(p.t.Context(), p.team, at.ID)
	p.Must(err)
	var on []string
	for _, s := range all {
		if s.Subscription == contacts.OptIn {
			on = append(on, s.Name)
		}
	}
	if at.Unsubscribed {
		on = append(on, "none")
	}
	return strings.Join(on, " ")
}

// want checks the states of the contacts whose addresses are later and rita.
func (p *movedPages) want(ofLater, ofRita string) {
	p.t.Helper()
	if got := p.state(later); got != ofLater {
		p.t.Errorf("the later address has %q, want %q", got, ofLater)
	}
	if got := p.state(rita); got != ofRita {
		p.t.Errorf("the address of the email has %q, want %q", got, ofRita)
	}
}

// If a contact's address has changed, using the one-click link in an earlier email unsubscribes both the contact and
// the email's address from the topic.
func TestOneClickAfterAChangeOfAddress(t *testing.T) {
	eachMovedPages(t, func(t *testing.T, p *movedPages) {
		if a := p.post(p.tokenOf(p.moved(), p.offers.ID), oneClick); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.text)
		}
		p.want("News", "")
	})
}

// Using the one-click link in an email without a topic unsubscribes both the contact's current address and the email's
// address from all emails.
func TestOneClickWithoutTopicAfterAChangeOfAddress(t *testing.T) {
	eachMovedPages(t, func(t *testing.T, p *movedPages) {
		if a := p.post(p.tokenOf(p.moved(), ""), oneClick); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.text)
		}
		p.want("News Offers none", "Offers none")
	})
}

// The unsubscribe page for an earlier email shows the contact's choices, but not the contact's later address.
func TestPageAfterAChangeOfAddress(t *testing.T) {
	eachMovedPages(t, func(t *testing.T, p *movedPages) {
		token := p.tokenOf(p.moved(), p.news.ID)
		a := p.request(http.MethodGet, token, "")
		if strings.Contains(a.text, later) || !strings.Contains(a.text, rita) {
			t.Errorf("the page shows the later address: %s", a.text)
		}
		if got := a.choices(); len(got) != 3 || got[0] != "+News" || got[1] != "+Offers" {
			t.Errorf("the page offers %q", got)
		}
		a = p.submit(a, token, "Save", []string{"News"})
		if a.status != 200 || strings.Contains(a.text, later) {
			t.Fatalf("%d %s", a.status, a.text)
		}
		p.want("News", "")
		p.submit(p.request(http.MethodGet, token, ""), token, "Save", []string{"News", "Offers"})
		p.want("News Offers", "")
	})
}

// If the email's address now belongs to another contact, the link can unsubscribe that contact but can never opt that
// contact in.
func TestAddressOfAnotherContact(t *testing.T) {
	eachMovedPages(t, func(t *testing.T, p *movedPages) {
		contactID := p.moved()
		_, _, err := p.Contacts.Upsert(t.Context(), p.team, rita, contacts.Change{})
		p.Must(err)
		token := p.tokenOf(contactID, p.news.ID)
		p.submit(p.request(http.MethodGet, token, ""), token, "Save", []string{"News"})
		p.want("News", "")
	})
}

// If the contact was deleted, the unsubscribe link changes only the subscription of the email's address. A deleted
// contact's unsubscribe link does not affect a new contact that has the later address.
func TestLinkOfADeletedContact(t *testing.T) {
	eachMovedPages(t, func(t *testing.T, p *movedPages) {
		contactID := p.moved()
		_, err := p.Contacts.Delete(t.Context(), p.team, later)
		p.Must(err)
		_, _, err = p.Contacts.Upsert(t.Context(), p.team, later, p.optIn())
		p.Must(err)
		p.post(p.tokenOf(contactID, ""), oneClick)
		p.want("News Offers", "Offers none")
	})
}

// An unsubscribe link cannot change another team's contacts.
func TestLinkToAContactOfAnotherTeam(t *testing.T) {
	eachMovedPages(t, func(t *testing.T, p *movedPages) {
		strange, _, err := p.Contacts.Upsert(t.Context(), p.Other.TeamID, "other@example.org", contacts.Change{})
		p.Must(err)
		p.post(p.tokenOf(strange.ID, ""), oneClick)
		if at, err := p.Contacts.Get(t.Context(), p.Other.TeamID, strange.ID); err != nil || at.Unsubscribed {
			t.Errorf("another team's contact: %+v, %v", at, err)
		}
	})
}
