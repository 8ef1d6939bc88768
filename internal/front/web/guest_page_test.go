package web

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// However many guests request the page with whatever cookies and queries, it is rendered once for each appearance.
func TestGuestPage(t *testing.T) {
	t.Parallel()
	s := New(Config{PublicURL: "http://postrider.test"}, nil, nil, slog.New(slog.DiscardHandler))
	mux := http.NewServeMux()
	of := Page(`{{define "title"}}T{{end}}{{define "main"}}<h1>{{.}}</h1>{{end}}`)
	var g GuestPage
	rendered := 0
	s.Handle(mux, "GET /docs", func(w http.ResponseWriter, r *http.Request) error {
		return s.ShowGuests(w, r, &g, func(w http.ResponseWriter, r *http.Request) error {
			rendered++
			return s.Show(w, r, http.StatusOK, of, "Reference", Guests())
		})
	})
	get := func(method, query, cookies, encoding string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, "http://postrider.test/docs"+query, nil)
		r.Header.Set("Cookie", cookies)
		r.Header.Set("Accept-Encoding", encoding)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if w.Code != 200 || w.Header().Get("Content-Security-Policy") == "" {
			t.Errorf("%s with %s: %d %v", query, cookies, w.Code, w.Header())
		}
		return w
	}
	for i := range 30 {
		for _, theme := range []string{"", "light", "dark", fmt.Sprint("x", i)} {
			for _, keys := range []string{"on", "off"} {
				cookies := "postrider-theme=" + theme + "; postrider-keys=" + keys + "; postrider-zone=Europe/Berlin"
				w := get("GET", fmt.Sprint("?q=secret", i), cookies, []string{"", "gzip"}[i%2])
				if page := w.Body.String(); i%2 == 0 && (!strings.Contains(page, "<h1>Reference</h1>") ||
					strings.Contains(page, "secret") || (theme == "dark") != strings.Contains(page, `data-theme="dark"`) ||
					(keys == "on") != strings.Contains(page, `data-keys="on"`)) {
					t.Errorf("%s: %s", cookies, page)
				}
				if packed := w.Header().Get("Content-Encoding") == "gzip"; packed != (i%2 == 1) {
					t.Errorf("packed: %v", packed)
				}
			}
		}
	}
	if rendered != 12 {
		t.Errorf("the page was rendered %d times, want 12", rendered)
	}
}
