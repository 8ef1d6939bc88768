package eventstream

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// key returns the id in the column for a message's id, which clients see with a prefix and without hyphens.
func key(messageID string) db.ID { return db.ID(id.Expand(strings.TrimPrefix(messageID, prefix))) }

// shown returns a message's id as clients see it.
func shown(key db.ID) string { return prefix + id.Compact(string(key)) }

func watchedTeams(ctx context.Context, r db.Reader, now time.Time) (map[string]time.Time, error) {
	found := map[string]time.Time{}
	rows, err := r.Query(ctx, `SELECT team_id, until FROM live_tails WHERE until > $1`, now.UnixMicro())
	_, err = db.Collect(rows, err, func(r db.Row) (x struct{}, err error) {
		var team string
		var until int64
		err = r.Scan((*db.ID)(&team), &until)
		found[team] = db.Time(until)
		return x, err
	})
	return found, err
}

// leaseOf returns the time until which a team is watched, or the zero time if the team is not watched.
func leaseOf(ctx context.Context, r db.Reader, teamID string) (time.Time, error) {
	var until int64
	err := r.QueryRow(ctx, `SELECT until FROM live_tails WHERE team_id = $1`, db.ID(teamID)).Scan(&until)
	if errors.Is(err, db.ErrNoRows) {
		err = nil
	}
	return db.Time(until), err
}

func setLease(ctx context.Context, tx *db.Tx, teamID string, until time.Time) {
	tx.Queue(ctx, `INSERT INTO live_tails (team_id, until) VALUES ($1, $2) ON CONFLICT (team_id) DO UPDATE
		SET until = excluded.until`,
		db.ID(teamID), until.UnixMicro())
}

func insert(ctx context.Context, tx *db.Tx, teamID string, m *Message) {
	tx.Queue(ctx, `INSERT INTO live_messages (team_id, id, type, payload) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`,
		db.ID(teamID), key(m.ID), string(m.Type), m.Payload)
}

func idsAfter(ctx context.Context, r db.Reader, teamID, low string, limit int) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT id FROM live_messages WHERE team_id = $1 AND id > $2 ORDER BY id LIMIT $3`,
		db.ID(teamID), key(low), limit)
	return db.Collect(rows, err, func(r db.Row) (messageID string, err error) {
		var k db.ID
		err = r.Scan(&k)
		return shown(k), err
	})
}

func messages(ctx context.Context, r db.Reader, teamID string, ids []string) ([]Message, error) {
	keys := make([]db.ID, len(ids))
	for i, x := range ids {
		keys[i] = key(x)
	}
	rows, err := r.Query(ctx, `SELECT id, type, payload FROM live_messages WHERE team_id = $1 AND id = ANY($2)
		ORDER BY id`, db.ID(teamID), keys)
	return db.Collect(rows, err, func(r db.Row) (m Message, err error) {
		var k db.ID
		var typ string
		err = r.Scan(&k, &typ, &m.Payload)
		m.ID, m.Type = shown(k), events.Type(typ)
		return m, err
	})
}

const deleteOldest = `DELETE FROM live_messages WHERE id <= (SELECT id FROM (SELECT id FROM live_messages WHERE id < $1
	ORDER BY id LIMIT $2) x ORDER BY id DESC LIMIT 1)`

// deleteOld deletes up to limit messages, across all teams, whose ids are below the given id.
func deleteOld(ctx context.Context, tx *db.Tx, before string, limit int) (int64, error) {
	return tx.Exec(ctx, deleteOldest, key(before), limit)
}

func deleteTails(ctx context.Context, tx *db.Tx, before time.Time) {
	tx.Queue(ctx, `DELETE FROM live_tails WHERE until < $1`, before.UnixMicro())
}
