package oauth

import (
	"errors"
	"net/http"

	"github.com/postrider/postrider/internal/accounts/grants"
)

// refusalsPerSecond is the maximum number of refused token requests per second from an IPv4 address or an IPv6 network.
const refusalsPerSecond = 30

// tokenWire is the token response (RFC 6749 section 5.1).
type tokenWire struct {
	Access  string `json:"access_token"`
	Type    string `json:"token_type"`
	Life    int64  `json:"expires_in"`
	Refresh string `json:"refresh_token"`
	Scope   string `json:"scope"`
}

func (s *Server) token(w http.ResponseWriter, r *http.Request) error {
	p, err := s.params(w, r)
	if err != nil {
		return err
	}
	var t grants.Tokens
	switch p["grant_type"] {
	case "authorization_code":
		t, err = s.Grants.Exchange(r.Context(), grants.ExchangeParams{ClientID: p["client_id"], Code: p["code"],
			RedirectURI: p["redirect_uri"], Verifier: p["code_verifier"], Resource: p["resource"]})
	case "refresh_token":
		t, err = s.Grants.Refresh(r.Context(), grants.RefreshParams{ClientID: p["client_id"], Token: p["refresh_token"],
			Scope: p["scope"], Resource: p["resource"]})
	case "":
		err = refuse(grants.InvalidRequest, "grant_type is missing.")
	default:
		err = refuse(grants.UnsupportedGrantType, "grant_type must be authorization_code or refresh_token.")
	}
	if err != nil {
		s.count(r, err)
		return err
	}
	writeJSON(w, http.StatusOK, tokenWire{t.Access, "Bearer", t.Life, t.Refresh, t.Scopes.String()})
	return nil
}

// revoke revokes a token. The response body is empty, even if the token does not exist (API reference section 24.5).
func (s *Server) revoke(w http.ResponseWriter, r *http.Request) error {
	p, err := s.params(w, r)
	if err != nil {
		return err
	}
	if err := s.Grants.RevokeToken(r.Context(), p["client_id"], p["token"], p["token_type_hint"]); err != nil {
		s.count(r, err)
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	return nil
}

// count counts a refused request towards the rate limit. Other failures are not counted, because clients retry them
// within seconds (see [grants.Service.Refresh]).
func (s *Server) count(r *http.Request, err error) {
	if _, ok := errors.AsType[*grants.Error](err); ok {
		s.refusals.Count(grants.Network(peer(r)), refusalsPerSecond)
	}
}

// params reads the parameters of a client's request, which must include client_id.
func (s *Server) params(w http.ResponseWriter, r *http.Request) (params, error) {
	if s.refusals.Over(grants.Network(peer(r)), refusalsPerSecond) {
		w.Header().Set("Retry-After", "1")
		return nil, refuse(grants.TooManyRequests, "Too many requests were refused. Try again in a second.")
	}
	text, err := body(w, r)
	if err != nil {
		return nil, err
	}
	p, err := readParams(r.Header.Get("Content-Type"), text)
	if err == nil && p["client_id"] == "" {
		err = refuse(grants.InvalidRequest, "client_id is missing.")
	}
	return p, err
}
