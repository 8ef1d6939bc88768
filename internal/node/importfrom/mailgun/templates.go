package mailgun

import (
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/node/importfrom"
	"github.com/postrider/postrider/internal/node/importfrom/convert"
)

// templates reads the active version of each template.
func (s *Source) templates(ctx context.Context, p *importfrom.Page, first string, items []json.RawMessage) error {
	path, _, _ := strings.Cut(first, "?")
	var names []string
	err := each(items, func(x *struct {
		Name string `json:"name"`
	}) {
		names = append(names, x.Name)
	})
	if err != nil {
		return err
	}
	for _, name := range names {
		var one struct {
			Template struct {
				Version struct {
					Template string            `json:"template"`
					Engine   string            `json:"engine"`
					Headers  map[string]string `json:"headers"`
				} `json:"version"`
			} `json:"template"`
		}
		if err := s.c.Get(ctx, path+"/"+url.PathEscape(name), url.Values{"active": {"yes"}}, &one); err != nil {
			return err
		}
		v := one.Template.Version
		var tr convert.Translator
		of := importfrom.Template{ID: path + "/" + name, Name: name, Subject: translate(&tr, v.Headers["Subject"], false),
			From: translate(&tr, v.Headers["From"], false), HTML: translate(&tr, v.Template, true)}
		reason := tr.Finish(&of)
		if v.Engine == "go" {
			reason = "it is written in the template language of Go, which is not translated"
		}
		if v.Template == "" {
			reason = "it has no active version"
		}
		if reason != "" {
			p.Refused = append(p.Refused, importfrom.Refused{Name: name, Reason: reason})
			continue
		}
		p.Templates = append(p.Templates, of)
	}
	return nil
}

var recipient = regexp.MustCompile(`%recipient\.([A-Za-z_][A-Za-z0-9_.]*)%`)

// translate translates Handlebars and the variables of recipients.
func translate(tr *convert.Translator, text string, html bool) string {
	text = tr.Handlebars(text, html)
	for _, name := range []string{"%unsubscribe_url%", "%tag_unsubscribe_url%", "%mailing_list_unsubscribe_url%"} {
		text = strings.ReplaceAll(text, name, convert.UnsubscribeURL)
	}
	return recipient.ReplaceAllStringFunc(text, func(found string) string {
		return tr.Variable(recipient.FindStringSubmatch(found)[1], "", false)
	})
}

// events are the events of Mailgun's webhooks, with those of Postrider.
var events = map[string]string{"accepted": "email.sent", "delivered": "email.delivered",
	"temporary_fail": "email.delivery_delayed", "permanent_fail": "email.bounced", "complained": "email.complained",
	"opened": "email.opened", "clicked": "email.clicked", "unsubscribed": "contact.updated"}

// webhooks reads the webhooks of all domains. Each URL becomes one webhook with all of its events.
func (s *Source) webhooks(ctx context.Context, p *importfrom.Page) error {
	byURL := map[string][]string{}
	for _, d := range s.domains {
		var list struct {
			Webhooks map[string]*struct {
				URLs []string `json:"urls"`
			} `json:"webhooks"`
		}
		if err := s.c.Get(ctx, "/v3/domains/"+url.PathEscape(d.Name)+"/webhooks", nil, &list); err != nil {
			return err
		}
		for name, w := range list.Webhooks {
			if w == nil || events[name] == "" {
				continue
			}
			for _, u := range w.URLs {
				byURL[u] = append(byURL[u], events[name])
			}
		}
	}
	for _, u := range slices.Sorted(maps.Keys(byURL)) {
		slices.Sort(byURL[u])
		p.Webhooks = append(p.Webhooks, importfrom.Webhook{URL: u, Events: slices.Compact(byURL[u]),
			Note: "its receiver must read the events of Postrider, which have another form"})
	}
	return nil
}
