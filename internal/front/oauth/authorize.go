package oauth

import (
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
)

// authorizeParams lists the parameters of an authorization request, which are repeated in the consent form.
var authorizeParams = []string{"client_id", "response_type", "redirect_uri", "scope", "state", "code_challenge",
	"code_challenge_method", "resource", askedHostParam}

// askedHostParam is a non-standard parameter for installations whose users sign in at a host other than the API's host.
// The parameter names the host to which the client sent its authorization request. The response names that host as the
// issuer, which the client checks (RFC 9207).
const askedHostParam = "asked_at"

// request is an authorization request.
type request struct {
	grants.Request
	issuer string // the issuer that the client expects
}

// parseRequest parses and checks an authorization request.
func (s *Server) parseRequest(r *http.Request, given url.Values) (request, params, error) {
	q := request{issuer: s.address(r)}
	p, err := single(given)
	if err != nil {
		return q, nil, err
	}
	if host := p[askedHostParam]; host != "" {
		q.issuer = s.address(&http.Request{Host: host}) // never an unknown host; see Options.Address
	}
	q.Request, err = s.Grants.CheckRequest(r.Context(), grants.Params{ClientID: p["client_id"],
		ResponseType: p["response_type"], RedirectURI: p["redirect_uri"], Scope: p["scope"], State: p["state"],
		Challenge: p["code_challenge"], ChallengeMethod: p["code_challenge_method"], Resource: p["resource"]})
	return q, p, err
}

// authorize responds to an authorization request with the consent page, or with the sign-in page if the visitor has no
// session.
func (s *Server) authorize(w http.ResponseWriter, r *http.Request) error {
	q, _, err := s.parseRequest(r, r.URL.Query())
	if err != nil {
		return s.refused(w, r, &q, err)
	}
	if token, ok := bearer(r); ok && s.KeysConsent {
		return s.consentByKey(w, r, &q, token)
	}
	if s.address(r) != s.PublicURL { // people sign in only at PublicURL
		given := r.URL.Query()
		given.Set(askedHostParam, r.Host)
		r.URL.RawQuery = given.Encode()
	}
	s.pages.ServeHTTP(w, r)
	return nil
}

// bearer returns the bearer token in a request.
func bearer(r *http.Request) (string, bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), strings.EqualFold(scheme, "Bearer")
}

// consentByKey consents on behalf of the team that a full-access API key belongs to. Consent by API key is meant only
// for development.
func (s *Server) consentByKey(w http.ResponseWriter, r *http.Request, q *request, token string) error {
	by, err := s.Teams.Authenticate(r.Context(), token)
	if err != nil {
		return err
	}
	if by.Kind != teams.KeyActor || teams.FullAccess.Scopes()&^by.Scopes != 0 || by.Suspended {
		return fault.Forbiddenf("", "Only an API key with full access can consent.")
	}
	return s.approve(w, r, q, by)
}

// approve creates the grant and redirects to the client with an authorization code.
func (s *Server) approve(w http.ResponseWriter, r *http.Request, q *request, by teams.Actor) error {
	code, _, err := s.Grants.Approve(r.Context(), q.Request, by)
	if err != nil {
		return err
	}
	return s.answer(w, r, q, "code", code)
}

// showConsent shows the consent page.
func (s *Server) showConsent(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	q, p, err := s.parseRequest(r, r.URL.Query())
	if err != nil {
		return s.refused(w, r, &q, err)
	}
	m, ok := chosen(v, p["team"])
	if !ok {
		return fault.Forbiddenf("", "You are not a member of a team, so %s cannot act for one.", q.Client.Name)
	}
	by, err := s.Members.Actor(r.Context(), v.User.ID, m.TeamID)
	if err != nil {
		return err
	}
	return s.Site.Show(w, r, http.StatusOK, consentPage, pageOf(&q.Request, p, v, m, by.Scopes),
		web.LeadsTo(q.RedirectURI), web.Bare(), web.Class("wide"))
}

// chosen returns the visitor's team with the given id. If the visitor is not a member of that team, chosen returns the
// team that the visitor used last.
func chosen(v web.Visitor, teamID string) (members.Membership, bool) {
	i := slices.IndexFunc(v.Teams, func(m members.Membership) bool { return m.TeamID == teamID })
	if i >= 0 {
		return v.Teams[i], true
	}
	return v.Team()
}

// consent handles the form submitted from the consent page.
func (s *Server) consent(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	form, err := s.Site.Form(w, r)
	if err != nil {
		return err
	}
	q, p, err := s.parseRequest(r, form)
	if err != nil {
		return s.refused(w, r, &q, err)
	}
	switch p["decision"] {
	case "deny":
		return s.answer(w, r, &q, "error", string(grants.AccessDenied), "error_description",
			"The person has refused.")
	case "allow":
	default:
		return fault.Invalidf("decision", "Choose whether to allow this.")
	}
	by, err := s.Members.Actor(r.Context(), v.User.ID, p["team"])
	if fault.KindOf(err) == fault.NotFound {
		return fault.Forbiddenf("", "You are not a member of this team any more.").Because(err)
	}
	if err != nil {
		return err
	}
	q.Limits, err = grants.ParseLimits(p["recipients_per_email"], p["emails_per_day"], p["approval"])
	if err != nil {
		return err
	}
	return s.approve(w, r, &q, by)
}

// refused reports an invalid authorization request, either to the client in a redirect or as JSON, or to the visitor on
// a page.
func (s *Server) refused(w http.ResponseWriter, r *http.Request, q *request, err error) error {
	e, ok := errors.AsType[*grants.Error](err)
	if !ok {
		return err
	}
	person := strings.Contains(r.Header.Get("Accept"), "text/html")
	switch {
	case q.RedirectURI != "" && !(person && q.Client.Registered && isWeb(q.RedirectURI)):
		return s.answer(w, r, q, "error", string(e.Code), "error_description", e.Text)
	case !person:
		writeRefusal(w, http.StatusBadRequest, e.Code, e.Text)
		return nil
	}
	view := refusedView{Client: q.Client.Name, Text: e.Text}
	if q.RedirectURI != "" {
		view.Host = hostOf(q.RedirectURI)
		view.Back = answerURI(q, "error", string(e.Code), "error_description", e.Text)
	}
	return s.Site.Show(w, r, http.StatusBadRequest, refusedPage, view, web.Bare())
}

// answer redirects the browser to the client's redirect URI with an authorization response. If the redirect URI has a
// private scheme, answer shows a page with a link instead, because nothing proves which program opens such links.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, q *request, pairs ...string) error {
	if grants.IsPrivate(q.RedirectURI) {
		scheme, _, _ := strings.Cut(q.RedirectURI, ":")
		view := openView{Client: q.Client.Name, Scheme: scheme, URI: template.URL(answerURI(q, pairs...)),
			Unverified: q.Client.Registered}
		status := http.StatusOK
		for i := 0; i+1 < len(pairs); i += 2 {
			switch pairs[i] {
			case "error":
				view.Refused = true
				if pairs[i+1] != string(grants.AccessDenied) {
					status = http.StatusBadRequest
				}
			case "error_description":
				view.Text = pairs[i+1]
			}
		}
		return s.Site.Show(w, r, status, openPage, view, web.Bare())
	}
	w.Header().Set("Location", answerURI(q, pairs...))
	w.Header().Set("Referrer-Policy", "no-referrer")
	status := http.StatusFound
	if r.Method == http.MethodPost {
		status = http.StatusSeeOther // the browser must not send the form to the client (RFC 9700 section 4.12)
	}
	w.WriteHeader(status)
	return nil
}

// answerURI appends parameters, the state and the issuer (RFC 9207) to the client's registered redirect URI. The URI is
// not parsed, so it remains exactly as it was checked.
func answerURI(q *request, pairs ...string) string {
	more := url.Values{"iss": {q.issuer}}
	for i := 0; i+1 < len(pairs); i += 2 {
		more.Set(pairs[i], pairs[i+1])
	}
	if q.State != "" {
		more.Set("state", q.State)
	}
	separator := "?"
	if strings.Contains(q.RedirectURI, "?") {
		separator = "&"
	}
	return q.RedirectURI + separator + more.Encode()
}

func isWeb(uri string) bool { return strings.HasPrefix(strings.ToLower(uri), "https:") }

// hostOf returns a description, for the user, of the host or program that a redirect URI leads to.
func hostOf(uri string) string {
	u, err := url.Parse(uri)
	switch {
	case err != nil:
		return uri
	case u.Scheme == "http":
		return "this computer (" + u.Host + ")"
	case u.Scheme == "https":
		return u.Host
	}
	return "the app that opens links with " + u.Scheme + ":"
}
