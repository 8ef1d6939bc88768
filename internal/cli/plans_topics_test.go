package cli

import (
	"net/http"
	"strings"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/page"
)

// topics calls all topic operations.
func (d *driver) topics() {
	d.t.Helper()
	ctx := d.t.Context()
	must := func(err error) {
		d.t.Helper()
		if err != nil {
			d.t.Fatal(err)
		}
	}
	topic, err := d.Contacts.CreateTopic(ctx, d.team, contacts.NewTopic{Name: "News", Default: contacts.OptIn})
	must(err)
	gone, err := d.Contacts.CreateTopic(ctx, d.team, contacts.NewTopic{Name: "Gone", Default: contacts.OptIn})
	must(err)
	_, err = d.Contacts.UpdateTopic(ctx, d.team, topic.ID, contacts.TopicChange{})
	must(err)
	_, _, err = d.Contacts.Topics(ctx, d.team, page.Page{Limit: 2, After: gone.ID})
	must(err)
	chosen := contacts.Change{Topics: []contacts.Choice{{TopicID: topic.ID, Subscription: contacts.OptIn},
		{TopicID: gone.ID, Subscription: contacts.OptOut}}}
	at, _, err := d.Contacts.Upsert(ctx, d.team, "topics@one.example", chosen)
	must(err)
	must(d.Contacts.Subscribe(ctx, d.team, at.ID, chosen.Topics))
	_, err = d.Contacts.Get(ctx, d.team, at.Address)
	must(err)
	_, err = d.Contacts.Subscriptions(ctx, d.team, at.ID)
	must(err)
	must(d.Contacts.DeleteTopic(ctx, d.team, gone.ID))

	about := strings.Replace(hello, "{", `{"topic_id":"`+topic.ID+`",`, 1)
	d.do("POST", "/emails/batch", "["+about+","+strings.Replace(about, "b@", "topics@", 1)+"]")
	for _, address := range []string{at.Address, "nobody@one.example"} {
		link := "/unsubscribe/" + d.Contacts.Token(contacts.Link{TeamID: d.team, EmailID: id.New(), TopicID: topic.ID,
			Address: address})
		for _, body := range []string{"", "List-Unsubscribe=One-Click", "save=1&all=1&shown=" + topic.ID, "save=1"} {
			method := http.MethodPost
			if body == "" {
				method = http.MethodGet
			}
			if status, text := d.ask("", method, link, body); status != http.StatusOK {
				d.t.Errorf("%s %s: %d %s", method, body, status, text)
			}
		}
	}
	d.do("POST", "/emails", about)
}
