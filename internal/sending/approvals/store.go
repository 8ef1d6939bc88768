package approvals

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/page"
)

const columns = `id, team_id, actor_kind, actor_id, actor_name, sender, recipients, subject, state, created_at,
	expires_at, decided_at, decided_by_kind, decided_by_id, reason, email_id`

// fields returns the scan destinations for the approval columns. After scanning, call the method done.
func fields(a *Approval) (to []any, done func()) {
	var kind, state, by string
	var created, expires, decided int64
	to = []any{(*db.ID)(&a.ID), (*db.ID)(&a.TeamID), &kind, (*db.ID)(&a.Actor.ID), &a.ActorName, &a.From, &a.Recipients,
		&a.Subject, &state, &created, &expires, &decided, &by, (*db.ID)(&a.DecidedBy.ID), &a.Reason, (*db.ID)(&a.EmailID)}
	return to, func() {
		a.Actor.Kind, a.DecidedBy.Kind, a.State = teams.ActorKind(kind), teams.ActorKind(by), State(state)
		a.CreatedAt, a.ExpiresAt, a.DecidedAt = db.Time(created), db.Time(expires), db.Time(decided)
	}
}

func scan(r db.Row) (a Approval, err error) {
	to, done := fields(&a)
	err = r.Scan(to...)
	done()
	return a, err
}

// get returns an approval; it includes the email if the email is still stored.
func get(ctx context.Context, r db.Reader, teamID, approvalID string) (a Approval, err error) {
	to, done := fields(&a)
	var request string
	err = r.QueryRow(ctx, `SELECT `+columns+`, request FROM approvals WHERE id = $1 AND team_id = $2`,
		db.ID(approvalID), db.ID(teamID)).Scan(append(to, &request)...)
	if errors.Is(err, db.ErrNoRows) {
		return a, fault.NotFoundf("Approval not found")
	}
	if err != nil {
		return a, fmt.Errorf("read an approval: %w", err)
	}
	done()
	if request != "" {
		a.Email, err = decode(request)
	}
	return a, err
}

// list returns a page of approvals. An empty state matches all states, and an empty actorID matches all actors.
func list(ctx context.Context, r db.Reader, teamID string, state State, actorID string, p page.Page) ([]Approval, bool,
	error) {
	q := page.Select{Text: `SELECT ` + columns + ` FROM approvals WHERE team_id = $1`, ID: "id",
		Args: []any{db.ID(teamID)}}
	if state != "" {
		q.Args = append(q.Args, string(state))
		q.Text += fmt.Sprintf(" AND state = $%d", len(q.Args))
	}
	if actorID != "" {
		q.Args = append(q.Args, db.ID(actorID))
		q.Text += fmt.Sprintf(" AND actor_id = $%d", len(q.Args))
	}
	return page.Query(ctx, r, q, p, scan)
}

// isApproved reports whether an email was accepted because a person approved it.
func isApproved(ctx context.Context, r db.Reader, teamID, emailID string) (approved bool, err error) {
	err = r.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM approvals WHERE email_id = $1 AND email_id IS NOT NULL
		AND COALESCE(team_id, team_id) = $2 AND state = 'approved')`, db.ID(emailID), db.ID(teamID)).Scan(&approved)
	return approved, err
}

// countRequests counts the approvals that an actor requested after the given time: those that are still pending, and
// all of them. The parameter most is the maximum number of rows to count.
func countRequests(ctx context.Context, r db.Reader, teamID, actorID string, since time.Time,
	most int) (pending, all int, err error) {
	err = r.QueryRow(ctx, `SELECT COALESCE(SUM(CASE WHEN state = 'pending' THEN 1 ELSE 0 END), 0), COUNT(*) FROM
		(SELECT state FROM approvals WHERE team_id = $1 AND actor_id = $2 AND created_at > $3
		ORDER BY created_at DESC LIMIT $4) recent`, db.ID(teamID), db.ID(actorID), since.UnixMicro(), most).Scan(&pending,
		&all)
	return pending, all, err
}

func insert(ctx context.Context, tx *db.Tx, a *Approval, request string) {
	tx.Proof(`SELECT 1 FROM approvals WHERE id = $1`, db.ID(a.ID))
	tx.Queue(ctx, `INSERT INTO approvals (`+columns+`, request)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 0, '', NULL, '', NULL, $12)`, db.ID(a.ID), db.ID(a.TeamID),
		string(a.Actor.Kind), db.ID(a.Actor.ID), a.ActorName, a.From, a.Recipients, a.Subject, string(a.State),
		a.CreatedAt.UnixMicro(), a.ExpiresAt.UnixMicro(), request)
}

// decide stores the decision on an approval; it returns false if the approval is no longer pending.
func decide(ctx context.Context, tx *db.Tx, a *Approval) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE approvals SET state = $3, decided_at = $4, decided_by_kind = $5, decided_by_id = $6,
		reason = $7, email_id = $8, request = '' WHERE id = $1 AND team_id = $2 AND state = 'pending'
		AND expires_at > $4`, db.ID(a.ID), db.ID(a.TeamID), string(a.State), tx.Now().UnixMicro(),
		string(a.DecidedBy.Kind), db.ID(a.DecidedBy.ID), a.Reason, db.ID(a.EmailID))
	if err != nil {
		return false, fmt.Errorf("decide of approval %s: %w", a.ID, err)
	}
	return n > 0, nil
}

// expire marks a batch of overdue approvals, across all teams, as expired and returns them.
func expire(ctx context.Context, tx *db.Tx, limit int) ([]Approval, error) {
	rows, err := tx.Query(ctx, `UPDATE approvals SET state = 'expired', decided_at = $1, request = ''
		WHERE id IN (SELECT id
		FROM approvals WHERE state = 'pending' AND expires_at <= $1 ORDER BY expires_at, id LIMIT $2)
		AND decided_at <= 0 RETURNING `+columns, tx.Now().UnixMicro(), limit)
	return db.Collect(rows, err, scan)
}

// deleteDecided deletes a batch of approvals, across all teams, that were decided before the given time.
func deleteDecided(ctx context.Context, tx *db.Tx, before time.Time, limit int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM approvals WHERE id IN (SELECT id FROM approvals WHERE decided_at > 0
		AND decided_at < $1 ORDER BY decided_at, id LIMIT $2)`, before.UnixMicro(), limit)
}

func eraseTeam(ctx context.Context, tx *db.Tx, teamID string, limit int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM approvals WHERE id IN (SELECT id FROM approvals WHERE team_id = $1
		ORDER BY id LIMIT $2)`, db.ID(teamID), limit)
}

// requestsNaming returns a page of the team's pending approvals that may contain an address. The page starts after the
// given approval id.
func requestsNaming(ctx context.Context, r db.Reader, teamID, pattern, after string,
	limit int) ([]pendingRequest, error) {
	rows, err := r.Query(ctx, `SELECT id, request FROM approvals WHERE team_id = $1 AND state = 'pending' AND id > $3
		AND `+erasure.MayContain(2, "request")+` ORDER BY id LIMIT $4`, db.ID(teamID), pattern, db.OrNoID(after),
		limit)
	return db.Collect(rows, err, func(r db.Row) (n pendingRequest, err error) {
		err = r.Scan((*db.ID)(&n.id), &n.request)
		return n, err
	})
}

type pendingRequest struct{ id, request string }

func remove(ctx context.Context, tx *db.Tx, teamID, approvalID string) {
	tx.Queue(ctx, `DELETE FROM approvals WHERE id = $1 AND team_id = $2 AND state = 'pending'`, db.ID(approvalID),
		db.ID(teamID))
}
