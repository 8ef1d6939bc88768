package contacts

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/platform/db"
)

// contactColumnsOfC lists the same columns as contactColumns, qualified with the table alias c.
var contactColumnsOfC = "c." + strings.ReplaceAll(contactColumns, ", ", ", c.")

// query is the part of an SQL query that follows FROM, with its arguments.
type query struct {
	text string
	args []any
}

// and adds a condition with one argument. The condition contains $? as a placeholder for the argument.
func (q *query) and(condition string, arg any) {
	q.args = append(q.args, arg)
	q.text += " AND " + strings.ReplaceAll(condition, "$?", fmt.Sprintf("$%d", len(q.args)))
}

// limit adds an ORDER BY and a LIMIT clause.
func (q *query) limit(column string, asc bool, n int) {
	q.args = append(q.args, n)
	q.text += fmt.Sprintf(" ORDER BY %s %s LIMIT $%d", column, direction(asc), len(q.args))
}

func direction(asc bool) string {
	if asc {
		return "ASC"
	}
	return "DESC"
}

// within adds conditions that limit an id column to a span.
func (q *query) within(column string, in span) {
	beyond, upTo := " < $?", " >= $?"
	if in.asc {
		beyond, upTo = " > $?", " <= $?"
	}
	if in.beyond != "" {
		q.and(column+beyond, db.ID(in.beyond))
	}
	if in.upTo != "" {
		q.and(column+upTo, db.ID(in.upTo))
	}
}

// index returns a query over all of a source's contacts or memberships, and the column of contact ids that an index can
// return in order. The query over memberships has no condition on the team, because the index on memberships does not
// contain the team. Omitting this condition is safe, because the caller has checked that the segment belongs to the
// team.
func (of *source) index() (q query, column string) {
	q, column = query{`contacts c WHERE c.team_id = $1`, []any{db.ID(of.teamID)}}, "c.id"
	if of.segmentID != "" {
		q, column = query{`contact_segments m WHERE m.segment_id = $1`, []any{db.ID(of.segmentID)}}, "m.contact_id"
	}
	if of.maxID != "" {
		q.and(column+" < $?", db.ID(of.maxID))
	}
	return q, column
}

// contacts returns a query for the team's contacts that match the rule. If there is a rule, the query also applies the
// source's cutoff time. For a segment, the caller adds a condition on the contacts' ids. The query does not join the
// memberships, because PostgreSQL might then read all teams' contacts or all memberships.
func (of *source) contacts() (query, error) {
	return of.matching(query{`contacts c WHERE c.team_id = $1`, []any{db.ID(of.teamID)}})
}

// matching adds the rule's condition to a query for contacts, and the cutoff time if there is a rule.
func (of *source) matching(q query) (query, error) {
	if of.rule == nil {
		return q, nil
	}
	if of.before != 0 && of.segmentID == "" { // for a segment, the cutoff applies to memberships instead
		q.and("c.created_at <= $?", of.before)
	}
	text, args, err := of.rule.Where(of.schema, of.now, q.args)
	return query{q.text + " AND (" + text + ")", args}, err
}

// spanEnd returns the id of the nth contact after the given id, whether or not that contact matches the rule. If fewer
// than n contacts follow, spanEnd returns "".
func spanEnd(ctx context.Context, r db.Reader, of *source, beyond string, asc bool, n int) (end string, err error) {
	q, column := of.index()
	q.within(column, span{beyond: beyond, asc: asc})
	q.args = append(q.args, n-1)
	err = r.QueryRow(ctx, fmt.Sprintf(`SELECT %[1]s FROM %[2]s ORDER BY %[1]s %[3]s LIMIT 1 OFFSET $%[4]d`, column, q.text,
		direction(asc), len(q.args)), q.args...).Scan((*db.ID)(&end))
	if errors.Is(err, db.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look how far some contacts go: %w", err)
	}
	return end, nil
}

// contactsIn returns up to limit matching contacts in a span, in span order.
func contactsIn(ctx context.Context, r db.Reader, of *source, in span, limit int) ([]Contact, error) {
	q, err := of.contacts()
	if err != nil {
		return nil, err
	}
	if of.maxID != "" {
		q.and("c.id < $?", db.ID(of.maxID))
	}
	q.within("c.id", in)
	q.limit("c.id", in.asc, limit)
	rows, err := r.Query(ctx, `SELECT `+contactColumnsOfC+` FROM `+q.text, q.args...)
	all, err := db.Collect(rows, err, scanContact)
	if err != nil {
		return nil, fmt.Errorf("read contacts: %w", err)
	}
	return all, nil
}

// contactsAmong returns those of the given contacts that match the rule, sorted by id.
func contactsAmong(ctx context.Context, r db.Reader, of *source, ids []string, asc bool) ([]Contact, error) {
	q, err := of.matching(query{`contacts c WHERE` + ofTeamByID + ` = ANY($2)`, []any{db.ID(of.teamID), db.IDs(ids)}})
	if err != nil {
		return nil, err
	}
	rows, err := r.Query(ctx, `SELECT `+contactColumnsOfC+` FROM `+q.text+` ORDER BY c.id `+direction(asc), q.args...)
	all, err := db.Collect(rows, err, scanContact)
	if err != nil {
		return nil, fmt.Errorf("read some contacts: %w", err)
	}
	return all, nil
}

// memberSince is a member of a segment and the time when it was added, in microseconds.
type memberSince struct {
	contactID string
	created   int64
}

// membershipsIn returns up to limit of the segment's memberships within a span.
func membershipsIn(ctx context.Context, r db.Reader, of *source, in span, limit int) ([]memberSince, error) {
	q, column := of.index()
	q.within(column, in)
	q.limit(column, in.asc, limit)
	rows, err := r.Query(ctx, `SELECT m.contact_id, m.created_at FROM `+q.text, q.args...)
	all, err := db.Collect(rows, err, func(r db.Row) (m memberSince, err error) {
		err = r.Scan((*db.ID)(&m.contactID), &m.created)
		return m, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the memberships of a segment: %w", err)
	}
	return all, nil
}

// matchIDs returns, in order, up to limit ids of contacts in a span that match the rule. matchIDs uses the indexes on
// values, and returns false if the rule does not allow this; see [filter.Rule.Find].
func matchIDs(ctx context.Context, r db.Reader, of *source, in span, limit int) (ids []string, ok bool, err error) {
	bounds := filter.Bounds{Before: in.beyond}
	if in.asc {
		bounds = filter.Bounds{After: in.beyond, Before: of.maxID}
	}
	found, ok, err := of.rule.Find(of.schema, of.now, "contacts c WHERE c.team_id =", of.teamID, bounds,
		measure(ctx, r))
	if err != nil || !ok {
		return nil, false, err
	}
	text := `SELECT x.contact_id FROM (` + found.Text + `) x`
	if !found.Ordered {
		text = `WITH x AS MATERIALIZED (` + found.Text + `) SELECT x.contact_id FROM x`
	}
	rows, err := r.Query(ctx, fmt.Sprintf(`%s ORDER BY x.contact_id %s LIMIT $%d`, text, direction(in.asc),
		len(found.Args)+1), append(found.Args, limit)...)
	if ids, err = db.Collect(rows, err, scanID); err != nil {
		return nil, false, fmt.Errorf("find contacts by sets: %w", err)
	}
	return ids, true, nil
}

// measure returns a function that package filter calls to count the contacts in a set.
func measure(ctx context.Context, r db.Reader) filter.Measure {
	return func(text string, args []any) (n int, err error) {
		err = r.QueryRow(ctx, text, args...).Scan(&n)
		return n, err
	}
}

// contactAmong returns the contact in a source that has the given id or, if contactID is "", the given address.
func contactAmong(ctx context.Context, r db.Reader, of *source, contactID, address string) (Contact, error) {
	q, err := of.contacts()
	if err != nil {
		return Contact{}, err
	}
	if contactID != "" {
		q.and("c.id = $?", db.ID(contactID))
	} else {
		q.and("c.address = $?", address)
	}
	if of.segmentID != "" {
		q.and("c.id = (SELECT m.contact_id FROM contact_segments m WHERE m.segment_id = $? AND m.contact_id = c.id)",
			db.ID(of.segmentID))
	}
	return oneContact(r.QueryRow(ctx, `SELECT `+contactColumnsOfC+` FROM `+q.text, q.args...))
}

// countUpTo counts the contacts that were added to a segment or, if segmentID is "", all of a team's contacts. The
// count stops when it reaches the given maximum. For a segment, the query has no condition on the team, because the
// index on memberships does not contain the team.
func countUpTo(ctx context.Context, r db.Reader, teamID, segmentID string, most int) (n int, err error) {
	text, of := `SELECT 1 FROM contact_segments WHERE segment_id = $1`, segmentID
	if segmentID == "" {
		text, of = `SELECT 1 FROM contacts WHERE team_id = $1`, teamID
	}
	if err = r.QueryRow(ctx, `SELECT COUNT(*) FROM (`+text+` LIMIT $2) x`, db.ID(of), most).Scan(&n); err != nil {
		return 0, fmt.Errorf("count some contacts: %w", err)
	}
	return n, nil
}

// countContacts counts all contacts in a source, using indexes and without a time limit.
func countContacts(ctx context.Context, r db.Reader, of *source) (n int, err error) {
	if of.rule != nil {
		return countMatches(ctx, r, of.teamID, of.rule, of.schema, of.now)
	}
	q, _ := of.index()
	if err = r.QueryRow(ctx, `SELECT COUNT(*) FROM `+q.text, q.args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count contacts: %w", err)
	}
	return n, nil
}

// choices holds the data that decides whether a contact may be mailed.
type choices struct {
	address                  string
	unsubscribed, suppressed bool
	chosen                   Subscription // "" for neither
}

// eachChoice calls a function for each contact in a span, in no particular order.
func eachChoice(ctx context.Context, r db.Reader, of *source, in span, topicID string, do func(c *choices)) error {
	q, err := selectChoices(of, in, topicID)
	if err != nil {
		return err
	}
	rows, err := r.Query(ctx, q.text, q.args...)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var c choices
		if err = r.Scan(&c.address, &c.unsubscribed, &c.suppressed, &c.chosen); err == nil {
			do(&c)
		}
		return none, err
	})
	if err != nil {
		return fmt.Errorf("count who of an audience is mailed: %w", err)
	}
	return nil
}

// selectChoices returns a query with one row per contact instead of a count with GROUP BY, because GROUP BY would make
// the database sort the rows.
func selectChoices(of *source, in span, topicID string) (query, error) {
	q, err := of.contacts()
	if err != nil {
		return q, err
	}
	id := "c.id"
	if of.segmentID != "" {
		// In a CROSS JOIN, SQLite always scans the left table in the outer loop. A span of c.id would let PostgreSQL compare
		// all memberships with all contacts of the span if it has no statistics of the tables yet, as after an import.
		id = "m.contact_id"
		q.text = `contact_segments m CROSS JOIN ` + q.text + ` AND c.id = m.contact_id`
		q.and("m.segment_id = $?", db.ID(of.segmentID))
		if of.before != 0 {
			q.and("m.created_at <= $?", of.before)
		}
	}
	if of.maxID != "" {
		q.and(id+" < $?", db.ID(of.maxID))
	}
	q.within(id, in)
	if of.before != 0 && of.segmentID == "" && of.rule == nil {
		q.and("c.created_at <= $?", of.before)
	}
	q.args = append(q.args, db.ID(topicID))
	q.text = fmt.Sprintf(`SELECT c.address, c.unsubscribed, EXISTS (SELECT 1 FROM suppressions x
		WHERE x.team_id = c.team_id AND x.address = c.address), COALESCE((SELECT s.subscription FROM contact_topics s
		WHERE s.team_id = c.team_id AND s.contact_id = c.id AND s.topic_id = $%d), '') FROM %s`, len(q.args), q.text)
	return q, nil
}

// errValuesTooLarge means that the property values exceed the allowed number of bytes.
var errValuesTooLarge = errors.New("the values are too large")

// valuesOf returns the given contacts' property values, by contact id and property name. The parameter names selects
// the properties; nil selects all. If the values exceed the given number of bytes in total, valuesOf returns
// errValuesTooLarge.
func valuesOf(ctx context.Context, r db.Reader, teamID string, contactIDs, names []string, most int) (
	map[string]map[string]scalar.Value, error) {
	properties, err := propertiesNamed(ctx, r, teamID, names)
	if err != nil {
		return nil, err
	}
	return valuesAmong(ctx, r, teamID, contactIDs, properties, most)
}

// ofProperties is the column of the property in queries by contact id. COALESCE keeps PostgreSQL from using the index
// on the property's values, because it might then read the values of all contacts.
func ofProperties(table string) string {
	return `COALESCE(` + table + `property_id, ` + table + `property_id)`
}

// valuesAmong is like valuesOf, but for properties that the caller has already looked up.
func valuesAmong(ctx context.Context, r db.Reader, teamID string, contactIDs []string, properties []Property,
	most int) (
	map[string]map[string]scalar.Value, error) {
	byID := map[string]string{}
	var ids []db.ID
	for _, p := range properties {
		byID[p.ID] = p.Name
		ids = append(ids, db.ID(p.ID))
	}
	values := map[string]map[string]scalar.Value{}
	if len(ids) == 0 {
		return values, nil
	}
	keep := func(contactID, propertyID string, v scalar.Value) {
		if values[contactID] == nil {
			values[contactID] = map[string]scalar.Value{}
		}
		values[contactID][byID[propertyID]] = v
	}
	rows, err := r.Query(ctx, `SELECT v.contact_id, v.property_id, v.value FROM contact_texts v
		WHERE v.contact_id = ANY($1) AND `+ofProperties("v.")+` = ANY($2) AND v.team_id = $3`, db.IDs(contactIDs), ids,
		db.ID(teamID))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var contactID, propertyID, text string
		if err = r.Scan((*db.ID)(&contactID), (*db.ID)(&propertyID), &text); err != nil {
			return none, err
		}
		if most -= len(text); most < 0 {
			return none, errValuesTooLarge
		}
		keep(contactID, propertyID, scalar.OfText(text))
		return none, nil
	})
	if err != nil {
		return nil, fmt.Errorf("read texts of contacts: %w", err)
	}
	rows, err = r.Query(ctx, `SELECT v.contact_id, v.property_id, v.value FROM contact_numbers v
		WHERE v.contact_id = ANY($1) AND `+ofProperties("v.")+` = ANY($2) AND v.team_id = $3`, db.IDs(contactIDs), ids,
		db.ID(teamID))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var contactID, propertyID string
		var n float64
		err = r.Scan((*db.ID)(&contactID), (*db.ID)(&propertyID), &n)
		keep(contactID, propertyID, scalar.OfNumber(n))
		return none, err
	})
	if err != nil {
		return nil, fmt.Errorf("read numbers of contacts: %w", err)
	}
	return values, nil
}

// defaultOf returns a topic's default subscription.
func defaultOf(ctx context.Context, r db.Reader, teamID, topicID string) (byDefault Subscription, err error) {
	err = r.QueryRow(ctx, `SELECT t.default_subscription FROM topics t WHERE t.id = $1 AND t.team_id = $2
		AND t.deleted_at = 0`, db.ID(topicID), db.ID(teamID)).Scan(&byDefault)
	if errors.Is(err, db.ErrNoRows) {
		return "", UnknownTopic()
	}
	if err != nil {
		return "", fmt.Errorf("read a topic's default: %w", err)
	}
	return byDefault, nil
}
