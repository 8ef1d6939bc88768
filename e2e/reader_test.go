package e2e

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// reader is a user who works in a browser.
type reader struct {
	t   *testing.T
	tab context.Context
	url string
}

// sharedChromium is a headless Chromium that all tests share, because its start costs more than most tests.
var sharedChromium struct {
	once sync.Once
	ctx  context.Context
	stop func()
	err  error
}

// stopBrowser ends the shared Chromium if a test has started it.
func stopBrowser() {
	if sharedChromium.stop != nil {
		sharedChromium.stop()
	}
}

func startBrowser() {
	o := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.WSURLReadTimeout(2*time.Minute))
	if os.Getuid() == 0 {
		o = append(o, chromedp.NoSandbox) // Chromium's sandbox refuses to run as root.
	}
	ctx, stopChromium := chromedp.NewExecAllocator(context.Background(), o...)
	ctx, stopTab := chromedp.NewContext(ctx)
	sharedChromium.ctx, sharedChromium.stop = ctx, func() { stopTab(); stopChromium() }
	sharedChromium.err = chromedp.Do(ctx, chromedp.Navigate("about:blank"))
}

// chromium opens a tab of a headless Chromium, with cookies and a cache of its own, until the test ends.
func chromium(t *testing.T) context.Context { return chromiumFor(t, patience*3*time.Minute) }

// chromiumFor is chromium for a test that uses the tab for at most the given time.
func chromiumFor(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	sharedChromium.once.Do(startBrowser)
	if sharedChromium.err != nil {
		t.Fatalf("start Chromium (make deps installs it): %v", sharedChromium.err)
	}
	ctx, stop := chromedp.NewContext(sharedChromium.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(stop)
	ctx, stop = context.WithTimeout(ctx, limit)
	t.Cleanup(stop)
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1280, 900)); err != nil {
		t.Fatalf("open a tab: %v", err)
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

// sees waits until the page is loaded, with its scripts, and contains the given text.
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
		now, err := chromedp.Run(r.tab, chromedp.Evaluate[string](
			`document.readyState === "complete" ? document.body.innerText : ""`)) // fails while another page begins to load
		if err == nil && now != "" {
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

// evaluates runs a script in the page and returns its result; false while the page loads.
func (r *reader) evaluates(script string) bool {
	r.t.Helper()
	ok, err := chromedp.Run(r.tab, chromedp.Evaluate[any](script))
	yes, _ := ok.(bool)
	return err == nil && yes
}

// text returns the text of the element with the given selector.
func (r *reader) text(selector string) (text string) {
	r.t.Helper()
	eventually(r.t, 20*time.Second, "the page has "+selector, func() bool {
		got, err := chromedp.Run(r.tab, chromedp.Evaluate[string](
			`document.querySelector("`+selector+`")?.textContent ?? ""`))
		text = got
		return err == nil && text != ""
	})
	return text
}

// hits presses keys, one after the other.
func (r *reader) hits(keys ...string) {
	r.t.Helper()
	for _, k := range keys {
		if err := chromedp.Do(r.tab, chromedp.KeyEvent(k)); err != nil {
			r.t.Fatalf("press %q: %v", k, err)
		}
	}
}

// focused is the name that a screen reader reads for the focused element.
const focused = `(() => {
	const e = document.activeElement;
	if (!e || e === document.body) return "";
	const name = e.getAttribute("aria-label") || e.labels?.[0]?.textContent || e.textContent;
	return name.trim().replace(/\s+/g, " ");
})()`

// tabsTo presses Tab until the element with the given name has the focus, unless it has it already, and checks that the
// focus can be seen. A longer name counts if it continues with a space, because a label also contains the hint of its
// field.
func (r *reader) tabsTo(name string) {
	r.t.Helper()
	var passed []string
	for i := range 150 {
		if i > 0 {
			r.hits(kb.Tab)
		}
		got, err := chromedp.Run(r.tab, chromedp.Evaluate[string](focused))
		if err != nil {
			continue // the page is being replaced
		}
		if got == name || strings.HasPrefix(got, name+" ") {
			if !r.evaluates(`(() => {
				const s = getComputedStyle(document.activeElement);
				return s.outlineStyle !== "none" && s.outlineWidth !== "0px" || s.boxShadow !== "none";
			})()`) {
				r.t.Errorf("the focus on %s cannot be seen", name)
			}
			return
		}
		passed = append(passed, got)
	}
	r.t.Fatalf("the key Tab does not lead to %s, but to %q", name, passed)
}

// chooses moves the focus to the link or button with the given name and presses Enter.
func (r *reader) chooses(name string) {
	r.t.Helper()
	r.tabsTo(name)
	r.hits(kb.Enter)
}

// jumps opens a page by the palette: the first match for the given words.
func (r *reader) jumps(words, found string) {
	r.t.Helper()
	if err := chromedp.Do(r.tab, chromedp.KeyEvent("k", chromedp.KeyModifiers(kb.ModifierCtrl))); err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, 20*time.Second, "the palette is open", func() bool {
		return r.evaluates(`document.activeElement.getAttribute("role") === "combobox"`)
	})
	r.hits(words)
	eventually(r.t, 20*time.Second, "the palette shows "+found, func() bool {
		return r.evaluates(`document.querySelector("#found [aria-selected=true]")?.innerText.includes("` + found + `")`)
	})
	r.hits(kb.Enter)
}
