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

// source is where contacts are found: among all of a team, or those that were added to a segment, those that a rule
// chooses.
type source struct {
	teamID    string
	segmentID string // to which they were added; "" for all

	rule   *filter.Rule // nil chooses all
	schema filter.Schema
	now    time.Time // of the rule

	// filterOf is the segment whose filter the rule is, and name what slow calls it; both are "" for other rules.
	filterOf, filterKey string

	before int64  // the last time at which they may have become one of them; 0 is no limit
	maxID  string // an id that is greater than those of all that were created by then; "" if before is 0
}

// audience returns where the contacts of an audience are found.
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
		// The ids of contacts have their time, so those that come later are not even looked at; a minute allows for clocks.
		of.before, of.maxID = a.Before.UnixMicro(), id.First(a.Before.Add(time.Minute))
	}
	if a.Filter != nil {
		return of, s.restrict(ctx, r, &of, a.Filter)
	}
	return of, nil
}

// contactsOf returns where the contacts of a segment are found, or all of the team for [segments.AllContacts].
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

// filterKey names the filter of a segment as it is now.
func filterKey(g segments.Segment) string {
	sum := sha256.Sum256([]byte(g.Filter))
	return g.ID + " " + hex.EncodeToString(sum[:8])
}

// restrict leaves out the contacts that a rule does not choose. A rule that names what the team has no more is an
// Invalid fault.
func (s *Service) restrict(ctx context.Context, r db.Reader, of *source, rule *filter.Rule) (err error) {
	if of.filterOf, of.filterKey = "", ""; of.rule != nil {
		rule = &filter.Rule{Kind: filter.And, Rules: []*filter.Rule{of.rule, rule}}
	}
	of.rule, of.now = rule, s.d.Now()
	if of.schema, err = s.FilterSchema(ctx, r, of.teamID, rule); err != nil {
		return err
	}
	return rule.Check(of.schema)
}

// comparisons is how many comparisons the rule has.
func (of *source) comparisons() (n int) {
	if of.rule != nil {
		of.rule.Leaves(func(*filter.Rule) { n++ })
	}
	return n
}

// Of what the conditions of rules cost, in look-ups of one value by the key of its table.
const (
	searchLookups = 1000 // a search in a text of 2,000 characters that repeats itself
	listLookup    = 10   // values of a list, to which a value is compared
)

// lookups is how many look-ups of values take as long as asking the rule of one contact does, at worst.
func (of *source) lookups() (n int) {
	of.rule.Leaves(func(leaf *filter.Rule) {
		n += 1 + leaf.Value.Len()/listLookup
		if leaf.Operator == filter.Contains {
			n += searchLookups
		}
	})
	return n
}

// span is a part of the contacts in the order of their ids: those beyond one id, up to and including another.
type span struct {
	beyond, upTo string // "" is none
	asc          bool   // whether ids grow from beyond to upTo
}
