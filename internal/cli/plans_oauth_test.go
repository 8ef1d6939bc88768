package cli

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/erasure"
)

// authorize calls all OAuth operations.
func (d *driver) authorize() {
	d.t.Helper()
	ctx, redirect, verifier := d.t.Context(), "http://127.0.0.1:4711/oauth/callback", strings.Repeat("v", 43)
	must := func(err error) {
		d.t.Helper()
		if err != nil {
			d.t.Error(err)
		}
	}
	by, err := d.Teams.Authenticate(ctx, d.key)
	must(err)
	_, err = d.Grants.Register(ctx, grants.NewClient{Name: "x", RedirectURIs: []string{redirect}, Address: "192.0.2.1"})
	must(err)
	hash := sha256.Sum256([]byte(verifier))
	give := func(by teams.Actor) (grants.ExchangeParams, grants.Tokens) {
		r, err := d.Grants.CheckRequest(ctx, grants.Params{ClientID: grants.CLI, ResponseType: "code", RedirectURI: redirect,
			Challenge: base64.RawURLEncoding.EncodeToString(hash[:]), ChallengeMethod: "S256"})
		must(err)
		code, _, err := d.Grants.Approve(ctx, r, by)
		must(err)
		x := grants.ExchangeParams{ClientID: grants.CLI, Code: code, RedirectURI: redirect, Verifier: verifier}
		tokens, err := d.Grants.Exchange(ctx, x)
		must(err)
		return x, tokens
	}
	code, first := give(by)
	_, second := give(by)
	if _, err := d.Grants.Exchange(ctx, code); err == nil {
		d.t.Error("a code works twice")
	}
	next, err := d.Grants.Refresh(ctx, grants.RefreshParams{ClientID: grants.CLI, Token: second.Refresh})
	must(err)
	if status, text := d.ask(next.Access, "GET", "/domains", ""); status != 200 {
		d.t.Errorf("%d %s", status, text)
	}
	if status, _ := d.ask(first.Access, "GET", "/domains", ""); status != 401 {
		d.t.Errorf("a revoked token: %d", status)
	}
	newest := d.pages("/oauth/grants")
	d.approve(newest, next.Access)
	_, err = d.Teams.Active(ctx, d.DB.Reader, d.team, teams.ActorRef{Kind: teams.GrantActor, ID: newest})
	must(err)
	for _, due := range []teams.DueSend{{Bulk: true}, {Approved: true}, {Recipients: 1}} {
		_, err = d.Grants.MaySend(ctx, d.DB.Reader, d.team, newest, due)
		must(err)
	}
	must(d.DB.Update(ctx, func(tx *db.Tx) error {
		return d.Grants.ConsumeDue(ctx, tx, d.team, newest, 1, d.DB.Now().Add(-time.Hour))
	}))
	_, err = d.Approvals.IsApproved(ctx, d.team, newest)
	must(err)
	_, err = d.Templates.Unpublished(ctx, d.team, 20)
	must(err)
	must(d.Grants.RevokeToken(ctx, grants.CLI, next.Refresh, ""))
	give(by)
	d.do("DELETE", "/oauth/grants/"+d.do("GET", "/oauth/grants", ""), "")
	must(d.Teams.DeleteKey(ctx, d.team, d.do("POST", "/api-keys", `{"name":"short"}`)))
	must(d.DB.Update(ctx, func(tx *db.Tx) error { return d.Grants.RevokeUser(ctx, tx, d.team, dbtest.ID("nobody")) }))
	for _, path := range []string{"/.well-known/jwks.json", "/.well-known/oauth-authorization-server"} {
		if status, text := d.ask("", "GET", path, ""); status != 200 {
			d.t.Errorf("%s: %d %s", path, status, text)
		}
	}
}

// approve calls all operations on grant limits and approvals.
func (d *driver) approve(grantID, token string) {
	d.t.Helper()
	ctx := d.t.Context()
	email := `{"from":"a@acme.example","to":["b@reader.example"],"subject":"x","text":"x"}`
	as := func(path string, want int) (id string) {
		d.t.Helper()
		status, text := d.ask(token, "POST", path, email)
		if status != want {
			d.t.Errorf("POST %s: %d %s", path, status, text)
		}
		var made struct{ ID string }
		json.Unmarshal([]byte(text), &made)
		return made.ID
	}
	d.do("PATCH", "/oauth/grants/"+grantID, `{"limits":{"recipients_per_email":5,"emails_per_day":50}}`)
	as("/emails", 200)
	as("/emails", 200)
	d.do("PATCH", "/oauth/grants/"+grantID, `{"limits":{"approval":true}}`)
	sent, rejected := as("/approvals", 201), as("/approvals", 201)
	as("/approvals", 201)
	d.pages("/approvals")
	d.pages("/approvals?status=pending")
	for _, query := range []string{"", "?status=pending", "?after=" + sent, "?status=pending&before=" + sent} {
		if status, text := d.ask(token, "GET", "/approvals"+query, ""); status != 200 {
			d.t.Errorf("GET /approvals%s: %d %s", query, status, text)
		}
	}
	d.do("POST", "/approvals/"+d.do("POST", "/approvals", email)+"/approve", "")
	d.do("GET", "/approvals/"+sent, "")
	d.do("POST", "/approvals/"+sent+"/approve", "")
	d.do("POST", "/approvals/"+rejected+"/reject", `{"reason":"No."}`)
	address, err := erasure.Parse("c@reader.example")
	if err == nil {
		for _, x := range d.AddressErasers() {
			if _, err := x.Erase(ctx, address, erasure.Scope{Teams: []string{d.team}}); err != nil {
				d.t.Errorf("%s: %v", x.Name, err)
			}
		}
	}
	if err == nil {
		err = d.Approvals.Sweep(ctx)
	}
	if err != nil {
		d.t.Error(err)
	}
	d.do("PATCH", "/oauth/grants/"+grantID,
		`{"limits":{"recipients_per_email":null,"emails_per_day":null,"approval":false}}`)
}
