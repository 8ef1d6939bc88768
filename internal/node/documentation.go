package node

import (
	"net/http"

	"github.com/postrider/postrider/internal/front/dashboard"
	"github.com/postrider/postrider/internal/front/docsite"
	"github.com/postrider/postrider/internal/front/web"
)

// newDocumentation returns the documentation that the node serves.
func (n *Node) newDocumentation() *docsite.Docs {
	return docsite.New(docsite.Options{Version: n.o.Version, Site: n.site, Address: addressOf(n.Config.PublicURL),
		Extra: func() []docsite.Page {
			return append(docsite.Reference(n.api, n.developer != nil), n.o.Commands...)
		},
		DevelopmentKey: func() string {
			if n.developer == nil {
				return ""
			}
			return n.outboxKey
		},
		Developer: func(v *web.Visitor) bool { return n.developer != nil && v.User.ID == n.developer.user.ID }})
}

// isDocumentation reports whether a request is for the documentation, which is also served at aliases of the public
// URL.
func isDocumentation(r *http.Request) bool {
	return docsite.Serves(r.URL.Path) && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

// docsSections returns the headings of the API reference, and the other pages of the documentation.
func (n *Node) docsSections(docs *docsite.Docs) (all []dashboard.DocsSection) {
	for _, s := range n.api.Sections() {
		all = append(all, dashboard.DocsSection(s))
	}
	pages, err := docs.Titles()
	if err != nil {
		n.Log.Error("the pages of the documentation cannot be listed", "error", err)
	}
	for _, p := range pages {
		all = append(all, dashboard.DocsSection{Title: p.Title, Detail: p.Section, Path: p.Path})
	}
	return all
}
