package emails

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/termindex"
)

// The search index is a series of segments for each team. Searches read emails that no segment covers directly, so an
// email is found as soon as it is accepted, and an interrupted job leaves nothing out.
//
// A node that has accepted a number of a team's emails appends a segment with all of the team's new emails. A recurring
// job does the same for the remaining emails after an hour. It also compares the number of emails in new segments with
// the emails, because PostgreSQL may commit an email after a later one, and merges small segments of a day into larger
// ones. No segment has emails of two days, so the terms of a deleted email are deleted at most a day after it.
const (
	tailEmails  = 512  // number of new emails of a team after which a node appends a segment
	tailMost    = 4096 // maximum number of emails of a segment that is appended
	tailWait    = 2 * time.Second
	tailAge     = time.Hour       // age of an email at which the job appends it
	lateCommits = 5 * time.Second // age of the emails that are appended on PostgreSQL
	checkAge    = 3 * time.Minute // age of the segments that are checked; see package metrics
	mergeFew    = 8               // number of segments of a similar size of the same day that are merged
	mergeWindow = 40              // number of a team's newest segments that are considered for merging
	mergeOften  = 16              // number of segments that are appended before segments are merged
	mergeMost   = termindex.MaxDocuments
	termRows    = 300 // number of rows that one transaction inserts or deletes
	indexTeams  = 200 // number of teams that one query examines
)

// tails counts the emails of each team that this node has accepted since it last appended them to the index.
type tails struct {
	mu sync.Mutex
	m  map[string]int
}

func (t *tails) add(teamID string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.m == nil {
		t.m = map[string]int{}
	}
	t.m[teamID] += n
}

// take returns the teams with many emails, and resets their counts.
func (t *tails) take() (some []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for teamID, n := range t.m {
		if n >= tailEmails {
			some = append(some, teamID)
			delete(t.m, teamID)
		}
	}
	return some
}

// RunIndex appends emails to the search index while this node accepts many, until ctx ends.
func (s *Service) RunIndex(ctx context.Context) error {
	tick := time.NewTicker(tailWait)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, teamID := range s.tails.take() {
			if err := s.appendTail(ctx, teamID, tailEmails, false); err != nil && ctx.Err() == nil {
				s.log.Error("append emails to the search index", "team", teamID, "error", err)
			}
		}
	}
}

// IndexPart appends old emails to the search index, and checks and merges segments, for the teams whose short ids are
// in the range of the part. If it fails for one team, it returns the error after processing all other teams.
func (s *Service) IndexPart(ctx context.Context, p jobs.Part) error {
	var failed error
	for after, last := p.Range(); ; {
		some, err := teamsToIndex(ctx, s.DB.Reader, after, last, id.First(s.DB.Now().Add(-tailAge)), indexTeams)
		if err != nil || len(some) == 0 {
			return errors.Join(failed, err)
		}
		for _, t := range some {
			if !t.work {
				continue
			}
			if err := s.indexTeam(ctx, t.id); err != nil {
				failed = errors.Join(failed, fmt.Errorf("index the emails of team %s: %w", t.id, err))
			}
			if ctx.Err() != nil {
				return failed
			}
		}
		after = some[len(some)-1].short
	}
}

// indexTeam does the work of IndexPart for one team.
func (s *Service) indexTeam(ctx context.Context, teamID string) error {
	for _, step := range []func(context.Context, string) error{s.repairSegments, s.appendOld, s.checkSegments,
		s.mergeSegments} {
		if err := step(ctx, teamID); err != nil {
			return err
		}
	}
	return nil
}

// IndexAll brings the search index of all teams up to date, whatever the age of their emails.
func (s *Service) IndexAll(ctx context.Context) error {
	for after := int64(-1); ; {
		some, err := teamsToIndex(ctx, s.DB.Reader, after, 1<<31-1, lastID, indexTeams)
		if err != nil || len(some) == 0 {
			return err
		}
		for _, t := range some {
			if t.work {
				if err := s.appendTail(ctx, t.id, 1, true); err != nil {
					return err
				}
			}
			if err := s.indexTeam(ctx, t.id); err != nil {
				return fmt.Errorf("index the emails of team %s: %w", t.id, err)
			}
		}
		after = some[len(some)-1].short
	}
}

// RebuildIndex deletes the search index of a team and makes it again.
func (s *Service) RebuildIndex(ctx context.Context, teamID string) error {
	if err := s.deleteIndex(ctx, teamID, lastID); err != nil {
		return err
	}
	if err := s.appendTail(ctx, teamID, 1, true); err != nil {
		return err
	}
	return s.indexTeam(ctx, teamID)
}

// deleteIndex deletes the segments of a team that end before an id.
func (s *Service) deleteIndex(ctx context.Context, teamID, before string) error {
	if some, err := hasTerms(ctx, s.DB.Reader, teamID, before); err != nil || !some {
		return err
	}
	return s.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) {
		if err := lockIndex(ctx, tx, teamID); err != nil {
			return 0, err
		}
		return deleteOldTerms(ctx, tx, teamID, before)
	})
}

// lockIndex makes the transactions that change a team's segments run one after another.
func lockIndex(ctx context.Context, tx *db.Tx, teamID string) error {
	return tx.Serialize(ctx, "search index "+teamID)
}

// appendOld appends all emails if the oldest of them has waited long.
func (s *Service) appendOld(ctx context.Context, teamID string) error {
	after, err := s.indexedUntil(ctx, teamID)
	if err != nil {
		return err
	}
	b, err := batchBetween(ctx, s.DB.Reader, teamID, after, id.First(s.DB.Now().Add(-tailAge)), 1, true)
	if err != nil || b.emails == 0 {
		return err
	}
	return s.appendTail(ctx, teamID, 1, true)
}

func (s *Service) indexedUntil(ctx context.Context, teamID string) (string, error) {
	g, _, err := newestSegment(ctx, s.DB.Reader, teamID)
	return g.last, err
}

// appendTail appends segments with all of a team's emails that are not in the index, if they are at least as many as
// given. Emails that are too recent are left out on PostgreSQL. Only the job, which is alone, passes merge: it merges
// segments whenever it has appended many.
func (s *Service) appendTail(ctx context.Context, teamID string, few int, merge bool) error {
	before := lastID
	if !s.DB.Alone() {
		before = id.First(s.DB.Now().Add(-lateCommits))
	}
	for n := 1; ctx.Err() == nil; n++ {
		if merge && n%mergeOften == 0 {
			if err := s.mergeSegments(ctx, teamID); err != nil {
				return err
			}
		}
		after, err := s.indexedUntil(ctx, teamID)
		if err != nil {
			return err
		}
		b, err := batchBetween(ctx, s.DB.Reader, teamID, after, before, tailMost, true)
		if err != nil {
			return fmt.Errorf("read emails for the search index: %w", err)
		}
		if b.emails == 0 || b.emails < few && !b.more {
			return nil
		}
		if ok, err := s.appendSegment(ctx, teamID, after, &b); err != nil || !ok || !b.more {
			return err
		}
	}
	return ctx.Err()
}

func dayOf(emailID string) int64 {
	at, _ := id.Time(emailID)
	return at.Unix() / (24 * 60 * 60)
}

// appendSegment inserts a segment with the emails of a batch in one transaction, unless another segment was appended, or
// an email was deleted, since they were read.
func (s *Service) appendSegment(ctx context.Context, teamID, after string, b *termBatch) (ok bool, err error) {
	g := segment{last: b.last, from: b.first, emails: b.emails, state: segmentNew}
	if after != "" {
		g.from = neighbor(after, 1)
	}
	if g.last < id.First(s.DB.Now().Add(-checkAge)) {
		g.state = segmentChecked
	}
	rows := b.terms.Rows()
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		ok = false
		if err := lockIndex(ctx, tx, teamID); err != nil {
			return err
		}
		newest, _, err := newestSegment(ctx, tx.Reader, teamID)
		if err != nil || newest.last != after {
			return err
		}
		n, err := countBetween(ctx, tx.Reader, teamID, b.first, b.last, b.emails+1)
		if err != nil || n < b.emails {
			return err
		}
		ok = true
		insertSegment(ctx, tx, teamID, g)
		insertTerms(ctx, tx, teamID, g, rows)
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("append a segment to the search index: %w", err)
	}
	return ok, nil
}

// replace replaces segments by one with the given rows. The new segment is complete before searches use it. If one of
// the old segments has changed meanwhile, nothing is replaced.
func (s *Service) replace(ctx context.Context, teamID string, old []segment, g segment, rows []termindex.Row) error {
	for _, o := range old {
		g.gen = max(g.gen, o.gen+1)
	}
	g.state = segmentBuilding
	err := s.DB.Update(ctx, func(tx *db.Tx) error {
		insertSegment(ctx, tx, teamID, g)
		return nil
	})
	for len(rows) > 0 && err == nil {
		n := min(termRows, len(rows))
		err = s.DB.Update(ctx, func(tx *db.Tx) error {
			insertTerms(ctx, tx, teamID, g, rows[:n])
			return nil
		})
		rows = rows[n:]
	}
	if err != nil {
		return fmt.Errorf("write a segment of the search index: %w", err)
	}
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		if err := lockIndex(ctx, tx, teamID); err != nil {
			return err
		}
		n, err := countBetween(ctx, tx.Reader, teamID, g.from, g.last, g.emails+1)
		if err != nil || n < g.emails && old[0].state == segmentBroken {
			return err // an email was deleted after it was read; a later call repeats this
		}
		for _, o := range old {
			ok, err := setSegmentState(ctx, tx, teamID, o, segmentDead)
			if err != nil {
				return err
			}
			if !ok {
				return errReplaced
			}
		}
		if ok, err := setSegmentState(ctx, tx, teamID, g, segmentChecked); err != nil || ok {
			return err
		}
		return errReplaced
	})
	if err != nil && !errors.Is(err, errReplaced) {
		return fmt.Errorf("replace segments of the search index: %w", err)
	}
	return s.removeSegments(ctx, teamID)
}

// removeSegments deletes segments that were replaced, or that were not completed.
func (s *Service) removeSegments(ctx context.Context, teamID string) error {
	open, err := openSegments(ctx, s.DB.Reader, teamID, 1000)
	if err != nil {
		return err
	}
	for _, g := range open {
		if g.state != segmentDead && g.state != segmentBuilding {
			continue
		}
		for _, header := range []bool{false, true} { // without the header, the other rows would not be found again
			err := s.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return deleteTerms(ctx, tx, teamID, g, header) })
			if err != nil {
				return fmt.Errorf("delete a segment of the search index: %w", err)
			}
		}
	}
	return nil
}

// repairSegments deletes the rows of interrupted work, and builds broken segments again.
func (s *Service) repairSegments(ctx context.Context, teamID string) error {
	if err := s.removeSegments(ctx, teamID); err != nil {
		return err
	}
	open, err := openSegments(ctx, s.DB.Reader, teamID, 1000)
	if err != nil {
		return err
	}
	for _, g := range open {
		if g.state == segmentBroken {
			if err := s.rebuild(ctx, teamID, g); err != nil {
				return err
			}
		}
	}
	return nil
}

// rebuild replaces a segment by one that is made from the emails.
func (s *Service) rebuild(ctx context.Context, teamID string, g segment) error {
	b, err := batchBetween(ctx, s.DB.Reader, teamID, neighbor(g.from, -1), neighbor(g.last, 1), mergeMost, false)
	if err != nil {
		return fmt.Errorf("read the emails of a segment of the search index: %w", err)
	}
	next := g
	next.emails = b.emails
	return s.replace(ctx, teamID, []segment{g}, next, b.terms.Rows())
}

// checkSegments compares new segments with the emails, and builds those again that lack an email.
func (s *Service) checkSegments(ctx context.Context, teamID string) error {
	open, err := openSegments(ctx, s.DB.Reader, teamID, 1000)
	if err != nil {
		return err
	}
	before := id.First(s.DB.Now().Add(-checkAge))
	for _, g := range open {
		if g.state != segmentNew || g.last >= before {
			continue
		}
		n, err := countBetween(ctx, s.DB.Reader, teamID, g.from, g.last, g.emails+1)
		if err != nil {
			return fmt.Errorf("count the emails of a segment: %w", err)
		}
		if n > g.emails {
			err = s.rebuild(ctx, teamID, g)
		} else {
			err = s.DB.Update(ctx, func(tx *db.Tx) error {
				_, err := setSegmentState(ctx, tx, teamID, g, segmentChecked)
				return err
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
