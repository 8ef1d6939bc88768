package templates_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/sending/templates"
)

type newTemplate = templates.NewTemplate

// repeated returns a string of n letters.
func repeated(n int) string { return strings.Repeat("x", n) }

// declarations returns n variable declarations with different keys.
func declarations(n int) (all []templates.Declaration) {
	for i := range n {
		all = append(all, templates.Declaration{Key: fmt.Sprintf("KEY_%d", i), Type: "string"})
	}
	return all
}

// declaring returns a function that sets the variables of a new template to one declaration.
func declaring(v templates.Declaration) func(*newTemplate) {
	return func(n *newTemplate) { n.Variables = []templates.Declaration{v} }
}

// ruleCases lists templates at the limits of the rules. If the template should be accepted, says is empty.
var ruleCases = []struct {
	name string
	set  func(*newTemplate)
	kind fault.Kind
	says string
}{
	{"as it is", func(*newTemplate) {}, 0, ""},
	{"no name", func(n *newTemplate) { n.Name = "" }, fault.Missing, "`name`"},
	{"a blank name", func(n *newTemplate) { n.Name = " \t" }, fault.Missing, "`name`"},
	{"the longest name", func(n *newTemplate) { n.Name = strings.Repeat("é", templates.MaxName) }, 0, ""},
	{"a longer name", func(n *newTemplate) { n.Name = strings.Repeat("é", templates.MaxName+1) }, fault.Invalid,
		"`name`"},
	{"a name of two lines", func(n *newTemplate) { n.Name = "a\nb" }, fault.Invalid, "`name`"},
	{"no HTML", func(n *newTemplate) { n.HTML = nil }, fault.Missing, "`html`"},
	{"empty HTML", func(n *newTemplate) { n.HTML = new("") }, 0, ""},
	{"HTML that is none", func(n *newTemplate) { n.HTML = new("<<p <!-- {{{") }, 0, ""},
	{"NUL in HTML", func(n *newTemplate) { n.HTML = new("a\x00") }, fault.Invalid, "`html`"},
	{"NUL in text", func(n *newTemplate) { n.Text = new("a\x00") }, fault.Invalid, "`text`"},
	{"the largest HTML", func(n *newTemplate) { n.HTML, n.Text = new(repeated(templates.MaxSize-1)), new("x") }, 0, ""},
	{"larger HTML", func(n *newTemplate) { n.HTML, n.Text = new(repeated(templates.MaxSize)), new("x") }, fault.Invalid,
		"`html`"},
	{"the most placeholders", func(n *newTemplate) {
		n.Subject, n.HTML = "", new(strings.Repeat("{{{A}}}", templates.MaxPlaceholders))
	}, 0, ""},
	{"more placeholders", func(n *newTemplate) {
		n.Subject, n.HTML = "{{{A}}}", new(strings.Repeat("{{{A}}}", templates.MaxPlaceholders))
	}, fault.Invalid, "10001 placeholders"},
	{"no alias", func(n *newTemplate) { n.Alias = "" }, 0, ""},
	{"the longest alias", func(n *newTemplate) { n.Alias = "a-Z_9" + repeated(95) }, 0, ""},
	{"a longer alias", func(n *newTemplate) { n.Alias = repeated(101) }, fault.Invalid, "`alias`"},
	{"an alias with a space", func(n *newTemplate) { n.Alias = "a b" }, fault.Invalid, "`alias`"},
	{"an alias like an id", func(n *newTemplate) { n.Alias = id.New() }, fault.Invalid, "`alias`"},
	{"no sender", func(n *newTemplate) { n.From = "" }, 0, ""},
	{"a sender that is none", func(n *newTemplate) { n.From = "nobody" }, fault.Invalid, "`from`"},
	{"a sender with a placeholder", func(n *newTemplate) { n.From = "{{{NAME}}} <a@acme.example>" }, 0, ""},
	{"a sender of two lines", func(n *newTemplate) { n.From = "{{{NAME}}}\n <a@acme.example>" }, fault.Invalid,
		"`from`"},
	{"a long sender", func(n *newTemplate) { n.From = repeated(2000) + " <a@acme.example>" }, fault.Invalid, "`from`"},
	{"a subject of two lines", func(n *newTemplate) { n.Subject = "a\nb" }, fault.Invalid, "`subject`"},
	{"the longest subject", func(n *newTemplate) { n.Subject = repeated(998) }, 0, ""},
	{"a longer subject", func(n *newTemplate) { n.Subject = repeated(999) }, fault.Invalid, "`subject`"},
	{"an address for replies that is none", func(n *newTemplate) { n.ReplyTo = []string{"a@b.example", "x"} },
		fault.Invalid, "`reply_to`"},
	{"an empty address for replies", func(n *newTemplate) { n.ReplyTo = []string{""} }, fault.Invalid, "`reply_to`"},
	{"51 addresses", func(n *newTemplate) { n.ReplyTo = make([]string, 51) }, fault.Invalid, "`reply_to`"},
	{"50 variables", func(n *newTemplate) { n.Variables = declarations(50) }, 0, ""},
	{"51 variables", func(n *newTemplate) { n.Variables = declarations(51) }, fault.Invalid, "`variables`"},
	{"a key twice", func(n *newTemplate) { n.Variables = append(declarations(2), declarations(1)...) }, fault.Invalid,
		"`variables[2]`"},
	{"keys that differ in case", func(n *newTemplate) {
		n.Variables = []templates.Declaration{{Key: "a", Type: "string"}, {Key: "A", Type: "string"}}
	}, 0, ""},
	{"no key", declaring(templates.Declaration{Type: "string"}), fault.Missing, "`variables[0].key`"},
	{"the longest key", declaring(templates.Declaration{Key: "aZ9_" + repeated(46), Type: "string"}), 0, ""},
	{"a longer key", declaring(templates.Declaration{Key: repeated(51), Type: "string"}), fault.Invalid,
		"`variables[0].key`"},
	{"a key with a dash", declaring(templates.Declaration{Key: "a-b", Type: "string"}), fault.Invalid,
		"`variables[0].key`"},
	{"a key that is not ASCII", declaring(templates.Declaration{Key: "é", Type: "string"}), fault.Invalid,
		"`variables[0].key`"},
	{"FIRST_NAME", declaring(templates.Declaration{Key: "FIRST_NAME", Type: "string"}), fault.Invalid, "is reserved"},
	{"LAST_NAME", declaring(templates.Declaration{Key: "LAST_NAME", Type: "string"}), fault.Invalid, "is reserved"},
	{"EMAIL", declaring(templates.Declaration{Key: "EMAIL", Type: "string"}), fault.Invalid, "is reserved"},
	{"UNSUBSCRIBE_URL", declaring(templates.Declaration{Key: "UNSUBSCRIBE_URL", Type: "string"}), fault.Invalid,
		"is reserved"},
	{"RESEND_UNSUBSCRIBE_URL", declaring(templates.Declaration{Key: "RESEND_UNSUBSCRIBE_URL", Type: "string"}),
		fault.Invalid, "is reserved"},
	{"POSTRIDER_UNSUBSCRIBE_URL", declaring(templates.Declaration{Key: "POSTRIDER_UNSUBSCRIBE_URL", Type: "string"}),
		fault.Invalid, "is reserved"},
	{"POSTRIDER_EMAIL", declaring(templates.Declaration{Key: "POSTRIDER_EMAIL", Type: "string"}), fault.Invalid,
		"is reserved"},
	{"RESEND_LAST_NAME", declaring(templates.Declaration{Key: "RESEND_LAST_NAME", Type: "string"}), fault.Invalid,
		"is reserved"},
	{"RESEND_this", declaring(templates.Declaration{Key: "RESEND_this", Type: "string"}), fault.Invalid, "is reserved"},
	{"POSTRIDER_this", declaring(templates.Declaration{Key: "POSTRIDER_this", Type: "string"}), fault.Invalid,
		"is reserved"},
	{"RESEND_contact", declaring(templates.Declaration{Key: "RESEND_contact", Type: "string"}), fault.Invalid,
		"is reserved"},
	{"POSTRIDER_contact", declaring(templates.Declaration{Key: "POSTRIDER_contact", Type: "string"}), fault.Invalid,
		"is reserved"},
	{"RESEND_THIS", declaring(templates.Declaration{Key: "RESEND_THIS", Type: "string"}), 0, ""},
	{"contact", declaring(templates.Declaration{Key: "contact", Type: "string"}), fault.Invalid, "is reserved"},
	{"this", declaring(templates.Declaration{Key: "this", Type: "string"}), fault.Invalid, "is reserved"},
	{"email", declaring(templates.Declaration{Key: "email", Type: "string"}), 0, ""},
	{"no type", declaring(templates.Declaration{Key: "a"}), fault.Missing, "`variables[0].type`"},
	{"another type", declaring(templates.Declaration{Key: "a", Type: "boolean"}), fault.Invalid, "`variables[0].type`"},
	{"a fallback of another type", declaring(templates.Declaration{Key: "a", Type: "number",
		Fallback: scalar.OfText("1")}), fault.Invalid, "`variables[0].fallback_value`"},
	{"a fallback of no type", declaring(templates.Declaration{Key: "a", Type: "string",
		Fallback: scalar.Value{Type: scalar.Other}}), fault.Invalid, "`variables[0].fallback_value`"},
	{"an empty fallback", declaring(templates.Declaration{Key: "a", Type: "string", Fallback: scalar.OfText("")}), 0, ""},
	{"the longest fallback", declaring(templates.Declaration{Key: "a", Type: "string",
		Fallback: scalar.OfText(strings.Repeat("é", 2000))}), 0, ""},
	{"a longer fallback", declaring(templates.Declaration{Key: "a", Type: "string",
		Fallback: scalar.OfText(strings.Repeat("é", 2001))}), fault.Invalid, "`variables[0].fallback_value`"},
	{"the largest number", declaring(templates.Declaration{Key: "a", Type: "number",
		Fallback: scalar.OfNumber(-scalar.MaxNumber)}), 0, ""},
	{"a larger number", declaring(templates.Declaration{Key: "a", Type: "number",
		Fallback: scalar.OfNumber(scalar.MaxNumber + 1)}), fault.Invalid, "`variables[0].fallback_value`"},
	{"an infinite number", declaring(templates.Declaration{Key: "a", Type: "number",
		Fallback: scalar.OfNumber(math.Inf(1))}), fault.Invalid, "`variables[0].fallback_value`"},
}

// Each rule accepts values up to its limit and rejects the next larger value, and the error names the field. If a
// template is refused, it is not stored.
func TestRules(t *testing.T) {
	each(t, func(t *testing.T, o *office) {
		made := 0
		for i, c := range ruleCases {
			n := templates.NewTemplate{Name: "x", Alias: fmt.Sprint("alias-", i), HTML: new("<p>")}
			c.set(&n)
			_, err := o.Create(t.Context(), o.team, n)
			if c.says != "" {
				wantFault(t, c.name, err, c.kind, c.says)
				continue
			}
			if made++; err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		if n := o.count(t, `SELECT COUNT(*) FROM templates`); n != made {
			t.Errorf("there are %d templates, want %d", n, made)
		}
	})
}

// The same rules apply when a template is changed. If a change is refused, it has no effect.
func TestRulesOfChanges(t *testing.T) {
	each(t, func(t *testing.T, o *office) {
		o.create(t, order())
		before, v := o.get(t, "order")
		for field, c := range map[string]templates.Change{
			"`name`":             {Name: new("\x01"), HTML: new("<b>")},
			"`alias`":            {Alias: new("a b"), HTML: new("<b>")},
			"`from`":             {From: new("nobody"), Subject: new("x")},
			"`subject`":          {Subject: new("a\nb"), HTML: new("<b>")},
			"`reply_to`":         {ReplyTo: &[]string{"nobody"}},
			"`html`":             {HTML: new("\x00")},
			"`text`":             {Text: new(new("\x00"))},
			"`variables[0].key`": {Variables: &[]templates.Declaration{{Key: "this", Type: "string"}}, HTML: new("<b>")},
		} {
			_, err := o.Update(t.Context(), o.team, "order", c)
			wantFault(t, field, err, fault.Invalid, field)
		}
		if after, w := o.get(t, "order"); after != before || w.Number != v.Number {
			t.Errorf("%+v became %+v", before, after)
		}
	})
}

// Publish refuses a template with errors that would affect every email, and the error names the field.
func TestPublishRefuses(t *testing.T) {
	each(t, func(t *testing.T, o *office) {
		for i, c := range []struct {
			name string
			set  func(*newTemplate)
			says string
		}{
			{"as it is", func(*newTemplate) {}, ""},
			{"no HTML", func(n *newTemplate) { n.HTML = new(" \n") }, "`html` field is empty"},
			{"undeclared in the HTML", func(n *newTemplate) { n.HTML = new("{{{ITEM}}}{{{OTHER|x}}}") },
				"`html` field uses the variable OTHER"},
			{"undeclared in the subject", func(n *newTemplate) { n.Subject = "{{{item}}}" },
				"`subject` field uses the variable item"},
			{"undeclared in the sender", func(n *newTemplate) { n.From = "{{{WHO}}} <a@acme.example>" }, "`from`"},
			{"undeclared in an address", func(n *newTemplate) { n.ReplyTo = []string{"a+{{{X}}}@acme.example"} }, "`reply_to`"},
			{"undeclared in the text", func(n *newTemplate) { n.Text = new("{{{X}}}") }, "`text`"},
			{"reserved ones", func(n *newTemplate) {
				n.HTML = new("{{{FIRST_NAME|you}}}{{{EMAIL}}}{{{UNSUBSCRIBE_URL}}}{{{RESEND_UNSUBSCRIBE_URL}}}" +
					"{{{POSTRIDER_UNSUBSCRIBE_URL}}}{{{contact.plan}}}")
			}, ""},
			{"not closed", func(n *newTemplate) { n.HTML = new("<p>{{{ITEM</p>") }, "`html` field has a placeholder"},
			{"not closed before another", func(n *newTemplate) { n.HTML = new("<p>{{{ITEM {{{PRICE}}}</p>") },
				"`html` field has a placeholder"},
			{"a name that is none", func(n *newTemplate) { n.Subject = "{{{a b}}}" }, "`subject` field has a placeholder"},
			{"no name", func(n *newTemplate) { n.HTML = new("{{{}}}") }, "`html` field has a placeholder"},
			{"four braces", func(n *newTemplate) { n.HTML = new("{{{{ITEM}}}}") }, ""},
			{"style sheets", func(n *newTemplate) { n.HTML = new("<style>@media x{a{b{c:d}}}</style>{{ITEM}}") }, ""},
			{"a long one", func(n *newTemplate) { n.HTML = new("{{{" + strings.Repeat("é", 100_000)) }, "…"},
			{"many braces", func(n *newTemplate) { n.HTML = new(strings.Repeat("{", 1_000_000)) }, "`html`"},
		} {
			n := order()
			n.Alias = fmt.Sprint("alias-", i)
			c.set(&n)
			o.create(t, n)
			_, err := o.Publish(t.Context(), o.team, n.Alias)
			if c.says == "" {
				if err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
				continue
			}
			wantFault(t, c.name, err, fault.Invalid, c.says)
			if len(err.Error()) > 500 {
				t.Errorf("%s: the error has %d bytes", c.name, len(err.Error()))
			}
			if got, _ := o.get(t, n.Alias); got.Published() {
				t.Errorf("%s: it is published", c.name)
			}
		}
	})
}

// For any version, Render returns the same text and the same errors as an attempt to send an email with that version.
func TestRender(t *testing.T) {
	each(t, func(t *testing.T, o *office) {
		ctx := t.Context()
		n := order()
		n.From, n.ReplyTo = "{{{ITEM}}} <a@acme.example>", []string{"r+{{{PRICE}}}@acme.example"}
		o.create(t, n)
		tea := map[string]scalar.Value{"ITEM": scalar.OfText("<tea>\r\nBcc: x@y.example"),
			"OTHER": scalar.OfText("ignored"), "contact.plan": scalar.OfText("ignored")}
		_, err := o.Render(ctx, o.team, "order", templates.RenderOptions{Variables: tea})
		wantFault(t, "a draft", err, fault.Invalid, "has not been published")
		r, err := o.Render(ctx, o.team, "order", templates.RenderOptions{Version: "draft", Variables: tea})
		if err == nil {
			t.Errorf("a sender that cannot be parsed is rendered: %+v", r)
		}
		tea["ITEM"] = scalar.OfText("Tea & <i>")
		r, err = o.Render(ctx, o.team, "order", templates.RenderOptions{Version: "draft", Variables: map[string]scalar.Value{
			"ITEM": scalar.OfText("Tea"), "PRICE": scalar.OfNumber(1e3)}})
		if err != nil || r.From != "Tea <a@acme.example>" || r.Subject != "Your Tea" || r.HTML != "<p>Tea for 1000</p>" ||
			r.Text != "Tea for 1000" || r.ReplyTo[0] != "r+1000@acme.example" {
			t.Errorf("rendered %+v, %v", r, err)
		}
		o.publish(t, "order")
		o.update(t, "order", templates.Change{HTML: new("<b>{{{ITEM}}}</b>"), From: new("a@acme.example"),
			Text: new(new(""))})
		for version, want := range map[string]string{"": "<p>Tea & <i> for 9.5</p>", "published": "<p>Tea & <i> for 9.5</p>",
			"1": "<p>Tea & <i> for 9.5</p>", "2": "<b>Tea & <i></b>", "draft": "<b>Tea & <i></b>"} {
			given := map[string]scalar.Value{"ITEM": tea["ITEM"]}
			if version == "" || version == "published" || version == "1" {
				given["ITEM"] = scalar.OfText("Tea")
				want = strings.ReplaceAll(want, " & <i>", "")
			}
			r, err := o.Render(ctx, o.team, "order", templates.RenderOptions{Version: version, Variables: given})
			if err != nil || r.HTML != want {
				t.Errorf("version %q: %+v, %v", version, r, err)
			}
			if version == "2" && r.Text != "" {
				t.Errorf("a version without text has %q", r.Text)
			}
		}
		x := scalar.OfText("x")
		for says, given := range map[string]map[string]scalar.Value{
			"`variables.ITEM`":                           {},
			"`variables.PRICE` field must be a number":   {"ITEM": x, "PRICE": scalar.OfText("1")},
			"`variables.ITEM` field must be a string":    {"ITEM": scalar.OfNumber(1)},
			"`variables.ITEM` field has 2001 characters": {"ITEM": scalar.OfText(strings.Repeat("é", 2001))},
			"`variables.EMAIL`":                          {"ITEM": x, "EMAIL": x},
			"UTF-8":                                      {"ITEM": scalar.OfText("\xff")},
			"from -9007199254740991":                     {"ITEM": x, "PRICE": scalar.OfNumber(1e16)},
		} {
			_, err := o.Render(ctx, o.team, "order", templates.RenderOptions{Version: "draft", Variables: given})
			wantFault(t, says, err, fault.Invalid, says)
		}
		o.create(t, templates.NewTemplate{Name: "Bare", Alias: "bare", HTML: new("{{{A}}}"),
			Variables: []templates.Declaration{
				{Key: "A", Type: "string", Fallback: scalar.OfText("")}}})
		_, err = o.Render(ctx, o.team, "bare", templates.RenderOptions{Version: "draft"})
		wantFault(t, "nothing to read", err, fault.Missing, "`html`")
		tea["ITEM"] = scalar.OfText("<x>,")
		r, err = o.Render(ctx, o.team, "order", templates.RenderOptions{Version: "1", Variables: tea,
			From: "own@acme.example"})
		if err != nil || r.From != "own@acme.example" {
			t.Errorf("with a sender of its own: %+v, %v", r, err)
		}
		r, err = o.Render(ctx, o.team, "order", templates.RenderOptions{Version: "1", Variables: map[string]scalar.Value{
			"ITEM": scalar.OfText("Tea, Inc.")}, From: "{{{ITEM}}} <own@acme.example>"})
		if err != nil || r.From != `"Tea, Inc." <own@acme.example>` {
			t.Errorf("with placeholders in its own sender: %+v, %v", r, err)
		}
		_, err = o.Render(ctx, o.team, "order", templates.RenderOptions{Version: "1", Variables: tea,
			From: "{{{NONE}}} <own@acme.example>"})
		wantFault(t, "a name that is not declared", err, fault.Invalid, "uses the variable NONE")
		_, err = o.Render(ctx, o.team, "order", templates.RenderOptions{Version: "9", Variables: tea})
		wantFault(t, "a version that is not there", err, fault.NotFound, "Template version not found")
		_, err = o.Render(ctx, o.team, "order", templates.RenderOptions{Version: "newest", Variables: tea})
		wantFault(t, "a version that is none", err, fault.BadID, "`version`")
	})
}

// The value of a variable without a fallback may be omitted if each placeholder for the variable has a fallback.
func TestFallbacksOfPlaceholders(t *testing.T) {
	each(t, func(t *testing.T, o *office) {
		for html, want := range map[string]string{"{{{A|you}}} {{{A|}}}{{{B}}}": "you B", "{{{A|you}}} {{{A}}}{{{B}}}": "",
			"{{{B}}}": ""} {
			o.create(t, templates.NewTemplate{Name: "x", Alias: "x", HTML: &html, Variables: []templates.Declaration{
				{Key: "A", Type: "string"}, {Key: "B", Type: "string", Fallback: scalar.OfText("B")}}})
			o.publish(t, "x")
			r, err := o.Render(t.Context(), o.team, "x", templates.RenderOptions{})
			if want == "" {
				wantFault(t, html, err, fault.Invalid, "`variables.A`")
			} else if err != nil || r.HTML != want {
				t.Errorf("%s: %q, %v", html, r.HTML, err)
			}
			p, err := o.Published(t.Context(), o.team, "x")
			if err != nil {
				t.Fatal(err)
			}
			if v, err := p.Values(nil); (err == nil) != (want != "") || err == nil && p.Content.HTML(v) == nil {
				t.Errorf("sending %s: %v, %v", html, v, err)
			}
			if _, err := o.Delete(t.Context(), o.team, "x"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Numbers are formatted as in JSON.
func TestNumberValue(t *testing.T) {
	if got := scalar.OfNumber(math.Copysign(0, -1)); got.Text != "0" {
		t.Errorf("-0 is written %s", got.Text)
	}
	for n, want := range map[float64]string{0: "0", 1: "1", -2.5: "-2.5", 1e3: "1000", 0.1: "0.1", 1e-7: "1e-7",
		scalar.MaxNumber: "9007199254740991"} {
		if got := scalar.OfNumber(n); got.Text != want || got.Type != scalar.Number {
			t.Errorf("%v is written %+v", n, got)
		}
	}
}
