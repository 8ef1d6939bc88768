package signin

import (
	"cmp"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/front/web"
)

// passkeyChallenge contains the data that a page's script passes to the browser's authenticator.
type passkeyChallenge struct {
	Token   string         `json:"token"`
	Options jsontext.Value `json:"options"`
}

// passkeyAnswer contains the authenticator's result, which the page's script sends to the server.
type passkeyAnswer struct {
	Token      string         `json:"token"`
	Credential jsontext.Value `json:"credential"`
	Name       string         `json:"name"` // the name for a new passkey
	Next       string         `json:"next"`
}

func answerChallenge(w http.ResponseWriter, c users.Challenge, err error) error {
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, passkeyChallenge{c.Token, c.Options})
}

func (p *Pages) beginPasskey(w http.ResponseWriter, r *http.Request) error {
	c, err := p.Users.BeginPasskeySignIn(r.Context())
	return answerChallenge(w, c, err)
}

func (p *Pages) finishPasskey(w http.ResponseWriter, r *http.Request) error {
	var m passkeyAnswer
	if err := p.Site.JSON(w, r, &m); err != nil {
		return err
	}
	o, err := p.Users.FinishPasskeySignIn(r.Context(), m.Token, m.Credential, client(r))
	if err != nil {
		return err
	}
	p.Site.SignIn(w, r, o.Token)
	return answer(w, http.StatusOK, next{cmp.Or(web.Local(m.Next), "/app/emails")})
}

func (p *Pages) beginProof(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	c, err := p.Users.BeginPasskeyProof(r.Context(), v.Session)
	return answerChallenge(w, c, err)
}

func (p *Pages) finishProof(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	var m passkeyAnswer
	if err := p.Site.JSON(w, r, &m); err != nil {
		return err
	}
	if err := p.Users.FinishPasskeyProof(r.Context(), v.Session, m.Token, m.Credential, client(r)); err != nil {
		return err
	}
	return answer(w, http.StatusOK, next{cmp.Or(web.Local(m.Next), "/app/account")})
}

func (p *Pages) beginNewPasskey(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	c, err := p.Users.BeginPasskey(r.Context(), v.Session)
	return answerChallenge(w, c, err)
}

func (p *Pages) finishNewPasskey(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	var m passkeyAnswer
	if err := p.Site.JSON(w, r, &m); err != nil {
		return err
	}
	if _, err := p.Users.FinishPasskey(r.Context(), v.Session, m.Token, m.Name, m.Credential, client(r)); err != nil {
		return err
	}
	return answer(w, http.StatusOK, next{"/app/account?done=passkey-added"})
}

func (p *Pages) renamePasskey(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	typed, err := p.Site.Form(w, r)
	if err != nil {
		return err
	}
	err = p.Users.RenamePasskey(r.Context(), v.Session, pathID(r), typed.Get("name"), client(r))
	return p.accountDone(w, r, v, "passkey-renamed", err)
}

func (p *Pages) removePasskey(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	err := p.Users.RemovePasskey(r.Context(), v.Session, pathID(r), client(r))
	return p.accountDone(w, r, v, "passkey-removed", err)
}
