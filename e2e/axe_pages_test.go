//go:build browser

package e2e

import "testing"

// TestBrowserPages opens every page in both themes, for desktops and phones. axe-core finds nothing, and no page is
// wider than its window from 360 px on.
func TestBrowserPages(t *testing.T) {
	axe := axeSource(t)
	newGallery(t).each(t, func(t *testing.T, p shownPage) {
		r := p.view(t)
		fits := func(w window) {
			if wide := r.tooWide(); wide != "" {
				t.Errorf("%s at %d px is too wide: %s", p.path, w.width, wide)
			}
		}
		for _, w := range p.windows {
			r.as(w)
			for _, b := range r.barriers(axe) {
				t.Errorf("%s in %s at %d px: %s", p.path, w.theme, w.width, b)
			}
			fits(w)
		}
		if p.pane == "" {
			narrow := window{"light", 360, 740}
			r.as(narrow)
			fits(narrow)
		}
	})
}
