package web

import (
	"compress/gzip"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Pages are compressed for browsers that can decompress them, unless another site opened the page over TLS.
func TestPagesAreCompressed(t *testing.T) {
	t.Parallel()
	of := Page(`{{define "title"}}T{{end}}{{define "main"}}<h1>{{.}}</h1>{{end}}`)
	for _, c := range []struct {
		url, encoding, site string
		want                bool
	}{
		{"https://postrider.test", "gzip, br", "none", true},
		{"https://postrider.test", "gzip, br", "same-origin", true},
		{"https://postrider.test", "gzip, br", "cross-site", false},
		{"https://postrider.test", "gzip, br", "same-site", false},
		{"https://postrider.test", "gzip, br", "", false},
		{"https://postrider.test", "br", "none", false},
		{"http://postrider.test", "gzip", "", true},
	} {
		s := New(Config{PublicURL: c.url}, nil, nil, slog.New(slog.DiscardHandler))
		mux := http.NewServeMux()
		s.Handle(mux, "GET /page", func(w http.ResponseWriter, r *http.Request) error {
			return s.Show(w, r, http.StatusOK, of, strings.Repeat("text ", 1000))
		})
		for range 2 { // with a new compressor, and with a used one
			r := httptest.NewRequestWithContext(t.Context(), "GET", c.url+"/page", nil)
			r.Header.Set("Accept-Encoding", c.encoding)
			r.Header.Set("Sec-Fetch-Site", c.site)
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, r)
			sent, compressed := w.Body.Len(), w.Header().Get("Content-Encoding") == "gzip"
			text := io.Reader(w.Body)
			if compressed {
				z, err := gzip.NewReader(w.Body)
				if err != nil {
					t.Fatal(err)
				}
				text = z
			}
			page, err := io.ReadAll(text)
			if err != nil || compressed != c.want || compressed != (sent < 5000) ||
				!strings.HasSuffix(string(page), "</html>\n") || strings.Count(string(page), "text ") != 1000 {
				t.Errorf("%+v: compressed %v, %d bytes, %v\n%s", c, compressed, sent, err, page)
			}
		}
	}
}
