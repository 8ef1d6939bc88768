package cli

import (
	"crypto/sha256"
	"encoding/base64"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

const goodPassword = "seven lamps, one bridge"

// A command that disables or deletes a user revokes the user's OAuth grants in the same transaction. Enabling the user
// again does not restore the revoked grants.
func TestUsersCommandEndsGrants(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		ctx := t.Context()
		p.must("teams", "create", "Acme")
		n := p.start()
		all, err := n.Teams.List(ctx, "", 1)
		if err != nil || len(all) != 1 {
			t.Fatalf("%v %v", all, err)
		}
		for _, command := range [][]string{{"users", "disable", "disabled@example.com"},
			{"users", "delete", "deleted@example.com", "--yes"}} {
			address := command[1] + "d@example.com"
			p.must("users", "create", address)
			u, err := n.Users.ByEmail(ctx, address)
			if err != nil {
				t.Fatal(err)
			}
			err = n.DB.Update(ctx, func(tx *db.Tx) error {
				return n.Members.AddIn(ctx, tx, all[0].ID, u.ID, teams.Member)
			})
			if err != nil {
				t.Fatal(err)
			}
			by, err := n.Members.ActorNow(ctx, n.DB.Reader, u.ID, all[0].ID)
			if err != nil {
				t.Fatal(err)
			}
			hash := sha256.Sum256([]byte(strings.Repeat("v", 43)))
			q, err := n.Grants.CheckRequest(ctx, grants.Params{ClientID: grants.CLI, ResponseType: "code",
				RedirectURI: "http://127.0.0.1:1/oauth/callback", ChallengeMethod: "S256",
				Challenge: base64.RawURLEncoding.EncodeToString(hash[:])})
			if err != nil {
				t.Fatal(err)
			}
			code, _, err := n.Grants.Approve(ctx, q, by)
			if err == nil {
				_, err = n.Grants.Exchange(ctx, grants.ExchangeParams{ClientID: grants.CLI, Code: code,
					RedirectURI: "http://127.0.0.1:1/oauth/callback", Verifier: strings.Repeat("v", 43)})
			}
			if err != nil {
				t.Fatal(err)
			}
			p.must(command...)
			given, _, err := n.Grants.List(ctx, all[0].ID, page.Page{})
			if err != nil || len(given) == 0 || given[0].RevokedReason != grants.UserLeft {
				t.Errorf("after %v the grant is %+v, %v", command, given, err)
			}
		}
	})
}

// token returns the token in a link that a command printed.
func token(t *testing.T, link, path string) string {
	t.Helper()
	u, err := url.Parse(link)
	if err != nil || !strings.HasSuffix(u.Path, path) || u.Query().Get("token") == "" {
		t.Fatalf("printed %q, %v; want a link to %s", link, err, path)
	}
	return u.Query().Get("token")
}

func TestUsersCommand(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		ctx := t.Context()
		p.refused("the subcommand is missing", "users")
		p.refused(`unknown subcommand "promote"`, "users", "promote", "ada@example.com")
		p.refused("must be one such as", "users", "create", "ada")
		p.must("teams", "create", "Acme")
		n := p.start()
		link := p.must("users", "create", "Ada@example.com", "--name", "Ada L.")
		p.refused("already", "users", "create", "ada@example.com")
		from := users.Client{Address: "192.0.2.7"}
		if err := n.Users.Reset(ctx, token(t, link, "/password/reset"), goodPassword, from); err != nil {
			t.Fatal(err)
		}
		attempt := users.Attempt{Email: "ada@example.com", Password: goodPassword, Client: from}
		out, err := n.Users.SignIn(ctx, attempt)
		if err != nil {
			t.Fatal(err)
		}
		if list := p.must("users", "list"); strings.Count(list, "\n") != 1 ||
			!strings.Contains(list, "ada@example.com") || !strings.Contains(list, "Ada L.") ||
			strings.Contains(list, "never") {
			t.Errorf("users:\n%s", list)
		}

		// A change that a command makes to a user takes effect immediately on a running node.
		p.refused("User not found", "users", "disable", "eve@example.com")
		p.must("users", "disable", "ada@example.com")
		eventually(t, "the session has ended", func() bool {
			_, _, err := n.Users.Session(ctx, out.Token)
			return fault.KindOf(err) == fault.BadCredential
		})
		p.refused("Enable the account first", "users", "reset", "ada@example.com")
		p.must("users", "enable", "ada@example.com")
		p.must("users", "reset", "ada@example.com", "--factors")
		if _, err = n.Users.SignIn(ctx, attempt); err != nil {
			t.Fatal(err)
		}

		p.refused("--team is missing", "users", "invite", "eve@example.com")
		p.refused("no team", "users", "invite", "eve@example.com", "--team", "Other")
		p.refused("must be `owner`", "users", "invite", "eve@example.com", "--team", "Acme", "--role", "boss")
		link = p.must("users", "invite", "ada@example.com", "--team", "Acme", "--role", "owner")
		if !strings.Contains(link, "/invitations/") {
			t.Errorf("printed %q", link)
		} else if _, err := n.Members.Accept(ctx, link[strings.LastIndex(link, "/")+1:], out.User.ID, nil); err != nil {
			t.Fatal(err)
		}
		if all, err := n.Members.ListByUser(ctx, out.User.ID); err != nil || len(all) != 1 || all[0].Role != teams.Owner {
			t.Errorf("memberships %+v, %v", all, err)
		}
		p.refused("add --yes", "users", "delete", "ada@example.com")
		p.refused("last owner", "users", "delete", "ada@example.com", "--yes")
		p.must("users", "create", "eve@example.com", "--name", "Eve\u009b2J")
		if list := p.must("users", "list"); strings.Contains(list, "\u009b") || !strings.Contains(list, "Eve?2J") {
			t.Errorf("a terminal is told by a name: %q", list)
		}
		p.must("users", "delete", "eve@example.com", "--yes")
		if list := p.must("users", "list"); strings.Contains(list, "eve@") {
			t.Errorf("users:\n%s", list)
		}
	})
}

// When a node starts, it logs the link for creating the first user.
func TestSetupIsLogged(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		var logged testnode.Logged
		n := p.start(func(n *node.Node) { n.Log = slog.New(slog.NewTextHandler(&logged, nil)) })
		logSetup(t.Context(), n.Node)
		_, link, _ := strings.Cut(logged.Take(), "link=")
		setup := token(t, strings.Trim(strings.TrimSpace(link), `"`), "/setup")
		if err := n.Users.CheckSetup(t.Context(), setup); err != nil {
			t.Error(err)
		}
		p.must("users", "create", "ada@example.com")
		if logSetup(t.Context(), n.Node); logged.String() != "" {
			t.Errorf("logged %q with a user", logged.String())
		}
	})
}
