package dashboard

import (
	"html/template"
	"net/http"

	"github.com/postrider/postrider/internal/front/web"
)

var documentationPage = pageOf("documentation.html")

// RegisterDocumentation adds the page with the API reference to a mux. The page needs no session.
func (p *Pages) RegisterDocumentation(mux *http.ServeMux) {
	var guests web.GuestPage
	show := func(w http.ResponseWriter, r *http.Request) error {
		reference, err := p.Reference()
		if err != nil {
			return err
		}
		return p.Site.Show(w, r, http.StatusOK, documentationPage, struct {
			Version, Address string
			Reference        template.HTML
		}{p.Version, p.PublicURL, reference}, web.Crumbs("Documentation"), web.Guests())
	}
	p.Site.Handle(mux, "GET "+web.DocsPath, func(w http.ResponseWriter, r *http.Request) error {
		return p.Site.ShowGuests(w, r, &guests, show)
	})
}
