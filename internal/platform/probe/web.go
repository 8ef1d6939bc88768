package probe

import (
	"context"
	"crypto/x509"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"
)

// bodyMax is the maximum number of bytes that are read of a page.
const bodyMax = 256

// Web is a server's answer to a request.
type Web struct {
	Reached bool `json:"reached"` // the server answered
	Status  int  `json:"status,omitempty"`
	// Expected is whether the body is one of the texts that the caller expects. The body itself is not kept.
	Expected    bool         `json:"expected"`
	Date        time.Time    `json:"date,omitzero"` // the server's clock
	Certificate *Certificate `json:"certificate,omitempty"`
	Problem     string       `json:"problem,omitempty"` // why there is no answer
}

// Page configures a request.
type Page struct {
	URL    string
	Method string // "" means GET
	Expect []string
	Roots  *x509.CertPool
}

// Request requests a page. It follows no redirects.
func Request(ctx context.Context, dial Dial, p Page) Web {
	var w Web
	u, err := url.Parse(p.URL)
	if err != nil {
		w.Problem = "the URL is wrong"
		return w
	}
	ctx, cancel := context.WithTimeout(ctx, talkTime)
	defer cancel()
	var seen atomic.Pointer[Certificate] // a handshake may go on after RoundTrip has returned
	t := &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10, TLSHandshakeTimeout: dialTime,
		ResponseHeaderTimeout: dialTime, DialContext: dial,
		TLSClientConfig: tlsConfig(u.Hostname(), func(chain []*x509.Certificate) {
			seen.Store(judge(chain, u.Hostname(), p.Roots, time.Now()))
		})}
	r, err := http.NewRequestWithContext(ctx, p.Method, p.URL, nil)
	if err != nil {
		w.Problem = "the URL is wrong"
		return w
	}
	r.Header.Set("User-Agent", "Postrider-Doctor")
	answer, err := t.RoundTrip(r)
	w.Certificate = seen.Load()
	if err != nil {
		w.Problem = "no answer: " + reason(err)
		return w
	}
	defer answer.Body.Close()
	w.Reached, w.Status = true, answer.StatusCode
	w.Date, _ = http.ParseTime(answer.Header.Get("Date"))
	body, err := io.ReadAll(io.LimitReader(answer.Body, bodyMax))
	w.Expected = err == nil && answer.StatusCode == http.StatusOK && slices.Contains(p.Expect, string(body))
	return w
}
