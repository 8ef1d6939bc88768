package templates_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/templates"
)

// No concurrent change is lost, and the published version is one of the versions that were created.
func TestConcurrentChanges(t *testing.T) {
	each(t, func(t *testing.T, o *office) {
		o.create(t, order())
		const n = 12
		var wg sync.WaitGroup
		errs := make([]error, 3*n)
		for i := range n {
			wg.Go(func() {
				_, errs[3*i] = o.Update(t.Context(), o.team, "order", templates.Change{Subject: new(fmt.Sprint("subject ", i))})
			})
			wg.Go(func() {
				_, errs[3*i+1] = o.Update(t.Context(), o.team, "order", templates.Change{HTML: new(fmt.Sprintf("<p>%d</p>", i))})
			})
			wg.Go(func() { _, errs[3*i+2] = o.Publish(t.Context(), o.team, "order") })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		got, all, _, err := o.Versions(t.Context(), o.team, "order", page.Page{})
		if err != nil || len(all) != 1+2*n {
			t.Fatalf("%d versions after %d changes, %v", len(all), 2*n, err)
		}
		published := false
		var last templates.Version
		for i := range all {
			_, v, err := o.Version(t.Context(), o.team, "order", fmt.Sprint(i+1))
			if err != nil || v.Number != int64(i+1) {
				t.Fatalf("version %d: %+v, %v", i+1, v, err)
			}
			published = published || v.ID == got.PublishedID
			// Each version differs from the previous one by exactly one change.
			if i > 0 && (v.Subject != last.Subject) == (v.HTML != last.HTML) {
				t.Errorf("version %d is %q, %q after %q, %q", v.Number, v.Subject, v.HTML, last.Subject, last.HTML)
			}
			last = v
		}
		if !published || last.ID != got.CurrentID {
			t.Errorf("of these versions it has published %s and edits %s", got.PublishedID, got.CurrentID)
		}
	})
}

// On the node where a version is published, the change takes effect immediately, even during concurrent reads.
func TestPublishedAtOnce(t *testing.T) {
	each(t, func(t *testing.T, o *office) {
		o.create(t, order())
		o.publish(t, "order")
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						o.Published(t.Context(), o.team, "order")
					}
				}
			})
		}
		for i := range 20 {
			want := fmt.Sprintf("<p>%d</p>", i)
			o.update(t, "order", templates.Change{HTML: &want})
			o.publish(t, "order")
			if got := o.sentWith(t, "order"); got != want {
				t.Errorf("after %s was published, %s is sent", want, got)
			}
		}
		close(stop)
		wg.Wait()
		o.update(t, "order", templates.Change{Alias: new("renamed")})
		if got := o.sentWith(t, "order"); got != "Template not found" {
			t.Errorf("by the alias that it had: %s", got)
		}
		if got := o.sentWith(t, "renamed"); got != "<p>19</p>" {
			t.Errorf("by its new alias: %s", got)
		}
	})
}

// If another service publishes a version, its hint makes this service read the new version.
func TestPublishedByAnother(t *testing.T) {
	each(t, func(t *testing.T, o *office) {
		o.create(t, order())
		o.publish(t, "order")
		other := templates.New(o.node.DB, o.node.Contents, 1<<20) // receives hints through the same database
		if _, err := other.Published(t.Context(), o.team, "order"); err != nil {
			t.Fatal(err)
		}
		o.update(t, "order", templates.Change{HTML: new("<p>new</p>")})
		o.publish(t, "order")
		p, err := other.Published(t.Context(), o.team, "order")
		if err != nil || *p.Content.HTML(nil) != "<p>new</p>" {
			t.Errorf("%+v, %v", p, err)
		}
	})
}
