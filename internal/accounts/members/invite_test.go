package members_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
)

const week = 7 * 24 * time.Hour

// A person can accept an invitation as an existing user or as a new user, but only once.
func TestInvitation(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		ctx := t.Context()
		v := b.invited("  Ann <Ann@One.example> ", teams.Admin)
		if v.Email != "ann@one.example" || v.Role != teams.Admin || v.TeamName != "Acme" || v.By != b.Acme.Ref() ||
			!v.ExpiresAt.Equal(v.SentAt.Add(week)) {
			t.Errorf("%+v", v)
		}
		token := b.token("ann@one.example")
		if shown, err := b.Members.Invitation(ctx, token); err != nil || shown.ID != v.ID || shown.TeamName != "Acme" {
			t.Errorf("%+v, %v", shown, err)
		}
		if stored := b.Count(`SELECT COUNT(*) FROM invitations WHERE token_hash = $1`, token); stored != 0 {
			t.Error("the token is stored")
		}
		ann := b.user("ann@one.example")
		m, err := b.Members.Accept(ctx, token, ann.ID, nil)
		if err != nil || m.Role != teams.Admin || m.TeamID != b.Acme.TeamID || m.UserID != ann.ID {
			t.Fatalf("%+v, %v", m, err)
		}
		_, err = b.Members.Accept(ctx, token, ann.ID, nil)
		wantKind(t, err, fault.NotFound, "not valid")
		_, err = b.Members.Invitation(ctx, token)
		wantKind(t, err, fault.NotFound, "not valid")
		_, err = b.Members.Invite(ctx, b.Acme, "ANN@one.example", teams.Viewer)
		wantKind(t, err, fault.Invalid, "member of the team")

		b.invited("new@one.example", teams.Viewer)
		var begun []string
		m, err = b.Members.AcceptAsNew(ctx, b.token("new@one.example"), users.NewUser{Email: "else@one.example",
			Name: "New"},
			func(_ context.Context, tx *db.Tx, u users.User) error {
				tx.AfterCommit(func() { begun = append(begun, u.Email) })
				return nil
			})
		if err != nil || m.Email != "new@one.example" || m.Name != "New" || m.Role != teams.Viewer ||
			!slices.Equal(begun, []string{"new@one.example"}) {
			t.Errorf("%+v, begun %q, %v", m, begun, err)
		}
		want := []string{"key Acme: member.invited (ann@one.example as admin)",
			"user ann@one.example: member.joined (ann@one.example as admin)",
			"key Acme: member.invited (new@one.example as viewer)",
			"user new@one.example: member.joined (new@one.example as viewer)"}
		if got := b.acts(); !slices.Equal(got, want) {
			t.Errorf("audit log:\n%s", strings.Join(got, "\n"))
		}
		for _, text := range []string{"ann@one.example\nYou are invited to join Acme\n", "as an admin",
			"the link works once"} {
			if !strings.Contains(strings.ToLower(b.mailed[0]), strings.ToLower(text)) {
				t.Errorf("no %q in\n%s", text, b.mailed[0])
			}
		}
	})
}

// A refused acceptance creates neither a user nor a membership.
func TestInvitationRefused(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		ctx := t.Context()
		ann, eve := b.user("ann@one.example"), b.user("eve@one.example")
		owner := b.Member(b.Acme.TeamID, "owner@acme.example", teams.Owner)
		for name, spoil := range map[string]func(v members.Invitation, token string) (string, users.User){
			"unknown": func(_ members.Invitation, _ string) (string, users.User) { return "x", ann },
			"expired": func(_ members.Invitation, token string) (string, users.User) {
				b.pass(week)
				return token,
					ann
			},
			"replaced": func(_ members.Invitation, token string) (string, users.User) {
				b.invited("ann@one.example", teams.Viewer)
				return token, ann
			},
			"resent": func(v members.Invitation, token string) (string, users.User) {
				_, err := b.Members.Resend(ctx, owner, v.ID)
				b.Must(err)
				return token, ann
			},
			"revoked": func(v members.Invitation, token string) (string, users.User) {
				b.Must(b.Members.Revoke(ctx, owner, v.ID))
				return token, ann
			},
		} {
			v := b.invited("ann@one.example", teams.Viewer)
			token, who := spoil(v, b.token("ann@one.example"))
			_, err := b.Members.Accept(ctx, token, who.ID, nil)
			wantKind(t, err, fault.NotFound, "not valid")
			_, err = b.Members.AcceptAsNew(ctx, token, users.NewUser{}, nil)
			wantKind(t, err, fault.NotFound, "not valid")
			if t.Failed() {
				t.Fatal(name)
			}
		}
		v := b.invited("ann@one.example", teams.Viewer)
		token := b.token("ann@one.example")
		_, err := b.Members.Accept(ctx, token, eve.ID, nil) // the link was forwarded
		wantKind(t, err, fault.Forbidden, "another address")
		if got := b.acts(); got[len(got)-1] != "user eve@one.example: invitation.refused (sent to ann@one.example)" {
			t.Errorf("audit log:\n%s", strings.Join(got, "\n"))
		}
		_, err = b.Members.AcceptAsNew(ctx, token, users.NewUser{}, nil)
		wantKind(t, err, fault.Invalid, "already")
		broken := errors.New("broken")
		b.invited("new@one.example", teams.Viewer)
		_, err = b.Members.AcceptAsNew(ctx, b.token("new@one.example"), users.NewUser{},
			func(context.Context, *db.Tx, users.User) error { return broken })
		if !errors.Is(err, broken) {
			t.Error(err)
		}
		if n := b.Count(`SELECT COUNT(*) FROM memberships WHERE user_id <> $1`, db.ID(owner.ID)); n != 0 {
			t.Errorf("%d members", n)
		}
		if n := b.Count(`SELECT COUNT(*) FROM users WHERE email = 'new@one.example'`); n != 0 {
			t.Error("a user was made")
		}
		if again, err := b.Members.Invitation(ctx, token); err != nil || again.ID != v.ID {
			t.Errorf("%+v, %v", again, err)
		}
		b.Must(b.Teams.Delete(ctx, b.Queue, b.Acme.TeamID))
		_, err = b.Members.Accept(ctx, token, ann.ID, nil)
		wantKind(t, err, fault.NotFound, "not valid")
		_, err = b.Members.Invite(ctx, b.Acme, "late@one.example", teams.Viewer)
		wantKind(t, err, fault.NotFound, "Team")
	})
}

// An invitation is valid only while its last sender has the right to give the invited role.
func TestInvitationEndsWithItsMaker(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		ctx := t.Context()
		owner := b.Member(b.Acme.TeamID, "owner@acme.example", teams.Owner)
		setRole := func(role teams.Role) func(teams.Actor) {
			return func(by teams.Actor) {
				_, err := b.Members.SetRole(ctx, owner, b.userOf(by), role)
				b.Must(err)
			}
		}
		disable := func(by teams.Actor) { b.Must(b.Users.SetDisabled(ctx, b.userOf(by), true)) }
		key := func() teams.Actor {
			_, token := b.Key(b.Acme.TeamID, teams.NewKey{Name: "Invites"})
			by, err := b.Teams.Authenticate(ctx, token)
			b.Must(err)
			return by
		}
		n := 0
		user := func(role teams.Role) func() teams.Actor {
			return func() teams.Actor {
				n++
				return b.Member(b.Acme.TeamID, fmt.Sprintf("by%d@acme.example", n), role)
			}
		}
		grant := func(role teams.Role) func() teams.Actor {
			return func() teams.Actor { return b.grant(user(role)()) }
		}
		for name, c := range map[string]struct {
			by   func() teams.Actor
			role teams.Role
			end  func(by teams.Actor)
		}{
			"key deleted": {key, teams.Admin, func(by teams.Actor) { b.Must(b.Teams.DeleteKey(ctx, by.TeamID, by.ID)) }},
			"grant revoked": {grant(teams.Admin), teams.Admin, func(by teams.Actor) {
				_, err := b.Grants.Revoke(ctx, by.TeamID, by.ID, "revoked_from_api")
				b.Must(err)
			}},
			"grant of an owner, now a member": {grant(teams.Owner), teams.Admin, setRole(teams.Member)},
			"grant of an admin, now a member": {grant(teams.Admin), teams.Viewer, setRole(teams.Member)},
			"grant of one who was disabled":   {grant(teams.Admin), teams.Viewer, disable},
			"admin disabled":                  {user(teams.Admin), teams.Viewer, disable},
			"owner disabled":                  {user(teams.Owner), teams.Owner, disable},
			"owner removed": {user(teams.Owner), teams.Owner, func(by teams.Actor) {
				b.Must(b.Members.Remove(ctx, owner, by.ID))
			}},
		} {
			by := c.by()
			n++
			invited := []users.User{b.user(fmt.Sprintf("u%d@one.example", n)), b.user(fmt.Sprintf("v%d@one.example", n))}
			var sent []members.Invitation
			for _, u := range invited {
				v, err := b.Members.Invite(ctx, by, u.Email, c.role)
				b.Must(err)
				sent = append(sent, v)
			}
			v, err := b.Members.Resend(ctx, owner, sent[1].ID) // the owner is now the sender
			b.Must(err)
			if v.By != owner.Ref() {
				t.Errorf("%s: resent by %v", name, v.By)
			}
			tokens := []string{b.token(invited[0].Email), b.token(invited[1].Email)}
			c.end(by)
			_, err = b.Members.Invitation(ctx, tokens[0])
			wantKind(t, err, fault.NotFound, "not valid")
			_, err = b.Members.Accept(ctx, tokens[0], invited[0].ID, nil)
			wantKind(t, err, fault.NotFound, "not valid")
			all, _, err := b.Members.Invitations(ctx, b.Acme.TeamID, page.Page{Limit: 100})
			b.Must(err)
			for _, v := range all {
				if expired := b.Members.Expired(v); expired != (v.ID == sent[0].ID) {
					t.Errorf("%s: %s expired: %v", name, v.Email, expired)
				}
				if v.ID == sent[0].ID {
					b.Must(b.Members.Revoke(ctx, owner, v.ID))
				}
			}
			if _, err := b.Members.Accept(ctx, tokens[1], invited[1].ID, nil); err != nil {
				t.Errorf("%s: the owner's: %v", name, err)
			}
			if t.Failed() {
				t.Fatal(name)
			}
		}
	})
}

// grant connects an app to the team, with a member's scopes, and returns the app's actor.
func (b *box) grant(by teams.Actor) teams.Actor {
	b.t.Helper()
	ctx := b.t.Context()
	const verifier = "a-verifier-of-43-characters-at-least-0123456789"
	hash := sha256.Sum256([]byte(verifier))
	const redirect = "http://127.0.0.1:4711/callback"
	c, err := b.Grants.Register(ctx, grants.NewClient{Name: "Notes", RedirectURIs: []string{redirect}})
	b.Must(err)
	r, err := b.Grants.CheckRequest(ctx, grants.Params{ClientID: c.ID, ResponseType: "code", RedirectURI: redirect,
		State:     "s",
		Scope:     "full_access",
		Challenge: base64.RawURLEncoding.EncodeToString(hash[:]), ChallengeMethod: "S256"})
	b.Must(err)
	code, _, err := b.Grants.Approve(ctx, r, by)
	b.Must(err)
	tokens, err := b.Grants.Exchange(ctx, grants.ExchangeParams{ClientID: c.ID, Code: code, RedirectURI: redirect,
		Verifier: verifier})
	b.Must(err)
	a, err := b.Teams.Authenticate(ctx, tokens.Access)
	b.Must(err)
	return a
}

// userOf returns an actor's user id; for an app, it is the id of the user who connected the app.
func (b *box) userOf(by teams.Actor) string {
	b.t.Helper()
	if by.Kind == teams.UserActor {
		return by.ID
	}
	all, _, err := b.Grants.List(b.t.Context(), by.TeamID, page.Page{Limit: 100})
	b.Must(err)
	for _, g := range all {
		if g.ID == by.ID {
			return g.UserID
		}
	}
	b.t.Fatalf("no grant %s", by.ID)
	return ""
}

// If many requests accept an invitation concurrently, exactly one of them succeeds.
func TestAcceptAtTheSameTime(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		ctx := t.Context()
		ann := b.user("ann@one.example")
		b.invited("ann@one.example", teams.Viewer)
		token := b.token("ann@one.example")
		errs := make([]error, 8)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { _, errs[i] = b.Members.Accept(ctx, token, ann.ID, nil) })
		}
		wg.Wait()
		accepted := 0
		for _, err := range errs {
			if err == nil {
				accepted++
			} else {
				wantKind(t, err, fault.NotFound, "not valid")
			}
		}
		if accepted != 1 {
			t.Errorf("accepted %d times", accepted)
		}
	})
}

// If the inviter is removed while the invitation is being accepted, the invited user either joins before the removal or
// is refused. PostgreSQL reports no deadlock.
func TestAcceptWhileTheInviterIsRemoved(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		ctx := t.Context()
		owner := b.Member(b.Acme.TeamID, "owner@acme.example", teams.Owner)
		for i := range 40 {
			by := b.Member(b.Acme.TeamID, fmt.Sprintf("by%d@acme.example", i), teams.Admin)
			u := b.user(fmt.Sprintf("u%d@one.example", i))
			_, err := b.Members.Invite(ctx, by, u.Email, teams.Viewer)
			b.Must(err)
			token := b.token(u.Email)
			var joined, removed error
			var wg sync.WaitGroup
			wg.Go(func() { _, joined = b.Members.Accept(ctx, token, u.ID, nil) })
			wg.Go(func() { removed = b.Members.Remove(ctx, owner, by.ID) })
			wg.Wait()
			b.Must(removed)
			if joined != nil {
				wantKind(t, joined, fault.NotFound, "not valid")
			}
		}
		if b.DB.Alone() {
			return
		}
		if n := b.Count(`SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n != 0 {
			t.Errorf("%d deadlocks", n)
		}
	})
}

// A team's list of invitations contains open invitations and recently expired ones.
func TestInvitations(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		ctx := t.Context()
		list := func() (emails []string) {
			t.Helper()
			all, more, err := b.Members.Invitations(ctx, b.Acme.TeamID, page.Page{Limit: 100})
			if err != nil || more {
				t.Fatal(more, err)
			}
			for _, v := range all {
				text := v.Email
				if b.Members.Expired(v) {
					text += " expired"
				}
				emails = append(emails, text)
			}
			return emails
		}
		b.invited("a@one.example", teams.Viewer)
		b.pass(time.Hour)
		second := b.invited("b@one.example", teams.Viewer)
		third := b.invited("c@one.example", teams.Viewer)
		if _, err := b.Members.Invite(ctx, b.Other, "d@one.example", teams.Viewer); err != nil {
			t.Fatal(err)
		}
		b.Must(b.Members.Revoke(ctx, b.Acme, third.ID))
		wantKind(t, b.Members.Revoke(ctx, b.Acme, third.ID), fault.NotFound, "Invitation")
		wantKind(t, b.Members.Revoke(ctx, b.Other, second.ID), fault.NotFound, "Invitation")
		_, err := b.Members.Resend(ctx, b.Other, second.ID)
		wantKind(t, err, fault.NotFound, "Invitation")
		b.pass(week - time.Hour)
		if got := list(); !slices.Equal(got, []string{"b@one.example", "a@one.example expired"}) {
			t.Errorf("%q", got)
		}
		b.Must(b.Members.Sweep(ctx))
		b.pass(30*24*time.Hour + time.Minute)
		if got := list(); len(got) != 2 {
			t.Errorf("%q", got)
		}
		b.Must(b.Members.Sweep(ctx))
		if got := list(); !slices.Equal(got, []string{"b@one.example expired"}) {
			t.Errorf("%q", got)
		}
		if v, err := b.Members.Resend(ctx, b.Acme, second.ID); err != nil || b.Members.Expired(v) || v.ID != second.ID {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

// Removed members cannot rejoin through invitations that they sent. When a member's role is lowered, the member's
// invitations to higher roles are revoked.
func TestInvitationsEndWithTheRole(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		ctx := t.Context()
		owner := b.Member(b.Acme.TeamID, "owner@acme.example", teams.Owner)
		for name, x := range map[string]struct {
			end  func(teams.Actor) error
			left []teams.Role // roles of the invitations that remain open
		}{
			"removed": {func(a teams.Actor) error { return b.Members.Remove(ctx, owner, a.ID) }, nil},
			"left":    {func(a teams.Actor) error { return b.Members.Leave(ctx, a.TeamID, a.ID) }, nil},
			"deleted": {func(a teams.Actor) error { return b.Users.Delete(ctx, a.ID) }, nil},
			"admin": {func(a teams.Actor) error {
				_, err := b.Members.SetRole(ctx, owner, a.ID, teams.Admin)
				return err
			}, []teams.Role{teams.Admin, teams.Viewer}},
			"member": {func(a teams.Actor) error {
				_, err := b.Members.SetRole(ctx, owner, a.ID, teams.Member)
				return err
			}, nil},
		} {
			a := b.Member(b.Acme.TeamID, name+"@acme.example", teams.Owner)
			all := []teams.Role{teams.Owner, teams.Admin, teams.Viewer}
			for _, role := range all {
				_, err := b.Members.Invite(ctx, a, string(role)+"."+name+"@one.example", role)
				b.Must(err)
			}
			others := b.invited("other."+name+"@one.example", teams.Admin)
			b.Must(x.end(a))
			for _, role := range all {
				_, err := b.Members.Invitation(ctx, b.token(string(role)+"."+name+"@one.example"))
				if stays := slices.Contains(x.left, role); stays != (err == nil) {
					t.Errorf("%s: the invitation to be %s: %v", name, role, err)
				}
			}
			_, err := b.Members.Invitation(ctx, b.token(others.Email))
			b.Must(err)
		}
	})
}

// A suspended team cannot email invitations, but the operator can still create an invitation link.
func TestSuspendedTeamInvites(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		ctx := t.Context()
		v := b.invited("ann@one.example", teams.Viewer)
		b.Must(b.Teams.SetSuspended(ctx, b.Acme.TeamID, true))
		_, err := b.Members.Invite(ctx, b.Acme, "bob@one.example", teams.Viewer)
		wantKind(t, err, fault.Suspended, "suspended")
		_, err = b.Members.Resend(ctx, b.Acme, v.ID)
		wantKind(t, err, fault.Suspended, "suspended")
		if n := len(b.mailed); n != 1 {
			t.Errorf("%d emails were sent, want that of before", n)
		}
		_, _, err = b.Members.InviteLink(ctx, teams.System(b.Acme.TeamID), "bob@one.example", teams.Viewer)
		b.Must(err)
	})
}

// TestInvitationLimits checks the limits on open invitations per team, invitation emails per hour, and emails per
// invitation.
func TestInvitationLimits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		ctx := t.Context()
		for i := range 50 {
			b.invited(fmt.Sprintf("%d@one.example", i), teams.Viewer)
		}
		_, err := b.Members.Invite(ctx, b.Acme, "more@one.example", teams.Viewer)
		wantKind(t, err, fault.Forbidden, "50 open")
		last := b.invited("0@one.example", teams.Admin) // replaces another invitation
		b.Must(b.Members.Revoke(ctx, b.Acme, last.ID))
		for i := range 49 {
			v := b.invited("again@one.example", teams.Viewer)
			if i == 48 {
				_, err = b.Members.Resend(ctx, b.Acme, v.ID)
				wantKind(t, err, fault.TooFast, "within an hour")
				b.pass(time.Hour + time.Minute)
				for range 4 {
					if _, err = b.Members.Resend(ctx, b.Acme, v.ID); err != nil {
						t.Fatal(err)
					}
				}
				_, err = b.Members.Resend(ctx, b.Acme, v.ID)
				wantKind(t, err, fault.TooFast, "5 times")
			}
		}
		if n := len(b.mailed); n != 104 {
			t.Errorf("%d emails", n)
		}
	})
}

// Invitations with invalid addresses or roles are refused.
func TestInviteInvalid(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		for email, kind := range map[string]fault.Kind{"": fault.Missing, "  ": fault.Missing, "ann": fault.Invalid,
			"a@b@c": fault.Invalid, "a\r\nBcc: x@y.example": fault.Invalid, strings.Repeat("a", 400) +
				"@one.example": fault.Invalid} {
			if _, err := b.Members.Invite(t.Context(), b.Acme, email, teams.Viewer); fault.KindOf(err) != kind {
				t.Errorf("%q: %v", email, err)
			}
		}
		b.Members.Mail = nil
		_, err := b.Members.Invite(t.Context(), b.Acme, "ann@one.example", teams.Viewer)
		wantKind(t, err, fault.Forbidden, "operator")
		_, link, err := b.Members.InviteLink(t.Context(), teams.System(b.Acme.TeamID), "ann@one.example", teams.Owner)
		token, ok := strings.CutPrefix(link, "https://postrider.test/invitations/")
		if v, verr := b.Members.Invitation(t.Context(), token); err != nil || !ok || verr != nil ||
			v.Role != teams.Owner {
			t.Errorf("%s, %v, %+v, %v", link, err, v, verr)
		}
	})
}

// A request that accepts an invitation while a concurrent resend replaces its link waits for the resend and is then
// refused.
func TestAcceptWhileItIsSentAgain(t *testing.T) {
	t.Parallel()
	n := testnode.New(t, dbtest.Postgres(t), testnode.Options{})
	ctx, links := t.Context(), []string{}
	n.Members.Link = func(token string) string { return token }
	ends := make(chan error, 1)
	u, err := n.Users.Create(ctx, users.NewUser{Email: "ann@acme.example"})
	n.Must(err)
	n.Members.Mail = func(ctx context.Context, _ *db.Tx, _, _, text string) error {
		links = append(links, strings.TrimSpace(strings.Split(text, "\n\n")[2]))
		if len(links) == 1 {
			return nil
		}
		go func() {
			_, err := n.Members.Accept(t.Context(), links[0], u.ID, nil)
			ends <- err
		}()
		for waiting := 0; waiting == 0; {
			err := n.DB.QueryRow(ctx, `SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
				AND datname = current_database()`).Scan(&waiting)
			if err != nil {
				return err
			}
		}
		return nil
	}
	v, err := n.Members.Invite(ctx, n.Acme, u.Email, teams.Viewer)
	n.Must(err)
	_, err = n.Members.Resend(ctx, n.Acme, v.ID)
	n.Must(err)
	wantKind(t, <-ends, fault.NotFound, "replaced")
	_, err = n.Members.Accept(ctx, links[1], u.ID, nil)
	n.Must(err)
}
