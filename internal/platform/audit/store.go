package audit

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

const columns = `id, team_id, actor_kind, actor_id, actor_name, action, target, detail, address, user_agent, request_id,
	at`

// insert queues the statement that inserts an entry. The entry already exists if an earlier attempt at the transaction
// was committed but the database's reply was lost.
func insert(ctx context.Context, tx *db.Tx, e *Entry) {
	tx.Queue(ctx, `INSERT INTO audit_log (`+columns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
		ON CONFLICT (id) DO NOTHING`, db.ID(e.ID), db.ID(e.TeamID), e.ActorKind, db.ID(e.ActorID), cut(e.ActorName,
		maxName), e.Action, cut(e.Target, maxName), cut(e.Detail, maxDetail), cut(e.Address, maxAgent), cut(e.UserAgent,
		maxAgent), cut(e.RequestID, maxAgent), e.At.UnixMicro())
}

func scan(r db.Row) (e Entry, err error) {
	var at int64
	err = r.Scan((*db.ID)(&e.ID), (*db.ID)(&e.TeamID), &e.ActorKind, (*db.ID)(&e.ActorID), &e.ActorName, &e.Action,
		&e.Target, &e.Detail, &e.Address, &e.UserAgent, &e.RequestID, &at)
	e.At = db.Time(at)
	return e, err
}

// selected returns the query for those entries that match a filter and belong to a team or, if teamID is "", to none.
func selected(teamID string, f Filter) page.Select {
	s := page.Select{Text: `SELECT ` + columns + ` FROM audit_log WHERE team_id = $1`, ID: "id",
		Args: []any{db.ID(teamID)}}
	if teamID == "" {
		s.Text, s.Args = `SELECT `+columns+` FROM audit_log WHERE team_id IS NULL`, nil
	}
	where := func(condition string, values ...any) {
		for _, v := range values {
			s.Args = append(s.Args, v)
			condition = strings.Replace(condition, "?", fmt.Sprintf("$%d", len(s.Args)), 1)
		}
		s.Text += " AND " + condition
	}
	switch {
	case id.Valid(f.ActorID):
		where("actor_id = ?", db.ID(f.ActorID))
	case f.ActorID != "": // no actor has such an id
		where("FALSE")
	}
	if f.Action != "" {
		where("action = ?", f.Action)
	}
	if f.Target != "" {
		where("target = ?", f.Target)
	}
	// The bounds on the id column let the index find the time range; the bounds on the "at" column are exact.
	if !f.From.IsZero() {
		where("id >= ? AND at >= ?", db.ID(id.First(f.From.Add(-slack))), f.From.UnixMicro())
	}
	if !f.To.IsZero() {
		where("id < ? AND at < ?", db.ID(id.First(f.To.Add(slack))), f.To.UnixMicro())
	}
	return s
}

// slack is the maximum difference between the time in an entry's id and the entry's time. The two times can differ,
// because a request's entry keeps its id when its transaction is repeated.
const slack = time.Minute

// span returns a filter with only those conditions of f that an index supports. These are the time range and the actor
// or, if no actor is set, the action.
func (f Filter) span() Filter {
	s := Filter{ActorID: f.ActorID, Action: f.Action, From: f.From, To: f.To}
	if s.ActorID != "" {
		s.Action = ""
	}
	return s
}

func list(ctx context.Context, r db.Reader, teamID string, f Filter, p page.Page) ([]Entry, bool, string, error) {
	return page.Search(ctx, r, selected(teamID, f.span()), selected(teamID, f), p, scan)
}

func part(ctx context.Context, r db.Reader, teamID string, f Filter, after string) ([]Entry, string, error) {
	return page.Part(ctx, r, selected(teamID, f.span()), selected(teamID, f), after, partRows, scan,
		func(e Entry) string { return e.ID })
}

// deleteBefore deletes up to limit of the oldest entries, across all teams, whose ids are below the given id.
func deleteBefore(ctx context.Context, tx *db.Tx, before string, limit int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM audit_log WHERE id <= (SELECT id FROM (SELECT id FROM audit_log WHERE id < $1
		ORDER BY id LIMIT $2) x ORDER BY id DESC LIMIT 1)`, db.ID(before), limit)
}

func deleteTeam(ctx context.Context, tx *db.Tx, teamID string, limit int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM audit_log WHERE id IN (SELECT id FROM audit_log WHERE team_id = $1 ORDER BY id
		LIMIT $2)`, db.ID(teamID), limit)
}
