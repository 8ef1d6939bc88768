package receiving

import (
	"context"
	"fmt"
	"slices"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
)

// EraseAddress deletes a team's received emails whose From or return path is the given address. Emails from other
// senders whose text contains the address stay unchanged.
func (s *Service) EraseAddress(ctx context.Context, a erasure.Address, scope erasure.Scope) (found erasure.Report,
	err error) {
	for _, teamID := range scope.Teams {
		err := db.Walk(ctx, s.p.DB.Reader, "received_emails WHERE team_id = $1", "id", []any{db.ID(teamID)}, func(after,
			upTo db.ID) error {
			some, err := receivedFrom(ctx, s.p.DB.Reader, a, teamID, after, upTo)
			if err != nil {
				return err
			}
			others, err := countOthersNaming(ctx, s.p.DB.Reader, a, teamID, after, upTo, some)
			if others > 0 {
				found.Leave("received emails from others LEFT: they are stored as they arrived", erasure.LeftAlways, others)
			}
			if err != nil {
				return err
			}
			for _, e := range some {
				if scope.DryRun {
					found.Add("received emails from it, deleted", 1)
					continue
				}
				gone, err := s.remove(ctx, teamID, []storedEmail{e}, true)
				if err != nil {
					return err
				}
				if len(gone) == 0 {
					found.Leave("received emails from it LEFT, too recent", erasure.LeftSoon, 1)
				} else {
					found.Add("received emails from it, deleted", 1)
				}
			}
			return nil
		})
		if err != nil {
			return found, fmt.Errorf("erase an address in what team %s received: %w", teamID, err)
		}
	}
	return found, nil
}

// receivedFrom returns a team's received emails from an address, with ids in a range.
func receivedFrom(ctx context.Context, r db.Reader, a erasure.Address, teamID string, after,
	upTo db.ID) ([]storedEmail, error) {
	rows, err := r.Query(ctx, `SELECT id, blob_key, sender, origin FROM received_emails WHERE team_id = $1 AND id > $2 AND
		id <= $3 AND `+erasure.MayContain(4, "sender", "origin")+` ORDER BY id`, db.ID(teamID), after, upTo, a.Pattern())
	var from []storedEmail
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var e storedEmail
		var sender, origin string
		if err = r.Scan((*db.ID)(&e.id), &e.blobKey, &sender, &origin); err == nil && (a.Is(sender) || a.In(origin)) {
			from = append(from, e)
		}
		return none, err
	})
	return from, err
}

// countOthersNaming counts a team's received emails with ids in a range whose fields contain an address, except for the
// given emails, which are from the address. Only stored header fields are searched, and not the raw message.
func countOthersNaming(ctx context.Context, r db.Reader, a erasure.Address, teamID string, after, upTo db.ID,
	from []storedEmail) (n int, err error) {
	rows, err := r.Query(ctx, `SELECT id, subject, recipients, received_for, files FROM received_emails WHERE team_id = $1
		AND id > $2 AND id <= $3 AND `+erasure.MayContain(4, "subject", "recipients", "received_for", "files"),
		db.ID(teamID), after, upTo, a.Pattern())
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var id, subject, recipients, receivedFor, files string
		err = r.Scan((*db.ID)(&id), &subject, &recipients, &receivedFor, &files)
		if err == nil && (a.In(subject) || a.In(recipients) || a.In(receivedFor) || a.In(files)) &&
			!slices.ContainsFunc(from, func(e storedEmail) bool { return e.id == id }) {
			n++
		}
		return none, err
	})
	return n, err
}
