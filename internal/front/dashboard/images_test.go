package dashboard_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/platform/db"
)

var imagesLink = regexp.MustCompile(`href="([^"]*images=[^"]*)"[^>]*>(?:<svg.*?</svg>)?Load images`)

// The frame of an email loads images from other servers only after the visitor has chosen “Load images” on the page of
// that email. A link that another person made loads none: neither that of a colleague, nor a guessed one.
func TestImagesNeedAClick(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v, colleague := b.visitor(teams.Viewer), b.visitor(teams.Viewer)
		sent := "/app/emails/" + b.send("laura@example.org", "One")
		for at, other := range map[string]string{sent: "/app/emails/" + b.send("laura@example.org", "Two"),
			"/app/receiving/" + b.receive(question): sent} {
			loads := func(v *visitor, at, query string) bool {
				t.Helper()
				w, body := v.exchange(http.MethodGet, at+"/html"+query, nil)
				policy := w.Header.Get("Content-Security-Policy")
				if w.StatusCode != 200 || !strings.HasPrefix(policy, "sandbox; default-src 'none'") {
					t.Fatalf("GET %s/html%s: %d %q\n%s", at, query, w.StatusCode, policy, body)
				}
				return strings.Contains(policy, "https:")
			}
			for _, query := range []string{"", "?images=1", "?images=", "?images=" + strings.Repeat("A", 22)} {
				if page := v.shows(at+query, 200, `src="`+at+`/html"`); loads(v, at, query) || !imagesLink.MatchString(page) {
					t.Errorf("%s%s loads images, or has no link", at, query)
				}
			}
			link := imagesLink.FindStringSubmatch(v.shows(at+"?images=1", 200))[1]
			link, _, _ = strings.Cut(strings.ReplaceAll(link, "&amp;", "&"), "#")
			query := link[strings.Index(link, "?"):]
			v.shows(at+query, 200, `src="`+at+`/html`+query+`"`, "Hide images")
			if !loads(v, at, query) {
				t.Errorf("%s loads no images after the click", at)
			}
			if loads(v, other, query) {
				t.Errorf("the link of %s loads the images of %s", at, other)
			}
			if colleague.shows(at+query, 200, `src="`+at+`/html"`); loads(colleague, at, query) {
				t.Errorf("the link of %s loads images for another person", at)
			}
			again := b.visitor(teams.Viewer)
			again.user = v.user
			again.startSession()
			if loads(again, at, query) {
				t.Errorf("the link of %s loads images in another session", at)
			}
		}
	})
}

// startSession signs the visitor's user in anew.
func (v *visitor) startSession() {
	v.t.Helper()
	v.must(v.DB.Update(v.t.Context(), func(tx *db.Tx) error {
		token, err := v.Users.StartIn(v.t.Context(), tx, v.user, "test", users.Client{Address: "192.0.2.1"})
		if err == nil {
			at, _ := http.NewRequest(http.MethodGet, v.url, nil)
			v.c.Jar.SetCookies(at.URL, []*http.Cookie{{Name: "postrider", Value: token, Path: "/"}})
		}
		return err
	}))
}
