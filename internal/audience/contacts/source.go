package contacts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// source describes a set of contacts to read: all of a team's contacts, or the contacts that were added to a segment.
// In both cases, a rule may limit the set to the contacts that match it.
type source struct {
	teamID    string
	segmentID string // a segment that contacts are added to by hand; "" for all contacts

	rule   *filter.Rule // nil matches all
	schema filter.Schema
	now    time.Time // the time at which the rule is evaluated

	// If the rule is a segment's filter, filterOf is the segment's id, and filterKey identifies the filter in
	// slowFilters. For other rules, filterOf and filterKey are "".
	filterOf, filterKey string

	before int64  // excludes contacts and memberships created after this time, in microseconds; 0 means no limit
	maxID  string // an id greater than all ids that were created by then; "" if before is 0
}

// audience returns the source that selects the contacts in an audience.
func (s *Service) audience(ctx context.Context, r db.Reader, teamID string, a Audience) (source, error) {
	of := source{teamID: teamID}
	if a.SegmentID != "" {
		segment, err := segments.ByID(ctx, r, teamID, a.SegmentID)
		if err != nil {
			return of, err
		}
		if of, err = s.contactsOf(ctx, r, segment); err != nil {
			return of, err
		}
	}
	if !a.Before.IsZero() {
		// Ids contain the time of creation, so an upper bound on ids skips contacts that were created too late, without
		// reading them. The extra minute allows for clock differences between nodes.
		of.before, of.maxID = a.Before.UnixMicro(), id.First(a.Before.Add(time.Minute))
	}
	if a.Filter != nil {
		return of, s.restrict(ctx, r, &of, a.Filter)
	}
	return of, nil
}

// contactsOf returns the source for a segment, or for all contacts if the segment is [segments.AllContacts].
func (s *Service) contactsOf(ctx context.Context, r db.Reader, g segments.Segment) (source, error) {
	of := source{teamID: g.TeamID}
	switch {
	case g.IsAllContacts():
		return of, nil
	case g.Filter == "":
		of.segmentID = g.ID
		return of, nil
	}
	rule, err := filter.Parse([]byte(g.Filter))
	if err != nil {
		return of, fmt.Errorf("read the filter of segment %s: %w", g.ID, err)
	}
	err = s.restrict(ctx, r, &of, rule)
	of.filterOf, of.filterKey = g.ID, filterKey(g)
	return of, err
}

// filterKey identifies the current filter of a segment.
func filterKey(g segments.Segment) string {
	sum := sha256.Sum256([]byte(g.Filter))
	return g.ID + " " + hex.EncodeToString(sum[:8])
}

// restrict narrows a source to contacts that match a rule, and returns an Invalid fault if the rule names a deleted
// object.
func (s *Service) restrict(ctx context.Context, r db.Reader, of *source, rule *filter.Rule) (err error) {
	if of.filterOf, of.filterKey = "", ""; of.rule != nil {
		rule = &filter.Rule{Kind: filter.And, Rules: []*filter.Rule{of.rule, rule}}
	}
	of.rule, of.now = rule, s.DB.Now()
	if of.schema, err = s.FilterSchema(ctx, r, of.teamID, rule); err != nil {
		return err
	}
	return rule.Check(of.schema)
}

// comparisons returns how many comparisons the rule makes.
func (of *source) comparisons() (n int) {
	if of.rule != nil {
		of.rule.Leaves(func(*filter.Rule) { n++ })
	}
	return n
}

// These constants estimate the cost of conditions, in look-ups of one value by primary key.
const (
	searchLookups = 1000 // look-ups that take as long as one search in a repetitive string of 2,000 characters
	listLookup    = 10   // list values that can be compared in the time that one look-up takes
)

// lookups estimates the worst-case cost of evaluating the rule on one contact, in look-ups.
func (of *source) lookups() (n int) {
	of.rule.Leaves(func(leaf *filter.Rule) {
		n += 1 + leaf.Value.Len()/listLookup
		if leaf.Operator == filter.Contains {
			n += searchLookups
		}
	})
	return n
}

// span is a range of contact ids, in ascending or descending order. The bound beyond is excluded; the bound upTo is
// included.
type span struct {
	beyond, upTo string // "" is no bound
	asc          bool   // whether the ids ascend from beyond to upTo
}
