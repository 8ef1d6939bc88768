package users

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

const sessionColumns = `s.id, s.user_id, s.last_team, s.address, s.user_agent, s.created_at, s.used_at, s.proved_at`

func (x *Session) fields(created, used, proved *int64) []any {
	return []any{(*db.ID)(&x.ID), (*db.ID)(&x.UserID), (*db.ID)(&x.TeamID), &x.Address, &x.UserAgent, created, used,
		proved}
}

func (x *Session) times(created, used, proved int64) {
	x.CreatedAt, x.UsedAt, x.ProvedAt = db.Time(created), db.Time(used), db.Time(proved)
	x.ExpiresAt = x.expires()
}

func insertSession(ctx context.Context, tx *db.Tx, x *Session, hash string) {
	tx.Proof(`SELECT 1 FROM user_sessions WHERE id = $1`, db.ID(x.ID))
	tx.Queue(ctx, `INSERT INTO user_sessions (id, user_id, hash, last_team, address, user_agent, created_at, used_at,
		proved_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`, db.ID(x.ID), db.ID(x.UserID), hash, db.ID(x.TeamID),
		x.Address, x.UserAgent, db.Micros(x.CreatedAt), db.Micros(x.UsedAt), db.Micros(x.ProvedAt))
}

// findSession returns the session with the given token hash, and the session's user.
func findSession(ctx context.Context, r db.Reader, hash string) (x Session, u User, err error) {
	var created, used, proved, userCreated, signedIn int64
	err = r.QueryRow(ctx, `SELECT `+sessionColumns+`, u.email, u.name, u.disabled, u.password <> '',
		LENGTH(u.totp_secret) > 0, u.created_at, u.last_sign_in_at
		FROM user_sessions s JOIN users u ON u.id = s.user_id WHERE s.hash = $1`, hash).
		Scan(append(x.fields(&created, &used, &proved), &u.Email, &u.Name, &u.Disabled, &u.HasPassword, &u.HasTOTP,
			&userCreated, &signedIn)...)
	x.times(created, used, proved)
	u.ID, u.CreatedAt, u.LastSignInAt = x.UserID, db.Time(userCreated), db.Time(signedIn)
	return x, u, err
}

func listSessions(ctx context.Context, r db.Reader, userID string) ([]Session, error) {
	rows, err := r.Query(ctx, `SELECT `+sessionColumns+` FROM user_sessions s WHERE s.user_id = $1
		ORDER BY s.id DESC LIMIT $2`, db.ID(userID), 2*sessionsMax)
	return db.Collect(rows, err, func(r db.Row) (x Session, err error) {
		var created, used, proved int64
		err = r.Scan(x.fields(&created, &used, &proved)...)
		x.times(created, used, proved)
		return x, err
	})
}

// lastTeam returns the id of the team that was viewed last in the user's newest session, or "" if there is none.
func lastTeam(ctx context.Context, r db.Reader, userID string) (teamID string, err error) {
	err = r.QueryRow(ctx, `SELECT last_team FROM user_sessions WHERE user_id = $1 ORDER BY id DESC LIMIT 1`,
		db.ID(userID)).Scan((*db.ID)(&teamID))
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return "", fmt.Errorf("look up the last team of a user: %w", err)
	}
	return teamID, nil
}

// trimSessions ends the oldest sessions of a user so that at most keep sessions remain, and reports whether it ended
// any session.
func trimSessions(ctx context.Context, tx *db.Tx, userID string, keep int) (bool, error) {
	var oldest db.ID
	err := tx.QueryRow(ctx, `SELECT id FROM user_sessions WHERE user_id = $1 ORDER BY id DESC LIMIT 1 OFFSET $2`,
		db.ID(userID), keep).Scan(&oldest)
	if errors.Is(err, db.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for old sessions: %w", err)
	}
	tx.Queue(ctx, `DELETE FROM user_sessions WHERE user_id = $1 AND id <= $2`, db.ID(userID), oldest)
	return true, nil
}

func deleteSessions(ctx context.Context, tx *db.Tx, userID, except string) {
	tx.Queue(ctx, `DELETE FROM user_sessions WHERE user_id = $1 AND id <> $2`, db.ID(userID),
		db.OrNoID(except))
}

// clean converts an untrusted string into valid UTF-8 without control characters. PostgreSQL would reject invalid UTF-8
// and NUL characters.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
}

// setUsed stores a session's time of last use, unless a later time is already stored.
func setUsed(ctx context.Context, tx *db.Tx, sessionID string, at time.Time) {
	tx.Queue(ctx, `UPDATE user_sessions SET used_at = $2 WHERE id = $1 AND used_at < $2`, db.ID(sessionID),
		db.Micros(at))
}

// setProved stores the time at which a session's user last proved their identity. The transaction fails if the session
// does not exist.
func setProved(ctx context.Context, tx *db.Tx, sessionID, userID string, at time.Time) {
	tx.QueueOne(ctx, errNoSession, `UPDATE user_sessions SET proved_at = $3 WHERE id = $1 AND user_id = $2`,
		db.ID(sessionID), db.ID(userID), db.Micros(at))
}

// setTeam stores which team is viewed in a session, and returns the id of the session's user.
func setTeam(ctx context.Context, tx *db.Tx, sessionID, teamID string) (userID string, err error) {
	err = tx.QueryRow(ctx, `UPDATE user_sessions SET last_team = $2 WHERE id = $1 RETURNING user_id`,
		db.ID(sessionID), db.ID(teamID)).Scan((*db.ID)(&userID))
	if errors.Is(err, db.ErrNoRows) {
		return "", errNoSession
	}
	if err != nil {
		return "", fmt.Errorf("set the team of a session: %w", err)
	}
	return userID, nil
}

func deleteSession(ctx context.Context, tx *db.Tx, userID, sessionID string) error {
	n, err := tx.Exec(ctx, `DELETE FROM user_sessions WHERE id = $1 AND user_id = $2`, db.ID(sessionID),
		db.ID(userID))
	if err != nil {
		return fmt.Errorf("end session: %w", err)
	}
	if n == 0 {
		return fault.NotFoundf("Session not found")
	}
	return nil
}

func deleteOldSessions(ctx context.Context, tx *db.Tx, before time.Time, most int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM user_sessions WHERE used_at <= (SELECT MAX(used_at) FROM
		(SELECT used_at FROM user_sessions WHERE used_at < $1 ORDER BY used_at LIMIT $2) x)`, db.Micros(before), most)
}
