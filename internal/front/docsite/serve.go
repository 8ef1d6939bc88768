package docsite

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/postrider/postrider/docs"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
)

// Files of the site besides its pages.
const (
	indexFile = "search.json"
	listFile  = "llms.txt"
	wholeFile = "llms-full.txt"
)

// Serves reports whether the site serves a path.
func Serves(path string) bool {
	return path == Root || strings.HasPrefix(path, Root+"/") || path == Root+".md" || path == "/"+listFile ||
		path == "/"+wholeFile
}

var errNoPage = fault.NotFoundf("The documentation has no page at this address. Search for it in the documentation.")

// Register adds the site to a mux.
func (d *Docs) Register(mux *http.ServeMux) {
	for _, pattern := range []string{Root, Root + ".md", Root + "/{path...}", "/" + listFile, "/" + wholeFile} {
		d.o.Site.Handle(mux, "GET "+pattern, d.serve)
	}
}

// serve answers a request for a page or another file of the site.
func (d *Docs) serve(w http.ResponseWriter, r *http.Request) error {
	all, err := d.contents()
	if err != nil {
		return err
	}
	v := view{d: d, all: all}
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, Root), "/")
	switch name {
	case "":
		if r.URL.Path != Root {
			return web.Redirect(w, r, Root)
		}
	case ".md":
		return web.Redirect(w, r, Root+"/"+fileOf("")+".md")
	case indexFile:
		return d.respond(w, r, "index", "application/json", v.index)
	case listFile:
		v.address = d.o.Address(r)
		return d.respond(w, r, "list "+v.address, "text/plain; charset=utf-8", v.list)
	case wholeFile:
		return d.respond(w, r, "whole", "text/plain; charset=utf-8", v.whole)
	}
	if strings.HasPrefix(name, "pictures/") {
		return servePicture(w, name)
	}
	if source, ok := strings.CutSuffix(name, ".md"); ok {
		if source == fileOf("") {
			source = ""
		}
		if v.page = all.byPath[source]; v.page == nil {
			return errNoPage
		}
		v.documents = true
		return d.respond(w, r, "document "+name, "text/markdown; charset=utf-8", v.markdownText)
	}
	if v.page = all.byPath[name]; v.page == nil {
		return errNoPage
	}
	d.recognize(&v, r)
	w.Header().Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; img-src "+
		"'self'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'")
	key := fmt.Sprintf("page %s %s %t %t %t %s", name, v.theme, v.signedIn, v.member, v.key != "", v.address)
	return d.respond(w, r, key, "text/html; charset=utf-8", v.html)
}

// recognize adds to a view what it shows of the visitor. If the database does not answer, the visitor is a guest.
func (d *Docs) recognize(v *view, r *http.Request) {
	v.theme, v.address = d.o.Site.Theme(r), d.o.Address(r)
	visitor, ok, err := d.o.Site.Visitor(r)
	if err != nil || !ok {
		return
	}
	v.signedIn = true
	_, v.member = visitor.Team()
	if d.o.DevelopmentKey != nil && d.o.Developer != nil && d.o.Developer(&visitor) {
		v.key = d.o.DevelopmentKey()
	}
}

// respond sends a response, which is made first if it is not in the cache. Responses hold nothing that a request
// contains, so that their length tells nothing about secrets in them.
func (d *Docs) respond(w http.ResponseWriter, r *http.Request, key, kind string, render func() ([]byte, error)) error {
	k, err := d.kept.get(key, render)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "private, no-cache") // a browser asks each time whether its copy is still right
	h.Set("Vary", "Accept-Encoding, Cookie")
	h.Set("ETag", k.tag)
	if strings.Contains(r.Header.Get("If-None-Match"), k.tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		w.Write(k.packed)
		return nil
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(k.packed))
	if err != nil {
		return fmt.Errorf("unpack a page of the documentation: %w", err)
	}
	_, err = io.Copy(w, unpacked)
	return err
}

// servePicture sends a picture of the documents.
func servePicture(w http.ResponseWriter, name string) error {
	picture, err := fs.ReadFile(docs.Files, name)
	if err != nil {
		return errNoPage
	}
	kind := map[string]string{".png": "image/png", ".svg": "image/svg+xml"}[path.Ext(name)]
	if kind == "" {
		return errNoPage
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "public, max-age=3600")
	w.Write(picture)
	return nil
}

// cache keeps compressed responses. The zero value is ready for use.
type cache struct {
	mu    sync.Mutex
	all   map[string]keptResponse
	bytes int
}

// cacheMax is the number of bytes from which on the cache begins anew.
const cacheMax = 4 << 20

// keptResponse is a response in the cache.
type keptResponse struct {
	packed []byte
	tag    string
}

// get returns a response, and renders it if it is not in the cache. One goroutine renders at a time, so that a flood of
// requests takes little memory.
func (c *cache) get(key string, render func() ([]byte, error)) (keptResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.all[key]; ok {
		return k, nil
	}
	content, err := render()
	if err != nil {
		return keptResponse{}, err
	}
	sum := sha256.Sum256(content)
	k := keptResponse{packed: pack(content), tag: `"` + hex.EncodeToString(sum[:12]) + `"`}
	if c.all == nil || c.bytes+len(k.packed) > cacheMax {
		c.all, c.bytes = map[string]keptResponse{}, 0
	}
	c.all[key] = k
	c.bytes += len(k.packed)
	return k, nil
}

// pack compresses a response.
func pack(content []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // fails only for an unknown level
	w.Write(content)
	w.Close()
	return bytes.Clone(b.Bytes())
}
