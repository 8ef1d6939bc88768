package e2e

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// reader is a user who works in a browser.
type reader struct {
	t   *testing.T
	tab context.Context
	url string
}

// chromium starts a headless Chromium that runs until the test ends.
func chromium(t *testing.T) context.Context {
	t.Helper()
	o := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.WSURLReadTimeout(2*time.Minute),
		chromedp.WindowSize(1280, 900))
	if os.Getuid() == 0 {
		o = append(o, chromedp.NoSandbox) // Chromium's sandbox refuses to run as root.
	}
	ctx, stop := chromedp.NewExecAllocator(t.Context(), o...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	ctx, stop = context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(stop)
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatalf("start Chromium (make deps installs it): %v", err)
	}
	return ctx
}

// open opens a page in the browser.
func (r *reader) open(path string) {
	r.t.Helper()
	if err := chromedp.Do(r.tab, chromedp.Navigate(r.url+path)); err != nil {
		r.t.Fatalf("open %s: %v", path, err)
	}
}

var developerLink = regexp.MustCompile(`http://localhost:\d+(/dev/sign-in\?token=\w+)`)

// signsIn opens the newest sign-in link that the node has printed.
func (r *reader) signsIn(n *node) {
	r.t.Helper()
	var link string
	eventually(r.t, 20*time.Second, "the node prints a sign-in link", func() bool {
		if all := developerLink.FindAllStringSubmatch(n.out.String(), -1); len(all) > 0 {
			link = all[len(all)-1][1]
		}
		return link != ""
	})
	r.open(link)
	r.sees("Developer")
}

// sees waits until the page contains the given text.
func (r *reader) sees(text string) {
	r.t.Helper()
	var said string
	ok := false
	defer func() {
		if !ok {
			r.t.Logf("the page says: %s", said)
		}
	}()
	eventually(r.t, 30*time.Second, "the page says "+text, func() bool {
		now, err := chromedp.Run(r.tab, chromedp.Evaluate[string](`document.body.innerText`)) // fails while the page loads
		if err == nil {
			said = now
			ok = strings.Contains(now, text)
		}
		return ok
	})
}

// presses clicks the button or link with the given text.
func (r *reader) presses(text string) {
	r.t.Helper()
	at := chromedp.Search(`//*[self::button or self::a][not(@hidden)][normalize-space(.)="` + text + `"]`)
	if err := chromedp.Do(r.tab, chromedp.Click(at)); err != nil {
		r.t.Fatalf("press %s: %v", text, err)
	}
}
