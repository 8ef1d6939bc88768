//go:build browser

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// TestScreenshots makes pictures of every page, in both themes, for desktops and phones, in the folder that
// POSTRIDER_SCREENSHOTS names; without it, in a folder that is removed at the end. make screenshots runs it.
func TestScreenshots(t *testing.T) {
	dir := cmp.Or(os.Getenv("POSTRIDER_SCREENSHOTS"), t.TempDir())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	g := newGallery(t)
	watched := map[*site]bool{}
	for _, p := range g.pages {
		if !watched[p.of] {
			p.of.member.watchesFrames()
			p.of.guest.watchesFrames()
		}
		watched[p.of] = true
	}
	g.each(t, func(t *testing.T, p shownPage) {
		r := p.view(t)
		r.loadsFrames()
		for _, w := range p.windows {
			r.as(w)
			picture, err := r.picture(w, p.pane == "")
			name := fmt.Sprintf("%s-%s-%d.png", p.name, w.theme, w.width)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), picture, 0o600)
			}
			if err != nil {
				t.Errorf("picture of %s: %v", p.path, err)
			}
		}
	})
	t.Logf("the pictures of %d pages are in %s", len(g.pages), dir)
}

// frameLoads counts the loads of frames from the beginning of each page on. A frame of an email has an origin of its
// own, so a script of the page cannot look into it.
const frameLoads = `window.framesLoaded = new WeakSet();
	document.addEventListener("load", (e) => { if (e.target.tagName === "IFRAME") framesLoaded.add(e.target); }, true);`

// watchesFrames makes the pages that the tab opens from now on count the loads of their frames.
func (r *reader) watchesFrames() {
	r.t.Helper()
	_, err := chromedp.Call(r.tab, page.AddScriptToEvaluateOnNewDocument,
		page.AddScriptToEvaluateOnNewDocumentParams{Source: frameLoads})
	if err != nil {
		r.t.Fatalf("watch the frames of pages: %v", err)
	}
}

// loadsFrames loads the frames that the browser would load only when they are scrolled into view, and waits until all
// frames, images and fonts of the page are loaded.
func (r *reader) loadsFrames() {
	r.t.Helper()
	r.evaluates(`document.querySelectorAll("[loading=lazy]").forEach((e) => { e.loading = "eager"; }) ?? true`)
	eventually(r.t, 30*time.Second, "the frames and images of the page are loaded", func() bool {
		return r.evaluates(`[...document.querySelectorAll("iframe")].every((f) => framesLoaded.has(f)) &&
			[...document.images].every((i) => i.complete) && document.fonts.status === "loaded"`)
	})
}

// tallest is the height in pixels after which the picture of a long page ends.
const tallest = 3000

// picture is a picture of the page. If it shall be whole, the window is made as high as the page, up to the tallest
// height, because the browser does not draw frames of other origins outside of the window. If that makes the page
// itself higher, the picture shows what is outside of the window.
func (r *reader) picture(w window, whole bool) ([]byte, error) {
	ctx, stop := context.WithTimeout(r.tab, time.Minute)
	defer stop()
	params := page.CaptureScreenshotParams{}
	if whole {
		height, err := r.height(ctx)
		if err != nil {
			return nil, err
		}
		high := window{w.theme, w.width, min(max(height, w.height), tallest)}
		r.as(high)
		grown, err := r.height(ctx)
		if err != nil {
			return nil, err
		}
		if grown > max(height, w.height) {
			r.as(w)
			params = page.CaptureScreenshotParams{CaptureBeyondViewport: new(true), Clip: &page.Viewport{
				Width: float64(high.width), Height: float64(high.height), Scale: 1}}
		}
	}
	shot, err := chromedp.Call(ctx, page.CaptureScreenshot, params)
	return shot.Data, err
}

// height returns the height of the page in pixels, and scrolls to its top.
func (r *reader) height(ctx context.Context) (int64, error) {
	height, err := chromedp.Run(ctx, chromedp.Evaluate[float64](`scrollTo(0, 0), document.documentElement.scrollHeight`))
	return int64(height), err
}
