package members_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// box is a test node that records invitation emails instead of sending them.
type box struct {
	*testnode.Node
	t      *testing.T
	mu     sync.Mutex
	mailed []string // recipient and body of each email
	clock  time.Duration
}

func each(t *testing.T, f func(t *testing.T, b *box)) {
	t.Helper()
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		b := &box{Node: n, t: t}
		n.Members.Mail = func(_ context.Context, tx *db.Tx, to, subject, text string) error {
			tx.AfterCommit(func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.mailed = append(b.mailed, to+"\n"+subject+"\n"+text)
			})
			return nil
		}
		n.Members.Link = func(token string) string { return "https://postrider.test/invitations/" + token }
		n.Members.Now = func() time.Time {
			b.mu.Lock()
			defer b.mu.Unlock()
			return n.DB.Now().Add(b.clock)
		}
		f(t, b)
	})
}

// pass advances the clock that package members uses.
func (b *box) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clock += d
}

// token returns the token of the last invitation to an address.
func (b *box) token(to string) string {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range slices.Backward(b.mailed) {
		if strings.HasPrefix(text, to+"\n") {
			return regexp.MustCompile(`/invitations/([\w-]+)`).FindStringSubmatch(text)[1]
		}
	}
	b.t.Fatalf("nothing was sent to %s", to)
	return ""
}

// user creates a user without a team.
func (b *box) user(email string) users.User {
	b.t.Helper()
	u, err := b.Users.Create(b.t.Context(), users.NewUser{Email: email, Name: "Somebody"})
	b.Must(err)
	return u
}

// invited creates an invitation with Acme's API key as its sender.
func (b *box) invited(email string, role teams.Role) members.Invitation {
	b.t.Helper()
	v, err := b.Members.Invite(b.t.Context(), b.Acme, email, role)
	b.Must(err)
	return v
}

// acts returns the entries about members in Acme's audit log, oldest first, with their details.
func (b *box) acts() (all []string) {
	b.t.Helper()
	entries, _, _, err := b.Audit.List(b.t.Context(), b.Acme.TeamID, audit.Filter{}, page.Page{Limit: 100})
	b.Must(err)
	for _, e := range slices.Backward(entries) {
		all = append(all, strings.TrimSpace(e.ActorKind+" "+e.ActorName)+": "+e.Action+" ("+e.Detail+")")
	}
	return all
}

func wantKind(t *testing.T, err error, kind fault.Kind, words string) {
	t.Helper()
	if err == nil || fault.KindOf(err) != kind || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v of kind %d, want %q of kind %d", err, fault.KindOf(err), words, kind)
	}
}

// A member has the scopes of the role until the membership, the user or the team is deleted.
func TestActor(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		ctx := t.Context()
		owner := b.Member(b.Acme.TeamID, "owner@acme.example", teams.Owner)
		for _, role := range teams.Roles {
			by := b.Member(b.Acme.TeamID, string(role)+"s@acme.example", role)
			if by.Kind != teams.UserActor || by.Name != string(role)+"s@acme.example" || by.TeamID != b.Acme.TeamID ||
				by.Scopes != role.Scopes() {
				t.Errorf("%s: %+v", role, by)
			}
			_, err := b.Members.Actor(ctx, by.ID, b.Other.TeamID)
			wantKind(t, err, fault.NotFound, "not a member")
		}
		by := b.Member(b.Acme.TeamID, "ann@acme.example", teams.Member)
		if _, err := b.Members.SetRole(ctx, owner, by.ID, teams.Viewer); err != nil {
			t.Fatal(err)
		}
		if now, err := b.Members.Actor(ctx, by.ID, b.Acme.TeamID); err != nil || now.Scopes != teams.Viewer.Scopes() {
			t.Errorf("%s, %v", now.Scopes, err)
		}
		b.Must(b.Teams.SetSuspended(ctx, b.Acme.TeamID, true))
		if now, err := b.Members.Actor(ctx, by.ID, b.Acme.TeamID); err != nil || !now.Suspended {
			t.Errorf("%+v, %v", now, err)
		}
		b.Must(b.Users.SetDisabled(ctx, by.ID, true))
		_, err := b.Members.Actor(ctx, by.ID, b.Acme.TeamID)
		wantKind(t, err, fault.NotFound, "not a member")
		b.Must(b.Members.Remove(ctx, b.Acme, b.Member(b.Acme.TeamID, "bob@acme.example", teams.Admin).ID))
		_, err = b.Members.Actor(ctx, by.ID, b.Acme.TeamID)
		wantKind(t, err, fault.NotFound, "not a member")
		b.Must(b.Teams.Delete(ctx, b.Queue, b.Acme.TeamID))
		_, err = b.Members.Actor(ctx, owner.ID, b.Acme.TeamID)
		wantKind(t, err, fault.NotFound, "not a member")
		if all, err := b.Members.ListByUser(ctx, owner.ID); err != nil || len(all) > 0 {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// A user may have different roles in different teams, and a team sees only its own members.
func TestTeams(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		ctx := t.Context()
		u := b.user("ann@one.example")
		for teamID, role := range map[string]teams.Role{b.Acme.TeamID: teams.Owner, b.Other.TeamID: teams.Viewer} {
			b.Update(func(tx *db.Tx) error { return b.Members.AddIn(ctx, tx, teamID, u.ID, role) })
		}
		all, err := b.Members.ListByUser(ctx, u.ID)
		if err != nil || len(all) != 2 || all[0].TeamName != "Acme" || all[0].Role != teams.Owner ||
			all[1].TeamName != "Other" || all[1].Role != teams.Viewer {
			t.Errorf("%+v, %v", all, err)
		}
		b.Member(b.Other.TeamID, "other@one.example", teams.Owner)
		list, more, err := b.Members.List(ctx, b.Acme.TeamID, page.Page{Limit: 5})
		if err != nil || more || len(list) != 1 || list[0].Email != "ann@one.example" || list[0].Name != "Somebody" ||
			list[0].CreatedAt.IsZero() {
			t.Errorf("%+v, more %v, %v", list, more, err)
		}
		err = b.DB.Update(ctx, func(tx *db.Tx) error {
			return b.Members.AddIn(ctx, tx, b.Acme.TeamID, u.ID,
				teams.Admin)
		})
		wantKind(t, err, fault.Invalid, "already")
		err = b.DB.Update(ctx, func(tx *db.Tx) error {
			return b.Members.AddIn(ctx, tx, b.Acme.TeamID, id.New(),
				"boss")
		})
		wantKind(t, err, fault.Invalid, "must be `owner`")
	})
}

// TestRoles checks which actors may give, change and remove which roles.
func TestRoles(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		ctx := t.Context()
		owner := b.Member(b.Acme.TeamID, "owner@acme.example", teams.Owner)
		admin := b.Member(b.Acme.TeamID, "admin@acme.example", teams.Admin)
		ann := b.Member(b.Acme.TeamID, "ann@acme.example", teams.Member)
		program := teams.Actor{Kind: teams.GrantActor, ID: dbtest.ID("g"), TeamID: b.Acme.TeamID,
			Scopes: teams.NewScopes(teams.MembersRead, teams.MembersWrite)}
		for name, test := range map[string]struct {
			by   teams.Actor
			role teams.Role
			kind fault.Kind // 0 means allowed
		}{
			"an owner makes an owner":         {owner, teams.Owner, 0},
			"an admin makes an owner":         {admin, teams.Owner, fault.OutOfScope},
			"a key makes an owner":            {b.Acme, teams.Owner, fault.Restricted},
			"an admin makes an admin":         {admin, teams.Admin, 0},
			"a key makes an admin":            {b.Acme, teams.Admin, 0},
			"a program makes a member":        {program, teams.Member, fault.OutOfScope},
			"a role that there is not":        {owner, "boss", fault.Invalid},
			"no role":                         {owner, "", fault.Missing},
			"a member that has a role by now": {owner, teams.Member, 0},
		} {
			_, err := b.Members.SetRole(ctx, test.by, ann.ID, test.role)
			if (err == nil) != (test.kind == 0) || err != nil && fault.KindOf(err) != test.kind {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := b.Members.SetRole(ctx, owner, ann.ID, teams.Member); err != nil {
				t.Fatal(err)
			}
			_, err = b.Members.Invite(ctx, test.by, "new@acme.example", test.role)
			if (err == nil) != (test.kind == 0) || err != nil && fault.KindOf(err) != test.kind {
				t.Errorf("%s, by an invitation: %v", name, err)
			}
		}
		_, err := b.Members.SetRole(ctx, admin, owner.ID, teams.Viewer)
		wantKind(t, err, fault.OutOfScope, "owners:write")
		wantKind(t, b.Members.Remove(ctx, admin, owner.ID), fault.OutOfScope, "owners:write")
		wantKind(t, b.Members.Remove(ctx, b.Acme, owner.ID), fault.Restricted, "An owner does it")
		for _, err := range []error{b.Members.Remove(ctx, owner, owner.ID), b.Members.Leave(ctx, b.Acme.TeamID,
			owner.ID),
			b.DB.Update(ctx, func(tx *db.Tx) error { return b.Members.OnUserDelete(ctx, tx, owner.ID) })} {
			wantKind(t, err, fault.Forbidden, "last owner")
		}
		_, err = b.Members.SetRole(ctx, owner, owner.ID, teams.Admin)
		wantKind(t, err, fault.Forbidden, "last owner")
		if m, err := b.Members.SetRole(ctx, owner, owner.ID, teams.Owner); err != nil || m.Role != teams.Owner {
			t.Errorf("%+v, %v", m, err)
		}
		stranger := b.Member(b.Other.TeamID, "other@one.example", teams.Owner)
		_, err = b.Members.SetRole(ctx, owner, stranger.ID, teams.Viewer)
		wantKind(t, err, fault.NotFound, "Member")
		wantKind(t, b.Members.Remove(ctx, owner, stranger.ID), fault.NotFound, "Member")
		wantKind(t, b.Members.Leave(ctx, b.Acme.TeamID, stranger.ID), fault.NotFound, "Member")
		b.Must(b.Members.Leave(ctx, b.Acme.TeamID, ann.ID))
		b.Must(b.Members.Remove(ctx, owner, admin.ID))
		got := b.acts()
		for _, want := range []string{"user owner@acme.example: member.role_changed (ann@acme.example: member to " +
			"owner)",
			"key Acme: member.role_changed (ann@acme.example: member to admin)",
			"user ann@acme.example: member.left (ann@acme.example)",
			"user owner@acme.example: member.removed (admin@acme.example)"} {
			if !slices.Contains(got, want) {
				t.Errorf("no %s in the audit log:\n%s", want, strings.Join(got, "\n"))
			}
		}
	})
}

// If a team's two owners remove each other or leave at the same time, one of them remains an owner.
func TestOwnersAtTheSameTime(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		ctx := t.Context()
		for name, act := range map[string]func(by, other teams.Actor) error{
			"remove": func(by, other teams.Actor) error { return b.Members.Remove(ctx, by, other.ID) },
			"leave":  func(by, _ teams.Actor) error { return b.Members.Leave(ctx, by.TeamID, by.ID) },
			"demote": func(by, other teams.Actor) error {
				_, err := b.Members.SetRole(ctx, by, other.ID, teams.Viewer)
				return err
			},
			"delete": func(by, _ teams.Actor) error {
				return b.DB.Update(ctx, func(tx *db.Tx) error { return b.Members.OnUserDelete(ctx, tx, by.ID) })
			},
		} {
			for round := range 5 {
				team, _ := b.Team(fmt.Sprint(name, round))
				var pair [2]teams.Actor
				for i := range pair {
					pair[i] = b.Member(team.TeamID, fmt.Sprintf("%s%d%d@one.example", name, round, i), teams.Owner)
				}
				var wg sync.WaitGroup
				var errs [2]error
				for i := range pair {
					wg.Go(func() { errs[i] = act(pair[i], pair[1-i]) })
				}
				wg.Wait()
				if (errs[0] == nil) == (errs[1] == nil) {
					t.Errorf("%s: %v and %v", name, errs[0], errs[1])
				}
				wantKind(t, errors.Join(errs[:]...), fault.Forbidden, "last owner")
				if n := b.Count(`SELECT COUNT(*) FROM memberships WHERE team_id = $1 AND role = 'owner'`,
					db.ID(team.TeamID)); n != 1 {
					t.Errorf("%s: %d owners are left", name, n)
				}
			}
		}
	})
}

// Each change that may take a right away from a member sends a hint to all nodes.
func TestHints(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		ctx := t.Context()
		told := 0
		b.DB.OnHint(members.HintTopic, func(teamID string) {
			if teamID == b.Acme.TeamID {
				told++
			}
		})
		ann := b.Member(b.Acme.TeamID, "ann@acme.example", teams.Member)
		bob := b.Member(b.Acme.TeamID, "bob@acme.example", teams.Viewer)
		cid := b.Member(b.Acme.TeamID, "cid@acme.example", teams.Viewer)
		for name, act := range map[string]func() error{
			"role":   func() error { _, err := b.Members.SetRole(ctx, b.Acme, ann.ID, teams.Admin); return err },
			"remove": func() error { return b.Members.Remove(ctx, b.Acme, bob.ID) },
			"leave":  func() error { return b.Members.Leave(ctx, b.Acme.TeamID, cid.ID) },
		} {
			before := told
			if err := act(); err != nil || told == before {
				t.Errorf("%s: told %d times, %v", name, told-before, err)
			}
		}
	})
}

// Deleting a user ends all of the user's memberships.
func TestLeaving(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		ctx := t.Context()
		ann := b.Member(b.Acme.TeamID, "ann@acme.example", teams.Admin)
		b.Update(func(tx *db.Tx) error { return b.Members.AddIn(ctx, tx, b.Other.TeamID, ann.ID, teams.Viewer) })
		b.Must(b.Users.Delete(ctx, ann.ID))
		if n := b.Count(`SELECT COUNT(*) FROM memberships`); n != 0 {
			t.Errorf("%d memberships", n)
		}
		if got := strings.Join(b.acts(), "\n"); !strings.HasSuffix(got, "system: member.removed (ann@acme.example)") {
			t.Errorf("audit log:\n%s", got)
		}
	})
}

// Users cannot join an unknown or deleted team.
func TestAddToNoTeam(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		ctx := t.Context()
		u := b.user("ann@one.example")
		gone, _ := b.Team("Gone")
		b.Must(b.Teams.Delete(ctx, b.Queue, gone.TeamID))
		for _, teamID := range []string{"nonsense", gone.TeamID} {
			err := b.DB.Update(ctx, func(tx *db.Tx) error {
				return b.Members.AddIn(ctx, tx, teamID, u.ID, teams.Owner)
			})
			wantKind(t, err, fault.NotFound, "Team not found")
		}
	})
}

// A disabled owner does not count as an owner: if all other owners are disabled, an owner can neither leave nor change
// role.
func TestLastOwnerWhoCanAct(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		ctx := t.Context()
		team, _ := b.Team("One")
		ann := b.Member(team.TeamID, "ann@one.example", teams.Owner)
		bob := b.Member(team.TeamID, "bob@one.example", teams.Owner)
		b.Must(b.Users.SetDisabled(ctx, bob.ID, true))
		wantKind(t, b.Members.Leave(ctx, team.TeamID, ann.ID), fault.Forbidden, "last owner")
		_, err := b.Members.SetRole(ctx, ann, ann.ID, teams.Admin)
		wantKind(t, err, fault.Forbidden, "last owner")
		b.Must(b.Members.Remove(ctx, ann, bob.ID))
	})
}

func TestMostMembers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		ctx := t.Context()
		b.Update(func(tx *db.Tx) error {
			for range 200 {
				tx.Queue(ctx, `INSERT INTO memberships (team_id, user_id, role, created_at) VALUES ($1, $2, 'viewer',
					0)`, db.ID(b.Acme.TeamID), db.ID(id.New()))
			}
			return nil
		})
		u := b.user("late@acme.example")
		err := b.DB.Update(ctx, func(tx *db.Tx) error {
			return b.Members.AddIn(ctx, tx, b.Acme.TeamID, u.ID, teams.Viewer)
		})
		wantKind(t, err, fault.Forbidden, "200 members")
	})
}

// A user can join at most 200 teams, so that one page lists all of them.
func TestMostTeams(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		ctx := t.Context()
		u := b.user("ann@acme.example")
		join := func(teamID string) error {
			return b.DB.Update(ctx, func(tx *db.Tx) error {
				return b.Members.AddIn(ctx, tx, teamID, u.ID, teams.Viewer)
			})
		}
		b.Update(func(tx *db.Tx) error {
			for i := range 200 {
				team, err := b.Teams.CreateIn(ctx, tx, fmt.Sprint("Team ", i), "")
				if err != nil {
					return err
				}
				tx.Queue(ctx, `INSERT INTO memberships (team_id, user_id, role, created_at)
					VALUES ($1, $2, 'viewer', 0)`, db.ID(team.ID), db.ID(u.ID))
			}
			return nil
		})
		wantKind(t, join(b.Acme.TeamID), fault.Forbidden, "200 teams")
		all, err := b.Members.ListByUser(ctx, u.ID)
		b.Must(err)
		b.Must(b.Members.Leave(ctx, all[0].TeamID, u.ID))
		b.Must(join(b.Acme.TeamID))
		b.Must(b.Users.Delete(ctx, u.ID))
		if n := b.Count(`SELECT COUNT(*) FROM memberships WHERE user_id = $1`, db.ID(u.ID)); n != 0 {
			t.Errorf("%d memberships of a user who is deleted", n)
		}
	})
}

// EraseTeam deletes a deleted team's rows and no others.
func TestEraseTeam(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		ctx := t.Context()
		b.Member(b.Acme.TeamID, "ann@acme.example", teams.Owner)
		b.Member(b.Other.TeamID, "bob@one.example", teams.Owner)
		b.invited("new@acme.example", teams.Admin)
		if _, err := b.Members.Invite(ctx, b.Other, "new@acme.example", teams.Admin); err != nil {
			t.Fatal(err)
		}
		b.Must(b.Members.EraseTeam(ctx, b.Acme.TeamID))
		for _, table := range []string{"memberships", "invitations"} {
			if mine, all := b.Count(`SELECT COUNT(*) FROM `+table+` WHERE team_id = $1`, db.ID(b.Acme.TeamID)),
				b.Count(`SELECT COUNT(*) FROM `+table); mine != 0 || all != 1 {
				t.Errorf("%s: %d of %d", table, mine, all)
			}
		}
	})
}
