package oauth

import (
	"net/http"

	"github.com/postrider/postrider/internal/accounts/grants"
)

// serverWire is the authorization server metadata (RFC 8414 section 2).
type serverWire struct {
	Issuer                 string   `json:"issuer"`
	Authorize              string   `json:"authorization_endpoint"`
	Token                  string   `json:"token_endpoint"`
	Keys                   string   `json:"jwks_uri"`
	Register               string   `json:"registration_endpoint"`
	Revoke                 string   `json:"revocation_endpoint"`
	Scopes                 []string `json:"scopes_supported"`
	ResponseTypes          []string `json:"response_types_supported"`
	ResponseModes          []string `json:"response_modes_supported"`
	GrantTypes             []string `json:"grant_types_supported"`
	TokenAuthMethods       []string `json:"token_endpoint_auth_methods_supported"`
	RevocationAuthMethods  []string `json:"revocation_endpoint_auth_methods_supported"`
	ChallengeMethods       []string `json:"code_challenge_methods_supported"`
	IssuerInAnswers        bool     `json:"authorization_response_iss_parameter_supported"` // RFC 9207
	ServiceDocumentation   string   `json:"service_documentation"`
	ProtectedResourceNames []string `json:"protected_resources"` // RFC 9728 section 4
}

// resourceWire is the protected resource metadata (RFC 9728 section 2).
type resourceWire struct {
	Resource      string   `json:"resource"`
	Name          string   `json:"resource_name"`
	Servers       []string `json:"authorization_servers"`
	Methods       []string `json:"bearer_methods_supported"`
	Scopes        []string `json:"scopes_supported"`
	Documentation string   `json:"resource_documentation"`
}

func (s *Server) serverMetadata(w http.ResponseWriter, r *http.Request) error {
	u := s.address(r)
	resources := []string{u}
	if s.MCP != "" {
		resources = append(resources, u+s.MCP)
	}
	writeCacheable(w, serverWire{Issuer: u, Authorize: u + "/oauth/authorize", Token: u + "/oauth/token",
		Keys: u + "/.well-known/jwks.json", Register: u + "/oauth/register", Revoke: u + "/oauth/revoke",
		Scopes: grants.ScopeNames(), ResponseTypes: []string{"code"}, ResponseModes: []string{"query"},
		GrantTypes: grantTypes, TokenAuthMethods: []string{"none"}, RevocationAuthMethods: []string{"none"},
		ChallengeMethods: []string{"S256"}, IssuerInAnswers: true, ServiceDocumentation: u + "/docs",
		ProtectedResourceNames: resources})
	return nil
}

func (s *Server) apiMetadata(w http.ResponseWriter, r *http.Request) error {
	return s.resource(w, r, "", "Postrider API", grants.ScopeNames())
}

func (s *Server) mcpMetadata(w http.ResponseWriter, r *http.Request) error {
	if s.MCP == "" {
		writeRefusal(w, http.StatusNotFound, grants.InvalidRequest, "There is no such resource.")
		return nil
	}
	scopes := s.MCPScopes
	if scopes == nil {
		scopes = grants.ScopeNames()
	}
	return s.resource(w, r, s.MCP, "Postrider MCP server", scopes)
}

// resource writes the metadata of one resource. Clients that do not know which scopes they need request all the scopes
// listed there.
func (s *Server) resource(w http.ResponseWriter, r *http.Request, path, name string, scopes []string) error {
	u := s.address(r)
	writeCacheable(w, resourceWire{Resource: u + path, Name: name, Servers: []string{u}, Methods: []string{"header"},
		Scopes: scopes, Documentation: u + "/docs"})
	return nil
}

// keys writes the public keys as a JWK set. Anybody can use the public keys to verify access tokens, but verification
// does not detect that a grant has been revoked.
func (s *Server) keys(w http.ResponseWriter, r *http.Request) error {
	set, err := s.Grants.PublicKeys(r.Context())
	if err != nil {
		return err
	}
	writeCacheable(w, set)
	return nil
}

// writeCacheable writes a response that caches may store for 300 s (API reference section 24.1).
func writeCacheable(w http.ResponseWriter, v any) {
	w.Header().Set("Cache-Control", "public, max-age=300")
	writeJSON(w, http.StatusOK, v)
}
