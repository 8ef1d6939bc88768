package members

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

// lock serializes changes to a team's members and invitations.
func lock(ctx context.Context, tx *db.Tx, teamID string) error {
	return tx.Serialize(ctx, "members "+teamID)
}

func actor(ctx context.Context, r db.Reader, userID, teamID string) (a teams.Actor, err error) {
	a = teams.Actor{Kind: teams.UserActor, ID: userID, TeamID: teamID}
	var role string
	err = r.QueryRow(ctx, `SELECT m.role, u.email, t.rate_limit, t.suspended FROM memberships m
		JOIN teams t ON t.id = m.team_id JOIN users u ON u.id = m.user_id
		WHERE m.team_id = $1 AND m.user_id = $2 AND t.deleted_at = 0 AND NOT u.disabled`, db.ID(teamID),
		db.ID(userID)).Scan(&role, &a.Name, &a.RateLimit, &a.Suspended)
	a.Scopes = teams.Role(role).Scopes()
	return a, err
}

const membershipColumns = `m.team_id, t.name, m.user_id, u.email, u.name, m.role, m.created_at`

const membershipTables = `memberships m JOIN teams t ON t.id = m.team_id JOIN users u ON u.id = m.user_id`

func scanMembership(r db.Row) (m Membership, err error) {
	var role string
	var created int64
	err = r.Scan((*db.ID)(&m.TeamID), &m.TeamName, (*db.ID)(&m.UserID), &m.Email, &m.Name, &role, &created)
	m.Role, m.CreatedAt = teams.Role(role), db.Time(created)
	return m, err
}

func get(ctx context.Context, r db.Reader, teamID, userID string) (Membership, error) {
	m, err := scanMembership(r.QueryRow(ctx, `SELECT `+membershipColumns+` FROM `+membershipTables+`
		WHERE m.team_id = $1 AND m.user_id = $2 AND t.deleted_at = 0`, db.ID(teamID), db.ID(userID)))
	if errors.Is(err, db.ErrNoRows) {
		return m, fault.NotFoundf("Member not found")
	}
	if err != nil {
		return m, fmt.Errorf("read a member: %w", err)
	}
	return m, nil
}

func teamsOf(ctx context.Context, r db.Reader, userID string) ([]Membership, error) {
	rows, err := r.Query(ctx, `SELECT `+membershipColumns+` FROM `+membershipTables+`
		WHERE m.user_id = $1 AND t.deleted_at = 0 ORDER BY t.name, m.team_id LIMIT $2`, db.ID(userID), maxTeams)
	all, err := db.Collect(rows, err, scanMembership)
	if err != nil {
		return nil, fmt.Errorf("list the teams of a user: %w", err)
	}
	return all, nil
}

func list(ctx context.Context, r db.Reader, teamID string, p page.Page) ([]Membership, bool, error) {
	return page.Query(ctx, r, page.Select{Text: `SELECT ` + membershipColumns + ` FROM ` + membershipTables + `
		WHERE m.team_id = $1`, ID: "m.user_id", Args: []any{db.ID(teamID)}}, p, scanMembership)
}

func count(ctx context.Context, r db.Reader, teamID string) (n int, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM memberships WHERE team_id = $1`, db.ID(teamID)).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count members: %w", err)
	}
	return n, nil
}

func insert(ctx context.Context, tx *db.Tx, teamID, userID string, role teams.Role) (bool, error) {
	n, err := tx.Exec(ctx, `INSERT INTO memberships (team_id, user_id, role, created_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (team_id, user_id) DO NOTHING`, db.ID(teamID), db.ID(userID), string(role), tx.Now().UnixMicro())
	return n > 0, err
}

// otherOwner reports whether, apart from the given user, the team has an owner who is not disabled.
func otherOwner(ctx context.Context, r db.Reader, teamID, userID string) (yes bool, err error) {
	err = r.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM memberships m JOIN users u ON u.id = m.user_id
		WHERE m.team_id = $1 AND m.user_id <> $2 AND m.role = $3 AND NOT u.disabled)`,
		db.ID(teamID), db.ID(userID), string(teams.Owner)).Scan(&yes)
	if err != nil {
		return false, fmt.Errorf("look for another owner: %w", err)
	}
	return yes, nil
}

func setRole(ctx context.Context, tx *db.Tx, teamID, userID string, role teams.Role) error {
	n, err := tx.Exec(ctx, `UPDATE memberships SET role = $3 WHERE team_id = $1 AND user_id = $2`, db.ID(teamID),
		db.ID(userID), string(role))
	return requireRow(n, err)
}

func remove(ctx context.Context, tx *db.Tx, teamID, userID string) error {
	n, err := tx.Exec(ctx, `DELETE FROM memberships WHERE team_id = $1 AND user_id = $2`, db.ID(teamID), db.ID(userID))
	return requireRow(n, err)
}

func requireRow(n int64, err error) error {
	if err == nil && n == 0 {
		return fault.NotFoundf("Member not found")
	}
	return err
}

func getTeam(ctx context.Context, r db.Reader, teamID string) (name string, suspended bool, err error) {
	err = r.QueryRow(ctx, `SELECT name, suspended FROM teams WHERE id = $1 AND deleted_at = 0`, db.ID(teamID)).
		Scan(&name, &suspended)
	if errors.Is(err, db.ErrNoRows) {
		return "", false, fault.NotFoundf("Team not found")
	}
	if err != nil {
		return "", false, fmt.Errorf("read the name of a team: %w", err)
	}
	return name, suspended, nil
}

func userEmail(ctx context.Context, r db.Reader, userID string) (email string, err error) {
	err = r.QueryRow(ctx, `SELECT email FROM users WHERE id = $1 AND NOT disabled`, db.ID(userID)).Scan(&email)
	if errors.Is(err, db.ErrNoRows) {
		return "", fault.NotFoundf("User not found")
	}
	if err != nil {
		return "", fmt.Errorf("read the address of a user: %w", err)
	}
	return email, nil
}

func isMember(ctx context.Context, r db.Reader, teamID, email string) (yes bool, err error) {
	err = r.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM memberships WHERE team_id = $1
		AND user_id = (SELECT id FROM users WHERE email = $2))`, db.ID(teamID), email).Scan(&yes)
	if err != nil {
		return false, fmt.Errorf("look for a member by the address: %w", err)
	}
	return yes, nil
}

// States of invitations.
const (
	open     = "open"
	accepted = "accepted"
	revoked  = "revoked"
)

const invitationColumns = `i.id, i.team_id, t.name, i.email, i.role, i.actor_kind, i.actor_id, i.sends, i.created_at,
	i.sent_at, i.expires_at`

const invitationTables = `invitations i JOIN teams t ON t.id = i.team_id`

func scanInvitation(r db.Row) (v Invitation, err error) {
	var role, kind string
	var created, sent, expires int64
	err = r.Scan((*db.ID)(&v.ID), (*db.ID)(&v.TeamID), &v.TeamName, &v.Email, &role, &kind, (*db.ID)(&v.By.ID), &v.sends,
		&created, &sent, &expires)
	v.Role, v.By.Kind = teams.Role(role), teams.ActorKind(kind)
	v.CreatedAt, v.SentAt, v.ExpiresAt = db.Time(created), db.Time(sent), db.Time(expires)
	return v, err
}

func insertInvitation(ctx context.Context, tx *db.Tx, v *Invitation, hash string) {
	tx.Proof(`SELECT 1 FROM invitations WHERE id = $1`, db.ID(v.ID))
	tx.Queue(ctx, `INSERT INTO invitations (id, team_id, email, role, token_hash, state, actor_kind, actor_id, sends,
		created_at, sent_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`, db.ID(v.ID),
		db.ID(v.TeamID), v.Email, string(v.Role), hash, open, string(v.By.Kind), db.ID(v.By.ID), v.sends,
		v.CreatedAt.UnixMicro(), v.SentAt.UnixMicro(), v.ExpiresAt.UnixMicro())
}

// byToken looks up an open invitation by the hash of its token. The token also determines the team, so the query does
// not need the team's id.
func byToken(ctx context.Context, r db.Reader, hash string) (Invitation, error) {
	v, err := scanInvitation(r.QueryRow(ctx, `SELECT `+invitationColumns+` FROM `+invitationTables+`
		WHERE i.token_hash = $1 AND i.state = $2 AND t.deleted_at = 0`, hash, open))
	if errors.Is(err, db.ErrNoRows) {
		return v, goneInvitation()
	}
	if err != nil {
		return v, fmt.Errorf("look up an invitation: %w", err)
	}
	return v, nil
}

func getInvitation(ctx context.Context, r db.Reader, teamID, invitationID string) (Invitation, error) {
	v, err := scanInvitation(r.QueryRow(ctx, `SELECT `+invitationColumns+` FROM `+invitationTables+`
		WHERE i.team_id = $1 AND i.id = $2 AND i.state = $3`, db.ID(teamID), db.ID(invitationID), open))
	if errors.Is(err, db.ErrNoRows) {
		return v, fault.NotFoundf("Invitation not found")
	}
	if err != nil {
		return v, fmt.Errorf("read an invitation: %w", err)
	}
	return v, nil
}

func listInvitations(ctx context.Context, r db.Reader, teamID string, p page.Page) ([]Invitation, bool, error) {
	return page.Query(ctx, r, page.Select{Text: `SELECT ` + invitationColumns + ` FROM ` + invitationTables + `
		WHERE i.team_id = $1 AND i.state = $2`, ID: "i.id", Args: []any{db.ID(teamID), open}}, p,
		scanInvitation)
}

// countOpen returns the number of a team's invitations that can still be accepted.
func countOpen(ctx context.Context, r db.Reader, teamID string, now time.Time) (n int, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM invitations WHERE team_id = $1 AND sent_at > $2 AND state = $3`,
		db.ID(teamID), now.Add(-inviteFor).UnixMicro(), open).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count open invitations: %w", err)
	}
	return n, nil
}

// countSent returns an upper bound on the number of invitation emails that a team has sent since the given time. If an
// invitation's last email was sent after that time, all emails for that invitation count.
func countSent(ctx context.Context, r db.Reader, teamID string, since time.Time) (n int64, err error) {
	err = r.QueryRow(ctx, `SELECT CAST(COALESCE(SUM(sends), 0) AS BIGINT) FROM invitations
		WHERE team_id = $1 AND sent_at > $2`, db.ID(teamID), since.UnixMicro()).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count sent invitations: %w", err)
	}
	return n, nil
}

func revokeFor(ctx context.Context, tx *db.Tx, teamID, email string) error {
	_, err := tx.Exec(ctx, `UPDATE invitations SET state = $3 WHERE team_id = $1 AND email = $2 AND state = 'open'`,
		db.ID(teamID), email, revoked)
	return err
}

// revokeOf revokes the open invitations to the given roles that a user has sent, and returns their ids and addresses.
func revokeOf(ctx context.Context, tx *db.Tx, teamID, userID string, roles []string) ([]Invitation, error) {
	rows, err := tx.Query(ctx, `UPDATE invitations SET state = $4 WHERE team_id = $1 AND state = $5
		AND actor_kind = $6 AND actor_id = $2 AND role = ANY($3) RETURNING id, email`, db.ID(teamID), db.ID(userID), roles,
		revoked, open, string(teams.UserActor))
	all, err := db.Collect(rows, err, func(r db.Row) (v Invitation, err error) {
		err = r.Scan((*db.ID)(&v.ID), &v.Email)
		return v, err
	})
	if err != nil {
		return nil, fmt.Errorf("revoke the invitations of a member: %w", err)
	}
	return all, nil
}

func endInvitation(ctx context.Context, tx *db.Tx, teamID, invitationID, state string) error {
	n, err := tx.Exec(ctx, `UPDATE invitations SET state = $3 WHERE team_id = $1 AND id = $2 AND state = $4`,
		db.ID(teamID), db.ID(invitationID), state, open)
	if err == nil && n == 0 {
		return goneInvitation()
	}
	return err
}

func updateResent(ctx context.Context, tx *db.Tx, v *Invitation, hash string) error {
	n, err := tx.Exec(ctx, `UPDATE invitations SET token_hash = $3, sends = $4, sent_at = $5, expires_at = $6,
		actor_kind = $8, actor_id = $9 WHERE team_id = $1 AND id = $2 AND state = $7`, db.ID(v.TeamID), db.ID(v.ID), hash,
		v.sends, v.SentAt.UnixMicro(), v.ExpiresAt.UnixMicro(), open, string(v.By.Kind), db.ID(v.By.ID))
	if err == nil && n == 0 {
		return goneInvitation()
	}
	return err
}

// deleteExpired deletes a batch of invitations, across all teams, that expired before the given time.
func deleteExpired(ctx context.Context, tx *db.Tx, before time.Time, limit int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM invitations WHERE expires_at <= (SELECT MAX(expires_at) FROM
		(SELECT expires_at FROM invitations WHERE expires_at < $1 ORDER BY expires_at LIMIT $2) x)`,
		before.UnixMicro(), limit)
}

func deleteInvitations(ctx context.Context, tx *db.Tx, teamID string, limit int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM invitations WHERE id IN (SELECT id FROM invitations WHERE team_id = $1
		ORDER BY sent_at LIMIT $2)`, db.ID(teamID), limit)
}

func deleteMemberships(ctx context.Context, tx *db.Tx, teamID string, limit int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM memberships WHERE team_id = $1 AND user_id IN (SELECT user_id FROM memberships
		WHERE team_id = $1 ORDER BY user_id LIMIT $2)`, db.ID(teamID), limit)
}
