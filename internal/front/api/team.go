package api

import (
	"context"

	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/platform/page"
)

// teamWire is the actor's team. A null limit means that there is no limit.
type teamWire struct {
	Object       string      `json:"object"`
	ID           string      `json:"id"`
	Name         string      `json:"name"`
	CreatedAt    wire.DBTime `json:"created_at"`
	RateLimit    *int        `json:"rate_limit" doc:"Requests per second."`
	DailyQuota   *int64      `json:"daily_quota" doc:"Emails per UTC day, sent and received."`
	MonthlyQuota *int64      `json:"monthly_quota" doc:"Emails per UTC month, sent and received."`
}

// MemberItem is a member of a team.
type MemberItem struct {
	ID        string      `json:"id" doc:"The ID of the user."`
	Email     string      `json:"email"`
	Name      *string     `json:"name"`
	Role      string      `json:"role" enum:"owner,admin,member,viewer"`
	CreatedAt wire.DBTime `json:"created_at" doc:"When the user joined the team."`
}

type memberWire struct {
	Object string `json:"object"`
	MemberItem
}

type updateMemberIn struct {
	Role string `json:"role" enum:"owner,admin,member,viewer"`
}

type createInvitationIn struct {
	Email string `json:"email" doc:"The address that the invitation is sent to."`
	Role  string `json:"role" enum:"owner,admin,member,viewer" doc:"The role in the team. You cannot grant more rights than you have."`
}

// InvitationItem is an invitation to a team.
type InvitationItem struct {
	ID        string      `json:"id"`
	Email     string      `json:"email"`
	Role      string      `json:"role" enum:"owner,admin,member,viewer"`
	Status    string      `json:"status" enum:"pending,expired"`
	InvitedBy inviterWire `json:"invited_by"`
	CreatedAt wire.DBTime `json:"created_at"`
	SentAt    wire.DBTime `json:"sent_at" doc:"When the invitation was last sent."`
	ExpiresAt wire.DBTime `json:"expires_at"`
}

// inviterWire is the actor who sent an invitation.
type inviterWire struct {
	Type string  `json:"type" enum:"key,user,grant,system"`
	ID   *string `json:"id" doc:"Null if the actor is the system."`
}

type invitationWire struct {
	Object string `json:"object"`
	InvitationItem
}

func memberToItem(m members.Membership) MemberItem {
	return MemberItem{m.UserID, m.Email, orNull(m.Name), string(m.Role), wire.DBTime(m.CreatedAt)}
}

func (a *API) invitationToItem(v members.Invitation) InvitationItem {
	status := "pending"
	if a.Services.Members.Expired(v) {
		status = "expired"
	}
	return InvitationItem{v.ID, v.Email, string(v.Role), status, inviterWire{string(v.By.Kind), orNull(v.By.ID)},
		wire.DBTime(v.CreatedAt), wire.DBTime(v.SentAt), wire.DBTime(v.ExpiresAt)}
}

func (a *API) getTeam(ctx context.Context, c *wire.Call, _ wire.None) (teamWire, error) {
	t, err := a.Services.Teams.Get(ctx, c.TeamID)
	w := teamWire{Object: "team", ID: t.ID, Name: t.Name, CreatedAt: wire.DBTime(t.CreatedAt)}
	if n := a.TeamRateLimit(&c.Actor); n > 0 {
		w.RateLimit = &n
	}
	if t.Daily > 0 {
		w.DailyQuota = &t.Daily
	}
	if t.Monthly > 0 {
		w.MonthlyQuota = &t.Monthly
	}
	return w, err
}

func (a *API) listMembers(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[MemberItem], error) {
	p, err := c.Page(0)
	if err != nil {
		return wire.List[MemberItem]{}, err
	}
	read := func(p page.Page) ([]members.Membership, bool, error) {
		return a.Services.Members.List(ctx, c.TeamID, p)
	}
	return wire.FullList(p, read, func(m members.Membership) string { return m.UserID }, memberToItem)
}

func (a *API) updateMember(ctx context.Context, c *wire.Call, in updateMemberIn) (memberWire, error) {
	userID, err := c.ID("user_id")
	if err != nil {
		return memberWire{}, err
	}
	m, err := a.Services.Members.SetRole(ctx, c.Actor, userID, teams.Role(in.Role))
	return memberWire{"member", memberToItem(m)}, err
}

func (a *API) removeMember(ctx context.Context, c *wire.Call, _ wire.None) (gone, error) {
	userID, err := c.ID("user_id")
	if err != nil {
		return gone{}, err
	}
	return gone{"member", userID, true}, a.Services.Members.Remove(ctx, c.Actor, userID)
}

func (a *API) createInvitation(ctx context.Context, c *wire.Call, in createInvitationIn) (invitationWire, error) {
	v, err := a.Services.Members.Invite(ctx, c.Actor, in.Email, teams.Role(in.Role))
	return invitationWire{"invitation", a.invitationToItem(v)}, err
}

func (a *API) listInvitations(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[InvitationItem], error) {
	p, err := c.Page(0)
	if err != nil {
		return wire.List[InvitationItem]{}, err
	}
	read := func(p page.Page) ([]members.Invitation, bool, error) {
		return a.Services.Members.Invitations(ctx, c.TeamID, p)
	}
	return wire.FullList(p, read, func(v members.Invitation) string { return v.ID }, a.invitationToItem)
}

func (a *API) resendInvitation(ctx context.Context, c *wire.Call, _ wire.None) (invitationWire, error) {
	invitationID, err := c.ID("invitation_id")
	if err != nil {
		return invitationWire{}, err
	}
	v, err := a.Services.Members.Resend(ctx, c.Actor, invitationID)
	return invitationWire{"invitation", a.invitationToItem(v)}, err
}

func (a *API) revokeInvitation(ctx context.Context, c *wire.Call, _ wire.None) (gone, error) {
	invitationID, err := c.ID("invitation_id")
	if err != nil {
		return gone{}, err
	}
	return gone{"invitation", invitationID, true}, a.Services.Members.Revoke(ctx, c.Actor, invitationID)
}
