package emails

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/metrics"
)

// Old emails are deleted in batches. The transaction for one batch takes a few milliseconds. A transaction deletes an
// email entirely or not at all. The files of deleted emails are deleted after the commit. If the program is interrupted
// before the files are deleted, [Service.SweepFiles] deletes them. Emails that are not settled are kept regardless of
// their age, because delivery needs them.
//
// Idempotency keys expire before their email is deleted, because their lifetime is shorter than the shortest retention
// period for emails.

// EraseTeam deletes a team's emails, with their files and events, and its idempotency keys.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	for {
		some, err := readRemovable(ctx, s.DB.Reader, selectEmails, teamID, "", lastID)
		if err == nil && len(some) > 0 {
			for i := range some {
				some[i].settled = true // a deleted team's emails are no longer sent
			}
			_, err = s.removeEmails(ctx, teamID, fillBatch(some).ids, false)
		}
		if err != nil {
			return fmt.Errorf("erase the emails of team %s: %w", teamID, err)
		}
		if len(some) == 0 {
			break
		}
	}
	if err := s.Index.Delete(ctx, teamID, lastID); err != nil {
		return fmt.Errorf("erase the search index of team %s: %w", teamID, err)
	}
	for _, step := range []func(context.Context, *db.Tx, string) (int64, error){deleteLooseEvents, deleteSomeKeys,
		deleteSomeSkipped} {
		err := s.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return step(ctx, tx, teamID) })
		if err != nil {
			return fmt.Errorf("erase what belongs to the emails of team %s: %w", teamID, err)
		}
	}
	return nil
}

// batch holds the emails that one transaction deletes.
type batch struct {
	ids       []string
	unsettled []string // not settled
	last      string   // id of the last email considered for the batch
	more      bool     // whether there may be emails after last
}

// fillBatch fills a batch with as many emails as one transaction may delete.
func fillBatch(some []removable) (b batch) {
	rows := 0
	for i, e := range some {
		if rows += 1 + e.rows; e.settled && len(b.ids) > 0 && rows > removeRows {
			b.more = true
			return b
		}
		if e.settled {
			b.ids = append(b.ids, e.id)
		} else {
			rows -= e.rows
			b.unsettled = append(b.unsettled, e.id)
		}
		b.last, b.more = e.id, i+1 == removeEmails
	}
	return b
}

// next returns the id after which the next batch begins, or "" if this is the last batch.
func (b *batch) next() string {
	if b.more {
		return b.last
	}
	return ""
}

// RemoveBefore deletes settled emails that were accepted before the given time, with all their rows and files. Each
// call deletes a batch of the oldest emails whose ids are greater than the parameter after. The metrics still include
// the events of deleted emails. RemoveBefore returns the value to pass as after in the next call, or "" if no old
// emails are left.
func (s *Service) RemoveBefore(ctx context.Context, teamID string, before time.Time, after string) (next string,
	err error) {
	some, err := readRemovable(ctx, s.DB.Reader, selectEmails, teamID, after, id.First(before))
	b := fillBatch(some)
	if err == nil && len(b.ids) > 0 {
		_, err = s.removeEmails(ctx, teamID, b.ids, true)
	}
	if next = b.next(); err == nil && next == "" {
		err = s.Index.Delete(ctx, teamID, id.First(before))
	}
	if err != nil {
		return "", fmt.Errorf("delete old emails of team %s: %w", teamID, err)
	}
	return next, nil
}

// Remove deletes those of the given emails that are settled, with all their rows and files. The metrics still include
// their events. The caller gives at most 100 ids. Remove returns the ids of the given emails that no longer exist.
func (s *Service) Remove(ctx context.Context, teamID string, emailIDs []string) (gone []string, err error) {
	some, err := removableOf(ctx, s.DB.Reader, teamID, emailIDs)
	if err != nil {
		return nil, fmt.Errorf("read emails to delete: %w", err)
	}
	for _, emailID := range emailIDs {
		if !slices.ContainsFunc(some, func(e removable) bool { return e.id == emailID }) {
			gone = append(gone, emailID)
		}
	}
	b := fillBatch(some)
	if len(b.ids) == 0 {
		return gone, nil
	}
	removed, err := s.removeEmails(ctx, teamID, b.ids, true)
	for i := 0; i < len(removed) && err == nil; i++ {
		err = s.Index.Forget(ctx, teamID, removed[i])
	}
	if err != nil {
		return nil, fmt.Errorf("delete emails of team %s: %w", teamID, err)
	}
	return append(gone, removed...), nil
}

// RemoveBodies deletes the content of settled emails that were accepted before the given time: text, HTML, headers,
// attachments and composed messages. Each call deletes a batch of the oldest content. RemoveBodies returns "" if no old
// content is left, and a non-empty value if the caller must call RemoveBodies again. Emails that are not settled are
// recorded for [Service.RemoveSkippedBodies].
func (s *Service) RemoveBodies(ctx context.Context, teamID string, before time.Time, _ string) (next string,
	err error) {
	until, err := bodiesUntil(ctx, s.DB.Reader, teamID)
	var some []removable
	if err == nil {
		some, err = readRemovable(ctx, s.DB.Reader, selectContents, teamID, until, id.First(before))
	}
	if b := fillBatch(some); err == nil && b.last != "" {
		next = b.next()
		err = s.removeContents(ctx, teamID, b.ids, func(tx *db.Tx) { setBodiesUntil(ctx, tx, teamID, b.last, b.unsettled) })
	}
	if err != nil {
		return "", fmt.Errorf("delete the bodies of old emails of team %s: %w", teamID, err)
	}
	return next, nil
}

// RemoveSkippedBodies deletes the content of emails that were not settled when RemoveBodies skipped them, but are
// settled now. Each call handles a batch of emails whose ids are greater than the parameter after. RemoveSkippedBodies
// returns the value to pass as after in the next call, or "" if no skipped emails are left.
func (s *Service) RemoveSkippedBodies(ctx context.Context, teamID string, before time.Time, after string) (next string,
	err error) {
	some, err := readRemovable(ctx, s.DB.Reader, selectSkipped, teamID, after, id.First(before))
	b := fillBatch(some)
	if err == nil && len(b.ids) > 0 {
		err = s.removeContents(ctx, teamID, b.ids, func(tx *db.Tx) { deleteSkipped(ctx, tx, teamID, b.ids) })
	}
	if err != nil {
		return "", fmt.Errorf("delete the bodies of old emails of team %s that were not settled: %w", teamID, err)
	}
	return b.next(), nil
}

// RemoveTimelines deletes the events and attempts of settled emails whose last event was earlier than the given time.
// Each call handles the emails with the oldest events that are later than the parameter after, a Unix time in
// microseconds. The metrics still include all deleted events. RemoveTimelines returns the value to pass as after in the
// next call, or "" if no old events are left.
func (s *Service) RemoveTimelines(ctx context.Context, teamID string, before time.Time, after string) (next string,
	err error) {
	from := int64(0)
	if after != "" {
		if from, err = strconv.ParseInt(after, 10, 64); err != nil {
			return "", fmt.Errorf("parse the cursor in the timelines of team %s: %w", teamID, err)
		}
	}
	next, err = s.removeTimelines(ctx, teamID, before.UnixMicro(), from)
	if err != nil {
		return "", fmt.Errorf("delete old timelines of team %s: %w", teamID, err)
	}
	return next, nil
}

func (s *Service) removeTimelines(ctx context.Context, teamID string, before, after int64) (next string, err error) {
	upTo, err := eventsUpTo(ctx, s.DB.Reader, teamID, after, before)
	if err != nil || upTo == 0 {
		return "", err
	}
	some, err := timelinesBetween(ctx, s.DB.Reader, teamID, after, upTo, before)
	if err != nil {
		return "", err
	}
	b := fillBatch(some)
	var gone []string
	if len(b.ids) > 0 {
		err = s.DB.Update(ctx, func(tx *db.Tx) (err error) {
			if gone, err = metrics.RetainCounts(ctx, tx, teamID, b.ids); err == nil && len(gone) > 0 {
				deleteIn(ctx, tx, timelineTables, teamID, gone)
			}
			return err
		})
	}
	if len(gone) > 0 && b.last != some[len(some)-1].id {
		upTo = after // start again from the same time, because some emails did not fit into the batch
	}
	return strconv.FormatInt(upTo, 10), err
}

// DeleteContent deletes the same content as [Service.RemoveBodies], but for a single settled email.
func (s *Service) DeleteContent(ctx context.Context, teamID, emailID string) error {
	e, err := readEmail(ctx, s.DB.Reader, teamID, emailID)
	if err != nil {
		return err
	}
	to, err := pending(ctx, s.DB.Reader, &e, "")
	if err != nil {
		return fmt.Errorf("look for recipients of email %s that wait: %w", emailID, err)
	}
	if len(to) > 0 {
		return fault.Invalidf("",
			"The email is still to be delivered to %d recipients. Its content can be deleted after that, "+
				"or when it is canceled.", len(to))
	}
	return s.removeContents(ctx, teamID, []string{emailID}, func(tx *db.Tx) {
		deleteSkipped(ctx, tx, teamID,
			[]string{emailID})
	})
}

// removeEmails deletes emails and then their files. If countersStay is true, emails are kept until their events are
// counted in the metrics. The functions in also run in the same transaction. The returned slice lists the ids of the
// deleted emails.
func (s *Service) removeEmails(ctx context.Context, teamID string, emailIDs []string,
	countersStay bool, also ...func(*db.Tx, []string) error) (gone []string, err error) {
	var files []string
	err = s.DB.Update(ctx, func(tx *db.Tx) (err error) {
		gone, files = emailIDs, nil
		if countersStay {
			if gone, err = metrics.RetainCounts(ctx, tx, teamID, emailIDs); err != nil || len(gone) == 0 {
				return err
			}
		}
		if files, err = filesOf(ctx, tx.Reader, teamID, gone); err != nil {
			return fmt.Errorf("list the files of emails: %w", err)
		}
		deleteEmails(ctx, tx, teamID, gone)
		for _, f := range also {
			if err := f(tx, gone); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return gone, s.deleteFiles(ctx, files)
}

// removeContents deletes the content of settled emails. The callback runs in the same transaction.
func (s *Service) removeContents(ctx context.Context, teamID string, emailIDs []string, also func(*db.Tx)) error {
	var files []string
	err := s.DB.Update(ctx, func(tx *db.Tx) (err error) {
		files = nil
		if len(emailIDs) > 0 {
			if files, err = filesOf(ctx, tx.Reader, teamID, emailIDs); err != nil {
				return fmt.Errorf("list the files of emails: %w", err)
			}
			deleteIn(ctx, tx, contentTables, teamID, emailIDs)
			deleteShare(ctx, tx, teamID, emailIDs)
		}
		also(tx)
		return nil
	})
	if err != nil {
		return err
	}
	return s.deleteFiles(ctx, files)
}

func (s *Service) deleteFiles(ctx context.Context, keys []string) error {
	for _, key := range keys {
		if err := s.Blobs.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}
