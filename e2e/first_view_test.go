//go:build browser

package e2e

import (
	"slices"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// firstView is what a visitor waits for on a slow machine that has not opened the site before.
type firstView struct{ painted, loaded float64 } // in milliseconds

// views opens a page with an empty cache and a processor that is four times as slow, and returns the times.
func (r *reader) views(path string) (v firstView) {
	r.t.Helper()
	slow := func(rate float64) {
		if _, err := chromedp.Call(r.tab, emulation.SetCPUThrottlingRate,
			emulation.SetCPUThrottlingRateParams{Rate: rate}); err != nil {
			r.t.Fatal(err)
		}
	}
	if _, err := chromedp.Call(r.tab, network.ClearBrowserCache, cdp.Empty{}); err != nil {
		r.t.Fatal(err)
	}
	slow(4)
	defer slow(1)
	r.open(path)
	times, err := chromedp.Run(r.tab, chromedp.Evaluate[[]float64](`new Promise((done) => {
		const say = () => {
			const paint = performance.getEntriesByName("first-contentful-paint")[0];
			const load = performance.getEntriesByType("navigation")[0];
			paint && load.loadEventEnd ? done([paint.startTime, load.loadEventEnd]) : setTimeout(say, 10);
		};
		say();
	})`, chromedp.EvalAwaitPromise))
	if err != nil || len(times) != 2 {
		r.t.Fatalf("measure %s: %v", path, err)
	}
	return firstView{times[0], times[1]}
}

// slowest is a generous limit for a first view, because a test must not depend on how busy the machine is.
const slowest = 10_000

// TestBrowserFirstView reports the first view of pages with an empty cache and a processor that is four times as slow.
func TestBrowserFirstView(t *testing.T) {
	n := start(t, nil)
	r := &reader{t: t, tab: chromium(t), url: n.localhost()}
	r.signsIn(n)
	for _, path := range []string{"/app/emails", "/app/domains", "/app/metrics", "/dev/outbox", "/app/start"} {
		var painted []float64
		for range 3 {
			painted = append(painted, r.views(path).painted)
		}
		slices.Sort(painted)
		t.Logf("first view of %-14s %4.0f ms (median of 3, CPU slowed down 4 times, empty cache)", path, painted[1])
		if painted[1] > slowest {
			t.Errorf("the first view of %s takes %.0f ms", path, painted[1])
		}
	}
}
