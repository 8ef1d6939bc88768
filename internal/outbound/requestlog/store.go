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
func entries(d *db.DB, teamID string) page.Select {
	return page.Select{Text: `SELECT ` + columns + ` FROM request_logs WHERE team_id = $1`, ID: "id",
		InSpans: !d.Alone(), Args: []any{db.ID(teamID)}}
}

// selected returns a query that selects a team's entries that match a filter.
func selected(d *db.DB, teamID string, f Filter) (page.Select, error) {
	low, high, err := f.statuses()
	if err != nil {
		return page.Select{}, err
	}
	s := entries(d, teamID)
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

func list(ctx context.Context, d *db.DB, teamID string, f Filter, p page.Page) ([]Entry, bool, string, error) {
	span, some, err := selections(d, teamID, f)
	if err != nil {
		return nil, false, "", err
	}
	return page.Search(ctx, d.Reader, span, some, p, scanEntry)
}

// readBatch returns the matching entries in the next batch after a cursor, and the cursor of the following batch.
func readBatch(ctx context.Context, d *db.DB, teamID string, f Filter, after string) ([]Entry, string, error) {
	span, some, err := selections(d, teamID, f)
	if err != nil {
		return nil, "", err
	}
	return page.Part(ctx, d.Reader, span, some, after, readRows, scanEntry, func(e Entry) string { return e.ID })
}

// selections returns two queries: one for all entries in the filter's time span, which are examined, and one for the
// entries that match the filter.
func selections(d *db.DB, teamID string, f Filter) (span, some page.Select, err error) {
	if span, err = selected(d, teamID, Filter{From: f.From, To: f.To}); err == nil {
		some, err = selected(d, teamID, f)
	}
	return span, some, err
}

func scanEntry(r db.Row) (Entry, error) { return scan(r) }

// like escapes a string for use in a LIKE pattern with ESCAPE '\'.
func like(s string) string { return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(s) }

// between returns the ids of up to limit of a team's oldest entries whose ids are between two ids.
func between(ctx context.Context, r db.Reader, teamID, after, before string, limit int) ([]db.ID, error) {
	rows, err := r.Query(ctx, `SELECT id FROM request_logs WHERE team_id = $1 AND id > $2 AND id < $3 ORDER BY id
		LIMIT $4`, db.ID(teamID), db.OrNoID(after), db.ID(before), limit)
	return db.Collect(rows, err, func(r db.Row) (entryID db.ID, err error) {
		err = r.Scan(&entryID)
		return entryID, err
	})
}

func deleteEntries(ctx context.Context, tx *db.Tx, teamID string, ids []db.ID) {
	tx.Queue(ctx, `DELETE FROM request_logs WHERE team_id = $1 AND id = ANY($2)`, db.ID(teamID), ids)
}
