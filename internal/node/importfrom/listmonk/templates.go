package listmonk

import (
	"context"
	"regexp"
	"strconv"
	"strings"

	"github.com/postrider/postrider/internal/node/importfrom"
	"github.com/postrider/postrider/internal/node/importfrom/convert"
)

type template struct {
	ID      int    `json:"id"`
	Name    string `json:"name"`
	Type    string `json:"type"`
	Subject string `json:"subject"`
	Body    string `json:"body"`
}

// templates reads the templates of transactional emails. Templates of campaigns are layouts, which Postrider has not.
func (s *Source) templates(ctx context.Context, p *importfrom.Page) error {
	var answer struct {
		Data []template `json:"data"`
	}
	if err := s.c.Get(ctx, "/api/templates", nil, &answer); err != nil {
		return err
	}
	for _, t := range answer.Data {
		of := importfrom.Template{ID: strconv.Itoa(t.ID), Name: t.Name}
		reason := "it is a layout for campaigns, and broadcasts have no layouts here: copy its HTML into the broadcast"
		if t.Type == "tx" {
			var tr convert.Translator
			of.Subject, of.HTML = translate(&tr, t.Subject, false), translate(&tr, t.Body, true)
			reason = tr.Finish(&of)
		}
		if reason != "" {
			p.Refused = append(p.Refused, importfrom.Refused{Name: t.Name, Reason: reason})
			continue
		}
		p.Templates = append(p.Templates, of)
	}
	return nil
}

var (
	action    = regexp.MustCompile(`(?s)\{\{-?\s*(.*?)\s*-?\}\}`)
	field     = regexp.MustCompile(`^\.(?:Subscriber\.Attribs|Tx\.Data)\.([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)$`)
	trackLink = regexp.MustCompile(`^TrackLink\s+"([^"{}]*)"(?:\s+\.)?$`)
)

// fields are the variables that stand for the fields of a subscriber. An email with a template gets them like all other
// variables.
var fields = map[string]string{".Subscriber.Email": "email", ".Subscriber.Name": "name",
	".Subscriber.FirstName": "first_name", ".Subscriber.LastName": "last_name"}

// translate translates a Go template. Links to track are ordinary links, because Postrider tracks all links of a domain
// or none.
func translate(tr *convert.Translator, text string, html bool) string {
	text = strings.ReplaceAll(text, "@TrackLink", "")
	return action.ReplaceAllStringFunc(text, func(found string) string {
		inside := action.FindStringSubmatch(found)[1]
		if name := fields[inside]; name != "" {
			return tr.Variable(name, "", html)
		}
		if m := field.FindStringSubmatch(inside); m != nil {
			return tr.Variable(m[1], "", html)
		}
		if m := trackLink.FindStringSubmatch(inside); m != nil {
			return m[1]
		}
		switch word := strings.TrimSuffix(inside, " ."); {
		case word == "UnsubscribeURL":
			return convert.UnsubscribeURL
		case word == "TrackView", strings.HasPrefix(inside, "/*") && strings.HasSuffix(inside, "*/"):
			return ""
		}
		tr.RefuseExpression(found)
		return found
	})
}
