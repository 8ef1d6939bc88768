package receiving

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/metrics"
)

// EraseTeam deletes a team's received emails.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	for {
		some, err := storedBetween(ctx, s.p.DB.Reader, teamID, "", lastID)
		if err == nil && len(some) > 0 {
			_, err = s.remove(ctx, teamID, some, false)
		}
		if err != nil {
			return fmt.Errorf("erase what team %s received: %w", teamID, err)
		}
		if len(some) == 0 {
			return nil
		}
	}
}

// RemoveBefore deletes, oldest first, a team's emails that were received before the given time and whose ids are above
// the given id. RemoveBefore deletes as many emails as fit in one short transaction. Metrics still count deleted
// emails. RemoveBefore returns the id at which the next call must continue, or "" if no email remains to be
// deleted.
func (s *Service) RemoveBefore(ctx context.Context, teamID string, before time.Time, after string) (next string,
	err error) {
	some, err := storedBetween(ctx, s.p.DB.Reader, teamID, after, id.First(before))
	if err == nil && len(some) > 0 {
		next = some[len(some)-1].id
		_, err = s.remove(ctx, teamID, some, true)
	}
	if err != nil {
		return "", fmt.Errorf("delete old received emails of team %s: %w", teamID, err)
	}
	return next, nil
}

// Delete deletes one received email with all its data; metrics still count it. In the first few minutes, until metrics
// have counted the email, Delete fails with an Unavailable fault.
func (s *Service) Delete(ctx context.Context, teamID, emailID string) error {
	e, err := getEmail(ctx, s.p.DB.Reader, teamID, emailID)
	if err != nil {
		return err
	}
	gone, err := s.remove(ctx, teamID, []storedEmail{{e.ID, e.blobKey}}, true)
	if err != nil {
		return fmt.Errorf("delete received email %s: %w", emailID, err)
	}
	if len(gone) == 0 {
		return fault.New(fault.Unavailable, "",
			"The email came in so recently that it is not counted yet. Try again in a few minutes.")
	}
	return nil
}

// remove deletes a team's emails in one transaction, and then deletes their blobs, except those that another team's
// emails use. If remove is interrupted before it deletes all blobs, the sweep deletes the remaining blobs. If
// countersStay is true, remove keeps emails that are not yet counted. The ids of the deleted emails are
// returned.
func (s *Service) remove(ctx context.Context, teamID string, some []storedEmail, countersStay bool) (gone []string,
	err error) {
	var keys []string
	err = s.p.DB.Update(ctx, func(tx *db.Tx) (err error) {
		gone, keys = nil, nil
		for _, e := range some {
			gone = append(gone, e.id)
		}
		if countersStay {
			if gone, err = metrics.RetainReceived(ctx, tx, teamID, gone); err != nil {
				return err
			}
		}
		for _, e := range some {
			if e.blobKey != "" && slices.Contains(gone, e.id) {
				keys = append(keys, e.blobKey)
			}
		}
		if len(gone) > 0 {
			deleteReceived(ctx, tx, teamID, gone)
		}
		return nil
	})
	if err != nil || len(keys) == 0 {
		return gone, err
	}
	used, err := usedBlobs(ctx, s.p.DB.Reader, keys)
	if err != nil {
		return gone, fmt.Errorf("find the users of %d raw messages: %w", len(keys), err)
	}
	for _, key := range keys {
		if slices.Contains(used, key) {
			continue
		}
		if err := s.p.Blobs.Delete(ctx, key); err != nil {
			return gone, err
		}
	}
	return gone, nil
}
