package domains

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// saveSigningKey stores the key of an algorithm with which a domain signs. It writes no other key: a rotation of the
// secret key may be sealing them again.
func saveSigningKey(ctx context.Context, tx *db.Tx, d *Domain, algorithm string) {
	if algorithm == algorithmRSA {
		tx.Queue(ctx, `UPDATE domains SET rsa_key = $3, rsa_record = $4, rsa_selector = $5, keys_since = $6
			WHERE id = $1 AND team_id = $2`, db.ID(d.ID), db.ID(d.TeamID), d.rsa.sealed, d.rsa.record, d.rsa.selector,
			db.Micros(d.keysSince))
		return
	}
	tx.Queue(ctx, `UPDATE domains SET ed25519_key = $3, ed25519_record = $4, ed25519_selector = $5
		WHERE id = $1 AND team_id = $2`, db.ID(d.ID), db.ID(d.TeamID), d.ed25519.sealed, d.ed25519.record,
		d.ed25519.selector)
}

// saveExamination stores when it is next examined whether a rotation of the domain's keys is due.
func saveExamination(ctx context.Context, tx *db.Tx, d *Domain, at time.Time) {
	tx.Queue(ctx, `UPDATE domains SET rotate_at = $3 WHERE id = $1 AND team_id = $2`, db.ID(d.ID), db.ID(d.TeamID),
		db.Micros(at))
}

const (
	selectRotationsDue = `SELECT id, team_id FROM domains WHERE NOT placeholder AND rotate_at < $1 ORDER BY rotate_at
		LIMIT $2`
	selectRotationsFar = `SELECT id, team_id FROM domains WHERE NOT placeholder AND rotate_at > $1 ORDER BY rotate_at
		LIMIT $2`
	selectStalled = `SELECT domain_id, team_id FROM domain_keys WHERE stepped_at < $1 ORDER BY stepped_at LIMIT $2`
	selectAhead   = `SELECT domain_id, team_id FROM domain_keys WHERE stepped_at > $1 ORDER BY stepped_at LIMIT $2`
)

// rotationsDue returns domains of all teams that must be examined: their time of examination is before now, or after
// far. A time after far can only come from a clock that was ahead.
func rotationsDue(ctx context.Context, r db.Reader, now, far time.Time, limit int) ([]owned, error) {
	return outside(ctx, r, selectRotationsDue, selectRotationsFar, now, far, limit)
}

// rotationsStalled returns domains of all teams with a rotation whose last step was before stalled or after ahead.
func rotationsStalled(ctx context.Context, r db.Reader, stalled, ahead time.Time, limit int) ([]owned, error) {
	return outside(ctx, r, selectStalled, selectAhead, stalled, ahead, limit)
}

func outside(ctx context.Context, r db.Reader, before, after string, from, to time.Time, limit int) (all []owned,
	err error) {
	for _, q := range []struct {
		text string
		at   time.Time
	}{{before, from}, {after, to}} {
		rows, err := r.Query(ctx, q.text, q.at.UnixMicro(), limit)
		some, err := db.Collect(rows, err, func(r db.Row) (o owned, err error) {
			err = r.Scan((*db.ID)(&o.id), (*db.ID)(&o.teamID))
			return o, err
		})
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, func(a, b owned) int { return cmp.Compare(a.id, b.id) })
	return slices.Compact(all), nil
}
