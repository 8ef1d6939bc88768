package bench

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/html"
)

// response is the response to a request for a page or file.
type response struct {
	status int
	took   time.Duration
	bytes  int  // as sent, compressed if the node compresses it
	page   bool // whether it is a page of the dashboard, and not a mail in a frame, a file or a redirect
	text   []byte
}

// client requests compressed responses, as a browser does, and does not follow redirects.
var client = &http.Client{Transport: &http.Transport{DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// open requests an address of the node with a session's token, as a browser does in which a person types the address.
func (n *measuredNode) open(ctx context.Context, address, token string) (got response, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.addr+address, nil)
	if err != nil {
		return got, err
	}
	_, port, _ := strings.Cut(n.addr, ":")
	r.Host = "localhost:" + port // a node for development redirects other hosts
	r.AddCookie(&http.Cookie{Name: "postrider", Value: token})
	r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*")
	r.Header.Set("Accept-Encoding", "gzip")
	r.Header.Set("Sec-Fetch-Site", "none")
	began := time.Now()
	w, err := client.Do(r)
	if err != nil {
		return got, err
	}
	defer w.Body.Close()
	if to := w.Header.Get("Location"); strings.HasPrefix(to, "/sign-in") {
		return got, errors.New("the node asks to sign in")
	}
	sent, err := io.ReadAll(w.Body)
	got = response{status: w.StatusCode, took: time.Since(began), bytes: len(sent), text: sent}
	if err == nil && w.Header.Get("Content-Encoding") == "gzip" {
		got.text, err = unpack(sent)
	}
	got.page = got.status == http.StatusOK && strings.HasPrefix(w.Header.Get("Content-Type"), "text/html") &&
		!strings.Contains(w.Header.Get("Content-Security-Policy"), "sandbox")
	return got, err
}

func unpack(packed []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("decompress the response: %w", err)
	}
	return io.ReadAll(z)
}

// readLinks returns the addresses on this site to which a page leads or which it shows in frames, and the files that it
// loads, each once.
func readLinks(page []byte) (links, files []string, err error) {
	add := func(to *[]string, address string) {
		if strings.HasPrefix(address, "/") && !slices.Contains(*to, address) {
			*to = append(*to, address)
		}
	}
	for z := html.NewTokenizer(bytes.NewReader(page)); ; {
		switch z.Next() {
		case html.ErrorToken:
			if err := z.Err(); !errors.Is(err, io.EOF) {
				return nil, nil, err
			}
			return links, files, nil
		case html.StartTagToken, html.SelfClosingTagToken:
			t := z.Token()
			for _, a := range t.Attr {
				switch t.Data + " " + a.Key {
				case "a href", "iframe src":
					add(&links, a.Val)
				case "link href", "script src", "img src", "use href":
					file, _, _ := strings.Cut(a.Val, "#")
					add(&files, file)
				}
			}
		}
	}
}
