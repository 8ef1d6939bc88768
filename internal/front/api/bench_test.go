package api

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/front/api/wire"
)

var benchBody = `{"from":"Acme <hello@example.org>","to":["you@example.net"],"subject":"Hello","html":"` +
	strings.Repeat("<p>Some text of an email, with its tags.</p>", 10_000/43) +
	`","tags":[{"name":"kind","value":"bench"}]}`

type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) WriteHeader(int)             {}
func (d discard) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkPost measures a trivial operation with a 10 KB body through the complete stack, but without the network.
// BenchmarkPostBare measures the same operation without package wire: its handler only decodes the body and encodes the
// response.
func BenchmarkPost(b *testing.B) {
	f := newRoute(b, Options{RateLimit: 1 << 30, Log: slog.New(slog.DiscardHandler)},
		func(_ context.Context, _ *wire.Call, in sendEmailIn) (emailID, error) { return emailID{in.From}, nil })
	benchPost(b, f, f.keys["full"])
}

func BenchmarkPostBare(b *testing.B) {
	benchPost(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			b.Error(err)
		}
		var in sendEmailIn
		if err := json.Unmarshal(body, &in, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
			b.Error(err)
		}
		answer, err := json.Marshal(emailID{in.From})
		if err != nil {
			b.Error(err)
		}
		w.Write(answer)
	}), "")
}

func benchPost(b *testing.B, h http.Handler, key string) {
	b.ReportAllocs()
	b.SetBytes(int64(len(benchBody)))
	for b.Loop() {
		r, err := http.NewRequest(http.MethodPost, "/test", strings.NewReader(benchBody))
		if err != nil {
			b.Fatal(err)
		}
		r.Header["Authorization"] = []string{"Bearer " + key}
		r.Header["Content-Type"] = []string{"application/json"}
		r.RemoteAddr = "192.0.2.1:1234"
		h.ServeHTTP(discard{http.Header{}}, r)
	}
}

// BenchmarkPostHTTP is like BenchmarkPost, but uses a persistent HTTP connection.
func BenchmarkPostHTTP(b *testing.B) {
	f := newRoute(b, Options{RateLimit: 1 << 30, Log: slog.New(slog.DiscardHandler)},
		func(_ context.Context, _ *wire.Call, in sendEmailIn) (emailID, error) { return emailID{in.From}, nil })
	benchHTTP(b, f, f.keys["full"])
}

// BenchmarkHTTP measures net/http alone, with a handler that reads and discards the body.
func BenchmarkHTTP(b *testing.B) {
	benchHTTP(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Write([]byte(`{"id":"x"}`))
	}), "")
}

func benchHTTP(b *testing.B, h http.Handler, key string) {
	s := httptest.NewServer(h)
	defer s.Close()
	b.ReportAllocs()
	for b.Loop() {
		r, err := http.NewRequest(http.MethodPost, s.URL+"/test", strings.NewReader(benchBody))
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		w, err := http.DefaultClient.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		if w.StatusCode != 200 {
			b.Fatal(w.StatusCode)
		}
		io.Copy(io.Discard, w.Body)
		w.Body.Close()
	}
}
