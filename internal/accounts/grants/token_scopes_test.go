package grants_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/db"
)

// A token response names only the scopes that the grant's limits and the user's role leave to the token.
// A client may refresh its tokens with the scopes that the last response named.
func TestTokenResponsesNameWhatTheTokenAllows(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		by := f.member("ann@acme.example", teams.Admin)
		for name, c := range map[string]struct {
			scopes string
			limits grants.Limits
			role   teams.Role
			want   string
		}{
			"no limits":       {scopes: "full_access", want: "full_access"},
			"all can be done": {scopes: "emails:send domains:read", want: "emails:send domains:read"},
			"limited":         {scopes: "emails:send api_keys:write", limits: grants.Limits{Emails: 9}, want: "emails:send"},
			"approval": {scopes: "emails:send emails:write", limits: grants.Limits{Approval: true},
				want: "approvals:read approvals:request"},
			"nothing remains":  {scopes: "webhooks:write", limits: grants.Limits{Emails: 9}},
			"a lower role":     {scopes: "domains:write domains:read", role: teams.Viewer, want: "domains:read"},
			"full, lower role": {scopes: "full_access", role: teams.Viewer, want: teams.Viewer.Scopes().String()},
			"approval and more": {scopes: "emails:send approvals:read", limits: grants.Limits{Approval: true},
				want: "approvals:read approvals:request"},
		} {
			x := f.code(by, c.scopes)
			first, err := f.Exchange(t.Context(), x)
			f.Must(err)
			var grantID string
			f.Must(f.DB.QueryRow(t.Context(), `SELECT id FROM oauth_grants ORDER BY id DESC LIMIT 1`).
				Scan((*db.ID)(&grantID)))
			_, err = f.SetLimits(t.Context(), f.Acme, grantID, func(l *grants.Limits) error {
				*l = c.limits
				return nil
			})
			f.Must(err)
			if c.role != "" {
				f.setRole(by, c.role)
			}
			second, err := f.refresh(first.Refresh)
			f.Must(err)
			if got := second.Scopes; sorted(got.String()) != sorted(c.want) {
				t.Errorf("%s: the response names %q, want %q", name, got, c.want)
			}
			third, err := f.Refresh(t.Context(), grants.RefreshParams{ClientID: f.client.ID, Token: second.Refresh,
				Scope: second.Scopes.String()})
			f.Must(err)
			if third.Scopes != second.Scopes {
				t.Errorf("%s: %q was refreshed as %q", name, second.Scopes, third.Scopes)
			}
			for _, tokens := range []grants.Tokens{second, third} {
				if a := f.works(tokens.Access, true); a.Scopes != tokens.Scopes.All() {
					t.Errorf("%s: the response names %q, but the token allows %q", name, tokens.Scopes, a.Scopes)
				}
			}
			if c.role != "" {
				f.setRole(by, teams.Admin)
			}
		}
	})
}

// setRole changes the role of a member of Acme.
func (f *fixture) setRole(by teams.Actor, role teams.Role) {
	f.T.Helper()
	f.exec(`UPDATE memberships SET role = $1 WHERE user_id = $2`, string(role), db.ID(by.ID))
	f.Node.Teams.Forget()
}

func sorted(names string) string {
	all := strings.Fields(names)
	slices.Sort(all)
	return strings.Join(all, " ")
}
