package cli

import (
	"github.com/postrider/postrider/internal/front/api"
	"github.com/postrider/postrider/internal/front/mcp"
	"github.com/postrider/postrider/internal/platform/keyring"
)

// newMCP returns the MCP server, whose tools perform the operations of the API.
func (n *node) newMCP(rest *api.API, keys *keyring.Keyring) *mcp.Server {
	return mcp.New(mcp.Options{API: rest, Keys: keys, Log: n.log, Version: Version, Now: n.db.Now, Enter: rest.Authenticate,
		Scope: rest.Scope, Usage: n.grants.Usage, Answered: n.emails.EarlierResult})
}
