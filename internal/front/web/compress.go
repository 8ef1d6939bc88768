package web

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"sync"
)

// mayCompress reports whether the response to a request for a page may be compressed.
//
// The length of a compressed page tells something about its content to everybody who sees the encrypted connection. An
// attacker who can make a browser open pages with texts of the attacker's choice, such as searches, could guess other
// parts of the page from many lengths (the attack BREACH). Therefore, pages that another site opens are not compressed.
// Browsers name the site in Sec-Fetch-Site, but old browsers do not, and no browser does over plain HTTP.
func (s *Site) mayCompress(r *http.Request) bool {
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		return false
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return true
	case "":
		return !s.secure
	}
	return false
}

// compressors holds writers for reuse, because each one has about a megabyte of memory.
var compressors = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // fails only for an unknown level
	return w
}}

// compress writes content to a buffer, compressed with gzip.
func compress(to *bytes.Buffer, content []byte) {
	w := compressors.Get().(*gzip.Writer)
	defer compressors.Put(w)
	w.Reset(to)
	w.Write(content) // a buffer takes everything
	w.Close()
}
