// Package oauth is the OAuth 2.1 server: the HTTP interface to package grants, and the consent page.
//
// # Shape
//
// metadata.go publishes the metadata for the server and its resources (RFC 8414, RFC 9728, RFC 7517). register.go
// registers clients (RFC 7591). authorize.go obtains a person's consent. token.go issues, refreshes and revokes tokens
// (RFC 6749, RFC 7009).
//
// # Invariants
//
// The server redirects a browser only to a redirect URI that exactly matches one that the client has registered. If the
// redirect URI is a web page of an unverified client, the server redirects only after the person has made a choice on a
// page. If the server redirected to unverified clients immediately, it would be an open redirector (RFC 9700 section
// 4.11).
//
// Consent requires a POST from the consent page, which cannot be framed. When the server receives the POST, it repeats
// all checks on the request and does not trust the form's content.
//
// Endpoints for OAuth clients do not use cookies, so they accept requests from web pages of any origin.
//
// # Failures
//
// If the server fails, the client gets the error server_error. The cause is logged but not sent to the client.
//
// # Out of scope
//
// Package oauth has no rules about grants. Package api lists and revokes a team's grants.
package oauth

import (
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/lograte"
	"github.com/postrider/postrider/internal/platform/audit"
)

// Options holds the OAuth server's settings and dependencies.
type Options struct {
	PublicURL string   // address of this installation without a trailing slash; also the issuer
	MCP       string   // path of the MCP server; "" if it is off
	MCPScopes []string // scopes that MCP clients request; nil means all scopes
	Grants    *grants.Service
	Members   *members.Service
	Teams     *teams.Service
	Site      *web.Site
	Log       *slog.Logger

	// Address returns the address at which a client reaches this installation, without a trailing slash. Clients
	// compare the issuer and the resource with that address. If Address is nil, the address is always PublicURL.
	Address func(r *http.Request) string

	// KeysConsent allows a full-access API key to give consent on behalf of its team, so that scripts do not need a
	// browser. KeysConsent is meant only for development.
	KeysConsent bool
}

// Server serves the OAuth endpoints.
type Server struct {
	Options
	mux       *http.ServeMux
	pages     *http.ServeMux // pages that require a signed-in user
	refusals  teams.Limiter  // counts refused token requests by network
	outageLog lograte.Limiter
	floodLog  lograte.Limiter
}

// paths lists the paths of all endpoints.
var paths = []string{"/oauth/authorize", "/oauth/token", "/oauth/register", "/oauth/revoke",
	"/.well-known/oauth-authorization-server", "/.well-known/oauth-protected-resource",
	"/.well-known/oauth-protected-resource/mcp", "/.well-known/jwks.json"}

// New returns the OAuth server.
func New(o Options) *Server {
	s := &Server{Options: o, mux: http.NewServeMux(), pages: http.NewServeMux()}
	s.open("/.well-known/oauth-authorization-server", http.MethodGet, s.serverMetadata)
	s.open("/.well-known/oauth-protected-resource", http.MethodGet, s.apiMetadata)
	s.open("/.well-known/oauth-protected-resource/mcp", http.MethodGet, s.mcpMetadata)
	s.open("/.well-known/jwks.json", http.MethodGet, s.keys)
	s.open("/oauth/register", http.MethodPost, s.register)
	s.open("/oauth/token", http.MethodPost, s.token)
	s.open("/oauth/revoke", http.MethodPost, s.revoke)
	o.Site.Handle(s.mux, "GET /oauth/authorize", s.authorize)
	o.Site.HandleSignedIn(s.pages, "GET /oauth/authorize", s.showConsent)
	o.Site.HandleSignedIn(s.mux, "POST /oauth/authorize", s.consent)
	return s
}

// address returns the address at which the client that sent a request reaches this installation.
func (s *Server) address(r *http.Request) string {
	if s.Address == nil {
		return s.PublicURL
	}
	return s.Address(r)
}

// Serves reports whether the path belongs to an endpoint.
func (s *Server) Serves(path string) bool { return slices.Contains(paths, tidy(path)) }

// ServeHTTP serves a request whose path [Server.Serves] accepts.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.URL.Path, r.URL.RawPath = tidy(r.URL.Path), ""
	s.mux.ServeHTTP(w, r)
}

// tidy removes duplicate slashes and a trailing slash, which some clients add. Package api normalizes paths in the same
// way.
func tidy(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return strings.TrimSuffix(path, "/")
}

// open registers an endpoint for OAuth clients. Web pages from any origin may call the endpoint (Fetch standard, CORS
// protocol), which ignores cookies.
func (s *Server) open(path, method string, f func(w http.ResponseWriter, r *http.Request) error) {
	s.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Expose-Headers", "WWW-Authenticate, Retry-After")
		switch r.Method {
		case http.MethodOptions:
			h.Set("Access-Control-Allow-Methods", method)
			h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, MCP-Protocol-Version")
			h.Set("Access-Control-Max-Age", "86400")
			w.WriteHeader(http.StatusNoContent)
			return
		case method:
		case http.MethodHead:
			if method == http.MethodGet {
				break
			}
			fallthrough
		default:
			h.Set("Allow", method+", OPTIONS")
			writeRefusal(w, http.StatusMethodNotAllowed, grants.InvalidRequest, "The method must be "+method+".")
			return
		}
		ctx := audit.With(r.Context(), audit.Entry{Address: peer(r), UserAgent: r.UserAgent()})
		if err := f(w, r.WithContext(ctx)); err != nil {
			s.fail(w, r, err)
		}
	})
}

// peer returns the client's IP address.
func peer(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
