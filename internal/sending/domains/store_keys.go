package domains

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

const keyColumns = `id, domain_id, team_id, selector, algorithm, state, private_key, record, emergency, reused,
	created_at, state_at, seen_at, stepped_at, waited, ttl`

func scanKey(r db.Row) (k key, err error) {
	var state string
	var created, stateAt, seen, stepped, waited, ttl int64
	err = r.Scan((*db.ID)(&k.id), (*db.ID)(&k.domainID), (*db.ID)(&k.teamID), &k.selector, &k.algorithm, &state,
		&k.sealed, &k.record, &k.emergency, &k.reused, &created, &stateAt, &seen, &stepped, &waited, &ttl)
	k.state, k.createdAt, k.stateAt = KeyState(state), db.Time(created), db.Time(stateAt)
	k.seenAt, k.steppedAt = db.Time(seen), db.Time(stepped)
	k.waited, k.ttl = time.Duration(waited)*time.Microsecond, time.Duration(ttl)*time.Second
	return k, err
}

// keysOf returns the keys of a domain other than those that sign, oldest first.
func keysOf(ctx context.Context, r db.Reader, teamID, domainID string) ([]key, error) {
	rows, err := r.Query(ctx, `SELECT `+keyColumns+` FROM domain_keys WHERE domain_id = $1 AND team_id = $2 ORDER BY id`,
		db.ID(domainID), db.ID(teamID))
	all, err := db.Collect(rows, err, scanKey)
	if err != nil {
		return nil, fmt.Errorf("read the DKIM keys of domain %s: %w", domainID, err)
	}
	return all, nil
}

const selectKeysOfAll = `SELECT ` + keyColumns + ` FROM domain_keys WHERE domain_id = ANY($1) ORDER BY domain_id, id`

// keysOfAll is keysOf for several domains of any teams, because the name servers answer for all teams.
func keysOfAll(ctx context.Context, r db.Reader, domainIDs []string) ([]key, error) {
	rows, err := r.Query(ctx, selectKeysOfAll, db.IDs(domainIDs))
	return db.Collect(rows, err, scanKey)
}

const selectSigningRecords = `SELECT id, rsa_selector, rsa_record, ed25519_selector, ed25519_record FROM domains
	WHERE id = ANY($1)`

// signingRecords returns the records of the keys that sign for some domains of any teams, by the id of the domain.
func signingRecords(ctx context.Context, r db.Reader, c *Config, domainIDs []string) (map[string][]PublishedKey, error) {
	all := make(map[string][]PublishedKey, len(domainIDs))
	rows, err := r.Query(ctx, selectSigningRecords, db.IDs(domainIDs))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var d Domain
		err = r.Scan((*db.ID)(&d.ID), &d.rsa.selector, &d.rsa.record, &d.ed25519.selector, &d.ed25519.record)
		rsa, ed25519 := c.selectors(&d)
		all[d.ID] = []PublishedKey{{rsa, d.rsa.record}, {ed25519, d.ed25519.record}}
		return none, err
	})
	return all, err
}

func insertKey(ctx context.Context, tx *db.Tx, k *key) {
	tx.Queue(ctx, `INSERT INTO domain_keys (`+keyColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`, db.ID(k.id), db.ID(k.domainID),
		db.ID(k.teamID), k.selector, k.algorithm, string(k.state), append([]byte{}, k.sealed...), k.record, k.emergency,
		k.reused, db.Micros(k.createdAt), db.Micros(k.stateAt), db.Micros(k.seenAt), db.Micros(k.steppedAt), k.waited.Microseconds(),
		int64(k.ttl/time.Second))
}

// saveKey stores the columns of a key that the steps of a rotation change.
func saveKey(ctx context.Context, tx *db.Tx, k *key) {
	tx.Queue(ctx, `UPDATE domain_keys SET state = $3, emergency = $4, state_at = $5, seen_at = $6, stepped_at = $7,
		waited = $8, ttl = $9, selector = $10, reused = $11, created_at = $12 WHERE id = $1 AND team_id = $2`, db.ID(k.id),
		db.ID(k.teamID), string(k.state), k.emergency, db.Micros(k.stateAt), db.Micros(k.seenAt), db.Micros(k.steppedAt),
		k.waited.Microseconds(), int64(k.ttl/time.Second), k.selector, k.reused, db.Micros(k.createdAt))
}

func deleteKey(ctx context.Context, tx *db.Tx, k *key) {
	tx.Queue(ctx, `DELETE FROM domain_keys WHERE id = $1 AND team_id = $2`, db.ID(k.id), db.ID(k.teamID))
}
