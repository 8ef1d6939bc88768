package oauth

import (
	"errors"
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

// asked are the parameters of a request for authorization, which the page of consent carries on.
var asked = []string{"client_id", "response_type", "redirect_uri", "scope", "state", "code_challenge",
	"code_challenge_method", "resource", askedAt}

// askedAt is a parameter of our own: the host that the client has asked, if people sign in at another. The client
// compares it with the issuer in the answer (RFC 9207).
const askedAt = "asked_at"

// request is a request for authorization.
type request struct {
	grants.Request
	issuer string // as the client knows it
}

// ask checks a request for authorization.
func (s *Server) ask(r *http.Request, given url.Values) (request, params, error) {
	q := request{issuer: s.address(r)}
	p, err := single(given)
	if err != nil {
		return q, nil, err
	}
	if host := p[askedAt]; host != "" {
		q.issuer = s.address(&http.Request{Host: host}) // which is none but one of ours, whatever the host is
	}
	q.Request, err = s.Grants.CheckRequest(r.Context(), grants.Params{ClientID: p["client_id"], ResponseType: p["response_type"],
		RedirectURI: p["redirect_uri"], Scope: p["scope"], State: p["state"], Challenge: p["code_challenge"],
		ChallengeMethod: p["code_challenge_method"], Resource: p["resource"]})
	return q, p, err
}

// authorize answers a request for authorization: with a page for who is signed in, after it was checked.
func (s *Server) authorize(w http.ResponseWriter, r *http.Request) error {
	q, _, err := s.ask(r, r.URL.Query())
	if err != nil {
		return s.refused(w, r, &q, err)
	}
	if token, ok := bearer(r); ok && s.KeysConsent {
		return s.consentByKey(w, r, &q, token)
	}
	if s.address(r) != s.PublicURL { // signing in leads there
		given := r.URL.Query()
		given.Set(askedAt, r.Host)
		r.URL.RawQuery = given.Encode()
	}
	s.people.ServeHTTP(w, r)
	return nil
}

// bearer returns the token of a request.
func bearer(r *http.Request) (string, bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), strings.EqualFold(scheme, "Bearer")
}

// consentByKey consents on behalf of the team of a full-access key. It is for development.
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

// approve gives the client a code.
func (s *Server) approve(w http.ResponseWriter, r *http.Request, q *request, by teams.Actor) error {
	code, _, err := s.Grants.Approve(r.Context(), q.Request, by)
	if err != nil {
		return err
	}
	return s.answer(w, r, q, "code", code)
}

// showConsent shows what a program asks for.
func (s *Server) showConsent(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	q, p, err := s.ask(r, r.URL.Query())
	if err != nil {
		return s.refused(w, r, &q, err)
	}
	m, ok := chosen(v, p["team"])
	if !ok {
		return fault.Forbiddenf("", "You are in no team, so there is nothing that %s could be let do.", q.Client.Name)
	}
	by, err := s.Members.Actor(r.Context(), v.User.ID, m.TeamID)
	if err != nil {
		return err
	}
	return s.Site.Show(w, r, http.StatusOK, consentPage, pageOf(&q.Request, p, v, m, by.Scopes),
		web.LeadsTo(q.RedirectURI))
}

// chosen returns the team with an id, or the one that the person looked at last.
func chosen(v web.Visitor, teamID string) (members.Membership, bool) {
	i := slices.IndexFunc(v.Teams, func(m members.Membership) bool { return m.TeamID == teamID })
	if i >= 0 {
		return v.Teams[i], true
	}
	return v.Team()
}

// consent takes what a person has chosen on the page.
func (s *Server) consent(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	form, err := s.Site.Form(w, r)
	if err != nil {
		return err
	}
	q, p, err := s.ask(r, form)
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

// refused tells of a request that the client made wrongly: the client, by a redirect, or the person.
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
	return s.Site.Show(w, r, http.StatusBadRequest, refusedPage, view)
}

// answer sends the browser to the client.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, q *request, pairs ...string) error {
	w.Header().Set("Location", answerURI(q, pairs...))
	w.Header().Set("Referrer-Policy", "no-referrer")
	status := http.StatusFound
	if r.Method == http.MethodPost {
		status = http.StatusSeeOther // so that the form is not sent on (RFC 9700 section 4.12)
	}
	w.WriteHeader(status)
	return nil
}

// answerURI adds parameters, the state and the issuer (RFC 9207) to the address that the client has registered. The
// text is not parsed and written again, so that it leads where it was checked to lead.
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

// hostOf says in words where an address leads.
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
