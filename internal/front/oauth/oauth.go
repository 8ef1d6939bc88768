// Package oauth is the OAuth 2.1 server: it translates between the wire and package grants, and shows the page on which
// a person consents.
//
// # Shape
//
// metadata.go tells programs what there is (RFC 8414, RFC 9728, RFC 7517), register.go registers them (RFC 7591),
// authorize.go asks a person, and token.go gives, renews and revokes tokens (RFC 6749, RFC 7009).
//
// # Invariants
//
// A browser is sent to an address of a client only if the client has registered that very address, and, where the
// address is a web page of a client that nobody has verified, only after the person has chosen something on a page of
// ours: otherwise any link to this server could lead anywhere (RFC 9700 section 4.11). Nobody consents but by a POST
// from our own page, which is in no frame. What the page says is made from the request as it is checked again, not as
// the page was sent.
//
// Endpoints for programs use no cookies, and so answer browsers of all origins.
//
// # When it fails
//
// Failures of ours are answered as server_error, without their cause, which is logged.
//
// # What it does not do
//
// It holds no rules of grants, and does not list or revoke them for teams: package api does.
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

// Options are what the server works with.
type Options struct {
	PublicURL string   // the address of this installation, without a slash at its end; the issuer
	MCP       string   // the path of the MCP server; "" if there is none
	MCPScopes []string // that its tools need, for which its clients ask; nil is all
	Grants    *grants.Service
	Members   *members.Service
	Teams     *teams.Service
	Site      *web.Site
	Log       *slog.Logger

	// Address returns the address, without a slash at its end, by which a client reaches this installation, if that may
	// be another than PublicURL: clients compare the issuer, and the resource, with what they have asked. Nil means that
	// there is no other one.
	Address func(r *http.Request) string

	// KeysConsent lets a full-access API key consent for its team, so that scripts need no browser. It is for
	// development.
	KeysConsent bool
}

// Server serves the endpoints.
type Server struct {
	Options
	mux      *http.ServeMux
	people   *http.ServeMux // the pages of people, after the request was checked
	refusals teams.Limiter  // of requests for tokens, by address
	away     lograte.Limiter
	floods   lograte.Limiter
}

// paths are those of all endpoints.
var paths = []string{"/oauth/authorize", "/oauth/token", "/oauth/register", "/oauth/revoke",
	"/.well-known/oauth-authorization-server", "/.well-known/oauth-protected-resource",
	"/.well-known/oauth-protected-resource/mcp", "/.well-known/jwks.json"}

// New returns the server.
func New(o Options) *Server {
	s := &Server{Options: o, mux: http.NewServeMux(), people: http.NewServeMux()}
	s.open("/.well-known/oauth-authorization-server", http.MethodGet, s.serverMetadata)
	s.open("/.well-known/oauth-protected-resource", http.MethodGet, s.apiMetadata)
	s.open("/.well-known/oauth-protected-resource/mcp", http.MethodGet, s.mcpMetadata)
	s.open("/.well-known/jwks.json", http.MethodGet, s.keys)
	s.open("/oauth/register", http.MethodPost, s.register)
	s.open("/oauth/token", http.MethodPost, s.token)
	s.open("/oauth/revoke", http.MethodPost, s.revoke)
	o.Site.Handle(s.mux, "GET /oauth/authorize", s.authorize)
	o.Site.Person(s.people, "GET /oauth/authorize", s.showConsent)
	o.Site.Person(s.mux, "POST /oauth/authorize", s.consent)
	return s
}

// address returns the address of this installation as the client of a request has it.
func (s *Server) address(r *http.Request) string {
	if s.Address == nil {
		return s.PublicURL
	}
	return s.Address(r)
}

// Serves reports whether a path is one of the server's.
func (s *Server) Serves(path string) bool { return slices.Contains(paths, tidy(path)) }

// ServeHTTP serves a request whose path [Server.Serves] has approved of.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.URL.Path, r.URL.RawPath = tidy(r.URL.Path), ""
	s.mux.ServeHTTP(w, r)
}

// tidy does what package api does with paths: clients double slashes and add one at the end.
func tidy(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return strings.TrimSuffix(path, "/")
}

// open serves an endpoint for programs at all origins (Fetch standard, CORS protocol). Cookies are neither asked for
// nor looked at.
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

// peer returns the address that a request comes from.
func peer(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
