package contacts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/filter"
	"github.com/postrider/postrider/internal/scalar"
)

// Audience is the contacts that a segment has, or all contacts of a team. Who is unsubscribed is one of them too.
type Audience struct {
	SegmentID  string       // "" is all contacts
	Filter     *filter.Rule // leaves out those whom it does not find; nil leaves out none
	Before     time.Time    // contacts and memberships that were created after this do not belong; zero is no limit
	Properties []string     // the names of those whose values Walk reads
}

// Member is a contact of an audience.
type Member struct {
	Contact
	Properties map[string]scalar.Value // by name; those that the contact has a value of, without fallbacks
}

// Walk returns the contacts of an audience whose ids come after the id after, in the order of their ids, and limit at
// most: fewer only at the end. It costs what it returns, and for the segment of a filter what the filter passes over.
// A segment that the team does not have is a NotFound fault.
func (s *Service) Walk(ctx context.Context, r db.Reader, teamID string, a Audience, after string, limit int) (
	[]Member, error) {
	of, err := s.audience(ctx, r, teamID, a)
	if err != nil {
		return nil, err
	}
	all, err := walkAudience(ctx, r, of, after, limit)
	if err != nil || len(all) == 0 || len(a.Properties) == 0 {
		return all, err
	}
	ids := make([]string, len(all))
	for i := range all {
		ids[i] = all[i].ID
	}
	values, err := valuesOf(ctx, r, teamID, ids, a.Properties)
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].Properties = values[all[i].ID]
	}
	return all, nil
}

// CountAudience returns how many contacts an audience has. It reads all of them, by indexes.
func (s *Service) CountAudience(ctx context.Context, r db.Reader, teamID string, a Audience) (int, error) {
	of, err := s.audience(ctx, r, teamID, a)
	if err != nil {
		return 0, err
	}
	return s.countOf(ctx, r, teamID, of)
}

func (s *Service) countOf(ctx context.Context, r db.Reader, teamID string, of source) (int, error) {
	if of.rule == nil || of.before != 0 {
		return countAudience(ctx, r, of)
	}
	return countMatches(ctx, r, teamID, of.rule, of.schema, s.d.Now())
}

// audience returns where the contacts of an audience are found.
func (s *Service) audience(ctx context.Context, r db.Reader, teamID string, a Audience) (of source, err error) {
	if a.SegmentID == "" {
		of = allContacts(teamID)
	} else {
		segment, err := segmentByID(ctx, r, teamID, a.SegmentID)
		if err != nil {
			return of, err
		}
		if of, err = s.contactsOf(ctx, r, segment); err != nil {
			return of, err
		}
	}
	if !a.Before.IsZero() {
		of.until(a.Before)
	}
	if a.Filter != nil {
		err = s.restrict(ctx, r, &of, teamID, a.Filter)
	}
	return of, err
}

// contactsOf returns where the contacts of a segment are found.
func (s *Service) contactsOf(ctx context.Context, r db.Reader, g Segment) (source, error) {
	if g.Filter == "" {
		return membersOf(g.TeamID, g.ID), nil
	}
	rule, err := filter.Parse([]byte(g.Filter))
	if err != nil {
		return source{}, fmt.Errorf("read the filter of segment %s: %w", g.ID, err)
	}
	of := allContacts(g.TeamID)
	return of, s.restrict(ctx, r, &of, g.TeamID, rule)
}

// restrict leaves out the contacts that a rule does not find. A rule that names what the team has no more is an Invalid
// fault.
func (s *Service) restrict(ctx context.Context, r db.Reader, of *source, teamID string, rule *filter.Rule) error {
	schema, err := s.FilterSchema(ctx, r, teamID, rule)
	if err != nil {
		return err
	}
	now := s.d.Now()
	for _, each := range []*source{of, of.among} {
		if each == nil {
			continue
		}
		text, args, err := where(rule, schema, now, slices.Clip(each.args))
		if err != nil {
			return err
		}
		each.from, each.args = each.from+" AND ("+text+")", args
	}
	if of.rule, of.schema = rule, schema; of.filtered || of.segmentID != "" {
		of.rule = nil
	}
	of.filtered = true
	return nil
}

// RefusedMembers returns which members of an audience may not be mailed, and why, by their ids. Without a topicID it is
// those who are unsubscribed. A topic that the team does not have is an Invalid fault for the field topic_id.
func (s *Service) RefusedMembers(ctx context.Context, r db.Reader, teamID, topicID string, members []Member) (
	map[string]Refusal, error) {
	refused := map[string]Refusal{}
	ids := make([]string, len(members))
	for i, m := range members {
		ids[i] = m.ID
		if m.Unsubscribed {
			refused[m.ID] = Unsubscribed
		}
	}
	if topicID == "" {
		return refused, nil
	}
	byDefault, chosen, err := chosenAmong(ctx, r, teamID, strings.ToLower(topicID), ids)
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		if why := refusal(byDefault, chosen[m.ID], m.Unsubscribed); why != "" {
			refused[m.ID] = why
		}
	}
	return refused, nil
}

// Values returns what a contact has of its team's properties, by their names, without fallbacks.
func (s *Service) Values(ctx context.Context, r db.Reader, teamID, contactID string) (map[string]scalar.Value, error) {
	values, err := valuesOf(ctx, r, teamID, []string{contactID}, nil)
	return values[contactID], err
}

// checkFilter returns the filter of a new segment as it is stored.
func (s *Service) checkFilter(ctx context.Context, teamID, text string) (string, error) {
	if text == "" {
		return "", nil
	}
	rule, err := filter.Parse([]byte(text))
	if err != nil {
		return "", err
	}
	schema, err := s.FilterSchema(ctx, s.d.Reader, teamID, rule)
	if err != nil {
		return "", err
	}
	if err := rule.Check(schema); err != nil {
		return "", err
	}
	stored, err := rule.MarshalJSON()
	return string(stored), err
}
