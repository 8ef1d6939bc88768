package signin

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/sending/templates"
)

// A person reads and publishes a template that an app with limits has written. If the template is changed after the
// person has opened the page, the unread version is not published.
func TestPublishTemplate(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		x.person("max@acme.example", teams.Member)
		x.person("vic@acme.example", teams.Viewer)
		x.person("eve@other.example", "")
		made, err := x.Templates.Create(t.Context(), x.Acme.TeamID, templates.NewTemplate{Name: "Welcome <b>",
			Subject: "Hi", HTML: new("<p>First</p>")})
		x.Must(err)
		path := "/app/apps/templates/" + made.ID
		b := x.browser(t).signIn("max@acme.example").get("/app/apps").want(200, "Templates to publish",
			"Read and publish Welcome <b>")
		b.get(path).want(200, "Welcome <b>", "<p>First</p>", "version 1", "It is not published")
		if strings.Contains(b.body, "<p>First") || strings.Contains(b.body, "<b>") {
			t.Error("the text of the template is HTML in the page")
		}
		form := b.form(path + "/publish")
		_, err = x.Templates.Update(t.Context(), x.Acme.TeamID, made.ID, templates.Change{HTML: new("<p>Second</p>")})
		x.Must(err)
		b.submit(path+"/publish").want(409, "changed after you opened it", "<p>Second</p>", "version 2")
		published := func() int { return x.Count(`SELECT COUNT(*) FROM templates WHERE current_id = published_id`) }
		if published() != 0 {
			t.Error("a version was published that nobody read")
		}

		v := x.browser(t).signIn("vic@acme.example").get("/app/apps")
		if strings.Contains(v.body, "Templates to publish") {
			t.Error("a viewer is offered templates to publish")
		}
		v.get(path).want(200, "does not allow you to publish")
		v.post(path+"/publish", form).want(403)
		e := x.browser(t).signIn("eve@other.example")
		e.post(path+"/publish", form).want(403)

		b.submit(path+"/publish").want(200, "The template is published")
		if strings.Contains(b.body, "Templates to publish") || published() != 1 {
			t.Error("the template was not published")
		}
		if n := x.Count(`SELECT COUNT(*) FROM audit_log WHERE action = 'template.published'
			AND actor_name = 'max@acme.example' AND target = $1`, made.ID); n != 1 {
			t.Errorf("recorded %d times", n)
		}
		b.get("/app/apps/templates/" + x.Acme.TeamID).want(404)
	})
}

// The page shows everything that emails contain without a sender's choice: the fallbacks of variables too, and hidden
// characters as code points.
func TestTemplateShowsEverything(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		x.person("max@acme.example", teams.Member)
		made, err := x.Templates.Create(t.Context(), x.Acme.TeamID, templates.NewTemplate{Name: "Wel\u202ecome",
			Subject: "Hi\u200b", HTML: new("<p>{{{promo}}} {{{count}}} {{{name}}}\u3164</p>"),
			Variables: []templates.Declaration{
				{Key: "promo", Type: "string", Fallback: scalar.OfText("<a href=\"https://evil.example\">\u2066")},
				{Key: "count", Type: "number", Fallback: scalar.OfNumber(7)}, {Key: "name", Type: "string"}}})
		x.Must(err)
		b := x.browser(t).signIn("max@acme.example").get("/app/apps").want(200, "Read and publish Wel[U+202E]come")
		b.get("/app/apps/templates/"+made.ID).want(200, "Wel[U+202E]come", "Hi[U+200B]", "{{{name}}}[U+3164]", "promo",
			"<a href=\"https://evil.example\">[U+2066]", "<dt>Value of count if the sender gives none</dt><dd>7</dd>")
		if strings.ContainsAny(b.body, "\u202e\u200b\u3164\u2066") {
			t.Error("the page contains hidden characters")
		}
	})
}
