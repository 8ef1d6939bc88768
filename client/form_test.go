package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// slowFile is a file whose first read waits until gate is closed.
type slowFile struct {
	src       *strings.Reader
	began     chan struct{} // closed when the first read begins
	gate      chan struct{}
	first     sync.Once
	reading   atomic.Bool
	disturbed atomic.Bool // whether the file was rewound during a read
}

func newSlowFile(text string) *slowFile {
	return &slowFile{src: strings.NewReader(text), began: make(chan struct{}), gate: make(chan struct{})}
}

func (f *slowFile) Read(b []byte) (int, error) {
	f.reading.Store(true)
	defer f.reading.Store(false)
	f.first.Do(func() {
		close(f.began)
		<-f.gate
	})
	return f.src.Read(b)
}

func (f *slowFile) Seek(offset int64, whence int) (int64, error) {
	if f.reading.Load() {
		f.disturbed.Store(true)
		return 0, errors.New("a read is in progress")
	}
	return f.src.Seek(offset, whence)
}

// lossy is a transport that loses the first request while the file is being read, and keeps the body of the second.
type lossy struct {
	file     *slowFile
	requests int
	second   string
}

func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	if l.requests++; l.requests == 1 {
		go io.Copy(io.Discard, r.Body)
		<-l.file.began
		return nil, errors.New("the connection broke")
	}
	text, err := io.ReadAll(r.Body)
	l.second = string(text)
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}"))}, err
}

// A retry waits until the attempt before it no longer reads the file. Otherwise a late read would take a part of the
// file from the retry.
func TestRetryWaitsForTheReader(t *testing.T) {
	t.Parallel()
	const text = "email\nada@example.net\n"
	file := newSlowFile(text)
	transport := &lossy{file: file}
	c, err := New("http://127.0.0.1:1", "re_123", WithHTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-file.began
		close(file.gate)
	}()
	_, err = c.Contacts.CreateImport(t.Context(), CreateImport{File: file, FileName: "contacts.csv"},
		WithIdempotencyKey("contacts"))
	if err != nil || file.disturbed.Load() || !strings.Contains(transport.second, text) {
		t.Errorf("error %v, rewound during a read: %v, the retry sends %q", err, file.disturbed.Load(), transport.second)
	}
}

// A form is not rewound during a read: the wait ends with the context, and a stream is refused without a wait.
func TestRewindDuringARead(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for what, ctx := range map[string]context.Context{"a file": ended, "a stream": t.Context()} {
		file := newSlowFile("email\n")
		f := &form{file: file, fileName: "contacts.csv"}
		if what == "a stream" {
			f.file = struct{ io.Reader }{file}
		}
		body, _ := f.encode()
		go io.Copy(io.Discard, body)
		<-file.began
		body.Close()
		if f.rewind(ctx) || file.disturbed.Load() {
			t.Errorf("%s is rewound during a read", what)
		}
		close(file.gate)
	}
	if f := (&form{file: newSlowFile("")}); !f.rewind(ended) {
		t.Error("a form that was not sent yet cannot be sent")
	}
}
