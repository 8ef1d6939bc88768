package broadcasts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
)

const eraseRows = 500 // maximum number of rows that one statement deletes

// EraseTeam deletes a team's broadcasts. Package content deletes the contents of the broadcasts.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	for {
		all, err := someBroadcasts(ctx, s.p.DB.Reader, teamID)
		if err != nil || len(all) == 0 {
			return err
		}
		for _, broadcastID := range all {
			if err := s.eraseBroadcast(ctx, teamID, broadcastID); err != nil {
				return fmt.Errorf("erase broadcast %s: %w", broadcastID, err)
			}
		}
	}
}

func someBroadcasts(ctx context.Context, r db.Reader, teamID string) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT id FROM broadcasts WHERE team_id = $1 ORDER BY id LIMIT $2`, db.ID(teamID),
		eraseRows)
	all, err := db.Collect(rows, err, func(r db.Row) (id string, err error) {
		err = r.Scan((*db.ID)(&id))
		return id, err
	})
	if err != nil {
		return nil, fmt.Errorf("look for broadcasts of team %s: %w", teamID, err)
	}
	return all, nil
}

// eraseStatements are SQL statements, each of which deletes a batch of a broadcast's rows.
var eraseStatements = []string{
	`DELETE FROM broadcast_clicks WHERE broadcast_id = $1 AND contact_id <= (SELECT contact_id FROM
		(SELECT contact_id FROM broadcast_clicks WHERE broadcast_id = $1 ORDER BY contact_id LIMIT $2) x
		ORDER BY contact_id DESC LIMIT 1)`,
	`DELETE FROM broadcast_recipients WHERE broadcast_id = $1 AND contact_id <= (SELECT contact_id FROM
		(SELECT contact_id FROM broadcast_recipients WHERE broadcast_id = $1 ORDER BY contact_id LIMIT $2) x
		ORDER BY contact_id DESC LIMIT 1)`,
	`DELETE FROM broadcast_links WHERE broadcast_id = $1 AND link <= (SELECT MAX(link) FROM
		(SELECT link FROM broadcast_links WHERE broadcast_id = $1 ORDER BY link LIMIT $2) x)`,
}

func (s *Service) eraseBroadcast(ctx context.Context, teamID, broadcastID string) error {
	for _, text := range eraseStatements {
		err := s.p.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return tx.Exec(ctx, text, db.ID(broadcastID), eraseRows) })
		if err != nil {
			return err
		}
	}
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		// A page of the broadcast that was written meanwhile had the broadcast locked. No page follows, but the rows of this
		// one would remain, because nothing would name them.
		if _, err := tx.Exec(ctx, `UPDATE broadcasts SET updated_at = updated_at WHERE id = $1 AND team_id = $2`,
			db.ID(broadcastID), db.ID(teamID)); err != nil {
			return err
		}
		for _, text := range eraseStatements {
			for n := int64(eraseRows); n >= eraseRows; {
				var err error
				if n, err = tx.Exec(ctx, text, db.ID(broadcastID), eraseRows); err != nil {
					return err
				}
			}
		}
		deleteVariants(ctx, tx, teamID, broadcastID)
		deleteCounts(ctx, tx, teamID, broadcastID)
		deleteBroadcast(ctx, tx, teamID, broadcastID)
		return nil
	})
}

// continuePrefix is the prefix of a RemoveRecipients cursor if the same broadcast may have more rows to delete.
const continuePrefix = "again "

// RemoveRecipients deletes a batch of recipients and their clicks from one broadcast that ended before the given time.
// Pass "" as the cursor to the first call, and the returned cursor to each following call. The returned cursor is "" if
// no recipients remain. The broadcast keeps its counts of emails and of contacts that were left out.
func (s *Service) RemoveRecipients(ctx context.Context, teamID string, before time.Time, after string) (next string,
	err error) {
	broadcastID, more := strings.CutPrefix(after, continuePrefix)
	if !more {
		var has bool
		broadcastID, has, err = endedBefore(ctx, s.p.DB.Reader, teamID, after, before)
		if err != nil || !has {
			return broadcastID, err
		}
	}
	next = broadcastID
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		for _, text := range eraseStatements {
			n, err := tx.Exec(ctx, text, db.ID(broadcastID), eraseRows)
			if err != nil {
				return fmt.Errorf("delete old recipients of broadcast %s: %w", broadcastID, err)
			}
			if n >= eraseRows {
				next = continuePrefix + broadcastID
			}
		}
		return nil
	})
	return next, err
}

// endedBefore returns the next broadcast of a team that ended before the given time and has rows for RemoveRecipients
// to delete. If none of the next 500 broadcasts has such rows, endedBefore returns has == false and the id of the last
// of these broadcasts, or "" at the end. The query makes no changes. Most broadcasts have no rows left, but must be
// checked each time, because a late click inserts rows.
func endedBefore(ctx context.Context, r db.Reader, teamID, after string, before time.Time) (id string, has bool,
	err error) {
	err = r.QueryRow(ctx, `SELECT x.id, x.has FROM (SELECT b.id,
			EXISTS (SELECT 1 FROM broadcast_recipients r WHERE r.broadcast_id = b.id)
			OR EXISTS (SELECT 1 FROM broadcast_clicks k WHERE k.broadcast_id = b.id)
			OR EXISTS (SELECT 1 FROM broadcast_links l WHERE l.broadcast_id = b.id) AS has
		FROM broadcasts b WHERE b.team_id = $1 AND b.id > $2 AND b.sent_at > 0 AND b.sent_at < $3
		ORDER BY b.id LIMIT $4) x ORDER BY x.has DESC, CASE WHEN x.has THEN x.id END, x.id DESC LIMIT 1`, db.ID(teamID),
		db.OrNoID(after), before.UnixMicro(), eraseRows).Scan((*db.ID)(&id), &has)
	if errors.Is(err, db.ErrNoRows) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("look for old broadcasts of team %s: %w", teamID, err)
	}
	return id, has, nil
}

// erasedRecipients is the name of the counter in the report that EraseAddress returns.
const erasedRecipients = "recipients of broadcasts, in which it was replaced"

// EraseAddress erases an address from the recipients of broadcasts. EraseAddress replaces the address in each
// recipient's row, but keeps the row so that the counts stay correct. EraseAddress also deletes the recipient's clicks.
// EraseAddress reads all recipients of the teams in scope, in pages.
func EraseAddress(ctx context.Context, d *db.DB, a erasure.Address, scope erasure.Scope) (found erasure.Report,
	err error) {
	for _, teamID := range scope.Teams {
		for after, more := "", true; more; more = after != "" {
			var some []BroadcastRecipient
			if some, after, err = recipientsWithAddress(ctx, d.Reader, teamID, a, after); err != nil {
				return found, fmt.Errorf("erase an address from broadcasts of team %s: %w", teamID, err)
			}
			for i := range some {
				found.Add(erasedRecipients, 1)
				if scope.DryRun {
					continue
				}
				err := d.Update(ctx, func(tx *db.Tx) error { replaceAddress(ctx, tx, teamID, &some[i]); return nil })
				if err != nil {
					return found, fmt.Errorf("erase an address from broadcast %s: %w", some[i].BroadcastID, err)
				}
			}
		}
		if err := eraseFromLinks(ctx, d, a, teamID, scope.DryRun, &found); err != nil {
			return found, fmt.Errorf("erase an address from clicked links of team %s: %w", teamID, err)
		}
	}
	return found, nil
}

// erasedLinks is the name of the counter of clicked links in the report that EraseAddress returns.
const erasedLinks = "clicked links of broadcasts, in which it was replaced"

// eraseFromLinks replaces an address in the URLs of a team's clicked links. The hash that identifies a link stays, so
// that a later click counts for the same link and does not store the URL again.
func eraseFromLinks(ctx context.Context, d *db.DB, a erasure.Address, teamID string, dry bool,
	found *erasure.Report) error {
	for after := ""; ; {
		all, err := broadcastsAfter(ctx, d.Reader, teamID, after)
		if err != nil || len(all) == 0 {
			return err
		}
		for _, after = range all {
			err := db.Walk(ctx, d.Reader, "broadcast_links WHERE broadcast_id = $1 AND team_id = $2", "link", []any{db.ID(after),
				db.ID(teamID)}, func(from, upTo string) error {
				some, err := linksWith(ctx, d.Reader, a, teamID, after, from, upTo)
				if err != nil || len(some) == 0 {
					return err
				}
				if found.Add(erasedLinks, len(some)); dry {
					return nil
				}
				return d.Update(ctx, func(tx *db.Tx) error {
					for _, l := range some {
						tx.Queue(ctx, `UPDATE broadcast_links SET url = $4 WHERE broadcast_id = $1 AND link = $2 AND team_id = $3`,
							db.ID(after), l.hash, db.ID(teamID), a.Replace(l.url))
					}
					return nil
				})
			})
			if err != nil {
				return err
			}
		}
	}
}

// broadcastsAfter returns the ids of a team's next broadcasts after the given id.
func broadcastsAfter(ctx context.Context, r db.Reader, teamID, after string) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT id FROM broadcasts WHERE team_id = $1 AND id > $2 ORDER BY id LIMIT $3`,
		db.ID(teamID), db.OrNoID(after), eraseRows)
	return db.Collect(rows, err, func(r db.Row) (id string, err error) {
		err = r.Scan((*db.ID)(&id))
		return id, err
	})
}

type clickedURL struct{ hash, url string }

// linksWith returns a broadcast's clicked links that contain an address and whose hashes are in a range.
func linksWith(ctx context.Context, r db.Reader, a erasure.Address, teamID, broadcastID, after, upTo string) (
	some []clickedURL, err error) {
	rows, err := r.Query(ctx, `SELECT link, url FROM broadcast_links WHERE broadcast_id = $1 AND link > $2 AND link <= $3
		AND `+erasure.MayContain(4, "url")+` AND team_id = $5 ORDER BY link`, db.ID(broadcastID), after, upTo, a.Pattern(),
		db.ID(teamID))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var l clickedURL
		if err = r.Scan(&l.hash, &l.url); err == nil && a.In(l.url) {
			some = append(some, l)
		}
		return none, err
	})
	return some, err
}

func replaceAddress(ctx context.Context, tx *db.Tx, teamID string, one *BroadcastRecipient) {
	tx.Queue(ctx, `DELETE FROM broadcast_clicks WHERE broadcast_id = $1 AND contact_id = $2 AND team_id = $3`,
		db.ID(one.BroadcastID), db.ID(one.ContactID), db.ID(teamID))
	tx.Queue(ctx, `UPDATE broadcast_recipients SET address = $3 WHERE broadcast_id = $1 AND contact_id = $2`,
		db.ID(one.BroadcastID), db.ID(one.ContactID), erasure.Placeholder)
}

// ErasableTexts are the texts of broadcasts in which an erasure replaces an address.
var ErasableTexts = erasure.Texts{Kind: "names of broadcasts in which it was replaced", Table: "broadcasts",
	Columns: []string{"name"}}
