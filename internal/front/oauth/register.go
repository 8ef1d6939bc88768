package oauth

import (
	"errors"
	"net/http"

	"github.com/postrider/postrider/internal/accounts/grants"
)

var grantTypes = []string{"authorization_code", "refresh_token"}

// clientIn is the client metadata in a registration request (RFC 7591 section 2).
type clientIn struct {
	Name          string   `json:"client_name"`
	RedirectURIs  []string `json:"redirect_uris"`
	GrantTypes    []string `json:"grant_types"`
	ResponseTypes []string `json:"response_types"`
	AuthMethod    string   `json:"token_endpoint_auth_method"`
	Scope         string   `json:"scope"`
	URI           string   `json:"client_uri"`
	LogoURI       string   `json:"logo_uri"`
}

// clientWire is the registration response (RFC 7591 section 3.2.1).
type clientWire struct {
	ID            string   `json:"client_id"`
	IssuedAt      int64    `json:"client_id_issued_at"`
	Name          string   `json:"client_name"`
	RedirectURIs  []string `json:"redirect_uris"`
	GrantTypes    []string `json:"grant_types"`
	ResponseTypes []string `json:"response_types"`
	AuthMethod    string   `json:"token_endpoint_auth_method"`
	Scope         string   `json:"scope"`
	URI           string   `json:"client_uri,omitzero"`
	LogoURI       string   `json:"logo_uri,omitzero"`
}

func (s *Server) register(w http.ResponseWriter, r *http.Request) error {
	text, err := body(w, r)
	if err != nil {
		return err
	}
	var in clientIn
	if err := readJSON(text, &in); err != nil {
		return err
	}
	c, err := s.Grants.Register(r.Context(), grants.NewClient{Name: in.Name, RedirectURIs: in.RedirectURIs,
		GrantTypes: in.GrantTypes, ResponseTypes: in.ResponseTypes, AuthMethod: in.AuthMethod, Scope: in.Scope,
		URI: in.URI, LogoURI: in.LogoURI, Address: peer(r)})
	if e, ok := errors.AsType[*grants.Error](err); ok && e.Code == grants.TooManyRequests {
		if logged, leftOut := s.floodLog.Allow(); logged {
			s.Log.Warn("too many OAuth clients are being registered", "address", peer(r), "more_like_it", leftOut)
		}
	}
	if err != nil {
		return err
	}
	s.Log.Info("registered an OAuth client", "client_id", c.ID, "address", peer(r))
	writeJSON(w, http.StatusCreated, clientWire{ID: c.ID, IssuedAt: c.CreatedAt.Unix(), Name: c.Name,
		RedirectURIs: c.RedirectURIs, GrantTypes: grantTypes, ResponseTypes: []string{"code"}, AuthMethod: "none",
		Scope: c.Scopes.String(), URI: c.URI, LogoURI: c.LogoURI})
	return nil
}
