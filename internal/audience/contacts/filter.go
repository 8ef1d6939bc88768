package contacts

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/platform/db"
)

// These prefixes begin field names that depend on the team's properties and topics.
const (
	propertyField = "contact.properties."
	topicField    = "contact.topics."
	segmentsField = "contact.segments"
)

// FilterSchema returns the schema for a rule about contacts. The schema contains the fixed fields, and fields for those
// of the team's properties, topics and segments that the rule names.
func (s *Service) FilterSchema(ctx context.Context, r db.Reader, teamID string, rule *filter.Rule) (filter.Schema,
	error) {
	schema := filter.Schema{Fields: map[string]filter.Field{}, Unknown: unknownField}
	for name, f := range fixedFields {
		if from, ok := fixedSets[name]; ok {
			from.Key, from.KeyValue = "team_id", teamID
			f.Column.Sets = &from
		}
		schema.Fields[name] = f
	}
	names := namesOf(rule)
	properties, err := propertyFields(ctx, r, teamID, names.properties, !s.DB.Alone())
	if err != nil {
		return schema, err
	}
	for _, name := range names.properties {
		if f, ok := properties[name]; ok {
			schema.Fields[propertyField+name] = f
		}
	}
	topics, err := topicFields(ctx, r, teamID, lower(names.topics))
	if err != nil {
		return schema, err
	}
	for _, id := range names.topics {
		if f, ok := topics[strings.ToLower(id)]; ok {
			schema.Fields[topicField+id] = f
		}
	}
	haveFilters, err := segments.HaveFilters(ctx, r, teamID, names.segments)
	if err != nil {
		return schema, err
	}
	schema.Fields[segmentsField] = segmentsFilter(haveFilters)
	return schema, nil
}

// segmentsFilter returns the field contact.segments. The map haveFilters contains the team's segments that the rule
// names. Its value is true for segments with a filter, which a rule must not name.
func segmentsFilter(haveFilters map[string]bool) filter.Field {
	return filter.Field{Type: filter.SetField, Lower: true, Column: membership, Allow: func(id string) string {
		filtered, ok := haveFilters[id]
		switch {
		case !ok:
			return "must be the id of a segment of this team."
		case filtered:
			return "names a segment that has a filter itself. Use the rules of that filter instead."
		}
		return ""
	}}
}

// unknownField returns advice for the error message about an unknown field name.
func unknownField(name string) string {
	switch {
	case strings.HasPrefix(name, propertyField):
		return "The team has no such contact property. Create it first."
	case strings.HasPrefix(name, topicField):
		return "The team has no topic with this id. Create it first."
	case name == "contact.topics":
		return "Name the topic by its id, as in `contact.topics.TOPIC_ID`."
	case name == "contact.properties" || !strings.Contains(name, "."):
		return "Name the property, as in `contact.properties.plan`, or a field such as `contact.email`."
	}
	return "There are `contact.email`, `contact.first_name`, `contact.last_name`, `contact.unsubscribed`, " +
		"`contact.created_at`, `contact.properties.KEY`, `contact.topics.TOPIC_ID`, `contact.segments`, and in " +
		"`contact.engagement` `mailed`, `opened`, `clicked`, `mailed_at`, `opened_at` and `clicked_at`."
}

// names lists the team's properties, topics and segments that a rule reads, and says whether the rule reads engagement.
type names struct {
	properties []string
	topics     []string // spelled as in the rule
	segments   []string // in lower case
	engagement bool
}

func namesOf(rule *filter.Rule) (n names) {
	for _, name := range rule.Fields() {
		if key, ok := strings.CutPrefix(name, propertyField); ok {
			n.properties = append(n.properties, key)
		} else if id, ok := strings.CutPrefix(name, topicField); ok {
			n.topics = append(n.topics, id)
		} else if strings.HasPrefix(name, engagementField) {
			n.engagement = true
		}
	}
	rule.Leaves(func(leaf *filter.Rule) {
		if leaf.Field == segmentsField {
			n.segments = append(n.segments, lower(leaf.Value.Texts())...)
		}
	})
	return n
}

func lower(texts []string) []string {
	all := make([]string, len(texts))
	for i, t := range texts {
		all[i] = strings.ToLower(t)
	}
	return all
}

// countMatches returns how many of a team's contacts match a rule.
func countMatches(ctx context.Context, r db.Reader, teamID string, rule *filter.Rule, schema filter.Schema,
	now time.Time) (n int, err error) {
	ask := measure(ctx, r)
	text, args, err := rule.Count(schema, now, "contacts c WHERE c.team_id =", teamID, ask)
	if err != nil {
		return 0, err
	}
	if n, err = ask(text, args); err != nil {
		return 0, fmt.Errorf("count by a filter: %w", err)
	}
	return n, nil
}

// FilterValues reads one contact's values for the fields that a rule names. The result is a function that returns these
// values to [filter.Rule.Match], but only for field names that begin with "contact.".
func (s *Service) FilterValues(ctx context.Context, r db.Reader, c *Contact, schema filter.Schema, rule *filter.Rule,
) (func(name string) filter.Value, error) {
	values := map[string]filter.Value{
		"contact.email":        filter.TextValue(c.Address),
		"contact.first_name":   filter.TextValue(c.FirstName),
		"contact.last_name":    filter.TextValue(c.LastName),
		"contact.unsubscribed": filter.BoolValue(c.Unsubscribed),
		"contact.created_at":   filter.TimeValue(c.CreatedAt),
	}
	n := namesOf(rule)
	byKey, err := rowValues(ctx, r, c, schema, n)
	if err != nil {
		return nil, err
	}
	for name, f := range schema.Fields {
		if v, ok := byKey[f.Column.KeyValue]; ok && f.Column.KeyValue != "" {
			values[name] = v
		}
	}
	if len(n.segments) > 0 {
		ids, err := segments.MemberOf(ctx, r, c.TeamID, c.ID, n.segments)
		if err != nil {
			return nil, err
		}
		values[segmentsField] = filter.ListValue(ids)
	}
	if n.engagement {
		if err := engagementValues(ctx, r, c, values); err != nil {
			return nil, err
		}
	}
	return func(name string) filter.Value { return values[name] }, nil
}
