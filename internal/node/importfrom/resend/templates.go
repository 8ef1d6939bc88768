package resend

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/node/importfrom"
)

// allEvents are the events of webhooks that receive all.
var allEvents = []string{"email.sent", "email.scheduled", "email.delivered", "email.delivery_delayed",
	"email.complained", "email.bounced", "email.opened", "email.clicked", "email.received", "email.failed",
	"email.suppressed", "contact.created", "contact.updated", "contact.deleted", "domain.created", "domain.updated",
	"domain.deleted", "suppression.added", "suppression.removed"}

type template struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Alias     string          `json:"alias"`
	From      string          `json:"from"`
	Subject   string          `json:"subject"`
	ReplyTo   json.RawMessage `json:"reply_to"` // a string, a list or null
	HTML      string          `json:"html"`
	Text      *string         `json:"text"`
	Status    string          `json:"status"`
	Newer     bool            `json:"has_unpublished_versions"`
	Variables []struct {
		Key      string          `json:"key"`
		Type     string          `json:"type"`
		Fallback json.RawMessage `json:"fallback_value"`
	} `json:"variables"`
}

// templates reads templates. Placeholders have the same syntax here and there.
func (s *Source) templates(ctx context.Context, p *importfrom.Page, cursor string) error {
	all, next, err := details[template](ctx, s.c, "/templates", cursor)
	p.Next = next
	for i := range all {
		of, reason := all[i].neutral()
		if reason != "" {
			p.Refused = append(p.Refused, importfrom.Refused{Name: all[i].Name, Reason: reason})
			continue
		}
		p.Templates = append(p.Templates, of)
	}
	return err
}

func (t *template) neutral() (of importfrom.Template, reason string) {
	of = importfrom.Template{ID: t.ID, Name: t.Name, Alias: t.Alias, From: t.From, Subject: t.Subject, HTML: t.HTML, Text: t.Text,
		Published: t.Status == "published"}
	var one string
	if json.Unmarshal(t.ReplyTo, &of.ReplyTo) != nil && json.Unmarshal(t.ReplyTo, &one) == nil && one != "" {
		of.ReplyTo = []string{one}
	}
	if of.Published && t.Newer {
		of.Published = false
		of.Note = "it is a draft: only the version that is not published there can be read"
	}
	var changed []string
	for _, v := range t.Variables {
		fallback, has := value(v.Fallback)
		kind := scalar.Type(v.Type)
		switch v.Type {
		case "string", "number":
		case "boolean":
			kind = scalar.String
			changed = append(changed, v.Key)
		default:
			return of, "its variable " + v.Key + " is of the type " + v.Type + ", which templates do not have here"
		}
		if as, ok := fallback.As(kind); has && ok {
			fallback = as
		}
		of.Variables = append(of.Variables, importfrom.Variable{Key: v.Key, Type: kind, Fallback: fallback})
	}
	if changed != nil {
		of.Note = strings.TrimPrefix(of.Note+"; booleans are strings here: "+strings.Join(changed, ", "), "; ")
	}
	return of, ""
}
