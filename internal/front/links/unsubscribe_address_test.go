package links_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/id"
)

// later is the address to which the contact of rita moves.
const later = "later@example.org"

// movedPages are unsubscribe pages with the topics News (opt-out by default) and Offers (opt-in by default).
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

// optIn opts a contact in to News.
func (p *movedPages) optIn() contacts.Change {
	return contacts.Change{Topics: []contacts.Choice{{TopicID: p.news.ID, Subscription: contacts.OptIn}}}
}

// moved creates a contact who is opted in to News and whose address changes from rita to later. It returns the id.
func (p *movedPages) moved() string {
	p.t.Helper()
	at, _, err := p.Contacts.Upsert(p.t.Context(), p.team, rita, p.optIn())
	if err == nil {
		_, err = p.Contacts.Update(p.t.Context(), p.team, at.ID, contacts.Change{Address: new(later)})
	}
	p.Must(err)
	return at.ID
}

// tokenOf returns the token in an email that was sent to a contact at rita's address.
func (p *movedPages) tokenOf(contactID, topicID string) string {
	return p.Contacts.Token(contacts.Link{TeamID: p.team, EmailID: id.New(), TopicID: topicID, ContactID: contactID,
		Address: rita})
}

// state returns the topics that the contact with an address is opted in to, and "none" if it is unsubscribed.
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

// want checks the states of the contacts with the addresses later and rita.
func (p *movedPages) want(ofLater, ofRita string) {
	p.t.Helper()
	if got := p.state(later); got != ofLater {
		p.t.Errorf("the later address has %q, want %q", got, ofLater)
	}
	if got := p.state(rita); got != ofRita {
		p.t.Errorf("the address of the email has %q, want %q", got, ofRita)
	}
}

// If the address of a contact has changed, one click in an earlier email unsubscribes the contact and the address of
// the email from the topic.
func TestOneClickAfterAChangeOfAddress(t *testing.T) {
	eachMovedPages(t, func(t *testing.T, p *movedPages) {
		if a := p.post(p.tokenOf(p.moved(), p.offers.ID), oneClick); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.text)
		}
		p.want("News", "")
	})
}

// One click without a topic unsubscribes both addresses from everything.
func TestOneClickWithoutTopicAfterAChangeOfAddress(t *testing.T) {
	eachMovedPages(t, func(t *testing.T, p *movedPages) {
		if a := p.post(p.tokenOf(p.moved(), ""), oneClick); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.text)
		}
		p.want("News Offers none", "Offers none")
	})
}

// The page shows the choices of the contact, but not the later address.
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

// If another contact has the address of the email by now, that contact is only unsubscribed and never opted in.
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

// If the contact was deleted, the link changes only the address of the email. The link does not change a new contact
// with the later address.
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

// A link cannot change contacts of another team.
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
