// Package blobtest provides S3 buckets on the loopback interface for tests. A [Bucket] can delay writes, so that a test
// can act while a blob is being written. A Bucket keeps its objects in memory and does not check signatures.
// [Versitygw] starts a real S3 server.
package blobtest

import (
	"encoding/xml"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Bucket implements the part of the S3 API that a store of small blobs needs: objects and ListObjectsV2 with path-style
// URLs.
type Bucket struct {
	URL string // URL of the store, to be passed to blob.Open

	mu      sync.Mutex
	objects map[string][]byte
	gate    chan struct{} // channel that is closed on release; nil if writes are not delayed
	waiting chan struct{}
}

// New starts a bucket, which is closed when the test ends.
func New(t testing.TB) *Bucket {
	t.Helper()
	b := &Bucket{objects: map[string][]byte{}}
	srv := httptest.NewServer(b)
	t.Cleanup(srv.Close)
	b.URL = "s3://mail?region=eu-1&anonymous=true&endpoint=" + srv.URL
	return b
}

// Hold delays all writes until release is called, which the caller must do exactly once. The waiting channel receives a
// value for each delayed write, up to a hundred values.
func (b *Bucket) Hold() (waiting <-chan struct{}, release func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	gate := make(chan struct{})
	b.gate, b.waiting = gate, make(chan struct{}, 100)
	return b.waiting, func() {
		b.mu.Lock()
		b.gate = nil
		b.mu.Unlock()
		close(gate)
	}
}

func (b *Bucket) wait(r *http.Request) {
	b.mu.Lock()
	gate, waiting := b.gate, b.waiting
	b.mu.Unlock()
	if gate == nil {
		return
	}
	select {
	case waiting <- struct{}{}:
	default:
	}
	select {
	case <-gate:
	case <-r.Context().Done():
	}
}

// ServeHTTP serves one request from a store.
func (b *Bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // The client interrupted the upload, so nothing is stored.
	}
	if r.Method == http.MethodPut {
		b.wait(r)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	key, ok := strings.CutPrefix(r.URL.Path, "/mail/")
	switch {
	case r.Method == http.MethodGet && (!ok || key == ""):
		b.list(w, r.URL.Query().Get("prefix"))
	case r.Method == http.MethodPut:
		b.objects[key] = body
		w.Header().Set("ETag", `"x"`)
	case r.Method == http.MethodDelete:
		delete(b.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case b.objects[key] == nil:
		w.WriteHeader(http.StatusNotFound)
		if r.Method != http.MethodHead {
			io.WriteString(w, `<Error><Code>NoSuchKey</Code><Message>none</Message></Error>`)
		}
	default:
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		w.Write(b.objects[key])
	}
}

func (b *Bucket) list(w http.ResponseWriter, prefix string) {
	type object struct {
		Key          string
		Size         int
		LastModified time.Time
		ETag         string
	}
	answer := struct {
		XMLName     xml.Name `xml:"ListBucketResult"`
		IsTruncated bool
		Contents    []object
	}{}
	for _, key := range slices.Sorted(maps.Keys(b.objects)) {
		if strings.HasPrefix(key, prefix) {
			answer.Contents = append(answer.Contents, object{key, len(b.objects[key]), time.Now().UTC(), `"x"`})
		}
	}
	xml.NewEncoder(w).Encode(answer)
}
