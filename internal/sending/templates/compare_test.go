package templates_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/templates"
)

func TestRestoreAndCompare(t *testing.T) {
	each(t, func(t *testing.T, o *office) {
		ctx := t.Context()
		n := order()
		n.HTML = new("<p>one</p>\n<p>{{{ITEM}}}</p>\n")
		o.create(t, n)
		o.update(t, "order", templates.Change{HTML: new("<p>two</p>\n<p>{{{ITEM}}}</p>\n"), Subject: new("Two")})
		c, err := o.Compare(ctx, o.team, "order", "1", "2")
		if err != nil {
			t.Fatal(err)
		}
		if c.From || c.ReplyTo || c.Variables || !c.Subject || !c.HTML || !c.Text || c.A.Number != 1 || c.B.Number != 2 {
			t.Errorf("compared: %+v", c)
		}
		want := "--- version 1\n+++ version 2\n@@ -1,2 +1,2 @@\n-<p>one</p>\n+<p>two</p>\n <p>{{{ITEM}}}</p>\n"
		if diff := cmp.Diff(want, c.HTMLDiff); diff != "" {
			t.Errorf("the HTML, - as wanted: %s", diff)
		}
		if !strings.Contains(c.TextDiff, "\n-one\n") || !strings.Contains(c.TextDiff, "\n+two\n") {
			t.Errorf("the text: %s", c.TextDiff)
		}
		same, err := o.Compare(ctx, o.team, "order", c.A.ID, "1")
		if err != nil || same.HTML || same.Text || same.HTMLDiff != "" || same.TextDiff != "" {
			t.Errorf("a version compared with itself: %+v, %v", same, err)
		}
		if _, err := o.Restore(ctx, o.team, "order", c.A.ID); err != nil {
			t.Fatal(err)
		}
		got, v := o.get(t, "order")
		if v.Number != 3 || v.ID == c.A.ID || got.Published() {
			t.Errorf("restored: %+v, %+v", got, v)
		}
		if c, err := o.Compare(ctx, o.team, "order", "1", "3"); err != nil || c.HTML || c.Subject || c.Variables ||
			c.B.Variables[0] != c.A.Variables[0] {
			t.Errorf("the restored version differs: %+v, %v", c, err)
		}
		if _, err := o.Restore(ctx, o.team, "order", "1"); err != nil {
			t.Fatal(err)
		}
		if _, v := o.get(t, "order"); v.Number != 3 {
			t.Errorf("restoring what is there made version %d", v.Number)
		}
		for _, unknown := range []string{"4", "0", id.New()} {
			_, err := o.Restore(ctx, o.team, "order", unknown)
			wantFault(t, "restore "+unknown, err, fault.NotFound, "Template version not found")
		}
		for _, bad := range []string{"", "x", "1.5", "+1", "-1", "-0", "01", "00", "99999999999999999999", "draft"} {
			_, _, err := o.Version(ctx, o.team, "order", bad)
			wantFault(t, "version "+bad, err, fault.BadID, "`version`")
		}
		v3, _ := o.Compare(ctx, o.team, "order", "3", "3")
		o.update(t, "order", templates.Change{Text: new(new(v3.A.PlainOrConverted()))})
		if c, err := o.Compare(ctx, o.team, "order", "3", "4"); err != nil || !c.Text || c.TextDiff != "" || c.HTML {
			t.Errorf("a text that is no longer made from the HTML: %+v, %v", c, err)
		}
		// A version cannot be read as a version of another template.
		o.create(t, templates.NewTemplate{Name: "Other", Alias: "other", HTML: new("<p>")})
		_, _, err = o.Version(ctx, o.team, "other", c.A.ID)
		wantFault(t, "a version of another template", err, fault.NotFound, "Template version not found")
	})
}

// Compare rejects versions that have too many lines or bytes, because the comparison would use too much memory.
func TestCompareTooLarge(t *testing.T) {
	each(t, func(t *testing.T, o *office) {
		lines := func(n int) string { return strings.Repeat("<p>\n", n-1) + "<p>" }
		line := "<p>" + strings.Repeat("x", 1<<20)
		for i, c := range []struct {
			a, b, textA, textB, fault string
		}{
			{a: lines(9_999), b: lines(10_001)},
			{a: lines(9_999), b: lines(10_002), fault: "The `html` fields of the versions have 20001 lines"},
			{a: "<p>", b: "<b>", textA: lines(10_000), textB: lines(10_000)},
			{a: "<p>", b: "<b>", textA: lines(20_000), textB: "x",
				fault: "The `text` fields of the versions have 20001 lines"},
			{a: line, b: line[:1<<20]},
			{a: line, b: line + "y", fault: "2097159 bytes in all; at most 2097152"},
			{a: "<p>", b: "<b>", textA: line, textB: line, fault: "2097164 bytes"},
		} {
			if c.b == line[:1<<20] {
				c.a = c.b // 2 MB in total
			}
			name := fmt.Sprintf("t%d", i)
			o.create(t, templates.NewTemplate{Name: name, Alias: name, HTML: &c.a, Text: &c.textA})
			o.update(t, name, templates.Change{HTML: &c.b, Text: new(&c.textB), Subject: new("changed")})
			d, err := o.Compare(t.Context(), o.team, name, "1", "1")
			d.Close()
			if c.fault == "" && err != nil {
				t.Errorf("%d: %v", i, err)
			}
			d, err = o.Compare(t.Context(), o.team, name, "1", "2")
			d.Close()
			if c.fault != "" {
				wantFault(t, name, err, fault.Invalid, c.fault)
			} else if err != nil {
				t.Errorf("%d: %v", i, err)
			}
			if n := o.Held(o.team); n != 0 {
				t.Errorf("%d: %d bytes are held", i, n)
			}
		}
	})
}

// Large texts are read and rendered only if enough memory can be reserved, and every operation releases its
// reservation.
func TestMemoryOfLargeTemplates(t *testing.T) {
	each(t, func(t *testing.T, o *office) {
		ctx := t.Context()
		html := "<p>{{{ITEM}}}" + strings.Repeat("x", 300<<10)
		n := order()
		n.HTML = &html
		o.create(t, n)
		size := int64(len(html)) * templates.MemoryCost
		_, v, err := o.Get(ctx, o.team, "order")
		if held := o.Held(o.team); err != nil || held != size {
			t.Errorf("%d bytes are held, want %d; %v", held, size, err)
		}
		v.Close()
		v.Close()
		given := map[string]scalar.Value{"ITEM": scalar.OfText("tea")}
		r, err := o.Render(ctx, o.team, "order", templates.RenderOptions{Version: "draft", Variables: given})
		if held := o.Held(o.team); err != nil || held != size {
			t.Errorf("%d bytes are held of something rendered, %v", held, err)
		}
		r.Close()
		for name, act := range map[string]func() error{
			"version": func() error { _, v, err := o.Version(ctx, o.team, "order", "1"); v.Close(); return err },
			"compare": func() error { c, err := o.Compare(ctx, o.team, "order", "1", "1"); c.Close(); return err },
			"update": func() error {
				_, err := o.Update(ctx, o.team, "order", templates.Change{HTML: new(html + "y")})
				return err
			},
			"a wrong update": func() error {
				_, err := o.Update(ctx, o.team, "order", templates.Change{Subject: new("a\nb")})
				wantFault(t, "subject", err, fault.Invalid, "`subject`")
				return nil
			},
			"render without a variable": func() error {
				_, err := o.Render(ctx, o.team, "order", templates.RenderOptions{Version: "draft"})
				wantFault(t, "variable", err, fault.Invalid, "`variables.ITEM`")
				return nil
			},
			"publish":   func() error { _, err := o.Publish(ctx, o.team, "order"); return err },
			"restore":   func() error { _, err := o.Restore(ctx, o.team, "order", "1"); return err },
			"duplicate": func() error { _, err := o.Duplicate(ctx, o.team, "order"); return err },
		} {
			if err := act(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if held := o.Held(o.team); held != 0 {
				t.Errorf("%s: %d bytes are held", name, held)
			}
		}
	})
}

// When versions are listed, their variables are not read, because the list does not contain them.
func TestVersionsAreListedWithoutVariables(t *testing.T) {
	each(t, func(t *testing.T, o *office) {
		o.create(t, order())
		o.update(t, "order", templates.Change{Subject: new("Two")})
		o.node.Update(func(tx *db.Tx) error {
			tx.Queue(t.Context(), `UPDATE template_versions SET variables = 'x'`)
			return nil
		})
		_, all, _, err := o.Versions(t.Context(), o.team, "order", page.Page{})
		if err != nil || len(all) != 2 || all[0].Number != 2 || all[0].ID == "" || all[0].CreatedAt.IsZero() {
			t.Errorf("%+v, %v", all, err)
		}
		if _, _, err := o.Version(t.Context(), o.team, "order", "1"); !fault.Ours(err) {
			t.Errorf("a version of which the variables cannot be read: %v", err)
		}
	})
}

// Compare is fast even for malicious input, such as texts with many equal lines.
func TestCompareHostile(t *testing.T) {
	each(t, func(t *testing.T, o *office) {
		a, b := strings.Repeat("a\n", 9_000), strings.Repeat("b\na\n", 5_000)
		o.create(t, templates.NewTemplate{Name: "x", Alias: "x", HTML: &a, Text: new("")})
		o.update(t, "x", templates.Change{HTML: &b})
		c, err := o.Compare(t.Context(), o.team, "x", "1", "2")
		if err != nil || !c.HTML || c.Text || len(c.HTMLDiff) > 4*(len(a)+len(b)) {
			t.Errorf("%d bytes, %v", len(c.HTMLDiff), err)
		}
	})
}
