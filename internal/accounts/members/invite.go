package members

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/page"
)

const (
	inviteFor     = 7 * 24 * time.Hour  // how long an invitation is valid after it was last sent
	inviteKept    = 30 * 24 * time.Hour // how long an invitation is kept after it expires
	maxOpen       = 50                  // limit on open invitations per team
	maxSends      = 5                   // limit on emails per invitation
	maxSentHourly = 100                 // limit on invitation emails per team per hour
)

// newToken returns a random 256-bit token and its hash.
func newToken() (token, hash string) {
	b := make([]byte, 32)
	rand.Read(b) // never fails
	token = base64.RawURLEncoding.EncodeToString(b)
	return token, keyring.HashAPIKey(token)
}

// Invite invites a person by email to join the actor's team. An open invitation to the same address is replaced.
func (s *Service) Invite(ctx context.Context, by teams.Actor, email string, role teams.Role) (Invitation, error) {
	v, _, err := s.invite(ctx, by, email, role, true)
	return v, err
}

// SendsMail reports whether Invite and Resend can send emails.
func (s *Service) SendsMail() bool { return s.Mail != nil }

// InviteLink is like Invite, but sends no email and returns the link, so that the operator can pass it on. If the
// installation cannot send invitations, members pass links on too.
func (s *Service) InviteLink(ctx context.Context, by teams.Actor, email string, role teams.Role) (Invitation, string,
	error) {
	return s.invite(ctx, by, email, role, false)
}

func (s *Service) invite(ctx context.Context, by teams.Actor, email string, role teams.Role, send bool) (Invitation,
	string, error) {
	if email = strings.TrimSpace(email); email == "" {
		return Invitation{}, "", fault.MissingField("email")
	}
	a, err := message.ParseAddress(email)
	if err != nil {
		return Invitation{}, "", fault.Invalidf("email", "Invalid `email` field: %s. Use `email@example.com`.",
			strings.TrimSuffix(err.Error(), ".")).Because(err)
	}
	if err := checkMayGrant(&by, role); err != nil {
		return Invitation{}, "", err
	}
	token, hash := newToken()
	var v Invitation
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		now := s.now()
		v = Invitation{ID: id.At(tx.Now()), TeamID: by.TeamID, Email: a.Key(), Role: role, By: by.Ref(), CreatedAt: now}
		if err := lock(ctx, tx, by.TeamID); err != nil {
			return err
		}
		switch yes, err := isMember(ctx, tx.Reader, by.TeamID, v.Email); {
		case err != nil:
			return err
		case yes:
			return fault.Invalidf("email", "There is a member of the team with this address already.")
		}
		if err := revokeFor(ctx, tx, by.TeamID, v.Email); err != nil {
			return err
		}
		switch n, err := countOpen(ctx, tx.Reader, by.TeamID, now); {
		case err != nil:
			return err
		case n >= maxOpen:
			return fault.Forbiddenf("", "This team has %d open invitations, which is the most that it can have. "+
				"Revoke some first.", maxOpen)
		}
		if err := s.send(ctx, tx, &v, token, send); err != nil {
			return err
		}
		insertInvitation(ctx, tx, &v, hash)
		s.record(ctx, tx, by, audit.MemberInvited, v.ID, v.Email+" as "+string(role))
		return nil
	})
	if err != nil {
		return Invitation{}, "", err
	}
	return v, s.Link(token), nil
}

// send counts one more invitation email and, if mail is true, queues it.
func (s *Service) send(ctx context.Context, tx *db.Tx, v *Invitation, token string, mail bool) error {
	v.SentAt = s.now()
	v.ExpiresAt = v.SentAt.Add(inviteFor)
	v.sends++
	name, suspended, err := getTeam(ctx, tx.Reader, v.TeamID)
	if err != nil {
		return err
	}
	v.TeamName = name
	if suspended && (mail || v.By.Kind != teams.SystemActor) {
		return fault.New(fault.Suspended, "", "This team is suspended. Ask the operator why.")
	}
	if !mail {
		return nil
	}
	if s.Mail == nil {
		return fault.Forbiddenf("", "This installation sends no invitations by email. Ask the operator for a "+
			"link: `postrider users invite`.")
	}
	if v.sends > maxSends {
		return fault.New(fault.TooFast, "", "This invitation was sent %d times, which is the most. Revoke it and make "+
			"another.", maxSends)
	}
	switch n, err := countSent(ctx, tx.Reader, v.TeamID, v.SentAt.Add(-time.Hour)); {
	case err != nil:
		return err
	case n >= maxSentHourly:
		return fault.New(fault.TooFast, "", "This team has sent %d invitations within an hour. Try again later.",
			maxSentHourly)
	}
	err = s.Mail(ctx, tx, v.Email, "You are invited to join "+v.TeamName, invitationText(v, s.Link(token)))
	if err != nil {
		return fmt.Errorf("send an invitation: %w", err)
	}
	return nil
}

func invitationText(v *Invitation, link string) string {
	return fmt.Sprintf(`You are invited to join the team %s as %s.

To accept, open this link and sign in with the address %s, or make an account with it:

%s

The link works once, until %s. If you did not expect this invitation, ignore it.
`, v.TeamName, article(v.Role), v.Email, link, v.ExpiresAt.Format("2 January 2006 15:04 MST"))
}

func article(r teams.Role) string {
	if r == teams.Owner || r == teams.Admin {
		return "an " + string(r)
	}
	return "a " + string(r)
}

// Invitations returns a page of a team's open invitations, newest first, including recently expired invitations.
func (s *Service) Invitations(ctx context.Context, teamID string, p page.Page) ([]Invitation, bool, error) {
	all, more, err := listInvitations(ctx, s.DB.Reader, teamID, p)
	if err != nil {
		return nil, false, err
	}
	may := map[teams.ActorRef]teams.Scopes{}
	for i := range all {
		v := &all[i]
		if _, ok := may[v.By]; !ok {
			if may[v.By], err = s.Scopes(ctx, s.DB.Reader, teamID, v.By); err != nil {
				return nil, false, err
			}
		}
		v.senderLost = !mayInvite(may[v.By], v.Role)
	}
	return all, more, nil
}

// Invitation returns the open invitation with the given token.
func (s *Service) Invitation(ctx context.Context, token string) (Invitation, error) {
	return s.open(ctx, s.DB.Reader, token)
}

// Expired reports whether an open invitation can no longer be accepted.
func (s *Service) Expired(v Invitation) bool { return v.senderLost || !s.now().Before(v.ExpiresAt) }

func (s *Service) open(ctx context.Context, r db.Reader, token string) (Invitation, error) {
	v, err := byToken(ctx, r, keyring.HashAPIKey(token))
	if err != nil {
		return Invitation{}, err
	}
	may, err := s.Scopes(ctx, r, v.TeamID, v.By)
	if err != nil {
		return Invitation{}, err
	}
	if s.Expired(v) || !mayInvite(may, v.Role) {
		return Invitation{}, goneInvitation()
	}
	return v, nil
}

func goneInvitation() error {
	return fault.NotFoundf("This invitation is not valid: it was used, taken back or replaced, or it has expired. " +
		"Ask for another one.")
}

// Revoke ends an open invitation.
func (s *Service) Revoke(ctx context.Context, by teams.Actor, invitationID string) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		v, err := getInvitation(ctx, tx.Reader, by.TeamID, invitationID)
		if err != nil {
			return err
		}
		s.record(ctx, tx, by, audit.InvitationRevoked, v.ID, v.Email)
		return endInvitation(ctx, tx, by.TeamID, v.ID, revoked)
	})
}

// Resend sends an open invitation again, with a new link. The old link stops working, and the actor becomes the sender
// of the invitation.
func (s *Service) Resend(ctx context.Context, by teams.Actor, invitationID string) (Invitation, error) {
	v, _, err := s.renew(ctx, by, invitationID, true)
	return v, err
}

// NewLink is like Resend, but sends no email and returns the new link.
func (s *Service) NewLink(ctx context.Context, by teams.Actor, invitationID string) (Invitation, string, error) {
	return s.renew(ctx, by, invitationID, false)
}

func (s *Service) renew(ctx context.Context, by teams.Actor, invitationID string, send bool) (Invitation, string,
	error) {
	token, hash := newToken()
	var v Invitation
	err := s.DB.Update(ctx, func(tx *db.Tx) (err error) {
		if err := lock(ctx, tx, by.TeamID); err != nil {
			return err
		}
		if v, err = getInvitation(ctx, tx.Reader, by.TeamID, invitationID); err != nil {
			return err
		}
		if err := checkMayGrant(&by, v.Role); err != nil {
			return err
		}
		v.By = by.Ref()
		if err := s.send(ctx, tx, &v, token, send); err != nil {
			return err
		}
		s.record(ctx, tx, by, audit.InvitationSent, v.ID, v.Email)
		return updateResent(ctx, tx, &v, hash)
	})
	if err != nil {
		return Invitation{}, "", err
	}
	return v, s.Link(token), nil
}

// Accept accepts the invitation with the given token for a user, who becomes a member of the team. The user must have
// the invited address. If the last parameter is not nil, Accept calls it in the same transaction, for example to show
// the team to the user. If the transaction is retried, the function is called again.
func (s *Service) Accept(ctx context.Context, token, userID string, then func(ctx context.Context, tx *db.Tx,
	teamID string) error) (Membership, error) {
	return s.accept(ctx, token, func(ctx context.Context, tx *db.Tx, v Invitation) (string, error) {
		if then != nil {
			return userID, then(ctx, tx, v.TeamID)
		}
		return userID, nil
	})
}

// AcceptAsNew creates a user with the invited address and makes the user a member, in one transaction. If the last
// parameter is not nil, AcceptAsNew calls it in the same transaction, for example to begin a session. If the
// transaction is retried, the function is called again. AcceptAsNew ignores the address in n.
func (s *Service) AcceptAsNew(ctx context.Context, token string, n users.NewUser, then func(ctx context.Context,
	tx *db.Tx, u users.User) error) (Membership, error) {
	v, err := s.Invitation(ctx, token)
	if err != nil {
		return Membership{}, err
	}
	n.Email = v.Email
	draft, err := s.Users.Prepare(ctx, n)
	if err != nil {
		return Membership{}, err
	}
	m, err := s.accept(ctx, token, func(ctx context.Context, tx *db.Tx, _ Invitation) (string, error) {
		u, err := s.Users.CreateIn(ctx, tx, draft)
		if err == nil && then != nil {
			err = then(ctx, tx, u)
		}
		return u.ID, err
	})
	return m, s.Users.AddressError(err)
}

// accept calls its callback to get a user, and makes that user a member of the team.
func (s *Service) accept(ctx context.Context, token string, who func(ctx context.Context, tx *db.Tx,
	v Invitation) (userID string, err error)) (m Membership, err error) {
	var refused *audit.Entry
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		refused = nil
		v, err := s.open(ctx, tx.Reader, token)
		if err != nil {
			return err
		}
		if err := lock(ctx, tx, v.TeamID); err != nil { // every change to an invitation takes this lock first
			return err
		}
		// The invitation is read again under the lock, because it may have been resent.
		if v, err = s.open(ctx, tx.Reader, token); err != nil {
			return err
		}
		userID, err := who(ctx, tx, v)
		if err != nil {
			return err
		}
		email, err := userEmail(ctx, tx.Reader, userID)
		if err != nil {
			return err
		}
		by := teams.Actor{Kind: teams.UserActor, ID: userID, Name: email, TeamID: v.TeamID}
		if email != v.Email {
			refused = &audit.Entry{TeamID: v.TeamID, ActorKind: string(by.Kind), ActorID: by.ID, ActorName: email,
				Action: audit.InvitationRefused, Target: v.ID, Detail: "sent to " + v.Email}
			return fault.Forbiddenf("email", "This invitation was sent to another address. Sign in with the address "+
				"that it was sent to.")
		}
		if err := endInvitation(ctx, tx, v.TeamID, v.ID, accepted); err != nil {
			return err
		}
		if err := s.AddIn(ctx, tx, v.TeamID, userID, v.Role); err != nil {
			return err
		}
		s.record(ctx, tx, by, audit.MemberJoined, userID, email+" as "+string(v.Role))
		m, err = get(ctx, tx.Reader, v.TeamID, userID)
		return err
	})
	if refused != nil {
		if werr := s.Audit.Write(ctx, *refused); werr != nil {
			return Membership{}, werr
		}
	}
	if err != nil {
		return Membership{}, err
	}
	return m, nil
}
