package cli

import (
	"github.com/pquerna/otp/totp"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// people does all that there is to do with users, but for what needs an authenticator or a provider.
func (d *driver) people() {
	t, ctx, from := d.t, d.t.Context(), users.Client{Address: "192.0.2.7"}
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	team := d.do("GET", "/team", "")
	link, err := d.users.SetupLink(ctx)
	must(err)
	setup := token(t, link, "/setup")
	must(d.users.CheckSetup(ctx, setup))
	draft, err := d.users.Prepare(ctx, users.NewUser{Email: "ada@example.com", Password: goodPassword})
	must(err)
	must(d.db.Update(ctx, func(tx *db.Tx) error {
		if err := d.users.UseSetupIn(ctx, tx, setup); err != nil {
			return err
		}
		u, err := d.users.CreateIn(ctx, tx, draft)
		if err != nil {
			return err
		}
		return d.members.AddIn(ctx, tx, team, u.ID, teams.Member)
	}))
	signIn := func() (users.Outcome, users.Session) {
		out, err := d.users.SignIn(ctx, users.Attempt{Email: "ada@example.com", Password: goodPassword, Client: from})
		must(err)
		if out.Token == "" {
			return out, users.Session{}
		}
		s, _, err := d.users.Session(ctx, out.Token)
		must(err)
		return out, s
	}
	_, s := signIn()
	_, other := signIn()
	must(d.users.Rename(ctx, s.UserID, "Ada"))
	must(d.users.SetTeam(ctx, s.ID, team))
	must(d.users.ProvePassword(ctx, s, goodPassword))
	must(d.users.SetPassword(ctx, s, goodPassword, goodPassword+"s"))
	must(d.users.SetPassword(ctx, s, goodPassword+"s", goodPassword))
	begun, err := d.users.BeginTOTP(ctx, s)
	must(err)
	code, err := totp.GenerateCode(begun.Secret, d.db.Now())
	must(err)
	codes, err := d.users.ConfirmTOTP(ctx, s, begun.Token, code)
	must(err)
	out, _ := signIn()
	if _, err := d.users.SecondFactor(ctx, out.Pending, code, from); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a used code: %v", err)
	}
	_, err = d.users.SecondFactor(ctx, out.Pending, codes[0], from)
	must(err)
	_, err = d.users.NewRecoveryCodes(ctx, s)
	must(err)
	_, err = d.users.RecoveryCodesLeft(ctx, s.UserID)
	must(err)
	must(d.users.DisableTOTP(ctx, s))
	must(d.users.RequestReset(ctx, "ada@example.com", from))
	eventually(t, "the link was mailed", func() bool {
		return d.count(`SELECT COUNT(*) FROM user_tokens WHERE kind = 'reset'`) > 0
	})
	link, err = d.users.ResetLink(ctx, s.UserID)
	must(err)
	must(d.users.Reset(ctx, token(t, link, "/password/reset"), goodPassword, from))
	if err := d.users.EndSession(ctx, s.UserID, other.ID); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a session that a new password ended: %v", err)
	}
	_, s = signIn()
	_, err = d.users.Sessions(ctx, s.UserID)
	must(err)
	_, err = d.users.Passkeys(ctx, s.UserID)
	must(err)
	_, err = d.users.Identities(ctx, s.UserID)
	must(err)
	must(d.users.EndSession(ctx, s.UserID, s.ID))
	must(d.users.EndSessions(ctx, s.UserID, ""))
	must(d.users.ClearFactors(ctx, s.UserID))
	_, err = d.users.List(ctx, "", 10)
	must(err)
	must(d.users.SetDisabled(ctx, s.UserID, true))
	must(d.members.Leave(ctx, team, s.UserID))
	must(d.users.Delete(ctx, s.UserID))
}
