package contacts

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

const engagementField = "contact.engagement."

// membership is the column for the field contact.segments. Conditions on properties, topics and segments do not mention
// the team. Each of these objects belongs to one team, and the indexes do not contain the team.
var membership = filter.Column{Table: "contact_segments", Value: "v.segment_id"}

// fixedFields contains the fields that contacts of every team have.
var fixedFields = map[string]filter.Field{
	"contact.email":      {Type: filter.TextField, Lower: true, Column: filter.Column{Value: "c.address"}},
	"contact.first_name": {Type: filter.TextField, Column: filter.Column{Value: "c.first_name"}},
	"contact.last_name":  {Type: filter.TextField, Column: filter.Column{Value: "c.last_name"}},
	"contact.unsubscribed": {Type: filter.BoolField, Default: filter.BoolValue(false),
		Column: filter.Column{Value: "c.unsubscribed"}},
	"contact.created_at": {Type: filter.TimeField, Column: filter.Column{Value: "c.created_at"}},

	engagementField + "mailed":     engagementCount("mailed"),
	engagementField + "opened":     engagementCount("opened"),
	engagementField + "clicked":    engagementCount("clicked"),
	engagementField + "mailed_at":  engagementTime("mailed_at"),
	engagementField + "opened_at":  engagementTime("opened_at"),
	engagementField + "clicked_at": engagementTime("clicked_at"),
}

// fixedSets describes the partial indexes for some of the fixed fields. These indexes contain only a few of a team's
// contacts and are rarely updated.
var fixedSets = map[string]filter.Sets{
	"contact.unsubscribed": {Table: "contacts", Contact: "id", Value: "v.unsubscribed", Only: "v.unsubscribed"},

	engagementField + "opened_at":  engagementSet("opened_at"),
	engagementField + "clicked_at": engagementSet("clicked_at"),
}

func engagementSet(column string) filter.Sets {
	return filter.Sets{Table: "contact_engagement", Contact: "contact_id", Value: "v." + column,
		Only: "v." + column + " IS NOT NULL"}
}

func engagementCount(column string) filter.Field {
	// Without the cast, PostgreSQL would accept only integers as parameters.
	return filter.Field{Type: filter.NumberField, Default: filter.NumberValue(0),
		Column: filter.Column{Table: "contact_engagement", Value: "CAST(v." + column + " AS DOUBLE PRECISION)"}}
}

func engagementTime(column string) filter.Field {
	return filter.Field{Type: filter.TimeField, Column: filter.Column{Table: "contact_engagement", Value: "v." + column}}
}

// propertyFields returns the fields for the properties with the given names. If heads is true, the index on strings
// contains only the first characters of each string, as on PostgreSQL.
func propertyFields(ctx context.Context, r db.Reader, teamID string, names []string, heads bool) (
	map[string]filter.Field, error) {
	if len(names) == 0 {
		return nil, nil
	}
	rows, err := r.Query(ctx, `SELECT id, name, type FROM contact_properties WHERE team_id = $1 AND name = ANY($2)
		AND deleted_at = 0`, db.ID(teamID), names)
	fields := map[string]filter.Field{}
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var id, name, kind string
		err = r.Scan((*db.ID)(&id), &name, &kind)
		f := filter.Field{Type: filter.TextField, Column: filter.Column{Table: "contact_texts", Value: "v.value",
			Key: "property_id", KeyValue: id}}
		if kind == "number" {
			f.Type, f.Column.Table = filter.NumberField, "contact_numbers"
		} else if heads {
			f.Column.Sets = &filter.Sets{Table: "contact_texts", Contact: "contact_id", Value: "v.value", Head: "v.head",
				Key: "property_id", KeyValue: id}
		}
		fields[name] = f
		return none, err
	})
	if err != nil {
		return nil, fmt.Errorf("look up the properties of a filter: %w", err)
	}
	return fields, nil
}

// topicFields returns the fields for the topics with the given ids.
func topicFields(ctx context.Context, r db.Reader, teamID string, ids []string) (map[string]filter.Field, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := r.Query(ctx, `SELECT id, default_subscription FROM topics WHERE id = ANY($1) AND team_id = $2
		AND deleted_at = 0`, db.IDs(id.OnlyValid(ids)), db.ID(teamID))
	fields := map[string]filter.Field{}
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var topicID, byDefault string
		err = r.Scan((*db.ID)(&topicID), &byDefault)
		fields[topicID] = filter.Field{Type: filter.ChoiceField, Default: filter.TextValue(byDefault),
			Allow:  subscriptionOnly,
			Column: filter.Column{Table: "contact_topics", Value: "v.subscription", Key: "topic_id", KeyValue: topicID}}
		return none, err
	})
	if err != nil {
		return nil, fmt.Errorf("look up the topics of a filter: %w", err)
	}
	return fields, nil
}

// rowValues returns a contact's values for the properties and topics in a schema, by property id or topic id.
func rowValues(ctx context.Context, r db.Reader, c *Contact, schema filter.Schema, n names) (map[string]filter.Value,
	error) {
	ids := map[string][]string{}
	for _, name := range n.properties {
		at := schema.Fields[propertyField+name].Column
		ids[at.Table] = append(ids[at.Table], at.KeyValue)
	}
	for _, name := range n.topics {
		at := schema.Fields[topicField+name].Column
		ids[at.Table] = append(ids[at.Table], at.KeyValue)
	}
	values := map[string]filter.Value{}
	for _, from := range []struct{ table, text string }{
		{"contact_texts", `SELECT property_id, value, 0.0 FROM contact_texts
			WHERE contact_id = $1 AND property_id = ANY($2) AND team_id = $3`},
		{"contact_numbers", `SELECT property_id, '', value FROM contact_numbers
			WHERE contact_id = $1 AND property_id = ANY($2) AND team_id = $3`},
		{"contact_topics", `SELECT topic_id, subscription, 0.0 FROM contact_topics
			WHERE contact_id = $1 AND topic_id = ANY($2) AND team_id = $3`},
	} {
		if len(ids[from.table]) == 0 {
			continue
		}
		rows, err := r.Query(ctx, from.text, db.ID(c.ID), db.IDs(ids[from.table]), db.ID(c.TeamID))
		_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
			var id, text string
			var number float64
			err = r.Scan((*db.ID)(&id), &text, &number)
			if values[id] = filter.TextValue(text); from.table == "contact_numbers" {
				values[id] = filter.NumberValue(number)
			}
			return none, err
		})
		if err != nil {
			return nil, fmt.Errorf("read values of a contact: %w", err)
		}
	}
	return values, nil
}

// engagementValues adds a contact's engagement to a map, by field name.
func engagementValues(ctx context.Context, r db.Reader, c *Contact, values map[string]filter.Value) error {
	var mailed, opened, clicked, mailedAt, openedAt, clickedAt int64
	err := r.QueryRow(ctx, `SELECT mailed, opened, clicked, COALESCE(mailed_at, 0), COALESCE(opened_at, 0),
		COALESCE(clicked_at, 0) FROM contact_engagement
		WHERE contact_id = $1 AND team_id = $2`, db.ID(c.ID), db.ID(c.TeamID)).Scan(&mailed, &opened, &clicked, &mailedAt,
		&openedAt, &clickedAt)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the engagement of a contact: %w", err)
	}
	for name, n := range map[string]int64{"mailed": mailed, "opened": opened, "clicked": clicked} {
		values[engagementField+name] = filter.NumberValue(float64(n))
	}
	for name, at := range map[string]int64{"mailed_at": mailedAt, "opened_at": openedAt, "clicked_at": clickedAt} {
		values[engagementField+name] = filter.TimeValue(db.Time(at))
	}
	return nil
}

// subscriptionOnly checks a value that a rule compares with a topic subscription.
func subscriptionOnly(text string) string {
	if text == string(OptIn) || text == string(OptOut) {
		return ""
	}
	return "must be `opt_in` or `opt_out`."
}
