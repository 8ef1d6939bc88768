package search

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
// ones. No segment has emails of two days, so the terms of a deleted email are deleted at most a day after it. Several
// nodes and commands may do this at the same time, because [Index.write] lets only one of them use a segment.
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
	termRows    = 300  // number of rows that one transaction inserts or deletes
	appendTries = 20   // number of times in a row that others may interfere before appending is given up
	indexTeams  = 200  // number of teams that one query examines
	openMost    = 1000 // number of unfinished segments of a team that the job handles at once
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

// Index is the search index of sent emails.
type Index struct {
	db       *db.DB
	log      *slog.Logger
	messages Messages
	tails    tails
}

// Messages reads up to limit of a team's emails with ids greater than after and less than before, oldest first.
type Messages func(ctx context.Context, teamID, after, before string, limit int) ([]Message, error)

// NewIndex returns the index, for which messages reads the emails.
func NewIndex(d *db.DB, log *slog.Logger, messages Messages) *Index {
	return &Index{db: d, log: log, messages: messages}
}

// Accepted tells the index that this node has accepted n emails of a team. The emails need not be committed yet.
func (x *Index) Accepted(teamID string, n int) { x.tails.add(teamID, n) }

// Run appends emails to the search index while this node accepts many, until ctx ends.
func (x *Index) Run(ctx context.Context) error {
	tick := time.NewTicker(tailWait)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, teamID := range x.tails.take() {
			if err := x.appendTail(ctx, teamID, tailEmails, false); err != nil && ctx.Err() == nil {
				x.log.Error("append emails to the search index", "team", teamID, "error", err)
			}
		}
	}
}

// UpdatePart appends old emails to the search index, and checks and merges segments, for the teams whose short ids are
// in the range of the part. If it fails for one team, it returns the error after processing all other teams.
func (x *Index) UpdatePart(ctx context.Context, p jobs.Part) error {
	var failed error
	for after, last := p.Range(); ; {
		some, err := teamsToIndex(ctx, x.db.Reader, after, last, id.First(x.db.Now().Add(-tailAge)), indexTeams)
		if err != nil || len(some) == 0 {
			return errors.Join(failed, err)
		}
		for _, t := range some {
			if !t.work {
				continue
			}
			if err := x.indexTeam(ctx, t.id); err != nil {
				failed = errors.Join(failed, fmt.Errorf("index the emails of team %s: %w", t.id, err))
			}
			if ctx.Err() != nil {
				return failed
			}
		}
		after = some[len(some)-1].short
	}
}

// indexTeam does the work of UpdatePart for one team.
func (x *Index) indexTeam(ctx context.Context, teamID string) error {
	for _, step := range []func(context.Context, string) error{x.repairSegments, x.appendOld, x.checkSegments,
		x.mergeSegments} {
		if err := step(ctx, teamID); err != nil {
			return err
		}
	}
	return nil
}

// Update brings the search index of all teams up to date, whatever the age of their emails.
func (x *Index) Update(ctx context.Context) error {
	for after := int64(-1); ; {
		some, err := teamsToIndex(ctx, x.db.Reader, after, 1<<31-1, lastID, indexTeams)
		if err != nil || len(some) == 0 {
			return err
		}
		for _, t := range some {
			if t.work {
				if err := x.appendTail(ctx, t.id, 1, true); err != nil {
					return err
				}
			}
			if err := x.indexTeam(ctx, t.id); err != nil {
				return fmt.Errorf("index the emails of team %s: %w", t.id, err)
			}
		}
		after = some[len(some)-1].short
	}
}

// Rebuild deletes the search index of a team and makes it again.
func (x *Index) Rebuild(ctx context.Context, teamID string) error {
	if err := x.Delete(ctx, teamID, lastID); err != nil {
		return err
	}
	if err := x.appendTail(ctx, teamID, 1, true); err != nil {
		return err
	}
	return x.indexTeam(ctx, teamID)
}

// Delete deletes the segments of a team that end before an id.
func (x *Index) Delete(ctx context.Context, teamID, before string) error {
	if some, err := hasTerms(ctx, x.db.Reader, teamID, before); err != nil || !some {
		return err
	}
	return x.db.Repeat(ctx, func(tx *db.Tx) (int64, error) {
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
func (x *Index) appendOld(ctx context.Context, teamID string) error {
	after, err := x.indexedUntil(ctx, teamID)
	if err != nil {
		return err
	}
	some, err := idsBetween(ctx, x.db.Reader, teamID, after, id.First(x.db.Now().Add(-tailAge)), 1)
	if err != nil || len(some) == 0 {
		return err
	}
	return x.appendTail(ctx, teamID, 1, true)
}

func (x *Index) indexedUntil(ctx context.Context, teamID string) (string, error) {
	g, _, err := newestSegment(ctx, x.db.Reader, teamID)
	return g.last, err
}

// appendTail appends segments with all of a team's emails that are not in the index, if they are at least as many as
// given. Emails that are too recent are left out on PostgreSQL. If merge is true, appendTail merges segments whenever
// it has appended many.
func (x *Index) appendTail(ctx context.Context, teamID string, few int, merge bool) error {
	before := lastID
	if !x.db.Alone() {
		before = id.First(x.db.Now().Add(-lateCommits))
	}
	tries := 0
	for n := 1; ctx.Err() == nil; n++ {
		if merge && n%mergeOften == 0 {
			if err := x.mergeSegments(ctx, teamID); err != nil {
				return err
			}
		}
		after, err := x.indexedUntil(ctx, teamID)
		if err != nil {
			return err
		}
		ids, err := idsBetween(ctx, x.db.Reader, teamID, after, before, tailMost)
		if err != nil {
			return fmt.Errorf("read emails for the search index: %w", err)
		}
		same := sameDay(ids)
		if len(ids) == 0 || len(ids) < few && same == len(ids) {
			return nil
		}
		ok, err := x.appendSegment(ctx, teamID, after, ids[:same])
		switch {
		case err != nil:
			return err
		case ok && len(ids) < tailMost && same == len(ids):
			return nil
		case ok:
			tries = 0
		default:
			if tries++; tries == appendTries {
				return errors.New("other nodes changed the end of the search index at each of several tries")
			}
		}
	}
	return ctx.Err()
}

// sameDay returns how many of the ids are of the same day as the first one.
func sameDay(ids []string) (n int) {
	for n < len(ids) && dayOf(ids[n]) == dayOf(ids[0]) {
		n++
	}
	return n
}

const secondsPerDay = 24 * 60 * 60

func dayOf(emailID string) int64 {
	at, _ := id.Time(emailID)
	return at.Unix() / secondsPerDay
}

// appendSegment appends a segment with the emails after the one with which the index ends. The ids are those of the
// emails that are known. It returns false if another segment was appended meanwhile, or if the emails were deleted.
func (x *Index) appendSegment(ctx context.Context, teamID, after string, ids []string) (ok bool, err error) {
	g := segment{from: ids[0], last: ids[len(ids)-1]}
	if after != "" {
		g.from = neighbor(after, 1)
	}
	ok, err = x.write(ctx, teamID, g, func() ([]termindex.Row, int, error) {
		rows, emails, err := x.build(ctx, teamID, g)
		if emails == 0 {
			err = errors.Join(errReplaced, err)
		}
		return rows, emails, err
	}, func(tx *db.Tx) error {
		newest, _, err := newestSegment(ctx, tx.Reader, teamID)
		if err == nil && newest.last != after {
			err = errReplaced
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("append a segment to the search index: %w", err)
	}
	return ok, nil
}

// repairSegments deletes the rows of interrupted work, and builds broken segments again. If another node or a command
// is writing a segment, its work counts as interrupted, and fails.
func (x *Index) repairSegments(ctx context.Context, teamID string) error {
	open, err := openSegments(ctx, x.db.Reader, teamID, openMost)
	if err != nil {
		return err
	}
	for _, g := range open {
		switch g.state {
		case segmentDead, segmentBuilding:
			err = x.removeSegment(ctx, teamID, g)
		case segmentBroken:
			_, err = x.rebuild(ctx, teamID, g)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkSegments compares new segments with the emails, and builds those again that lack an email.
func (x *Index) checkSegments(ctx context.Context, teamID string) error {
	open, err := openSegments(ctx, x.db.Reader, teamID, openMost)
	if err != nil {
		return err
	}
	before := id.First(x.db.Now().Add(-checkAge))
	for _, g := range open {
		if g.state != segmentNew || g.last >= before {
			continue
		}
		n, err := countBetween(ctx, x.db.Reader, teamID, g.from, g.last, g.emails+1)
		if err != nil {
			return fmt.Errorf("count the emails of a segment: %w", err)
		}
		if n > g.emails {
			_, err = x.rebuild(ctx, teamID, g)
		} else {
			err = x.db.Update(ctx, func(tx *db.Tx) error {
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
