package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// axeSource returns the source of axe-core, which finds barriers for people with disabilities in a page.
func axeSource(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile("../compat/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("axe-core is not there (make deps installs it): %v", err)
	}
	return string(source)
}

// barrier is a rule of axe-core that a page breaks.
type barrier struct {
	ID, Help string
	Nodes    []struct {
		HTML, Failure string
	}
}

// barriers returns what axe-core finds in the page. It looks only at the page itself, because the frames in a page show
// emails, which are the content of others.
func (r *reader) barriers(axe string) (found []barrier) {
	r.t.Helper()
	if !r.evaluates(`typeof axe === "object"`) {
		r.evaluates(axe)
	}
	found, err := chromedp.Run(r.tab, chromedp.Evaluate[[]barrier](`axe.run(document, {iframes: false,
		resultTypes: ["violations"]}).then((r) => r.violations.map((v) => ({id: v.id, help: v.help, nodes:
		v.nodes.map((n) => ({html: n.html.slice(0, 300), failure: n.failureSummary}))})))`, chromedp.EvalAwaitPromise))
	if err != nil {
		r.t.Fatalf("run axe-core: %v", err)
	}
	return found
}

func (b barrier) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s", b.ID, b.Help)
	for i, n := range b.Nodes {
		if i == 3 {
			fmt.Fprintf(&text, "\n  and %d more", len(b.Nodes)-i)
			break
		}
		fmt.Fprintf(&text, "\n  %s\n    %s", n.HTML, strings.ReplaceAll(n.Failure, "\n", "\n    "))
	}
	return text.String()
}
