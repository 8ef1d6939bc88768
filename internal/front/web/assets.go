package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strings"
	"sync"
)

//go:embed static
var staticFiles embed.FS

// assetTypes holds the media type of each file that browsers load.
var assetTypes = map[string]string{
	"app.css":        "text/css; charset=utf-8",
	"app.js":         "text/javascript; charset=utf-8",
	"htmx.min.js":    "text/javascript; charset=utf-8",
	"icons.svg":      "image/svg+xml",
	"favicon.svg":    "image/svg+xml",
	"docs.css":       "text/css; charset=utf-8",
	"docs.js":        "text/javascript; charset=utf-8",
	"docs-search.js": "text/javascript; charset=utf-8",
	"docs-theme.js":  "text/javascript; charset=utf-8",
	"docs-try.js":    "text/javascript; charset=utf-8",
}

// AssetPrefix is the path prefix of the files that browsers load.
const AssetPrefix = "/assets/"

// IsAsset reports whether [RegisterAssets] serves a path.
func IsAsset(path string) bool {
	return strings.HasPrefix(path, AssetPrefix) || path == "/favicon.ico" || path == "/favicon.svg"
}

// asset is a file that browsers load. The path contains a hash of the content, so browsers may keep a file forever.
type asset struct {
	path    string
	kind    string
	content []byte
	packed  []byte // compressed with gzip
}

var assets = sync.OnceValue(func() map[string]asset {
	all := map[string]asset{}
	for name, kind := range assetTypes {
		content, err := staticFiles.ReadFile("static/" + name)
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(content)
		var packed bytes.Buffer
		w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // fails only for an unknown level
		w.Write(content)
		w.Close()
		all[name] = asset{AssetPrefix + hex.EncodeToString(sum[:6]) + "/" + name, kind, content, packed.Bytes()}
	}
	return all
})

// assetPath returns the path of a file that browsers load. The file must exist.
func assetPath(name string) string {
	a, ok := assets()[name]
	if !ok {
		panic("no such asset: " + name)
	}
	return a.path
}

// AssetPath is assetPath for pages with a layout of their own.
func AssetPath(name string) string { return assetPath(name) }

// Asset returns the content of a file that browsers load, for pages outside of the program. The file must exist.
func Asset(name string) []byte {
	assetPath(name)
	return assets()[name].content
}

// RegisterAssets adds the style sheet, the scripts and the icons to a mux. They need no session. A path with an old
// hash, as in a page from before an upgrade, leads to the current file, which the browser must not keep.
func RegisterAssets(mux *http.ServeMux) {
	mux.HandleFunc("GET "+AssetPrefix, func(w http.ResponseWriter, r *http.Request) {
		a, ok := assets()[path.Base(r.URL.Path)]
		if !ok {
			http.NotFound(w, r)
			return
		}
		serveAsset(w, r, a, a.path == r.URL.Path)
	})
	for _, icon := range []string{"/favicon.ico", "/favicon.svg"} {
		mux.HandleFunc("GET "+icon, func(w http.ResponseWriter, r *http.Request) {
			serveAsset(w, r, assets()["favicon.svg"], false)
		})
	}
}

func serveAsset(w http.ResponseWriter, r *http.Request, a asset, forever bool) {
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", barePolicy)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "public, max-age=3600")
	if forever {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	content := a.content
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		content = a.packed
	}
	w.Write(content)
}
