package cli

import (
	"net/url"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/postrider/postrider/internal/accounts/savedfilters"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/outbound/exportruns"
	"github.com/postrider/postrider/internal/platform/db"
)

// people calls all user operations except those for passkeys and OpenID Connect.
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
	link, err := d.Users.SetupLink(ctx)
	must(err)
	setup := token(t, link, "/setup")
	must(d.Users.CheckSetup(ctx, setup))
	draft, err := d.Users.Prepare(ctx, users.NewUser{Email: "ada@example.com", Password: goodPassword})
	must(err)
	must(d.DB.Update(ctx, func(tx *db.Tx) error {
		if err := d.Users.UseSetupIn(ctx, tx, setup); err != nil {
			return err
		}
		u, err := d.Users.CreateIn(ctx, tx, draft)
		if err != nil {
			return err
		}
		return d.Members.AddIn(ctx, tx, team, u.ID, teams.Member)
	}))
	signIn := func() (users.Outcome, users.Session) {
		out, err := d.Users.SignIn(ctx, users.Attempt{Email: "ada@example.com", Password: goodPassword, Client: from})
		must(err)
		if out.Token == "" {
			return out, users.Session{}
		}
		s, _, err := d.Users.Session(ctx, out.Token)
		must(err)
		return out, s
	}
	_, s := signIn()
	_, other := signIn()
	must(d.Users.Rename(ctx, s.UserID, "Ada"))
	must(d.Users.SetTeam(ctx, s.ID, team))
	must(d.Users.ProvePassword(ctx, s, goodPassword, from))
	must(d.Users.SetPassword(ctx, s, goodPassword, goodPassword+"s", from))
	must(d.Users.SetPassword(ctx, s, goodPassword+"s", goodPassword, from))
	begun, err := d.Users.BeginTOTP(ctx, s)
	must(err)
	code, err := totp.GenerateCode(begun.Secret, d.DB.Now())
	must(err)
	_, err = d.Users.ResumeTOTP(ctx, s, begun.Token)
	must(err)
	codes, err := d.Users.ConfirmTOTP(ctx, s, begun.Token, code, from)
	must(err)
	out, _ := signIn()
	if _, err := d.Users.SecondFactor(ctx, out.Pending, code, from); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a used code: %v", err)
	}
	_, err = d.Users.SecondFactor(ctx, out.Pending, codes[0], from)
	must(err)
	_, err = d.Users.NewRecoveryCodes(ctx, s, from)
	must(err)
	_, err = d.Users.RecoveryCodesLeft(ctx, s.UserID)
	must(err)
	must(d.Users.DisableTOTP(ctx, s, from))
	must(d.Users.RequestReset(ctx, "ada@example.com", from))
	eventually(t, "the link was mailed", func() bool {
		return d.count(`SELECT COUNT(*) FROM user_tokens WHERE kind = 'reset'`) > 0
	})
	link, err = d.Users.ResetLink(ctx, s.UserID)
	must(err)
	must(d.Users.Reset(ctx, token(t, link, "/password/reset"), goodPassword, from))
	if err := d.Users.EndSession(ctx, s.UserID, other.ID); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a session that a new password ended: %v", err)
	}
	_, s = signIn()
	_, err = d.Users.Sessions(ctx, s.UserID)
	must(err)
	_, err = d.Users.Passkeys(ctx, s.UserID)
	must(err)
	_, err = d.Users.Identities(ctx, s.UserID)
	must(err)
	must(d.Users.EndSession(ctx, s.UserID, s.ID))
	must(d.Users.EndSessions(ctx, s.UserID, ""))
	must(d.Users.ClearFactors(ctx, s.UserID))
	_, err = d.Users.List(ctx, "", 10)
	must(err)
	d.filters(s.UserID, team)
	must(d.Users.SetDisabled(ctx, s.UserID, true))
	must(d.Members.Leave(ctx, team, s.UserID))
	must(d.Users.Delete(ctx, s.UserID))
}

// filters calls the operations on the saved filters of a member.
func (d *driver) filters(userID, teamID string) {
	ctx := d.t.Context()
	by, err := d.Members.Actor(ctx, userID, teamID)
	f := savedfilters.Filter{List: savedfilters.Emails, Name: "Bounced", Query: url.Values{"status": {"bounced"}}}
	if err == nil {
		f, err = d.SavedFilters.Save(ctx, by, f)
	}
	if err == nil {
		_, err = d.SavedFilters.All(ctx, by, f.List)
	}
	if err == nil {
		_, err = d.SavedFilters.Delete(ctx, by, f.List, f.ID)
	}
	var run *exportruns.Recorder
	if err == nil {
		run, err = d.ExportRuns.Begin(ctx, by.Ref(), teamID, "emails", 1, time.Time{})
	}
	if err == nil {
		err = run.End(ctx, true)
	}
	if err == nil {
		_, err = d.ExportRuns.List(ctx, by.Ref(), teamID)
	}
	if err != nil {
		d.t.Errorf("saved filters and exports: %v", err)
	}
}
