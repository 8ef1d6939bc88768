//go:build browser

package e2e

import "testing"

// TestBrowserPages opens every page in both themes, for desktops and phones. axe-core finds nothing, and no page is
// wider than its window from 360 px on.
func TestBrowserPages(t *testing.T) {
	g := newGallery(t)
	axe := axeSource(t)
	check := func(p shownPage) {
		t.Run(p.name, func(t *testing.T) {
			r := p.view(t)
			for _, w := range p.windows {
				r.as(w)
				for _, b := range r.barriers(axe) {
					t.Errorf("%s in %s at %d px: %s", p.path, w.theme, w.width, b)
				}
				if wide := r.tooWide(); wide != "" {
					t.Errorf("%s at %d px is too wide: %s", p.path, w.width, wide)
				}
			}
			if p.pane != "" {
				return
			}
			r.as(window{"light", 360, 740})
			if wide := r.tooWide(); wide != "" {
				t.Errorf("%s at 360 px is too wide: %s", p.path, wide)
			}
		})
	}
	before := len(g.pages)
	for _, p := range g.pages {
		check(p)
	}
	g.addOutbox(t)
	for _, p := range g.pages[before:] {
		check(p)
	}
}
