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

// loadsFrames loads the frames that the browser would load only when they are scrolled into view.
func (r *reader) loadsFrames() {
	r.t.Helper()
	_, err := chromedp.Run(r.tab, chromedp.Evaluate[bool](`Promise.all(
		[...document.querySelectorAll("iframe[loading=lazy]")].map((frame) => new Promise((done) => {
			frame.onload = done;
			frame.loading = "eager";
			setTimeout(done, 2000); // the frame may be loaded already
		}))).then(() => true)`, chromedp.EvalAwaitPromise))
	if err != nil {
		r.t.Fatalf("load the frames of the page: %v", err)
	}
}

// tallest is the height in pixels after which the picture of a long page ends.
const tallest = 3000

// picture is a picture of the page from its top to the end of the window. If it shall be whole, it goes on to the end
// of the page, or to the tallest height.
func (r *reader) picture(w window, whole bool) ([]byte, error) {
	ctx, stop := context.WithTimeout(r.tab, time.Minute)
	defer stop()
	if !whole {
		shot, err := chromedp.Call(ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{})
		return shot.Data, err
	}
	height, err := chromedp.Run(ctx, chromedp.Evaluate[float64](
		`scrollTo(0, 0), document.documentElement.scrollHeight`))
	if err != nil {
		return nil, err
	}
	shot, err := chromedp.Call(ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{
		CaptureBeyondViewport: new(true), FromSurface: new(true), Clip: &page.Viewport{Width: float64(w.width),
			Height: min(max(height, float64(w.height)), tallest), Scale: 1}})
	return shot.Data, err
}
