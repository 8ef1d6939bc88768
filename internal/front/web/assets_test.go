package web

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Files from elsewhere are those of the release that README.md names.
func TestVendoredFiles(t *testing.T) {
	t.Parallel()
	readme, err := staticFiles.ReadFile("static/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, a := range assets() {
		sum := sha256.Sum256(a.content)
		own := strings.HasPrefix(name, "app.") || strings.HasPrefix(name, "docs") || strings.HasSuffix(name, ".svg")
		if !own && !strings.Contains(string(readme), hex.EncodeToString(sum[:])) {
			t.Errorf("static/README.md does not name the checksum of %s", name)
		}
	}
}

// Everything that a first view loads besides its HTML is within its share of 120 KB (compressed).
func TestWeightOfAssets(t *testing.T) {
	t.Parallel()
	total := 0
	for name, most := range map[string]int{"app.css": 14 << 10, "icons.svg": 6 << 10, "app.js": 20 << 10,
		"htmx.min.js": 20 << 10} {
		n := len(assets()[name].packed)
		total += n
		if n > most {
			t.Errorf("%s has %d bytes compressed, more than %d", name, n, most)
		}
	}
	t.Logf("%d bytes in all", total)
}

func TestServeAssets(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	RegisterAssets(mux)
	get := func(path, encoding string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), "GET", path, nil)
		r.Header.Set("Accept-Encoding", encoding)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w
	}
	now := get(assetPath("app.css"), "")
	if now.Code != 200 || !strings.Contains(now.Header().Get("Cache-Control"), "immutable") ||
		now.Body.String() != string(assets()["app.css"].content) {
		t.Errorf("the style sheet: %d %v", now.Code, now.Header())
	}
	packed := get(assetPath("app.css"), "br, gzip")
	unpacked, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(unpacked); err != nil || string(text) != now.Body.String() {
		t.Errorf("compressed: %v", err)
	}
	// A page of an older release names another hash. Its browser gets a style sheet, and asks again the next time.
	if old := get("/assets/000000000000/app.css", ""); old.Code != 200 ||
		strings.Contains(old.Header().Get("Cache-Control"), "immutable") {
		t.Errorf("an old path: %d %v", old.Code, old.Header())
	}
	for _, path := range []string{"/assets/1/README.md", "/assets/", "/assets/../web.go"} {
		if w := get(path, ""); w.Code == 200 {
			t.Errorf("%s is served", path)
		}
	}
	if w := get("/favicon.ico", ""); w.Code != 200 || w.Header().Get("Content-Type") != "image/svg+xml" {
		t.Errorf("the icon: %d %v", w.Code, w.Header())
	}
}
