package cli

import (
	"strings"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/front/mcp"
	"github.com/postrider/postrider/internal/front/oauth"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/platform/keyring"
)

// newGrants returns the service of grants, whose tokens then work wherever API keys do.
func (n *node) newGrants(keys *keyring.Keyring) *grants.Service {
	url := n.c.PublicURL
	g := grants.New(grants.Config{Issuer: url, Resources: []string{url, url + mcp.Path}, Aliases: aliases(url)},
		grants.Parts{DB: n.db, Keys: keys, Teams: n.teams, Members: n.members, Audit: n.audit})
	g.Connect(n.users)
	return g
}

// newOAuth returns the OAuth server.
func (n *node) newOAuth(site *web.Site) *oauth.Server {
	return oauth.New(oauth.Options{PublicURL: n.c.PublicURL, Address: addressOf(n.c.PublicURL), MCP: mcp.Path,
		MCPScopes: strings.Fields(n.mcp.Scopes().String()), Grants: n.grants, Members: n.members,
		Teams: n.teams, Site: site, Log: n.log})
}
