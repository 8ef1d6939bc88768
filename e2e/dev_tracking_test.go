package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// The command dev tracks opens and clicks with links to its own address, in domains with and without a tracking
// subdomain.
func TestDevelopmentTracksEveryDomain(t *testing.T) {
	for name, domain := range map[string]string{
		"without a subdomain": `{"name":"acme.example","click_tracking":true}`,
		"with a subdomain":    `{"name":"acme.example","tracking_subdomain":"links","click_tracking":true}`,
	} {
		t.Run(name, func(t *testing.T) { tracksInDevelopment(t, domain) })
	}
}

func tracksInDevelopment(t *testing.T, domain string) {
	n := start(t, nil)
	n.addDomainOf(domain)
	var sent struct{ ID string }
	n.must(http.MethodPost, "/emails", `{"from":"a@acme.example","to":"jo@example.net","subject":"Offer",`+
		`"html":"<p><a href=\"https://shop.example/offer\">the offer</a></p>"}`, &sent)
	html := n.captured("jo@example.net").HTML()
	_, link, found := strings.Cut(html, `href="`)
	link, _, _ = strings.Cut(link, `"`)
	if !found || !strings.HasPrefix(link, n.localhost()+"/c/") {
		t.Fatalf("the link is %q in %s, want one to %s", link, html, n.localhost())
	}
	browser := &http.Client{Timeout: 10 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	r, err := browser.Get(link)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if to := r.Header.Get("Location"); to != "https://shop.example/offer" {
		t.Errorf("the link leads to %q with status %d", to, r.StatusCode)
	}
	eventually(t, 20*time.Second, "the click is recorded", func() bool {
		var email struct {
			LastEvent string `json:"last_event"`
		}
		n.must(http.MethodGet, "/emails/"+sent.ID, "", &email)
		return email.LastEvent == "clicked"
	})
}
