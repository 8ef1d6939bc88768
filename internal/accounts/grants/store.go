package grants

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

const grantColumns = `g.id, g.team_id, g.user_id, g.key_id, g.client_id, c.name, c.logo_uri, g.scope, g.resource,
	g.created_at, g.used_at, g.expires_at, g.revoked_at, g.revoked_reason, g.recipients_per_email, g.emails_a_day,
	g.approval, g.daily_since`

func scanGrant(r db.Row) (g Grant, err error) {
	var scope, reason string
	var created, used, expires, revoked, since int64
	err = r.Scan((*db.ID)(&g.ID), (*db.ID)(&g.TeamID), (*db.ID)(&g.UserID), (*db.ID)(&g.KeyID), (*db.ID)(&g.ClientID),
		&g.ClientName, &g.LogoURI, &scope, &g.Resource, &created, &used, &expires, &revoked, &reason, &g.Limits.Recipients,
		&g.Limits.Emails, &g.Limits.Approval, &since)
	g.dailySince = db.Time(since)
	g.Scopes, g.RevokedReason = storedScopes(scope), Reason(reason)
	g.CreatedAt, g.UsedAt, g.ExpiresAt, g.RevokedAt = db.Time(created), db.Time(used), db.Time(expires),
		db.Time(revoked)
	return g, err
}

func getGrant(ctx context.Context, r db.Reader, teamID, grantID string) (Grant, error) {
	g, err := scanGrant(r.QueryRow(ctx, `SELECT `+grantColumns+` FROM oauth_grants g JOIN oauth_clients c
		ON c.id = g.client_id WHERE g.id = $1 AND g.team_id = $2`, db.ID(grantID), db.ID(teamID)))
	if errors.Is(err, db.ErrNoRows) {
		return g, fault.NotFoundf("OAuth grant not found")
	}
	if err != nil {
		return g, fmt.Errorf("read grant: %w", err)
	}
	return g, nil
}

func listGrants(ctx context.Context, r db.Reader, teamID string, p page.Page) ([]Grant, bool, error) {
	return page.Query(ctx, r, page.Select{Text: `SELECT ` + grantColumns + ` FROM oauth_grants g JOIN oauth_clients c
		ON c.id = g.client_id WHERE g.team_id = $1`, ID: "g.id", Args: []any{db.ID(teamID)}}, p, scanGrant)
}

// countActive counts a team's active grants, up to the given maximum.
func countActive(ctx context.Context, r db.Reader, teamID string, most int) (n int, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM (SELECT id FROM oauth_grants WHERE team_id = $1
		AND revoked_reason = '' LIMIT $2) active`, db.ID(teamID), most).Scan(&n)
	return n, err
}

func insertGrant(ctx context.Context, tx *db.Tx, g *Grant) {
	tx.Proof(`SELECT 1 FROM oauth_grants WHERE id = $1`, db.ID(g.ID))
	tx.Queue(ctx, `INSERT INTO oauth_grants (id, team_id, user_id, client_id, scope, resource, created_at, used_at,
		expires_at, generation, retried, rotated_at, revoked_at, revoked_reason, recipients_per_email, emails_a_day,
		approval, key_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8, 1, 0, 0, 0, '', $9, $10, $11, $12)`, db.ID(g.ID), db.ID(g.TeamID),
		db.ID(g.UserID), db.ID(g.ClientID), g.Scopes.String(), g.Resource, g.CreatedAt.UnixMicro(), g.ExpiresAt.UnixMicro(),
		g.Limits.Recipients, g.Limits.Emails, g.Limits.Approval, db.ID(g.KeyID))
}

func saveLimits(ctx context.Context, tx *db.Tx, g *Grant) {
	tx.Queue(ctx, `UPDATE oauth_grants SET recipients_per_email = $3, emails_a_day = $4, approval = $5,
		daily_since = $6 WHERE id = $1 AND team_id = $2`, db.ID(g.ID), db.ID(g.TeamID), g.Limits.Recipients,
		g.Limits.Emails, g.Limits.Approval, db.Micros(g.dailySince))
}

// dayUsed returns the number of emails that a grant has sent on a given day, counted by recipient. A count that is
// stored for the next day is also used, because a transaction that began before midnight must not reset the count of
// the new day. A count for any later day comes from a wrong clock and is ignored.
func dayUsed(ctx context.Context, r db.Reader, teamID, grantID string, day int64) (used int64, err error) {
	err = r.QueryRow(ctx, `SELECT used FROM grant_volumes WHERE team_id = $1 AND grant_id = $2
		AND day - $3 IN (0, 1)`, db.ID(teamID), db.ID(grantID), day).Scan(&used)
	if errors.Is(err, db.ErrNoRows) {
		return 0, nil
	}
	return used, err
}

// countDay adds n to the number of emails that a grant has sent on a given day. If the total would exceed the limit,
// countDay returns false and changes nothing. The caller must check that n alone does not exceed the limit.
func countDay(ctx context.Context, tx *db.Tx, teamID, grantID string, day, n, limit int64) (bool, error) {
	changed, err := tx.Exec(ctx, `INSERT INTO grant_volumes (team_id, grant_id, day, used) VALUES ($1, $2, $3, $4)
		ON CONFLICT (team_id, grant_id) DO UPDATE SET
		used = CASE WHEN grant_volumes.day - excluded.day IN (0, 1) THEN grant_volumes.used ELSE 0 END + excluded.used,
		day = CASE WHEN grant_volumes.day - excluded.day = 1 THEN grant_volumes.day ELSE excluded.day END
		WHERE CASE WHEN grant_volumes.day - excluded.day IN (0, 1) THEN grant_volumes.used ELSE 0 END
		+ excluded.used <= $5`,
		db.ID(teamID), db.ID(grantID), day, n, limit)
	if err != nil {
		return false, fmt.Errorf("count the emails of a grant: %w", err)
	}
	return changed > 0, nil
}

func eraseUsage(ctx context.Context, tx *db.Tx, teamID string, limit int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM grant_volumes WHERE team_id = $1 AND grant_id IN (SELECT grant_id
		FROM grant_volumes WHERE team_id = $1 ORDER BY grant_id LIMIT $2)`, db.ID(teamID), limit)
}

// setRevoked revokes a grant if it is active, and returns the number of changed rows.
func setRevoked(ctx context.Context, tx *db.Tx, teamID, grantID string, why Reason) (int64, error) {
	return tx.Exec(ctx, `UPDATE oauth_grants SET revoked_at = $3, revoked_reason = $4
		WHERE id = $1 AND team_id = $2 AND revoked_at = 0`, db.ID(grantID), db.ID(teamID), tx.Now().UnixMicro(),
		string(why))
}

func setRevokedOf(ctx context.Context, tx *db.Tx, teamID, userID string) (int64, error) {
	return tx.Exec(ctx, `UPDATE oauth_grants SET revoked_at = $3, revoked_reason = $4
		WHERE team_id = $1 AND user_id = $2 AND revoked_reason = ''`,
		db.ID(teamID), db.ID(userID), tx.Now().UnixMicro(), string(UserLeft))
}

// setRevokedOfKey revokes the active grants to which a key consented. Like expireGrants, setRevokedOfKey has a
// condition for which the query planner does not use a partial index of active grants.
func setRevokedOfKey(ctx context.Context, tx *db.Tx, teamID, keyID string) (int64, error) {
	return tx.Exec(ctx, `UPDATE oauth_grants SET revoked_at = $3, revoked_reason = $4
		WHERE team_id = $1 AND key_id = $2 AND revoked_at <= 0`,
		db.ID(teamID), db.ID(keyID), tx.Now().UnixMicro(), string(KeyDeleted))
}

// lockRefreshState returns the refresh state of an active grant and locks its row. The UPDATE statement changes no
// value, but on PostgreSQL it locks the row. Because of the row lock, the second of two concurrent uses of a refresh
// token sees the effect of the first.
func lockRefreshState(ctx context.Context, tx *db.Tx, teamID, grantID string) (l refreshState, err error) {
	var rotated int64
	err = tx.QueryRow(ctx, `UPDATE oauth_grants SET generation = generation
		WHERE id = $1 AND team_id = $2 AND revoked_at = 0 RETURNING generation, retried, rotated_at`, db.ID(grantID),
		db.ID(teamID)).Scan(&l.newest, &l.retried, &rotated)
	l.rotatedAt = db.Time(rotated)
	return l, err
}

func saveRefreshState(ctx context.Context, tx *db.Tx, teamID, grantID string, l refreshState, expires time.Time) {
	tx.Queue(ctx, `UPDATE oauth_grants SET generation = $3, retried = $4, rotated_at = $5, used_at = $6, expires_at = $7
		WHERE id = $1 AND team_id = $2`,
		db.ID(grantID), db.ID(teamID), l.newest, l.retried, db.Micros(l.rotatedAt), tx.Now().UnixMicro(),
		expires.UnixMicro())
}

// setUsed stores the time of a grant's last use, unless a later time is already stored.
func setUsed(ctx context.Context, tx *db.Tx, teamID, grantID string, at time.Time) {
	tx.Queue(ctx, `UPDATE oauth_grants SET used_at = $3 WHERE id = $1 AND team_id = $2 AND used_at < $3`,
		db.ID(grantID), db.ID(teamID), at.UnixMicro())
}

// expireGrants revokes a batch of grants, across all teams, whose refresh tokens have expired. The outer conditions of
// the UPDATE recheck rows that a concurrent transaction has changed. The outer conditions are written so that the query
// planner does not use a partial index for them.
func expireGrants(ctx context.Context, tx *db.Tx, now time.Time, limit int) (int64, error) {
	return tx.Exec(ctx, `UPDATE oauth_grants SET revoked_at = $1, revoked_reason = $2 WHERE id IN (SELECT id
		FROM oauth_grants WHERE revoked_at = 0 AND expires_at < $1 ORDER BY expires_at, id LIMIT $3)
		AND revoked_at <= 0 AND expires_at < $1`,
		now.UnixMicro(), string(GrantExpired), limit)
}

func eraseGrants(ctx context.Context, tx *db.Tx, teamID string, limit int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM oauth_grants WHERE id IN (SELECT id FROM oauth_grants WHERE team_id = $1
		ORDER BY id LIMIT $2)`, db.ID(teamID), limit)
}

// storedCode is an authorization code together with the parameters of its authorization request.
type storedCode struct {
	Hash, GrantID, TeamID, UserID, KeyID, ClientID, Scope, Resource, RedirectURI, Challenge string
	Limits                                                                                  Limits
	ExpiresAt                                                                               time.Time
}

const codeColumns = `hash, grant_id, team_id, user_id, client_id, scope, resource, redirect_uri, challenge, expires_at,
	recipients_per_email, emails_a_day, approval, key_id`

func scanCode(r db.Row) (c storedCode, err error) {
	var expires int64
	err = r.Scan(&c.Hash, (*db.ID)(&c.GrantID), (*db.ID)(&c.TeamID), (*db.ID)(&c.UserID), (*db.ID)(&c.ClientID), &c.Scope,
		&c.Resource, &c.RedirectURI, &c.Challenge, &expires, &c.Limits.Recipients, &c.Limits.Emails, &c.Limits.Approval,
		(*db.ID)(&c.KeyID))
	c.ExpiresAt = db.Time(expires)
	return c, err
}

func insertCode(ctx context.Context, tx *db.Tx, c *storedCode, expires time.Time) {
	tx.Proof(`SELECT 1 FROM oauth_codes WHERE hash = $1`, c.Hash)
	tx.Queue(ctx,
		`INSERT INTO oauth_codes (`+codeColumns+`, used_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, 0)`,
		c.Hash, db.ID(c.GrantID), db.ID(c.TeamID), db.ID(c.UserID), db.ID(c.ClientID), c.Scope, c.Resource, c.RedirectURI,
		c.Challenge, expires.UnixMicro(), c.Limits.Recipients, c.Limits.Emails, c.Limits.Approval, db.ID(c.KeyID))
}

// useCode marks an authorization code as used and returns it, or ErrNoRows if the code is unknown or already used. The
// query has no team condition, because the code determines the team.
func useCode(ctx context.Context, tx *db.Tx, hash string) (storedCode, error) {
	return scanCode(tx.QueryRow(ctx, `UPDATE oauth_codes SET used_at = $2 WHERE hash = $1 AND used_at = 0
		RETURNING `+codeColumns, hash, tx.Now().UnixMicro()))
}

func getCode(ctx context.Context, r db.Reader, hash string) (storedCode, error) {
	return scanCode(r.QueryRow(ctx, `SELECT `+codeColumns+` FROM oauth_codes WHERE hash = $1`, hash))
}

// deleteCodes deletes a batch of authorization codes, across all teams, that expired before the given time.
func deleteCodes(ctx context.Context, tx *db.Tx, before time.Time, limit int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM oauth_codes WHERE hash IN (SELECT hash FROM oauth_codes WHERE expires_at < $1
		ORDER BY expires_at, hash LIMIT $2)`, before.UnixMicro(), limit)
}

func deleteCodesOf(ctx context.Context, tx *db.Tx, teamID, userID string) error {
	_, err := tx.Exec(ctx, `DELETE FROM oauth_codes WHERE team_id = $1 AND user_id = $2`, db.ID(teamID), db.ID(userID))
	return err
}

func deleteCodesOfKey(ctx context.Context, tx *db.Tx, teamID, keyID string) error {
	_, err := tx.Exec(ctx, `DELETE FROM oauth_codes WHERE team_id = $1 AND key_id = $2`, db.ID(teamID), db.ID(keyID))
	return err
}

func eraseCodes(ctx context.Context, tx *db.Tx, teamID string, limit int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM oauth_codes WHERE hash IN (SELECT hash FROM oauth_codes WHERE team_id = $1
		ORDER BY user_id, hash LIMIT $2)`, db.ID(teamID), limit)
}

// getClient returns the client with the given id. OAuth clients belong to no team.
func getClient(ctx context.Context, r db.Reader, clientID string) (c Client, err error) {
	var uris, scope, address string
	var created int64
	err = r.QueryRow(ctx, `SELECT id, name, redirect_uris, scope, client_uri, logo_uri, address, created_at
		FROM oauth_clients WHERE id = $1`, db.ID(clientID)).
		Scan((*db.ID)(&c.ID), &c.Name, &uris, &scope, &c.URI, &c.LogoURI, &address, &created)
	if errors.Is(err, db.ErrNoRows) {
		return c, refuse(InvalidClient, "client_id is the id of no client. Register the client first.")
	}
	if err != nil {
		return c, fmt.Errorf("read OAuth client: %w", err)
	}
	c.RedirectURIs, c.Scopes, c.CreatedAt = strings.Fields(uris), storedScopes(scope), db.Time(created)
	c.Registered = address != ""
	return c, nil
}

func insertClient(ctx context.Context, tx *db.Tx, c *Client, address string) {
	tx.Proof(`SELECT 1 FROM oauth_clients WHERE id = $1`, db.ID(c.ID))
	tx.Queue(ctx, `INSERT INTO oauth_clients (id, name, redirect_uris, scope, client_uri, logo_uri, address, created_at,
		used_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0)`, db.ID(c.ID), c.Name, strings.Join(c.RedirectURIs, " "),
		c.Scopes.String(), c.URI, c.LogoURI, address, c.CreatedAt.UnixMicro())
}

// recentClients returns the number of clients that were registered from one address since the given time, and the
// addresses of up to limit unused clients that were registered since then. The registration limits bound both.
func recentClients(ctx context.Context, r db.Reader, address string, since time.Time, limit int) (own int,
	unused []string, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM oauth_clients WHERE address = $1 AND address <> '' AND created_at > $2`,
		address, since.UnixMicro()).Scan(&own)
	if err != nil {
		return 0, nil, err
	}
	rows, err := r.Query(ctx, `SELECT address FROM oauth_clients WHERE used_at = 0 AND created_at > $1
		ORDER BY created_at, id LIMIT $2`, since.UnixMicro(), limit)
	unused, err = db.Collect(rows, err, func(r db.Row) (one string, err error) {
		err = r.Scan(&one)
		return one, err
	})
	return own, unused, err
}

// markUsed marks a client as used at its first consent, and returns the IP address from which it was registered. If the
// client is already marked as used, markUsed returns ErrNoRows.
func markUsed(ctx context.Context, tx *db.Tx, clientID string) (address string, err error) {
	err = tx.QueryRow(ctx, `UPDATE oauth_clients SET used_at = $2 WHERE id = $1 AND used_at = 0 RETURNING address`,
		db.ID(clientID), tx.Now().UnixMicro()).Scan(&address)
	return address, err
}

// unusedBefore returns a cutoff time: unused clients that were created earlier are to be deleted. The cutoff is the
// given time, or a later time if too many unused clients would remain.
func unusedBefore(ctx context.Context, r db.Reader, before time.Time, most int) (time.Time, error) {
	var at int64
	err := r.QueryRow(ctx, `SELECT created_at FROM oauth_clients WHERE used_at = 0 ORDER BY created_at DESC, id DESC
		LIMIT 1 OFFSET $1`, most).Scan(&at)
	if errors.Is(err, db.ErrNoRows) {
		return before, nil
	}
	if err != nil {
		return before, fmt.Errorf("count unused OAuth clients: %w", err)
	}
	if db.Time(at).After(before) {
		return db.Time(at), nil
	}
	return before, nil
}

// deleteClients deletes a batch of unused clients. Like expireGrants, deleteClients rechecks that the clients are still
// unused.
func deleteClients(ctx context.Context, tx *db.Tx, before time.Time, limit int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM oauth_clients WHERE id IN (SELECT id FROM oauth_clients WHERE used_at = 0
		AND created_at < $1 ORDER BY created_at, id LIMIT $2) AND used_at <= 0`, before.UnixMicro(), limit)
}

// storedKey is a signing key in its stored form.
type storedKey struct {
	id      string
	private []byte // sealed
	signsAt time.Time
}

// listKeys returns the signing keys (at most three), sorted by the time from which they are used.
func listKeys(ctx context.Context, r db.Reader) ([]storedKey, error) {
	rows, err := r.Query(ctx, `SELECT id, private, signs_at FROM oauth_keys ORDER BY signs_at, id LIMIT 10`)
	return db.Collect(rows, err, func(r db.Row) (k storedKey, err error) {
		var at int64
		err = r.Scan((*db.ID)(&k.id), &k.private, &at)
		k.signsAt = db.Time(at)
		return k, err
	})
}

func insertKey(ctx context.Context, tx *db.Tx, k *storedKey) {
	tx.Proof(`SELECT 1 FROM oauth_keys WHERE id = $1`, db.ID(k.id))
	tx.Queue(ctx, `INSERT INTO oauth_keys (id, private, signs_at) VALUES ($1, $2, $3)`, db.ID(k.id), k.private,
		k.signsAt.UnixMicro())
}

func deleteKey(ctx context.Context, tx *db.Tx, keyID string) {
	tx.Queue(ctx, `DELETE FROM oauth_keys WHERE id = $1`, db.ID(keyID))
}
