package requestlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

const columns = `id, team_id, actor_id, request_id, method, endpoint, status, user_agent, duration, created_at,
	actor_kind`

func scan(r db.Row, more ...any) (e Entry, err error) {
	var took, created int64
	err = r.Scan(append([]any{(*db.ID)(&e.ID), (*db.ID)(&e.TeamID), (*db.ID)(&e.Actor.ID), &e.RequestID, &e.Method,
		&e.Endpoint, &e.Status, &e.UserAgent, &took, &created, &e.Actor.Kind}, more...)...)
	e.Duration, e.CreatedAt = time.Duration(took)*time.Microsecond, db.Time(created)
	return e, err
}

// insert adds entries and skips those that already exist. An earlier attempt may have been committed even though its
// connection broke before the response.
func insert(ctx context.Context, tx *db.Tx, all []storedEntry) {
	ids, teamIDs := make([]db.ID, len(all)), make([]string, len(all))
	actorIDs, actorKinds := make([]db.ID, len(all)), make([]string, len(all))
	requestIDs, methods := make([]string, len(all)), make([]string, len(all))
	endpoints, userAgents := make([]string, len(all)), make([]string, len(all))
	statuses, durations, times := make([]int64, len(all)), make([]int64, len(all)), make([]int64, len(all))
	requests, responses, emailIDs := make([]string, len(all)), make([]string, len(all)), make([]string, len(all))
	for i := range all {
		e := &all[i]
		ids[i], teamIDs[i], requestIDs[i] = db.ID(e.ID), e.TeamID, e.RequestID
		actorIDs[i], actorKinds[i] = db.ID(e.Actor.ID), string(e.Actor.Kind)
		methods[i], endpoints[i], userAgents[i] = e.Method, e.Endpoint, e.UserAgent
		statuses[i], durations[i], times[i] = int64(e.Status), e.Duration.Microseconds(), e.CreatedAt.UnixMicro()
		requests[i], responses[i], emailIDs[i] = e.RequestBody, e.ResponseBody, e.emailIDs
	}
	tx.QueueRows(ctx, `request_logs (`+columns+`, request_body, response_body, email_ids)`, `ON CONFLICT DO NOTHING`,
		ids, db.IDs(teamIDs), actorIDs, requestIDs, methods, endpoints, statuses, userAgents, durations, times, actorKinds,
		requests, responses, emailIDs)
}

func get(ctx context.Context, r db.Reader, teamID, entryID string) (e storedEntry, err error) {
	var request, response string
	e.Entry, err = scan(r.QueryRow(ctx, `SELECT `+columns+`, request_body, response_body, email_ids FROM request_logs
		WHERE team_id = $1 AND id = $2`, db.ID(teamID), db.ID(entryID)), &request, &response, &e.emailIDs)
	if errors.Is(err, db.ErrNoRows) {
		return e, fault.NotFoundf("Log not found")
	}
	if err != nil {
		return e, fmt.Errorf("read log entry: %w", err)
	}
	e.RequestBody, e.ResponseBody = request, response
	return e, nil
}

// entries returns a query that selects all of a team's entries.
func entries(teamID string) page.Select {
	return page.Select{Text: `SELECT ` + columns + ` FROM request_logs WHERE team_id = $1`, ID: "id",
		Args: []any{db.ID(teamID)}}
}

// selected returns a query that selects a team's entries that match a filter.
func selected(teamID string, f Filter) (page.Select, error) {
	low, high, err := f.statuses()
	if err != nil {
		return page.Select{}, err
	}
	s := entries(teamID)
	where := func(condition string, values ...any) {
		for _, v := range values {
			s.Args = append(s.Args, v)
			condition = strings.Replace(condition, "?", fmt.Sprintf("$%d", len(s.Args)), 1)
		}
		s.Text += " AND " + condition
	}
	if f.Status != "" {
		where("status BETWEEN ? AND ?", low, high)
	}
	if f.Method != "" {
		where("method = ?", f.Method)
	}
	if f.Endpoint != "" {
		where("SUBSTR(endpoint, 1, LENGTH(CAST(? AS TEXT))) = ?", f.Endpoint, f.Endpoint)
	}
	if f.UserAgent != "" {
		where(`LOWER(user_agent) LIKE LOWER(?) ESCAPE '\'`, "%"+like(f.UserAgent)+"%")
	}
	switch {
	case id.Valid(f.KeyID):
		where("actor_id = ? AND actor_kind = ?", db.ID(f.KeyID), string(teams.KeyActor))
	case f.KeyID != "": // no key has such an id
		where("FALSE")
	}
	// The conditions on id let the database find the time span in the index; the conditions on the time are exact (see
	// Entry.stamp).
	if !f.From.IsZero() {
		where("id >= ? AND created_at >= ?", db.ID(id.First(f.From)), f.From.UnixMicro())
	}
	if !f.To.IsZero() {
		where("id < ? AND created_at < ?", db.ID(id.First(f.To.Add(time.Millisecond))), f.To.UnixMicro())
	}
	return s, nil
}

func list(ctx context.Context, r db.Reader, teamID string, f Filter, p page.Page) ([]Entry, bool, string, error) {
	span, some, err := selections(teamID, f)
	if err != nil {
		return nil, false, "", err
	}
	return page.Search(ctx, r, span, some, p, scanEntry)
}

// readBatch returns the matching entries in the next batch after a cursor, and the cursor of the following batch.
func readBatch(ctx context.Context, r db.Reader, teamID string, f Filter, after string) ([]Entry, string, error) {
	span, some, err := selections(teamID, f)
	if err != nil {
		return nil, "", err
	}
	return page.Part(ctx, r, span, some, after, readRows, scanEntry, func(e Entry) string { return e.ID })
}

// selections returns two queries: one for all entries in the filter's time span, which are examined, and one for the
// entries that match the filter.
func selections(teamID string, f Filter) (span, some page.Select, err error) {
	if span, err = selected(teamID, Filter{From: f.From, To: f.To}); err == nil {
		some, err = selected(teamID, f)
	}
	return span, some, err
}

func scanEntry(r db.Row) (Entry, error) { return scan(r) }

// like escapes a string for use in a LIKE pattern with ESCAPE '\'.
func like(s string) string { return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(s) }

// nextTeam returns the team with the next greater id that has entries, or "" if no such team exists.
func nextTeam(ctx context.Context, r db.Reader, after string) (team string, err error) {
	err = r.QueryRow(ctx, `SELECT team_id FROM request_logs WHERE team_id > $1 ORDER BY team_id LIMIT 1`,
		db.OrNoID(after)).Scan((*db.ID)(&team))
	if errors.Is(err, db.ErrNoRows) {
		return "", nil
	}
	return team, err
}

// deleteBefore deletes, oldest first, up to limit of a team's entries whose ids are below the given id.
func deleteBefore(ctx context.Context, tx *db.Tx, teamID, before string, limit int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM request_logs WHERE team_id = $1 AND id IN
		(SELECT id FROM request_logs WHERE team_id = $1 AND id < $2 ORDER BY id LIMIT $3)`, db.ID(teamID), db.ID(before),
		limit)
}
