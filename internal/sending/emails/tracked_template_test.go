package emails_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/templates"
)

// A template email from a tracked domain is composed separately for each recipient, even if two recipients have the
// same destination.
func TestTrackedByTemplate(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		tracking(n, true, true)
		s := &stencil{n, t, ""}
		s.published(templates.NewTemplate{Name: "x", Alias: "x", From: "news@" + trackedDomain, Subject: "s",
			HTML:      new(`<p><a href="https://shop.example/{{{A}}}">shop</a></p>`),
			Variables: []templates.Declaration{{Key: "A", Type: "string"}}})
		emailID := n.Send(emails.Send{To: []string{"a@one.example", "b@one.example"}, HasTemplate: true, TemplateID: "x",
			Variables: map[string]scalar.Value{"A": scalar.OfText("tea")}})
		all := deliveries(t, n, emailID)
		if len(all) != 2 {
			t.Fatalf("%d deliveries for two recipients", len(all))
		}
		var htmls []string
		for _, d := range all {
			_, html, _ := delivered(t, n, d)
			htmls = append(htmls, html)
			if got := readTracked(t, n, html); !slices.ContainsFunc(got, func(s string) bool {
				return strings.Contains(s, "https://shop.example/tea")
			}) {
				t.Errorf("the links lead to %q", got)
			}
		}
		if htmls[0] == htmls[1] {
			t.Error("both have the same tokens")
		}
		if e := s.get(emailID); *e.HTML != `<p><a href="https://shop.example/tea">shop</a></p>` {
			t.Errorf("the email shows %s", *e.HTML)
		}
	})
}
