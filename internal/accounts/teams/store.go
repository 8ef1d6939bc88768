package teams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

// Exist reports whether the installation has a team, or one whose data is still being deleted.
func Exist(ctx context.Context, r db.Reader) (bool, error) {
	var teamID db.ID
	err := r.QueryRow(ctx, `SELECT id FROM teams ORDER BY id LIMIT 1`).Scan(&teamID)
	if errors.Is(err, db.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for teams: %w", err)
	}
	return true, nil
}

func insertTeam(ctx context.Context, tx *db.Tx, t *Team, short uint32) {
	tx.Proof(`SELECT 1 FROM teams WHERE id = $1`, db.ID(t.ID))
	tx.Queue(ctx, `INSERT INTO teams (id, short_id, name, email, rate_limit, suspended, created_at, daily_quota,
		monthly_quota) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`, db.ID(t.ID), int64(short), t.Name, t.Email,
		t.RateLimit, t.Suspended, t.CreatedAt.UnixMicro(), t.Daily, t.Monthly)
}

func shortIDOf(ctx context.Context, r db.Reader, teamID string) (uint32, error) {
	var short int64
	err := r.QueryRow(ctx, `SELECT short_id FROM teams WHERE id = $1`, db.ID(teamID)).Scan(&short)
	return uint32(short), missingTeam(err)
}

func teamOfShortID(ctx context.Context, r db.Reader, short uint32) (teamID string, err error) {
	err = r.QueryRow(ctx, `SELECT id FROM teams WHERE short_id = $1`, int64(short)).Scan((*db.ID)(&teamID))
	return teamID, missingTeam(err)
}

// missingTeam returns the error of a statement that reads one team.
func missingTeam(err error) error {
	if errors.Is(err, db.ErrNoRows) {
		return fault.NotFoundf("Team not found")
	}
	if err != nil {
		return fmt.Errorf("read team: %w", err)
	}
	return nil
}

const teamColumns = `id, name, email, rate_limit, suspended, created_at, daily_quota, monthly_quota`

func scanTeam(r db.Row) (t Team, err error) {
	var created int64
	err = r.Scan((*db.ID)(&t.ID), &t.Name, &t.Email, &t.RateLimit, &t.Suspended, &created, &t.Daily, &t.Monthly)
	t.CreatedAt = db.Time(created)
	return t, missingTeam(err)
}

func getTeam(ctx context.Context, r db.Reader, teamID string) (Team, error) {
	return scanTeam(r.QueryRow(ctx, `SELECT `+teamColumns+` FROM teams WHERE id = $1 AND deleted_at = 0`, db.ID(teamID)))
}

// lockTeam returns a team and locks its row until the transaction ends. The locking clause is not used on SQLite, where
// only one transaction writes at a time.
func lockTeam(ctx context.Context, tx *db.Tx, teamID, clause string) (Team, error) {
	text := `SELECT ` + teamColumns + ` FROM teams WHERE id = $1 AND deleted_at = 0 `
	if !tx.OneWriter() {
		text += clause
	}
	return scanTeam(tx.QueryRow(ctx, text, db.ID(teamID)))
}

func oldestTeam(ctx context.Context, r db.Reader) (Team, error) {
	return scanTeam(r.QueryRow(ctx, `SELECT `+teamColumns+` FROM teams WHERE deleted_at = 0 ORDER BY id LIMIT 1`))
}

// teamsNamed returns up to limit teams with the given name, oldest first. Team names have no index, because only the
// operator looks up teams by name.
func teamsNamed(ctx context.Context, r db.Reader, name string, limit int) ([]Team, error) {
	rows, err := r.Query(ctx, `SELECT `+teamColumns+` FROM teams WHERE name = $1 AND deleted_at = 0 ORDER BY id LIMIT $2`,
		name, limit)
	return db.Collect(rows, err, scanTeam)
}

func listTeams(ctx context.Context, r db.Reader, after string, limit int) ([]Team, error) {
	rows, err := r.Query(ctx, `SELECT `+teamColumns+` FROM teams WHERE id > $1 AND deleted_at = 0 ORDER BY id LIMIT $2`,
		db.OrNoID(after), limit)
	return db.Collect(rows, err, scanTeam)
}

// setTeam writes only one column of a team, so that concurrent changes to other columns are not undone.
func setTeam(ctx context.Context, tx *db.Tx, teamID, column string, value any) error {
	n, err := tx.Exec(ctx, `UPDATE teams SET `+column+` = $2 WHERE id = $1 AND deleted_at = 0`, db.ID(teamID), value)
	if err == nil && n == 0 {
		err = fault.NotFoundf("Team not found")
	}
	return err
}

const retentionColumns = `id, short_id, email_retention, body_retention, received_retention, event_retention`

func scanRetention(r db.Row) (k TeamRetention, err error) {
	var us [4]int64
	err = r.Scan((*db.ID)(&k.TeamID), &k.Short, &us[0], &us[1], &us[2], &us[3])
	for i, f := range retentionFields {
		*f.of(&k.Retention) = time.Duration(us[i]) * time.Microsecond
	}
	return k, err
}

func getRetention(ctx context.Context, r db.Reader, teamID string) (Retention, error) {
	k, err := scanRetention(r.QueryRow(ctx, `SELECT `+retentionColumns+` FROM teams WHERE id = $1 AND deleted_at = 0`,
		db.ID(teamID)))
	if errors.Is(err, db.ErrNoRows) {
		return Retention{}, fault.NotFoundf("Team not found")
	}
	if err != nil {
		return Retention{}, fmt.Errorf("read for how long team %s keeps what it has: %w", teamID, err)
	}
	return k.Retention, nil
}

// emailRetentions reads two entries of an index.
func emailRetentions(ctx context.Context, r db.Reader) (shortest, longest time.Duration, err error) {
	var least, most int64
	err = r.QueryRow(ctx, `SELECT
		COALESCE((SELECT email_retention FROM teams WHERE deleted_at = 0 ORDER BY email_retention LIMIT 1), 0),
		COALESCE((SELECT email_retention FROM teams WHERE deleted_at = 0 ORDER BY email_retention DESC LIMIT 1), 0)`).
		Scan(&least, &most)
	return time.Duration(least) * time.Microsecond, time.Duration(most) * time.Microsecond, err
}

func rangeRetentions(ctx context.Context, r db.Reader, after, last int64, limit int) ([]TeamRetention, error) {
	rows, err := r.Query(ctx, `SELECT `+retentionColumns+` FROM teams WHERE short_id > $1 AND short_id <= $2
		AND deleted_at = 0 ORDER BY short_id LIMIT $3`, after, last, limit)
	return db.Collect(rows, err, scanRetention)
}

// markDeleted marks a team as deleted. The team's keys need no change, because looking up a key also checks its team.
func markDeleted(ctx context.Context, tx *db.Tx, teamID string) error {
	n, err := tx.Exec(ctx, `UPDATE teams SET deleted_at = $2 WHERE id = $1 AND deleted_at = 0`, db.ID(teamID),
		tx.Now().UnixMicro())
	if err == nil && n == 0 {
		err = fault.NotFoundf("Team not found")
	}
	return err
}

// deletedAt returns when a team was deleted, or the zero time if it has not been deleted. The result found is false if
// the team has no row.
func deletedAt(ctx context.Context, r db.Reader, teamID string) (at time.Time, found bool, err error) {
	var us int64
	err = r.QueryRow(ctx, `SELECT deleted_at FROM teams WHERE id = $1`, db.ID(teamID)).Scan(&us)
	if errors.Is(err, db.ErrNoRows) {
		return time.Time{}, false, nil
	}
	return db.Time(us), err == nil, err
}

func deleteKeys(ctx context.Context, tx *db.Tx, teamID string, limit int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM api_keys WHERE id IN (SELECT id FROM api_keys WHERE team_id = $1 ORDER BY id
		LIMIT $2)`, db.ID(teamID), limit)
}

func removeTeam(ctx context.Context, tx *db.Tx, teamID string) {
	tx.Queue(ctx, `DELETE FROM teams WHERE id = $1 AND deleted_at <> 0`, db.ID(teamID))
}

func insertKey(ctx context.Context, tx *db.Tx, k *Key, hash string) {
	tx.Proof(`SELECT 1 FROM api_keys WHERE id = $1`, db.ID(k.ID))
	tx.Queue(ctx, `INSERT INTO api_keys (id, team_id, name, hash, prefix, permission, domain_id, created_at, last_used_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0)`, db.ID(k.ID), db.ID(k.TeamID), k.Name, hash, k.Hint,
		string(k.Permission), db.ID(k.DomainID), k.CreatedAt.UnixMicro())
}

const selectKeys = `SELECT id, team_id, name, prefix, permission, domain_id, created_at, last_used_at FROM api_keys
	WHERE team_id = $1`

func scanKey(r db.Row) (k Key, err error) {
	var permission string
	var created, used int64
	err = r.Scan((*db.ID)(&k.ID), (*db.ID)(&k.TeamID), &k.Name, &k.Hint, &permission, (*db.ID)(&k.DomainID), &created,
		&used)
	k.Permission, k.CreatedAt, k.LastUsedAt = Permission(permission), db.Time(created), db.Time(used)
	return k, err
}

func listKeys(ctx context.Context, r db.Reader, teamID string, p page.Page) ([]Key, bool, error) {
	return page.Query(ctx, r, page.Select{Text: selectKeys, ID: "id", Args: []any{db.ID(teamID)}}, p, scanKey)
}

func getKey(ctx context.Context, r db.Reader, teamID, keyID string) (Key, error) {
	if !id.Valid(keyID) {
		return Key{}, found(0, nil)
	}
	k, err := scanKey(r.QueryRow(ctx, selectKeys+` AND id = $2`, db.ID(teamID), db.ID(keyID)))
	if errors.Is(err, db.ErrNoRows) {
		return k, found(0, nil)
	}
	return k, err
}

func renameKey(ctx context.Context, tx *db.Tx, teamID, keyID, name string) error {
	n, err := tx.Exec(ctx, `UPDATE api_keys SET name = $3 WHERE id = $1 AND team_id = $2`, db.ID(keyID), db.ID(teamID),
		name)
	return found(n, err)
}

func deleteKey(ctx context.Context, tx *db.Tx, teamID, keyID string) error {
	if !id.Valid(keyID) {
		return found(0, nil)
	}
	n, err := tx.Exec(ctx, `DELETE FROM api_keys WHERE id = $1 AND team_id = $2`, db.ID(keyID), db.ID(teamID))
	return found(n, err)
}

func found(n int64, err error) error {
	if err == nil && n == 0 {
		return fault.NotFoundf("API key not found")
	}
	return err
}

func keyExists(ctx context.Context, r db.Reader, teamID, keyID string) (ok bool, err error) {
	err = r.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM api_keys k JOIN teams t ON t.id = k.team_id
		WHERE k.id = $1 AND k.team_id = $2 AND t.deleted_at = 0)`, db.ID(keyID), db.ID(teamID)).Scan(&ok)
	return ok, err
}

func keyScopes(ctx context.Context, r db.Reader, teamID, keyID string) (Scopes, error) {
	var permission string
	err := r.QueryRow(ctx, `SELECT k.permission FROM api_keys k JOIN teams t ON t.id = k.team_id
		WHERE k.id = $1 AND k.team_id = $2 AND t.deleted_at = 0`, db.ID(keyID), db.ID(teamID)).Scan(&permission)
	if errors.Is(err, db.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the permission of a key: %w", err)
	}
	return Permission(permission).Scopes(), nil
}

// setLastUsed never replaces a time of last use with an earlier time, because nodes write these times in no particular
// order.
func setLastUsed(ctx context.Context, tx *db.Tx, teamID, keyID string, at time.Time) {
	tx.Queue(ctx, `UPDATE api_keys SET last_used_at = $3 WHERE id = $1 AND team_id = $2 AND last_used_at < $3`,
		db.ID(keyID), db.ID(teamID), at.UnixMicro())
}

const keyActors = `SELECT k.id, k.name, k.team_id, k.permission, k.domain_id, t.rate_limit, t.suspended
	FROM api_keys k JOIN teams t ON t.id = k.team_id WHERE t.deleted_at = 0 AND `

// keyActor looks up a key by the hash of its token. Unlike other queries, the query in keyActor has no condition on the
// team id, because the token determines the team.
func keyActor(ctx context.Context, r db.Reader, hash string) (Actor, error) {
	return scanKeyActor(r.QueryRow(ctx, keyActors+`k.hash = $1`, hash))
}

func keyActorOf(ctx context.Context, r db.Reader, teamID, keyID string) (Actor, error) {
	return scanKeyActor(r.QueryRow(ctx, keyActors+`k.id = $1 AND k.team_id = $2`, db.ID(keyID), db.ID(teamID)))
}

func scanKeyActor(r db.Row) (a Actor, err error) {
	var permission string
	err = r.Scan((*db.ID)(&a.ID), &a.Name, (*db.ID)(&a.TeamID), &permission, (*db.ID)(&a.DomainID), &a.RateLimit,
		&a.Suspended)
	a.Kind, a.Scopes = KeyActor, Permission(permission).Scopes()
	return a, err
}
