package web

import (
	"bytes"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"sync"
)

// GuestPage holds a large page that is the same for all guests, such as documentation. The page is rendered once for
// each appearance, so that a flood of requests costs little. The zero value is ready for use.
type GuestPage struct {
	mu       sync.Mutex
	rendered map[appearance]*renderedPage
}

// appearance is all that a guest's page depends on. It has twelve values.
type appearance struct {
	theme        string
	keys, packed bool
}

// renderedPage is a response. It implements [http.ResponseWriter].
type renderedPage struct {
	header  http.Header
	status  int
	content bytes.Buffer
}

func (p *renderedPage) Header() http.Header            { return p.header }
func (p *renderedPage) WriteHeader(status int)         { p.status = status }
func (p *renderedPage) Write(part []byte) (int, error) { return p.content.Write(part) }

// ShowGuests responds with a page that show writes by [Site.Show]. The page must not depend on the query of the
// request. For guests, it is taken from g. For users, show is called for each request.
func (s *Site) ShowGuests(w http.ResponseWriter, r *http.Request, g *GuestPage,
	show func(w http.ResponseWriter, r *http.Request) error) error {
	_, ok, err := s.Visitor(r)
	if err != nil {
		return err
	}
	if ok {
		return show(w, r)
	}
	p, err := g.page(appearance{s.theme(r), s.Cookie(r, keysCookie) != "off", s.mayCompress(r)},
		func(a appearance) (*renderedPage, error) {
			p := &renderedPage{header: w.Header().Clone(), status: http.StatusOK}
			return p, show(p, s.plainRequest(r, a))
		})
	if err != nil {
		return err
	}
	maps.Copy(w.Header(), p.header)
	w.Header().Set("Content-Length", strconv.Itoa(p.content.Len()))
	w.WriteHeader(p.status)
	w.Write(p.content.Bytes())
	return nil
}

// page returns the page with an appearance, and renders it first if need be. One goroutine renders at a time.
func (g *GuestPage) page(a appearance, render func(appearance) (*renderedPage, error)) (*renderedPage, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.rendered[a]; p != nil {
		return p, nil
	}
	p, err := render(a)
	if err != nil {
		return nil, err
	}
	if g.rendered == nil {
		g.rendered = map[appearance]*renderedPage{}
	}
	g.rendered[a] = p
	return p, nil
}

// plainRequest returns a request for the same path that has nothing of r but the appearance.
func (s *Site) plainRequest(r *http.Request, a appearance) *http.Request {
	plain := r.Clone(r.Context())
	plain.URL = &url.URL{Path: r.URL.Path}
	plain.RequestURI = plain.URL.RequestURI()
	plain.Header.Del("Cookie")
	plain.AddCookie(&http.Cookie{Name: s.cookieName(themeCookie), Value: a.theme})
	if !a.keys {
		plain.AddCookie(&http.Cookie{Name: s.cookieName(keysCookie), Value: "off"})
	}
	if !a.packed {
		plain.Header.Del("Accept-Encoding")
	}
	return plain
}
