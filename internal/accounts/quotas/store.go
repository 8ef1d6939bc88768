package quotas

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/db"
)

// counterShard is one row of a team's quota counter.
type counterShard struct {
	day, dayUsed, dayNotified, month, monthUsed, monthNotified int64
}

const (
	// The broadcast counters, which are also sharded by connection, use the same lock. With a separate lock for those
	// counters, transactions could take the two locks in different orders and deadlock.
	lockShard = `SELECT pg_advisory_xact_lock(1886352997, pg_backend_pid() % 16)`
	countAt   = `UPDATE team_volumes SET day_used = day_used + $2, month_used = month_used + $2 WHERE team_id = $1
		AND day = $3 AND month = $4 AND day_used + $2 <= day_room AND month_used + $2 <= month_room AND part = `
	countOnOne = countAt + `0`
	countOn16  = countAt + `pg_backend_pid() % 16`
)

// shardCount returns the number of shards in each team's counter.
func shardCount(tx *db.Tx) int64 {
	if tx.OneWriter() {
		return 1
	}
	return 16
}

// countStatement returns an SQL statement that counts n emails in the shard of the transaction's connection. The
// statement changes no row if the shard's allowance is too small.
func (s *Service) countStatement(ctx context.Context, tx *db.Tx, teamID string, n int64) (text string, args []any) {
	day, month := periodsAt(s.at(tx.Now()), teams.Quota{})
	text = countOnOne
	if !tx.OneWriter() {
		tx.Queue(ctx, lockShard)
		text = countOn16
	}
	return text, []any{db.ID(teamID), n, day.number, month.number}
}

// queueCount queues the statement that counts n emails. If the shard's allowance is too small, the transaction fails
// with errShardFull.
func (s *Service) queueCount(ctx context.Context, tx *db.Tx, teamID string, n int) {
	text, args := s.countStatement(ctx, tx, teamID, int64(n))
	tx.QueueOne(ctx, errShardFull, text, args...)
}

// countInShard counts n emails in the connection's shard, or returns false if that shard's allowance is too small.
func (s *Service) countInShard(ctx context.Context, tx *db.Tx, teamID string, n int64) (bool, error) {
	text, args := s.countStatement(ctx, tx, teamID, n)
	changed, err := tx.Exec(ctx, text, args...)
	if err != nil {
		return false, fmt.Errorf("count emails in a quota: %w", err)
	}
	return changed > 0, nil
}

// getQuota returns a team's quota, or the zero Quota if the team does not exist.
func getQuota(ctx context.Context, r db.Reader, teamID string) (q teams.Quota, err error) {
	err = r.QueryRow(ctx, `SELECT daily_quota, monthly_quota FROM teams WHERE id = $1`, db.ID(teamID)).
		Scan(&q.Daily, &q.Monthly)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return q, fmt.Errorf("look up a team's quota: %w", err)
	}
	return q, nil
}

const selectShards = `SELECT day, day_used, day_told, month, month_used, month_told FROM team_volumes WHERE team_id = $1
	ORDER BY part`

func readShards(ctx context.Context, r db.Reader, teamID string) ([]counterShard, error) {
	rows, err := r.Query(ctx, selectShards, db.ID(teamID))
	return db.Collect(rows, err, scanShard)
}

// lockShards returns a team's shards and locks their rows.
func lockShards(ctx context.Context, tx *db.Tx, teamID string) ([]counterShard, error) {
	text := selectShards
	if !tx.OneWriter() {
		text += ` FOR UPDATE`
	}
	rows, err := tx.Query(ctx, text, db.ID(teamID))
	return db.Collect(rows, err, scanShard)
}

func scanShard(r db.Row) (p counterShard, err error) {
	err = r.Scan(&p.day, &p.dayUsed, &p.dayNotified, &p.month, &p.monthUsed, &p.monthNotified)
	return p, err
}

// insertShards inserts unused shards for a team, unless the team already has shards.
func insertShards(ctx context.Context, tx *db.Tx, teamID string) {
	for i := range shardCount(tx) {
		tx.Queue(ctx, `INSERT INTO team_volumes (team_id, part, day, day_used, day_room, day_told, month, month_used,
			month_room, month_told) VALUES ($1, $2, 0, 0, 0, 0, 0, 0, 0, 0) ON CONFLICT (team_id, part) DO NOTHING`,
			db.ID(teamID), i)
	}
}

// writeShards stores the total usage in the first shard, and gives each shard the same allowance.
func writeShards(ctx context.Context, tx *db.Tx, teamID string, day, month *period, dayShare, monthShare int64) {
	tx.Queue(ctx, `UPDATE team_volumes SET day = $2, month = $3,
		day_used = CASE WHEN part = 0 THEN CAST($4 AS BIGINT) ELSE 0 END,
		day_room = CASE WHEN part = 0 THEN CAST($4 AS BIGINT) ELSE 0 END + $5,
		month_used = CASE WHEN part = 0 THEN CAST($6 AS BIGINT) ELSE 0 END,
		month_room = CASE WHEN part = 0 THEN CAST($6 AS BIGINT) ELSE 0 END + $7,
		day_told = $8, month_told = $9 WHERE team_id = $1`,
		db.ID(teamID), day.number, month.number, day.used, dayShare, month.used, monthShare, day.notified, month.notified)
}

func removeShards(ctx context.Context, tx *db.Tx, teamID string) {
	tx.Queue(ctx, `DELETE FROM team_volumes WHERE team_id = $1`, db.ID(teamID))
}

// EraseTeam deletes the quota counters of a deleted team.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		removeShards(ctx, tx, teamID)
		return nil
	})
}
