package templates_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/templates"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// office is a test node with the template service and a team.
type office struct {
	*templates.Service
	node *testnode.Node
	team string
}

func each(t *testing.T, f func(t *testing.T, o *office)) {
	t.Helper()
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		f(t, &office{n.Templates, n, n.Acme.TeamID})
	})
}

// order returns a request to create a template with two variables, one of them with a fallback.
func order() templates.NewTemplate {
	return templates.NewTemplate{Name: "Order", Alias: "order", From: "Acme <orders@acme.example>",
		Subject: "Your {{{ITEM}}}", ReplyTo: []string{"help@acme.example"},
		HTML: new("<p>{{{ITEM}}} for {{{PRICE}}}</p>"), Variables: []templates.Declaration{
			{Key: "ITEM", Type: "string"}, {Key: "PRICE", Type: "number", Fallback: scalar.OfNumber(9.5)}}}
}

func (o *office) create(t *testing.T, n templates.NewTemplate) templates.Template {
	t.Helper()
	made, err := o.Create(t.Context(), o.team, n)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (o *office) get(t *testing.T, name string) (templates.Template, templates.Version) {
	t.Helper()
	got, v, err := o.Get(t.Context(), o.team, name)
	if err != nil {
		t.Fatal(err)
	}
	return got, v
}

func (o *office) update(t *testing.T, name string, c templates.Change) {
	t.Helper()
	if _, err := o.Update(t.Context(), o.team, name, c); err != nil {
		t.Fatal(err)
	}
}

func (o *office) publish(t *testing.T, name string) {
	t.Helper()
	if _, err := o.Publish(t.Context(), o.team, name); err != nil {
		t.Fatal(err)
	}
}

func (o *office) count(t *testing.T, query string, args ...any) (n int) {
	t.Helper()
	if err := o.node.DB.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// sentWith returns the HTML that an email with the given template would have if it were sent now.
func (o *office) sentWith(t *testing.T, name string) string {
	t.Helper()
	p, err := o.Published(t.Context(), o.team, name)
	if err != nil {
		return err.Error()
	}
	values, err := p.Values(map[string]scalar.Value{"ITEM": scalar.OfText("tea")})
	if err != nil {
		return err.Error()
	}
	return *p.Content.HTML(values)
}

func wantFault(t *testing.T, what string, err error, kind fault.Kind, says string) {
	t.Helper()
	if err == nil || fault.KindOf(err) != kind || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v; want kind %d with %q", what, err, kind, says)
	}
}

// After a template is created, published, changed and published again, emails always use the published version.
func TestLifeOfATemplate(t *testing.T) {
	each(t, func(t *testing.T, o *office) {
		made := o.create(t, order())
		draft, v := o.get(t, "order")
		if draft.ID != made.ID || draft.Published() || !draft.HasUnpublished() || !draft.PublishedAt.IsZero() ||
			v.ID != draft.CurrentID || v.Number != 1 || v.Subject != "Your {{{ITEM}}}" || v.Plain != nil ||
			v.PlainOrConverted() != "{{{ITEM}}} for {{{PRICE}}}" || len(v.Variables) != 2 {
			t.Errorf("the draft is %+v, its version %+v, its text %q", draft, v, v.PlainOrConverted())
		}
		if got := o.sentWith(t, "order"); !strings.Contains(got, "has not been published") {
			t.Errorf("a draft is sent as %q", got)
		}
		o.publish(t, "order")
		first, v := o.get(t, made.ID)
		if !first.Published() || first.HasUnpublished() || first.PublishedAt.IsZero() || v.PublishedAt != first.PublishedAt {
			t.Errorf("published, it is %+v, its version %+v", first, v)
		}
		if got := o.sentWith(t, strings.ToUpper(made.ID)); got != "<p>tea for 9.5</p>" {
			t.Errorf("it is sent as %q", got)
		}
		o.update(t, "order", templates.Change{HTML: new("<b>{{{ITEM}}}</b>")})
		if now, _ := o.get(t, "order"); !now.Published() || !now.HasUnpublished() || now.CurrentID == first.CurrentID ||
			now.PublishedID != first.PublishedID || now.PublishedAt != first.PublishedAt {
			t.Errorf("edited, it is %+v", now)
		}
		if got := o.sentWith(t, "order"); got != "<p>tea for 9.5</p>" {
			t.Errorf("edited and not published, it is sent as %q", got)
		}
		o.publish(t, "order")
		if got := o.sentWith(t, "order"); got != "<b>tea</b>" {
			t.Errorf("published again, it is sent as %q", got)
		}
		before, _ := o.get(t, "order")
		o.publish(t, "order")
		if now, _ := o.get(t, "order"); now != before {
			t.Errorf("publishing what is published makes %+v of %+v", now, before)
		}
		gone, err := o.Delete(t.Context(), o.team, "order")
		if err != nil || gone != made.ID {
			t.Errorf("deleted %s, %v", gone, err)
		}
		for what, do := range map[string]func() error{
			"get":       func() error { _, _, err := o.Get(t.Context(), o.team, made.ID); return err },
			"by alias":  func() error { _, _, err := o.Get(t.Context(), o.team, "order"); return err },
			"update":    func() error { _, err := o.Update(t.Context(), o.team, made.ID, templates.Change{}); return err },
			"publish":   func() error { _, err := o.Publish(t.Context(), o.team, made.ID); return err },
			"duplicate": func() error { _, err := o.Duplicate(t.Context(), o.team, made.ID); return err },
			"delete":    func() error { _, err := o.Delete(t.Context(), o.team, made.ID); return err },
			"send":      func() error { _, err := o.Published(t.Context(), o.team, made.ID); return err },
			"by alias, send": func() error {
				_, err := o.Published(t.Context(), o.team, "order")
				return err
			},
			"versions": func() error { _, _, _, err := o.Versions(t.Context(), o.team, made.ID, page.Page{}); return err },
			"render": func() error {
				_, err := o.Render(t.Context(), o.team, made.ID, templates.RenderOptions{Version: "draft"})
				return err
			},
		} {
			wantFault(t, what, do(), fault.NotFound, "Template not found")
		}
		if list, _, err := o.List(t.Context(), o.team, page.Page{}); err != nil || len(list) != 0 {
			t.Errorf("the list is %+v, %v", list, err)
		}
		o.create(t, order()) // the alias can be used again
	})
}

// Only a change to the content or the variables creates a version. Unchanged variables keep their ids.
func TestVersionsAreMadeByChanges(t *testing.T) {
	each(t, func(t *testing.T, o *office) {
		o.create(t, order())
		_, first := o.get(t, "order")
		for i, c := range []struct {
			name   string
			change templates.Change
			makes  bool
		}{
			{"nothing", templates.Change{}, false},
			{"the same", templates.Change{Name: new("Order"), Alias: new("order"), From: new(first.From),
				Subject: new(first.Subject), ReplyTo: &first.ReplyTo, HTML: new(first.HTML), Text: new(first.Plain),
				Variables: new(order().Variables)}, false},
			{"the name", templates.Change{Name: new("Orders")}, false},
			{"the subject", templates.Change{Subject: new("Your order")}, true},
			{"no subject", templates.Change{Subject: new("")}, true},
			{"the sender", templates.Change{From: new("a@acme.example")}, true},
			{"the addresses for replies", templates.Change{ReplyTo: &[]string{"a@acme.example", "b@acme.example"}}, true},
			{"none of them", templates.Change{ReplyTo: &[]string{}}, true},
			{"the text", templates.Change{Text: new(new("text"))}, true},
			{"the same text", templates.Change{Text: new(new("text"))}, false},
			{"no text", templates.Change{Text: new(new(""))}, true},
			{"the text from the HTML", templates.Change{Text: new((*string)(nil))}, true},
			{"the HTML", templates.Change{HTML: new("<p>{{{PRICE}}}</p>")}, true},
			{"a type", templates.Change{Variables: &[]templates.Declaration{{Key: "ITEM", Type: "number"},
				{Key: "PRICE", Type: "number", Fallback: scalar.OfNumber(9.5)}}}, true},
			{"a variable more", templates.Change{Variables: &[]templates.Declaration{{Key: "ITEM", Type: "number"},
				{Key: "PRICE", Type: "number", Fallback: scalar.OfNumber(9.5)}, {Key: "MORE", Type: "string"}}}, true},
			{"their order", templates.Change{Variables: &[]templates.Declaration{{Key: "MORE", Type: "string"},
				{Key: "PRICE", Type: "number", Fallback: scalar.OfNumber(9.5)}, {Key: "ITEM", Type: "number"}}}, true},
			{"no variables", templates.Change{Variables: &[]templates.Declaration{}}, true},
		} {
			before, v := o.get(t, "order")
			o.update(t, "order", c.change)
			after, w := o.get(t, "order")
			if made := w.Number - v.Number; made != map[bool]int64{true: 1}[c.makes] || (w.ID != v.ID) != c.makes {
				t.Errorf("%d, %s: version %d became %d", i, c.name, v.Number, w.Number)
			}
			if after.CreatedAt != before.CreatedAt || (after == before) == (c.makes || c.name == "the name") {
				t.Errorf("%d, %s: %+v became %+v", i, c.name, before, after)
			}
		}
		_, all, _, err := o.Versions(t.Context(), o.team, "order", page.Page{})
		if err != nil || len(all) != 14 {
			t.Fatalf("%d versions, %v", len(all), err)
		}
		of := func(number int) map[string]templates.Variable {
			byKey := map[string]templates.Variable{}
			_, v, err := o.Version(t.Context(), o.team, "order", fmt.Sprint(number))
			if err != nil || v.ID != all[len(all)-number].ID {
				t.Fatalf("version %d: %+v, %v", number, v, err)
			}
			for _, v := range v.Variables {
				byKey[v.Key] = v
			}
			return byKey
		}
		one, retyped, more := of(1), of(11), of(12)
		if one["PRICE"] != retyped["PRICE"] || one["PRICE"] != more["PRICE"] {
			t.Errorf("a variable that was not changed was %+v and is %+v and %+v", one["PRICE"], retyped["PRICE"], more["PRICE"])
		}
		if a, b := one["ITEM"], retyped["ITEM"]; a.ID != b.ID || a.CreatedAt != b.CreatedAt || a.UpdatedAt == b.UpdatedAt ||
			b.Type != scalar.Number {
			t.Errorf("a variable whose type was changed was %+v and is %+v", a, b)
		}
		if n := o.count(t, `SELECT COUNT(*) FROM contents WHERE kept`); n != 14 {
			t.Errorf("%d contents for 14 versions", n)
		}
	})
}

func TestDuplicate(t *testing.T) {
	each(t, func(t *testing.T, o *office) {
		made := o.create(t, order())
		o.publish(t, "order")
		o.update(t, "order", templates.Change{Subject: new("Newer")})
		twin, err := o.Duplicate(t.Context(), o.team, "order")
		if err != nil {
			t.Fatal(err)
		}
		_, v := o.get(t, made.ID)
		got, w := o.get(t, twin.ID)
		if got.Name != "Order (Copy)" || got.Alias != "" || got.Published() || w.Number != 1 || w.Subject != "Newer" ||
			w.HTML != v.HTML || len(w.Variables) != 2 || w.Variables[0].ID == v.Variables[0].ID ||
			w.Variables[1].Fallback != v.Variables[1].Fallback {
			t.Errorf("the copy is %+v, %+v", got, w)
		}
		if _, err := o.Delete(t.Context(), o.team, made.ID); err != nil {
			t.Fatal(err)
		}
		if err := o.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, w := o.get(t, twin.ID); w.Subject != "Newer" {
			t.Error("the copy went with the original")
		}
		long := order()
		long.Alias, long.Name = "long", strings.Repeat("é", templates.MaxName)
		o.create(t, long)
		if twin, err := o.Duplicate(t.Context(), o.team, "long"); err != nil ||
			twin.Name != strings.Repeat("é", templates.MaxName-7)+" (Copy)" {
			t.Errorf("the copy of a long name is called %q, %v", twin.Name, err)
		}
	})
}

// Sweep deletes the versions of a deleted template in steps that can be interrupted. Content to which emails may refer
// is released, and other content is deleted.
func TestSweep(t *testing.T) {
	each(t, func(t *testing.T, o *office) {
		o.create(t, order())
		for i := range 45 {
			o.update(t, "order", templates.Change{Subject: new(fmt.Sprint(i))})
			if i == 7 || i == 30 {
				o.publish(t, "order")
			}
		}
		unaliased := order()
		unaliased.Alias = "kept"
		o.create(t, unaliased)
		if _, err := o.Delete(t.Context(), o.team, "order"); err != nil {
			t.Fatal(err)
		}
		if n := o.count(t, `SELECT COUNT(*) FROM contents WHERE kept`); n != 47 {
			t.Errorf("%d contents are kept", n)
		}
		if err := o.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		for query, want := range map[string]int{`SELECT COUNT(*) FROM templates`: 1,
			`SELECT COUNT(*) FROM template_versions`: 1, `SELECT COUNT(*) FROM contents WHERE kept`: 1,
			`SELECT COUNT(*) FROM contents`: 3} {
			if n := o.count(t, query); n != want {
				t.Errorf("%s: %d, want %d", query, n, want)
			}
		}
		if err := o.node.DB.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE contents SET used_at = 0`)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err := o.node.Emails.SweepContents(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := o.count(t, `SELECT COUNT(*) FROM contents`); n != 1 {
			t.Errorf("%d contents are left", n)
		}
		if err := o.EraseTeam(t.Context(), o.team); err != nil {
			t.Fatal(err)
		}
		if n := o.count(t, `SELECT COUNT(*) FROM templates`) + o.count(t, `SELECT COUNT(*) FROM template_versions`); n != 0 {
			t.Errorf("%d rows of an erased team are left", n)
		}
	})
}

// A team can see and change only its own templates. Two teams may use the same alias.
func TestOtherTeams(t *testing.T) {
	each(t, func(t *testing.T, o *office) {
		ctx, other := t.Context(), o.node.Other.TeamID
		made := o.create(t, order())
		o.publish(t, "order")
		for _, name := range []string{made.ID, "order"} {
			_, err := o.Published(ctx, other, name)
			wantFault(t, "send", err, fault.NotFound, "Template not found")
			_, err = o.Update(ctx, other, name, templates.Change{Name: new("x")})
			wantFault(t, "update", err, fault.NotFound, "Template not found")
			_, err = o.Delete(ctx, other, name)
			wantFault(t, "delete", err, fault.NotFound, "Template not found")
		}
		if _, err := o.Create(ctx, other, order()); err != nil {
			t.Error(err)
		}
		_, err := o.Create(ctx, o.team, order())
		wantFault(t, "the same alias", err, fault.Invalid, "`alias` order is taken")
		second := order()
		second.Alias = "second"
		o.create(t, second)
		_, err = o.Update(ctx, o.team, "second", templates.Change{Alias: new("order"), Subject: new("x")})
		wantFault(t, "the same alias by a change", err, fault.Invalid, "`alias` order is taken")
		if _, v := o.get(t, "second"); v.Number != 1 {
			t.Error("the refused change had an effect")
		}
		if n := o.count(t, `SELECT COUNT(*) FROM contents`); n != 3 {
			t.Errorf("%d contents for three versions", n)
		}
	})
}
