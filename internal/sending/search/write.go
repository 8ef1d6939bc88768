package search

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/termindex"
)

// buildEmails is the number of emails that one statement reads for a segment.
const buildEmails = 500

// write writes a segment, and returns false if it was given up because something else happened meanwhile. The function
// read returns the rows of the segment, and how many emails they have. The function use runs in the transaction after
// which searches use the segment. Both may return errReplaced to give up.
//
// No erased address may get into the index, although the emails are read without a transaction. For this purpose, the
// header of the segment is committed before the emails are read, in the state building. An erasure either commits
// before the header, so the emails are read without the address, or it finds the header and makes the segment dead
// ([Break]). Each later transaction of write fails if its segment is no longer in the state building.
func (x *Index) write(ctx context.Context, teamID string, g segment, read func() ([]termindex.Row, int, error),
	use func(*db.Tx) error) (ok bool, err error) {
	next := segmentNew // emails that are committed late may be missing
	if g.last < id.First(x.db.Now().Add(-checkAge)) {
		next = segmentChecked
	}
	err = x.db.Update(ctx, func(tx *db.Tx) (err error) {
		if err := lockIndex(ctx, tx, teamID); err != nil {
			return err
		}
		g.state = segmentBuilding
		if g.gen, err = nextGen(ctx, tx.Reader, teamID, g.last); err == nil {
			insertSegment(ctx, tx, teamID, g)
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("begin a segment: %w", err)
	}
	rows, emails, err := read()
	for err == nil && len(rows) > termRows {
		some := rows[:termRows]
		rows = rows[termRows:]
		err = x.db.Update(ctx, func(tx *db.Tx) error {
			holdSegment(ctx, tx, teamID, g)
			insertTerms(ctx, tx, teamID, g, some)
			return nil
		})
	}
	if err == nil {
		err = x.db.Update(ctx, func(tx *db.Tx) error {
			if err := lockIndex(ctx, tx, teamID); err != nil {
				return err
			}
			if err := use(tx); err != nil {
				return err
			}
			insertTerms(ctx, tx, teamID, g, rows)
			finishSegment(ctx, tx, teamID, g, emails, next)
			return nil
		})
	}
	if err == nil {
		return true, nil
	}
	if failed := x.removeSegment(ctx, teamID, g); failed != nil {
		err = errors.Join(err, failed)
	} else if errors.Is(err, errReplaced) {
		err = nil
	}
	return false, err
}

// replace replaces segments by one that covers the same emails, and returns false if one of the old segments changed
// meanwhile. The parameter read is that of [Index.write].
func (x *Index) replace(ctx context.Context, teamID string, old []segment,
	read func() ([]termindex.Row, int, error)) (ok bool, err error) {
	g := segment{from: old[0].from, last: old[len(old)-1].last}
	ok, err = x.write(ctx, teamID, g, read, func(tx *db.Tx) error {
		for _, o := range old {
			ok, err := setSegmentState(ctx, tx, teamID, o, segmentDead)
			if err != nil {
				return err
			}
			if !ok {
				return errReplaced
			}
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("replace segments of the search index: %w", err)
	}
	if !ok {
		return false, nil
	}
	for _, o := range old {
		o.state = segmentDead
		if err := x.removeSegment(ctx, teamID, o); err != nil {
			return false, err
		}
	}
	return true, nil
}

// rebuild replaces a segment by one that is made from the emails.
func (x *Index) rebuild(ctx context.Context, teamID string, g segment) (ok bool, err error) {
	return x.replace(ctx, teamID, []segment{g}, func() ([]termindex.Row, int, error) { return x.build(ctx, teamID, g) })
}

// build makes the rows of a segment from the emails, and counts the emails.
func (x *Index) build(ctx context.Context, teamID string, g segment) (rows []termindex.Row, emails int, err error) {
	var builder termindex.Builder
	for after, more := neighbor(g.from, -1), true; more; {
		some, err := x.messages(ctx, teamID, after, neighbor(g.last, 1), buildEmails)
		if err != nil {
			return nil, 0, fmt.Errorf("read the emails of a segment: %w", err)
		}
		for i := range some {
			u, err := uuid.Parse(some[i].ID)
			if err != nil {
				return nil, 0, err
			}
			builder.Add(u, some[i].terms())
			after = some[i].ID
		}
		emails += len(some)
		if more = len(some) == buildEmails; emails > termindex.MaxDocuments {
			return nil, 0, fmt.Errorf("the segment from %s to %s has too many emails", g.from, g.last)
		}
	}
	return builder.Rows(), emails, nil
}

// removeSegment deletes a dead segment, or one that is being written, which then fails.
func (x *Index) removeSegment(ctx context.Context, teamID string, g segment) (err error) {
	if g.state == segmentBuilding {
		err = x.db.Update(ctx, func(tx *db.Tx) error {
			_, err := setSegmentState(ctx, tx, teamID, g, segmentDead)
			return err
		})
	}
	if err == nil {
		err = x.removeTerms(ctx, teamID, g)
	}
	if err == nil { // without the header, the other rows would not be found again
		err = x.db.Update(ctx, func(tx *db.Tx) error {
			deleteSegment(ctx, tx, teamID, g)
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("delete a segment of the search index: %w", err)
	}
	return nil
}

// removeTerms deletes the rows of a segment except for its header.
func (x *Index) removeTerms(ctx context.Context, teamID string, g segment) error {
	return x.db.Repeat(ctx, func(tx *db.Tx) (int64, error) { return deleteTerms(ctx, tx, teamID, g) })
}

// Forget deletes the terms of the segments that an erasure broke, because they contain the address. An empty broken
// segment remains until the job builds it again.
func (x *Index) Forget(ctx context.Context, teamID, emailID string) error {
	some, err := brokenSegments(ctx, x.db.Reader, teamID, emailID)
	for i := 0; i < len(some) && err == nil; i++ {
		err = x.removeTerms(ctx, teamID, some[i])
	}
	if err != nil {
		return fmt.Errorf("delete the terms of email %s from the search index: %w", emailID, err)
	}
	return nil
}
