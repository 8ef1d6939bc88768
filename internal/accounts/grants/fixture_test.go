package grants_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const (
	redirect = "http://127.0.0.1:4711/callback"
	verifier = "a-verifier-of-43-characters-at-least-0123456789"
	mcp      = testnode.PublicURL + "/mcp"
)

// fixture is a grants service on a node that has the teams Acme and Other and one registered client.
type fixture struct {
	*testnode.Node
	*grants.Service
	client grants.Client
}

func newFixture(t *testing.T, d *db.DB) *fixture {
	t.Helper()
	f := &fixture{Node: testnode.New(t, d, testnode.Options{})}
	f.Service = serve(f.Node)
	f.client = f.register(grants.NewClient{})
	return f
}

// serve creates the grants service of a node.
func serve(n *testnode.Node) *grants.Service {
	s := testnode.Must(grants.New(grants.Config{Issuer: testnode.PublicURL, Resources: []string{testnode.PublicURL, mcp},
		Aliases: []string{"http://127.0.0.1:3000"}},
		grants.Deps{DB: n.DB, Keys: n.Keys, Teams: n.Teams, Members: n.Members, Audit: n.Audit, Log: n.Log,
			OnStop: func(context.Context, *db.Tx, string, string) error { return nil }}))
	n.Grants = s
	return s
}

func each(t *testing.T, f func(t *testing.T, f *fixture)) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { f(t, newFixture(t, d)) })
}

// register registers a client and fills its empty fields with defaults.
func (f *fixture) register(n grants.NewClient) grants.Client {
	f.T.Helper()
	if n.Name == "" {
		n.Name = "Notes"
	}
	if n.RedirectURIs == nil {
		n.RedirectURIs = []string{redirect}
	}
	c, err := f.Register(f.T.Context(), n)
	f.Must(err)
	return c
}

func challengeOf(verifier string) string {
	hash := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(hash[:])
}

// params returns the parameters of a valid authorization request from the fixture's client.
func (f *fixture) params() grants.Params {
	return grants.Params{ClientID: f.client.ID, ResponseType: "code", RedirectURI: redirect, State: "s",
		Challenge: challengeOf(verifier), ChallengeMethod: "S256"}
}

// code consents to the given scopes and returns the parameters for exchanging the resulting authorization code.
func (f *fixture) code(by teams.Actor, scopes string) grants.ExchangeParams {
	f.T.Helper()
	p := f.params()
	p.Scope = scopes
	r, err := f.CheckRequest(f.T.Context(), p)
	f.Must(err)
	code, _, err := f.Approve(f.T.Context(), r, by)
	f.Must(err)
	return grants.ExchangeParams{ClientID: f.client.ID, Code: code, RedirectURI: redirect, Verifier: verifier}
}

// granted creates a grant for the fixture's client and returns the grant's tokens.
func (f *fixture) granted(by teams.Actor, scopes string) grants.Tokens {
	f.T.Helper()
	t, err := f.Exchange(f.T.Context(), f.code(by, scopes))
	f.Must(err)
	return t
}

func (f *fixture) refresh(token string) (grants.Tokens, error) {
	return f.Refresh(f.T.Context(), grants.RefreshParams{ClientID: f.client.ID, Token: token})
}

// only returns the grant of the team Acme, and fails the test unless Acme has exactly one grant.
func (f *fixture) only() grants.Grant {
	f.T.Helper()
	all, more, err := f.List(f.T.Context(), f.Acme.TeamID, page.Page{})
	f.Must(err)
	if len(all) != 1 || more {
		f.T.Fatalf("%d grants", len(all))
	}
	return all[0]
}

// member creates a user and adds it to Acme with the given role.
func (f *fixture) member(email string, role teams.Role) teams.Actor {
	f.T.Helper()
	u, err := f.Users.Create(f.T.Context(), users.NewUser{Email: email})
	f.Must(err)
	f.Update(func(tx *db.Tx) error {
		return f.Node.Members.AddIn(context.WithoutCancel(f.T.Context()), tx, f.Acme.TeamID, u.ID, role)
	})
	by, err := f.Node.Members.Actor(f.T.Context(), u.ID, f.Acme.TeamID)
	f.Must(err)
	return by
}

// works checks whether an access token is accepted, and fails the test if the result is not the expected one.
func (f *fixture) works(token string, want bool) teams.Actor {
	f.T.Helper()
	by, err := f.Node.Teams.Authenticate(f.T.Context(), token)
	if (err == nil) != want {
		f.T.Errorf("the token works: %v, error %v", err == nil, err)
	}
	return by
}

// exec runs an SQL statement that changes rows, for example to simulate the passing of time.
func (f *fixture) exec(text string, args ...any) {
	f.T.Helper()
	f.Update(func(tx *db.Tx) error {
		_, err := tx.Exec(context.WithoutCancel(f.T.Context()), text, args...)
		return err
	})
}

// recorded returns the number of audit log entries for an action.
func (f *fixture) recorded(action string) int {
	f.T.Helper()
	return f.Count(`SELECT COUNT(*) FROM audit_log WHERE action = $1`, action)
}

// wantCode checks that an error is an OAuth error with the given code, and that its text has only the characters that
// RFC 6749 allows.
func wantCode(t *testing.T, err error, want grants.Code) {
	t.Helper()
	e, ok := errors.AsType[*grants.Error](err)
	if !ok || e.Code != want {
		t.Errorf("error %v, want %s", err, want)
		return
	}
	if e.Text == "" || strings.ContainsFunc(e.Text, func(r rune) bool {
		return r < ' ' || r > '~' || r == '"' ||
			r == '\\'
	}) {
		t.Errorf("%s has the text %q", e.Code, e.Text)
	}
}
