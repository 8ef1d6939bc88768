package requestlog

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
)

// lastID is greater than every entry's id.
const lastID = "ffffffff-ffff-ffff-ffff-ffffffffffff"

// EraseTeam deletes all request log entries of a team.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	err := s.d.Repeat(ctx, func(tx *db.Tx) (int64, error) { return deleteBefore(ctx, tx, teamID, lastID, sweepRows) })
	if err != nil {
		return fmt.Errorf("erase the request log of team %s: %w", teamID, err)
	}
	return nil
}

// EraseAddress replaces an email address in all log entries that contain it, for the teams in the scope. With DryRun,
// EraseAddress only counts the entries.
func EraseAddress(ctx context.Context, d *db.DB, a erasure.Address, scope erasure.Scope) (found erasure.Report,
	err error) {
	for _, teamID := range scope.Teams {
		err := db.Walk(ctx, d.Reader, "request_logs WHERE team_id = $1", "id", []any{teamID}, func(after,
			upTo string) error {
			some, err := entriesWith(ctx, d.Reader, a, teamID, after, upTo)
			for _, e := range some {
				found.Add("entries of the request log in which it was replaced", 1)
				if scope.DryRun {
					continue
				}
				if err := d.Update(ctx, func(tx *db.Tx) error { replaceIn(ctx, tx, a, &e); return nil }); err != nil {
					return err
				}
			}
			return err
		})
		if err != nil {
			return found, fmt.Errorf("erase an address in the request log of team %s: %w", teamID, err)
		}
	}
	return found, nil
}

// entriesWith returns a team's entries that contain an address and have ids greater than after and not greater than
// upTo.
func entriesWith(ctx context.Context, r db.Reader, a erasure.Address, teamID, after, upTo string) (some []Entry,
	err error) {
	rows, err := r.Query(ctx, `SELECT id, team_id, endpoint, user_agent, request_body, response_body FROM request_logs
		WHERE team_id = $1 AND id > $2 AND id <= $3 AND `+
		erasure.MayContain(4, "endpoint", "user_agent", "request_body", "response_body")+` ORDER BY id`, teamID, after, upTo,
		a.Pattern())
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var e Entry
		err = r.Scan(&e.ID, &e.TeamID, &e.Endpoint, &e.UserAgent, &e.RequestBody, &e.ResponseBody)
		if err == nil && (a.In(e.Endpoint) || a.In(e.UserAgent) || a.In(e.RequestBody) || a.In(e.ResponseBody)) {
			some = append(some, e)
		}
		return none, err
	})
	return some, err
}

// replaceIn updates an entry in which the address has been replaced.
func replaceIn(ctx context.Context, tx *db.Tx, a erasure.Address, e *Entry) {
	tx.Queue(ctx, `UPDATE request_logs SET endpoint = $3, user_agent = $4, request_body = $5, response_body = $6
		WHERE team_id = $1 AND id = $2`, e.TeamID, e.ID, a.Replace(e.Endpoint), a.Replace(e.UserAgent),
		a.Replace(e.RequestBody), a.Replace(e.ResponseBody))
}
