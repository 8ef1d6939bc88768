package requestlog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/sending/emails"
)

// lastID is greater than every entry's id.
const lastID = "ffffffff-ffff-ffff-ffff-ffffffffffff"

// eraseEntries is the number of entries for which an erasure reads the bodies of emails at once. An entry refers to at
// most 100 emails.
const eraseEntries = 200

// EraseTeam deletes all request log entries of a team.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	for after := ""; ; {
		var err error
		if after, err = s.removeBelow(ctx, teamID, lastID, after); err != nil {
			return fmt.Errorf("erase the request log of team %s: %w", teamID, err)
		}
		if after == "" {
			return nil
		}
	}
}

// EraseAddress replaces an email address in all log entries that contain it, for the teams in the scope. If an entry
// refers to an email whose body contains the address, the entry stores the body from then on, with the address
// replaced; the email itself is not changed. With DryRun, EraseAddress only counts the entries.
func EraseAddress(ctx context.Context, d *db.DB, a erasure.Address, scope erasure.Scope) (found erasure.Report,
	err error) {
	for _, teamID := range scope.Teams {
		err := db.Walk(ctx, d.Reader, "request_logs WHERE team_id = $1", "id", []any{db.ID(teamID)}, func(after,
			upTo db.ID) error {
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
// upTo. Those bodies of emails that contain the address are filled in.
func entriesWith(ctx context.Context, r db.Reader, a erasure.Address, teamID string, after, upTo db.ID) (
	some []storedEntry, err error) {
	referring, bodies, err := bodiesWith(ctx, r, a, teamID, after, upTo)
	if err != nil {
		return nil, err
	}
	rows, err := r.Query(ctx, `SELECT id, team_id, endpoint, user_agent, request_body, response_body, email_ids
		FROM request_logs WHERE team_id = $1 AND id > $2 AND id <= $3 AND (id = ANY($5) OR `+
		erasure.MayContain(4, "endpoint", "user_agent", "request_body", "response_body")+`) ORDER BY id`, db.ID(teamID),
		after, upTo, a.Pattern(), referring)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var e storedEntry
		err = r.Scan((*db.ID)(&e.ID), (*db.ID)(&e.TeamID), &e.Endpoint, &e.UserAgent, &e.RequestBody, &e.ResponseBody,
			&e.emailIDs)
		if err == nil && e.emailIDs != "" {
			e.RequestBody = fill(e.RequestBody, strings.Split(e.emailIDs, ","), bodies, a.In)
		}
		if err == nil && (a.In(e.Endpoint) || a.In(e.UserAgent) || a.In(e.RequestBody) || a.In(e.ResponseBody)) {
			some = append(some, e)
		}
		return none, err
	})
	return some, err
}

// bodiesWith returns the beginnings of the bodies of emails that contain an address, and the ids of the entries between
// two ids that refer to these emails.
func bodiesWith(ctx context.Context, r db.Reader, a erasure.Address, teamID string, after, upTo db.ID) (
	entryIDs []db.ID, bodies map[string]emails.BodyStart, err error) {
	rows, err := r.Query(ctx, `SELECT id, email_ids FROM request_logs
		WHERE team_id = $1 AND id > $2 AND id <= $3 AND email_ids <> '' ORDER BY id`, db.ID(teamID), after, upTo)
	all, err := db.Collect(rows, err, func(r db.Row) (e storedEntry, err error) {
		err = r.Scan((*db.ID)(&e.ID), &e.emailIDs)
		return e, err
	})
	if err != nil {
		return nil, nil, err
	}
	bodies = map[string]emails.BodyStart{}
	for some := range slices.Chunk(all, eraseEntries) {
		var emailIDs []string
		for _, e := range some {
			emailIDs = append(emailIDs, strings.Split(e.emailIDs, ",")...)
		}
		found, err := emails.BodyStartsWith(ctx, r, a, teamID, emailIDs, successMax)
		if err != nil {
			return nil, nil, err
		}
		maps.DeleteFunc(found, func(_ string, b emails.BodyStart) bool { return !names(b.HTML, a) && !names(b.Text, a) })
		for _, e := range some {
			if slices.ContainsFunc(strings.Split(e.emailIDs, ","), func(id string) bool { _, ok := found[id]; return ok }) {
				entryIDs = append(entryIDs, db.ID(e.ID))
			}
		}
		maps.Copy(bodies, found)
	}
	return entryIDs, bodies, nil
}

// names reports whether a body contains an address, as it is or as JSON.
func names(body *string, a erasure.Address) bool {
	return body != nil && (a.In(*body) || a.In(string(reference{}.quote(*body))))
}

// replaceIn updates an entry in which the address has been replaced.
func replaceIn(ctx context.Context, tx *db.Tx, a erasure.Address, e *storedEntry) {
	tx.Queue(ctx, `UPDATE request_logs SET endpoint = $3, user_agent = $4, request_body = $5, response_body = $6
		WHERE team_id = $1 AND id = $2`, db.ID(e.TeamID), db.ID(e.ID), a.Replace(e.Endpoint), a.Replace(e.UserAgent),
		a.Replace(e.RequestBody), a.Replace(e.ResponseBody))
}
