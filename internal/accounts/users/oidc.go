package users

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	oidcFlow   = 10 * time.Minute
	oidcWait   = 10 * time.Second // timeout for requests to the provider
	oidcFailed = 5 * time.Second  // how long the error of a failed discovery is cached
	identities = 10               // of a user
	maxSubject = 255              // maximum length of a subject, in bytes (OpenID Connect Core section 2)
	cookieMost = 4096             // bytes of a cookie's name and value that browsers accept (RFC 6265bis section 5.7)
	cookieName = 100              // bytes of these for the name
)

const (
	sealFlow   = "user oidc flow"
	sealPerson = "user oidc person"
)

var (
	errNoProvider = fault.NotFoundf("Signing in by another provider is not set up here.")
	errFlow       = fault.New(fault.BadCredential, "", "This sign-in was not begun in this browser, or it took too "+
		"long. Try again.")
	errProvider = fault.New(fault.Unavailable, "", "The provider by which you sign in does not answer as it should. "+
		"Try again later, or sign in by other means.")
)

// provider is the OIDC provider's configuration. The service requests the provider's endpoints and keys when they are
// first needed (discovery).
type provider struct {
	mu       sync.Mutex
	found    *oidc.Provider
	pending  chan struct{} // closed when the current discovery ends; nil if there is none
	failed   error         // the error of the last discovery
	failedAt time.Time
}

// oidcHTTP sends requests to the provider. The operator configures the provider's address, so it may be in a private
// network.
var oidcHTTP = &http.Client{Timeout: oidcWait}

func (s *Service) oidcContext(ctx context.Context) context.Context {
	return oidc.ClientContext(ctx, oidcHTTP)
}

// provider returns the OIDC provider's configuration. Concurrent callers share one discovery request, but each caller
// stops waiting when its own context ends. A successful discovery result is cached without expiry. A discovery error is
// cached for oidcFailed, so that a provider that fails slowly does not delay every caller.
func (s *Service) provider(ctx context.Context) (*oidc.Provider, error) {
	if s.c.OIDC.Issuer == "" {
		return nil, errNoProvider
	}
	p := &s.oidc
	p.mu.Lock()
	if p.found != nil {
		defer p.mu.Unlock()
		return p.found, nil
	}
	if ago := s.now().Sub(p.failedAt); p.failed != nil && ago >= 0 && ago < oidcFailed {
		defer p.mu.Unlock()
		return nil, p.failed
	}
	if p.pending == nil {
		p.pending = make(chan struct{})
		go s.discoverProvider(context.WithoutCancel(ctx), p.pending)
	}
	asking := p.pending
	p.mu.Unlock()
	select {
	case <-asking:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found == nil {
		return nil, p.failed
	}
	return p.found, nil
}

// discoverProvider requests the provider's configuration, with oidcWait as the timeout, and closes the given channel
// when it has finished.
func (s *Service) discoverProvider(ctx context.Context, asked chan struct{}) {
	found, err := oidc.NewProvider(s.oidcContext(ctx), s.c.OIDC.Issuer)
	s.oidc.mu.Lock()
	defer s.oidc.mu.Unlock()
	s.oidc.pending, s.oidc.failed = nil, nil
	if err != nil {
		s.Log.Error("the request to the OIDC provider failed", "issuer", s.c.OIDC.Issuer, "error", err)
		s.oidc.failed, s.oidc.failedAt = errProvider.Because(err), s.now()
	} else {
		s.oidc.found = found
	}
	close(asked)
}

func (s *Service) oauthConfig(p *oidc.Provider) *oauth2.Config {
	return &oauth2.Config{ClientID: s.c.OIDC.ClientID, ClientSecret: s.c.OIDC.ClientSecret, Endpoint: p.Endpoint(),
		RedirectURL: s.c.PublicURL + "/sign-in/oidc/callback", Scopes: []string{oidc.ScopeOpenID, "email", "profile"}}
}

// OIDCName returns the display name of the OIDC provider, or "" if none is configured.
func (s *Service) OIDCName() string {
	if s.c.OIDC.Issuer == "" {
		return ""
	}
	if s.c.OIDC.Name == "" {
		return "Single sign-on"
	}
	return s.c.OIDC.Name
}

// flow is the state of a sign-in at the OIDC provider. The browser keeps this state in an encrypted cookie and the
// server stores nothing, so abandoned sign-ins need no cleanup.
type flow struct {
	State     string `json:"state"`
	Nonce     string `json:"nonce"`
	Verifier  string `json:"verifier"`          // for PKCE
	SessionID string `json:"session,omitempty"` // id of the session whose user is to be linked
	Expires   int64  `json:"expires"`           // microseconds

	User *providerUser `json:"user,omitempty"` // set after the code was exchanged
}

// providerUser is the content of a verified ID token.
type providerUser struct {
	Issuer   string `json:"issuer"`
	Subject  string `json:"subject"`
	Email    string `json:"email"`
	Verified bool   `json:"verified"` // whether the provider has verified the email address
	Name     string `json:"name"`
}

// Limits on the texts of a providerUser, in bytes. They exceed what an account may have, so that a text that is too
// long is still too long after it was cut.
const (
	providerEmail = 300
	providerName  = 1000
)

// BeginOIDC begins a sign-in at the OIDC provider. If session is not nil, BeginOIDC starts linking a provider account
// to the session's user, which requires a recent proof of identity. The provider redirects the browser to
// /sign-in/oidc/callback.
func (s *Service) BeginOIDC(ctx context.Context, session *Session) (OIDCFlow, error) {
	p, err := s.provider(ctx)
	if err != nil {
		return OIDCFlow{}, err
	}
	f := flow{State: newToken(), Nonce: newToken(), Verifier: oauth2.GenerateVerifier(),
		Expires: db.Micros(s.now().Add(oidcFlow))}
	if session != nil {
		if err := s.requireProof(*session); err != nil {
			return OIDCFlow{}, err
		}
		f.SessionID = session.ID
	}
	cookie, err := s.sealJSON(sealFlow, f)
	if err != nil {
		return OIDCFlow{}, err
	}
	return OIDCFlow{Cookie: cookie, URL: s.oauthConfig(p).AuthCodeURL(f.State, oidc.Nonce(f.Nonce),
		oauth2.S256ChallengeOption(f.Verifier))}, nil
}

// claims are the claims about a person in an ID token from the provider.
type claims struct {
	Email    string   `json:"email"`
	Verified verified `json:"email_verified"`
	Name     string   `json:"name"`
}

// verified is a boolean that some providers encode as a string.
type verified bool

func (v *verified) UnmarshalJSON(b []byte) error {
	*v = string(b) == "true" || string(b) == `"true"`
	return nil
}

// FinishOIDC finishes a sign-in at the OIDC provider. The parameters are the cookie and the query parameters of the
// provider's redirect: state and code, or an error. The session must be the one that was passed to BeginOIDC.
//
// If the provider's account is not linked to a user, FinishOIDC signs in the user with the same email address. To sign
// in a user who is not linked, the provider must have verified the address, and the user must have no other way to sign
// in. A user with another way to sign in must use it and then link the provider's account. This rule protects the user
// from somebody who controls the email address at the provider. If no user has the address, the provider's account is
// returned as Unknown.
//
// The flow can be completed once. If FinishOIDC fails temporarily after it has exchanged the code, the result has the
// cookie with which the caller can repeat the request.
func (s *Service) FinishOIDC(ctx context.Context, session *Session, cookie, state, code, providerError string,
	c Client) (OIDCResult, error) {
	var f flow
	if err := s.openJSON(sealFlow, cookie, &f); err != nil || s.now().After(db.Time(f.Expires)) ||
		subtle.ConstantTimeCompare([]byte(f.State), []byte(state)) != 1 {
		return OIDCResult{}, errFlow
	}
	if (f.SessionID != "") != (session != nil) || session != nil && session.ID != f.SessionID {
		return OIDCResult{}, errFlow
	}
	if providerError != "" {
		s.Log.Info("the OIDC provider refused a sign-in", "error", cut(providerError, 200), "address", c.Address)
		return OIDCResult{}, fault.Forbiddenf("", "The provider refused the sign-in.")
	}
	cookie = ""
	if f.User == nil {
		if err := s.identify(ctx, code, &f, c); err != nil {
			return OIDCResult{}, err
		}
		cookie = s.continuing(&f)
	}
	result, err := s.finishOIDC(ctx, session, &f, c)
	result.Cookie = cookie
	return result, err
}

// identify exchanges the code for the identity of the user, which it stores in the flow.
func (s *Service) identify(ctx context.Context, code string, f *flow, c Client) error {
	// Anybody can begin a sign-in and send made-up codes to the callback, so the number of resulting requests to the
	// provider is limited.
	limits := networkLimits("oidc", c, perNetwork)
	if err := s.consumeAttempts(ctx, limits); err != nil {
		return err
	}
	who, err := s.exchange(ctx, code, f)
	if err != nil {
		return err
	}
	f.User = &who
	return s.refundAttempt(ctx, limits, nil) // if it fails, the attempt counts, which is better than to lose the code
}

// continuing returns a cookie with which a flow continues after its code was exchanged, or "" if the cookie would be
// too large for a browser.
func (s *Service) continuing(f *flow) string {
	cookie, err := s.sealJSON(sealFlow, f)
	if err != nil {
		s.Log.Error("a sign-in cannot be continued if it fails now", "error", err)
		return ""
	}
	if len(cookie) > cookieMost-cookieName {
		return ""
	}
	return cookie
}

// finishOIDC completes a flow whose user is known.
func (s *Service) finishOIDC(ctx context.Context, session *Session, f *flow, c Client) (OIDCResult, error) {
	who := f.User
	if session != nil {
		return s.linkTo(ctx, session, who, f, c)
	}
	userID, err := identityUser(ctx, s.DB.Reader, who.Issuer, who.Subject)
	if err != nil {
		return OIDCResult{}, err
	}
	email, valid := "", false
	if who.Verified {
		email, err = Address(who.Email)
		valid = err == nil
	}
	if userID == "" && valid {
		if userID, err = s.unlinkedUser(ctx, email); err != nil {
			return OIDCResult{}, err
		}
	}
	switch {
	case userID != "":
		return s.authenticateOIDC(ctx, userID, email, f, c)
	case !valid:
		s.Log.Info("a sign-in failed", "address", c.Address, "reason", "the OIDC provider has not verified the address")
		return OIDCResult{}, fault.Forbiddenf("", "The provider has not verified your email address, so it cannot be "+
			"told who you are.")
	}
	return s.unknown(email, f)
}

// exchange exchanges an authorization code for an ID token and verifies the token.
func (s *Service) exchange(ctx context.Context, code string, f *flow) (providerUser, error) {
	p, err := s.provider(ctx)
	if err != nil {
		return providerUser{}, err
	}
	ctx = s.oidcContext(ctx)
	got, err := s.oauthConfig(p).Exchange(ctx, code, oauth2.VerifierOption(f.Verifier))
	if err != nil {
		if _, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
			s.Log.Warn("the OIDC provider refused a code", "error", err)
			return providerUser{}, errFlow.Because(err)
		}
		s.Log.Error("the request to the OIDC provider failed", "error", err)
		return providerUser{}, errProvider.Because(err)
	}
	raw, _ := got.Extra("id_token").(string)
	token, err := p.Verifier(&oidc.Config{ClientID: s.c.OIDC.ClientID, Now: s.now}).Verify(ctx, raw)
	if err != nil {
		s.Log.Error("an ID token of the OIDC provider is not valid", "error", err)
		return providerUser{}, errProvider.Because(err)
	}
	if subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(f.Nonce)) != 1 {
		return providerUser{}, errFlow
	}
	if token.Subject == "" || len(token.Subject) > maxSubject || clean(token.Subject) != token.Subject {
		return providerUser{}, errProvider
	}
	var said claims
	if err := token.Claims(&said); err != nil {
		s.Log.Error("an ID token of the OIDC provider cannot be read", "error", err)
		return providerUser{}, errProvider.Because(err)
	}
	// An address that must be cleaned is not the one that the provider has verified.
	verified := bool(said.Verified) && clean(said.Email) == said.Email
	return providerUser{token.Issuer, token.Subject, cut(said.Email, providerEmail), verified,
		cut(said.Name, providerName)}, nil
}

// unlinkedUser returns the id of the user with the given email address if that user has no password, passkey or linked
// account. If no user has the address, unlinkedUser returns "". If the user has another way to sign in, unlinkedUser
// returns a fault.
func (s *Service) unlinkedUser(ctx context.Context, email string) (string, error) {
	u, err := byEmail(ctx, s.DB.Reader, email)
	if fault.KindOf(err) == fault.NotFound && err != nil {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	n, err := countFactors(ctx, s.DB.Reader, u.ID)
	if err != nil {
		return "", err
	}
	if u.HasPassword || n > 0 {
		return "", fault.Forbiddenf("", "There is an account with your address that this provider is not linked "+
			"to. Sign in by other means, and link it on the page of your account.")
	}
	return u.ID, nil
}

// authenticateOIDC signs a user in, and links the provider's account to the user if the link does not exist yet.
func (s *Service) authenticateOIDC(ctx context.Context, userID, email string, f *flow, c Client) (OIDCResult, error) {
	u, err := getRow(ctx, s.DB.Reader, userID)
	if err != nil {
		return OIDCResult{}, err
	}
	out, err := s.authenticate(ctx, u, func(tx *db.Tx, now row) error {
		if err := useFlow(ctx, tx, f); err != nil {
			return err
		}
		linked, err := identityUser(ctx, tx.Reader, f.User.Issuer, f.User.Subject)
		switch {
		case err != nil:
			return err
		case linked == userID:
			return nil
		case linked != "" || now.HasPassword || now.Email != email:
			return errFlow // the user or the link has changed since the first check
		}
		return s.addIdentity(ctx, tx, now.User, f.User, email, c)
	}, c, byProvider)
	if errors.Is(err, errWrong) {
		err = fault.New(fault.BadCredential, "", "This account may not sign in.")
	}
	return OIDCResult{Outcome: out}, s.identityTaken(err)
}

// linkTo links the provider's account to the session's user.
func (s *Service) linkTo(ctx context.Context, session *Session, who *providerUser, f *flow, c Client) (OIDCResult,
	error) {
	result := OIDCResult{Linked: true}
	err := s.DB.Update(ctx, func(tx *db.Tx) error {
		if err := useFlow(ctx, tx, f); err != nil {
			return err
		}
		u, err := getUser(ctx, tx.Reader, session.UserID)
		if err != nil {
			return err
		}
		result.User = u
		linked, err := identityUser(ctx, tx.Reader, f.User.Issuer, f.User.Subject)
		switch {
		case err != nil:
			return err
		case linked == u.ID:
			return nil
		case linked != "":
			return errIdentityTaken
		}
		all, err := listIdentities(ctx, tx.Reader, u.ID)
		if err != nil {
			return err
		}
		if len(all) >= identities {
			return fault.Invalidf("", "There may be %d linked accounts. Remove one first.", identities)
		}
		return s.addIdentity(ctx, tx, u, who, cut(who.Email, 254), c)
	})
	if err != nil {
		return OIDCResult{}, s.identityTaken(err)
	}
	return result, nil
}

var errIdentityTaken = fault.Invalidf("", "This account at the provider belongs to another user here.")

func (s *Service) identityTaken(err error) error {
	if s.DB.Violates(err, "user_identities_subject") {
		return errIdentityTaken.Because(err)
	}
	return err
}

func useFlow(ctx context.Context, tx *db.Tx, f *flow) error {
	ok, err := markUsed(ctx, tx, f.State, db.Time(f.Expires))
	if err == nil && !ok {
		err = errFlow
	}
	return err
}

func (s *Service) addIdentity(ctx context.Context, tx *db.Tx, u User, who *providerUser, email string, c Client) error {
	insertIdentity(ctx, tx, &Identity{ID: id.New(), Issuer: who.Issuer, Email: email, CreatedAt: s.now()},
		who.Subject, u.ID)
	s.changed(tx, u.ID)
	return s.recordByUser(ctx, tx, u, audit.IdentityLinked, who.Issuer, c)
}

// person is the content of the Token field of a [Person].
type person struct {
	Issuer  string `json:"issuer"`
	Subject string `json:"subject"`
	Email   string `json:"email"`
	Name    string `json:"name"`
	State   string `json:"state"`
	Expires int64  `json:"expires"`
}

func (s *Service) unknown(email string, f *flow) (OIDCResult, error) {
	name, err := checkName(f.User.Name)
	if err != nil {
		name = ""
	}
	p := person{f.User.Issuer, f.User.Subject, email, name, f.State, db.Micros(s.now().Add(oidcFlow))}
	sealed, err := s.sealJSON(sealPerson, p)
	if err != nil {
		return OIDCResult{}, err
	}
	_, domain, _ := strings.Cut(email, "@")
	return OIDCResult{Unknown: &Person{Email: email, Name: name, Token: sealed,
		Allowed: slices.Contains(s.c.OIDC.Domains, domain)}}, nil
}

// CreateFromOIDC uses the token in a [Person] to create a user without a password, and links the provider's account to
// the user. The caller must decide whether the person may become a user, and must pass the transaction's error to
// [Service.AddressError].
func (s *Service) CreateFromOIDC(ctx context.Context, tx *db.Tx, token string) (User, error) {
	var p person
	if err := s.openJSON(sealPerson, token, &p); err != nil || s.now().After(db.Time(p.Expires)) {
		return User{}, errFlow
	}
	if err := useFlow(ctx, tx, &flow{State: p.State, Expires: p.Expires}); err != nil {
		return User{}, err
	}
	u, err := s.CreateIn(ctx, tx, newDraft(p.Email, p.Name))
	if err != nil {
		return User{}, err
	}
	return u, s.addIdentity(ctx, tx, u, &providerUser{Issuer: p.Issuer, Subject: p.Subject}, p.Email, Client{})
}

// Identities returns the provider accounts that are linked to a user.
func (s *Service) Identities(ctx context.Context, userID string) ([]Identity, error) {
	return listIdentities(ctx, s.DB.Reader, userID)
}

// Unlink unlinks a provider account from the session's user.
func (s *Service) Unlink(ctx context.Context, session Session, identityID string, c Client) error {
	if err := s.requireProof(session); err != nil {
		return err
	}
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		u, err := lockRow(ctx, tx, session.UserID) // first: see checkCanSignIn
		if err != nil {
			return err
		}
		deleteIdentity(ctx, tx, u.ID, identityID)
		if err := checkCanSignIn(ctx, tx, u); err != nil {
			return err
		}
		return s.recordByUserID(ctx, tx, session.UserID, audit.IdentityRemoved, "", c)
	})
}

func (s *Service) sealJSON(purpose string, v any) (string, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", purpose, err)
	}
	sealed, err := s.Keys.Seal(purpose, plain, nil)
	if err != nil {
		return "", fmt.Errorf("seal %s: %w", purpose, err)
	}
	return base64.RawURLEncoding.EncodeToString(sealed), nil
}

func (s *Service) openJSON(purpose, text string, v any) error {
	if len(text) > cookieMost {
		return errFlow
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	plain, err := s.Keys.OpenToken(purpose, sealed, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, v)
}
