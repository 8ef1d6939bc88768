// Package partitions divides the large tables of PostgreSQL by the time in their ids, makes the partitions of the next
// days, and drops those whose rows nobody keeps. SQLite has plain tables, for which the package does nothing.
//
// # How it works
//
// Ids are UUIDv7, so a range of ids is a range of time. Tables whose rows belong together form a [Family], and their
// partitions have the same ranges. The first migration creates each table with a default partition, which takes every
// row for whose id there is no other partition. [Service.Make] makes partitions ahead: for a week if a partition has a
// day, otherwise for the current and the next week or month. All times are UTC. A change of the length only concerns
// partitions that do not exist yet: a new partition begins where the last one ends.
//
// A new table is filled first and then attached, because attaching locks the parent only against other changes of the
// schema. It locks the default partition entirely, for some milliseconds. Each wait for a lock is at most [lockTime],
// because all other statements on the table wait behind it.
//
// # The default partition
//
// The default partition is normally empty. It holds rows with ids from long ago or from the far future, rows with ids
// of another version of UUID, and rows that [Service.Drop] kept. If a partition could not be made, the default
// partition also takes the rows of that time. [Service.Empty] moves these into partitions of their own, in batches. A
// batch is a range of time with at most [moveRows] rows in each table, so a day with more rows gets several partitions.
//
// # Failures
//
// Each step is one transaction, so a killed process leaves nothing behind. An advisory lock lets one node at a time
// change partitions; the next one reads what exists. If a partition cannot be made, the error is logged, the rows go to
// the default partition, and the next call tries again.
//
// # Out of scope
//
// Package partitions does not decide how long rows are kept, and does not know which rows of a dropped partition are
// still needed: callers of Drop say so.
package partitions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// Table is a partitioned table with the column by whose ids it is divided.
type Table struct {
	Name, Key string
	with      string // storage parameters, which a partition does not inherit
	owner     string // the column of ids with which the primary key begins, "" if it begins with Key
}

// Family is a list of tables whose partitions have the same ranges. The first table has the rows to which the rows of
// the others belong.
type Family struct {
	Name   string
	Tables []Table
}

const (
	lockTime  = 50 * time.Millisecond // maximum wait for a lock on a table
	lockTries = 10                    // maximum number of attempts to get all locks, within one call
	lockPause = 100 * time.Millisecond
	ahead     = 7 * 24 * time.Hour // how far ahead partitions of a day are made
	moveRows  = 100_000            // maximum number of rows of a table that one transaction moves; see Service.most
	moveSteps = 200                // maximum number of partitions that one call of Empty makes
	headStart = 2 * time.Minute    // time until the current period's partition begins if its rows are elsewhere already
)

// Length is the time that a new partition covers: day, week or month.
type Length string

// Lengths are all lengths.
var Lengths = []string{"day", "week", "month"}

// start returns the start of the period that contains t.
func (l Length) start(t time.Time) time.Time {
	t = t.UTC()
	day := time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
	switch l {
	case "day":
		return day
	case "week":
		return day.AddDate(0, 0, -(int(day.Weekday())+6)%7) // Monday
	}
	return day.AddDate(0, 0, 1-day.Day())
}

// end returns the end of the period that contains t.
func (l Length) end(t time.Time) time.Time {
	start := l.start(t)
	switch l {
	case "day":
		return start.AddDate(0, 0, 1)
	case "week":
		return start.AddDate(0, 0, 7)
	}
	return start.AddDate(0, 1, 0)
}

// horizon returns the time up to which partitions are made.
func (l Length) horizon(now time.Time) time.Time {
	if l == "day" {
		return l.end(now.Add(ahead))
	}
	return l.end(l.end(now))
}

// Span is a range of time, without its end.
type Span struct{ From, To time.Time }

func (s Span) String() string {
	return s.From.UTC().Format(time.RFC3339) + " to " + s.To.UTC().Format(time.RFC3339)
}

// holds reports whether the time is within the span.
func (s Span) holds(t time.Time) bool { return !t.Before(s.From) && t.Before(s.To) }

// without returns the parts of a span that none of the others covers, each within one period of the given length.
func (s Span) without(others []Span, l Length) (left []Span) {
	slices.SortFunc(others, func(a, b Span) int { return a.From.Compare(b.From) })
	for from := s.From; from.Before(s.To); {
		to := l.end(from)
		if to.After(s.To) {
			to = s.To
		}
		next := to
		for _, o := range others {
			if o.holds(from) {
				next, to = o.To, from
				break
			}
			if o.From.After(from) && o.From.Before(to) {
				next, to = o.From, o.From
				break
			}
		}
		if from.Before(to) {
			left = append(left, Span{from, to})
		}
		from = next
	}
	return left
}

// Partition is one table of a partitioned table.
type Partition struct {
	Table   string
	Name    string
	Default bool
	Span          // of the ids, unless it is the default partition
	Rows    int64 // estimated, but exact for a default partition with fewer than [mostCounted] rows
	Bytes   int64 // with indexes
	// Usable is true if the user may read and update the partition by its name. The rights for a table only concern
	// statements that name the table.
	Usable bool
}

const (
	learnEvery = 10 * time.Minute // after this time, a node reads again which partitions there are
	learnPause = time.Second      // minimum time between two reads; see nextPause
)

// Run tells the database which partitions there are, so that statements may name them, until ctx ends. Each node calls
// Run. Until a partition is known, after it was dropped, or if the user has no rights for it, statements name its
// table. Run reads the partitions again when a statement has met a dropped partition, or a row that is newer than all
// partitions.
func (s *Service) Run(ctx context.Context) error {
	if s.d.Alone() {
		return nil
	}
	tick := time.NewTicker(learnEvery)
	defer tick.Stop()
	var known []db.Part
	pause := learnPause
	for asked := false; ; {
		last := known
		var err error
		if known, err = s.learn(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("read the partitions", "error", err)
		}
		pause = nextPause(pause, asked && (err != nil || slices.Equal(known, last)))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		if asked = true; err != nil {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			asked = false
		case <-s.d.PartitionsStale():
		}
	}
}

// nextPause returns for how long the partitions are not read again. If they were the same although a statement asked
// for them, the pause doubles each time, because the reason may last: for example, no partitions can be made.
func nextPause(last time.Duration, same bool) time.Duration {
	if !same {
		return learnPause
	}
	return min(max(2*last, learnPause), learnEvery)
}

func (s *Service) learn(ctx context.Context) (known []db.Part, err error) {
	all, err := list(ctx, s.d.Reader, false)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if !p.Default && p.Usable {
			from, to := db.ID(id.First(p.From)), db.ID(id.First(p.To))
			known = append(known, db.Part{Table: p.Table, Name: p.Name, From: from, To: to})
		}
	}
	s.d.KnowPartitions(known)
	return known, nil
}

// Service makes and drops partitions.
type Service struct {
	d      *db.DB
	length Length
	log    *slog.Logger
	most   int // maximum number of rows of a table that one transaction moves
}

// New returns a service that makes partitions of the given length.
func New(d *db.DB, l Length, log *slog.Logger) *Service { return &Service{d, l, log, moveRows} }

// Make makes the partitions of the current period and of the next ones. Make returns an error if one cannot be made,
// after it has tried all of them.
func (s *Service) Make(ctx context.Context) error { return s.MakeSince(ctx, s.d.Now()) }

// MakeSince is like Make, but also makes the missing partitions of earlier periods, from the given time on. It is for
// rows that are inserted with ids of the past.
func (s *Service) MakeSince(ctx context.Context, since time.Time) error {
	if s.d.Alone() {
		return nil
	}
	var failed error
	for _, f := range Families {
		all, err := s.missing(ctx, f, Span{s.length.start(since), s.length.horizon(s.d.Now())})
		for _, span := range all {
			if err := s.add(ctx, f, span); err != nil {
				failed = errors.Join(failed, fmt.Errorf("make the partitions of %s of %s, whose rows the default partition "+
					"takes until then: %w", f.Name, span, err))
			}
		}
		failed = errors.Join(failed, err, s.incomplete(ctx, f))
	}
	return failed
}

// incomplete returns an error if only some tables of a family have a partition for one of the next periods, because
// somebody removed one. Such a partition is not made again. The default partition takes its rows, and the period is not
// dropped as a whole.
func (s *Service) incomplete(ctx context.Context, f Family) error {
	now := s.d.Now()
	some, err := s.missing(ctx, f, Span{now.Add(headStart), s.length.horizon(now)})
	if err != nil {
		return err
	}
	all, err := s.Ahead(ctx, f)
	if all = slices.DeleteFunc(all, func(span Span) bool { return slices.Contains(some, span) }); len(all) == 0 {
		return err
	}
	return fmt.Errorf("a table of %s has no partition of %s, but the others have one: restore it, or drop the others "+
		"while they are empty", f.Name, all[0])
}

// missing returns the parts of a span for which a family has no partitions.
func (s *Service) missing(ctx context.Context, f Family, within Span) ([]Span, error) {
	have, err := spansOf(ctx, s.d.Reader, f)
	if err != nil {
		return nil, fmt.Errorf("read the partitions of %s: %w", f.Name, err)
	}
	return within.without(have, s.length), nil
}

// add makes the partitions of a family for a span, and moves the rows of that span out of the default partition. If
// the span has begun and the default partition already has rows of it, the new partitions begin in [headStart],
// because rows that are written at present cannot be moved.
func (s *Service) add(ctx context.Context, f Family, span Span) error {
	now := s.d.Now()
	return s.patiently(ctx, func() error {
		return s.d.Update(ctx, func(tx *db.Tx) error {
			if err := alone(ctx, tx); err != nil {
				return err
			}
			have, err := spansOf(ctx, tx.Reader, f)
			if err != nil || len(span.without(have, s.length)) == 0 {
				return err // another node has made them
			}
			part := span
			if now.Before(part.To) && part.From.Before(now.Add(headStart)) {
				if err := lockDefaults(ctx, tx, f); err != nil {
					return err
				}
				used, err := inDefault(ctx, tx.Reader, f, part)
				if err != nil {
					return err
				}
				if used {
					part.From = now.Truncate(time.Minute).Add(headStart)
				}
			}
			if !part.From.Before(part.To) {
				return nil
			}
			return attach(ctx, tx, f, part)
		})
	})
}

// patiently repeats a transaction that could not get its locks.
func (s *Service) patiently(ctx context.Context, do func() error) error {
	for try := 1; ; try++ {
		err := do()
		if try == lockTries || !db.IsLockTimeout(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockPause):
		}
	}
}

// Empty moves rows of a family from the default partitions into partitions of their own. The rows have ids since the
// given time that are at least two minutes old. Older rows stay where they are, because they may be what Drop kept.
// Rows with ids from before the database was created stay, too.
func (s *Service) Empty(ctx context.Context, f Family, since time.Time) error {
	if s.d.Alone() {
		return nil
	}
	created, err := createdAt(ctx, s.d.Reader)
	if err != nil {
		return fmt.Errorf("read when the database was created: %w", err)
	}
	if created = s.length.start(created); since.Before(created) {
		since = created
	}
	if err := s.empty(ctx, f, since); err != nil {
		return fmt.Errorf("empty the default partitions of %s: %w", f.Name, err)
	}
	return nil
}

func (s *Service) empty(ctx context.Context, f Family, since time.Time) error {
	for range moveSteps {
		within := Span{since, s.d.Now().Add(-headStart).Truncate(time.Minute)}
		first, err := firstInDefault(ctx, s.d.Reader, f, within)
		if err != nil || first == "" {
			return err
		}
		at, ok := timeOf(first)
		if !ok {
			return fmt.Errorf("the id %s is not of a time", first)
		}
		from := s.length.start(at)
		if from.Before(since) {
			from = since.Truncate(time.Millisecond)
		}
		var part Span
		all, err := s.missing(ctx, f, Span{from, within.To})
		for _, span := range all {
			if span.holds(at) {
				part = span
			}
		}
		if err != nil || part == (Span{}) {
			return err // another node has made the partition
		}
		if part.To, err = fewRows(ctx, s.d.Reader, f, part, s.most); err != nil {
			return err
		}
		if err := s.add(ctx, f, part); err != nil {
			return err
		}
		s.log.Info("rows were moved from the default partition into a partition of their own", "tables", f.Name,
			"ids", part.String())
	}
	return nil
}

// timeOf returns the time at the beginning of an id, whatever the version of the id.
func timeOf(text string) (time.Time, bool) {
	if len(text) != len("0192a3b4-0000-7000-8000-000000000000") {
		return time.Time{}, false
	}
	return id.Time(text[:14] + "7" + text[15:19] + "8" + text[20:])
}

// mostCounted is the maximum number of rows of a default partition that List counts.
const mostCounted = 10_000

// Ahead returns the periods, from the current one on, for which a table of a family has no partition.
func (s *Service) Ahead(ctx context.Context, f Family) (all []Span, err error) {
	if s.d.Alone() {
		return nil, nil
	}
	now := s.d.Now()
	for _, t := range f.Tables {
		some, err := s.missing(ctx, Family{f.Name, []Table{t}}, Span{now.Add(headStart), s.length.horizon(now)})
		if err != nil {
			return nil, err
		}
		for _, span := range some {
			if !slices.Contains(all, span) {
				all = append(all, span)
			}
		}
	}
	return all, nil
}

// List returns all partitions, by table and time. The default partition of a table comes first.
func (s *Service) List(ctx context.Context) ([]Partition, error) {
	if s.d.Alone() {
		return nil, nil
	}
	all, err := list(ctx, s.d.Reader, true)
	for i := range all {
		if p := &all[i]; p.Default && err == nil {
			var n int64
			if n, err = countUpTo(ctx, s.d.Reader, p.Name, mostCounted); n < mostCounted {
				p.Rows = n
			} else {
				p.Rows = max(p.Rows, n)
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list the partitions: %w", err)
	}
	return all, nil
}
