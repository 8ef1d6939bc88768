package contacts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/filter"
	"github.com/postrider/postrider/internal/id"
	"github.com/postrider/postrider/internal/page"
	"github.com/postrider/postrider/internal/scalar"
)

// contactColumnsOfC are contactColumns in a query that names the table c.
var contactColumnsOfC = "c." + strings.ReplaceAll(contactColumns, ", ", ", c.")

// source is where contacts are found: the part of a query from FROM on, in which they are c, and its arguments.
type source struct {
	from string
	key  string // the column of their ids by which the query goes through an index
	args []any

	segmentID string   // to which they were added; "" if they are found otherwise
	among     *source  // for those of a segment, the contacts of the team that the filter leaves
	created   []string // the columns of times by which a contact became one of them
	before    int64    // a limit of those; 0 is none
	last      string   // an id that is greater than those of all that were created by then; "" if before is 0
	filtered  bool     // a filter leaves out some

	// rule is the only one by which they are found among all contacts of the team; nil if they are found otherwise.
	rule   *filter.Rule
	schema filter.Schema // of rule
}

// allContacts are the contacts of a team.
func allContacts(teamID string) source {
	return source{from: `contacts c WHERE c.team_id = $1`, key: "c.id", args: []any{teamID},
		created: []string{"c.created_at"}}
}

// membersOf are the contacts that were added to a segment. Pages of them are read in two steps, see memberIDs: for a
// join, PostgreSQL may go through the contacts of all teams in the order of their ids and look for memberships, or read
// all memberships.
func membersOf(teamID, segmentID string) source {
	among := allContacts(teamID)
	return source{from: `contact_segments m CROSS JOIN contacts c WHERE m.segment_id = $2 AND m.team_id = $1
		AND c.id = m.contact_id AND c.team_id = m.team_id`, key: "m.contact_id", args: []any{teamID, segmentID},
		segmentID: segmentID, among: &among, created: []string{"c.created_at", "m.created_at"}}
}

// where adds a condition on an argument, which it writes as $?.
func (s *source) where(condition string, arg any) {
	s.args = append(s.args[:len(s.args):len(s.args)], arg)
	s.from += " AND " + strings.ReplaceAll(condition, "$?", fmt.Sprintf("$%d", len(s.args)))
}

// until leaves out what was created after a time. The ids of contacts have their time, so the contacts that come later
// are not even looked at; a minute allows for clocks.
func (s *source) until(at time.Time) {
	s.before = at.UnixMicro()
	for _, column := range s.created {
		s.where(column+" <= $?", s.before)
	}
	s.last = id.First(at.Add(time.Minute))
	s.where(s.key+" < $?", s.last)
}

func walkAudience(ctx context.Context, r db.Reader, of source, after string, limit int) ([]Member, error) {
	if of.segmentID == "" {
		return someMembers(ctx, r, of, after, nil, limit)
	}
	var all []Member
	for more := true; more && len(all) < limit; {
		ids, err := memberIDs(ctx, r, of, after, limit-len(all))
		if err != nil || len(ids) == 0 {
			return all, err
		}
		more, after = len(ids) == limit-len(all), ids[len(ids)-1]
		some, err := someMembers(ctx, r, *of.among, "", ids, len(ids))
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// someMembers returns contacts in the order of their ids, after one of these or with some.
func someMembers(ctx context.Context, r db.Reader, of source, after string, ids []string, limit int) ([]Member, error) {
	if after != "" {
		of.where(of.key+" > $?", after)
	}
	if ids != nil {
		of.where(of.key+" = ANY($?)", ids)
	}
	rows, err := r.Query(ctx, fmt.Sprintf(`SELECT %s FROM %s ORDER BY %s LIMIT $%d`, contactColumnsOfC, of.from, of.key,
		len(of.args)+1), append(slices.Clip(of.args), limit)...)
	all, err := db.Collect(rows, err, func(r db.Row) (m Member, err error) {
		m.Contact, err = scanContact(r)
		return m, err
	})
	if err != nil {
		return nil, fmt.Errorf("read contacts of an audience: %w", err)
	}
	return all, nil
}

// selectMemberIDs does not name the team, which the index does not have: a segment that was looked up belongs to one.
const selectMemberIDs = `SELECT m.contact_id FROM contact_segments m WHERE m.segment_id = $1`

// memberIDs returns the ids of contacts that were added to a segment, in their order, after one of them. A membership
// is no older than its contact.
func memberIDs(ctx context.Context, r db.Reader, of source, after string, limit int) ([]string, error) {
	text, args := selectMemberIDs+` AND m.contact_id > $2`, []any{of.segmentID, after, limit}
	if of.before != 0 {
		text, args = text+` AND m.created_at <= $4 AND m.contact_id < $5`, append(args, of.before, of.last)
	}
	rows, err := r.Query(ctx, text+` ORDER BY m.contact_id LIMIT $3`, args...)
	ids, err := db.Collect(rows, err, scanText)
	if err != nil {
		return nil, fmt.Errorf("read the memberships of a segment: %w", err)
	}
	return ids, nil
}

// listMembers returns a page of the contacts that were added to a segment, newest first.
func listMembers(ctx context.Context, r db.Reader, of source, p page.Page) ([]Contact, bool, error) {
	const some = 1000
	ids, more, err := page.Query(ctx, r, page.Select{Text: selectMemberIDs, ID: "m.contact_id",
		Args: []any{of.segmentID}}, p, scanText)
	if err != nil {
		return nil, false, err
	}
	all := make([]Contact, 0, len(ids))
	for chunk := range slices.Chunk(ids, some) {
		found, err := someMembers(ctx, r, *of.among, "", chunk, len(chunk))
		if err != nil {
			return nil, false, err
		}
		for _, m := range slices.Backward(found) {
			all = append(all, m.Contact)
		}
	}
	return all, more, nil
}

func countAudience(ctx context.Context, r db.Reader, of source) (n int, err error) {
	text, args := `SELECT COUNT(*) FROM `+of.from, of.args
	if of.segmentID != "" && !of.filtered { // a membership has a contact
		text, args = `SELECT COUNT(*) FROM contact_segments m WHERE m.segment_id = $1`, []any{of.segmentID}
		if of.before != 0 {
			text, args = text+` AND m.created_at <= $2`, append(args, of.before)
		}
	}
	if err = r.QueryRow(ctx, text, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count the contacts of an audience: %w", err)
	}
	return n, nil
}

// valuesOf returns the values that contacts have of the named properties, or of all when names is nil, by contact and
// name.
func valuesOf(ctx context.Context, r db.Reader, teamID string, contactIDs, names []string) (
	map[string]map[string]scalar.Value, error) {
	byID := map[string]string{}
	var ids []string
	properties, err := propertiesNamed(ctx, r, teamID, names)
	if err != nil {
		return nil, err
	}
	for _, p := range properties {
		byID[p.ID] = p.Name
		ids = append(ids, p.ID)
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
		WHERE v.contact_id = ANY($1) AND v.property_id = ANY($2) AND v.team_id = $3`, contactIDs, ids, teamID)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var contactID, propertyID, text string
		err = r.Scan(&contactID, &propertyID, &text)
		keep(contactID, propertyID, scalar.OfText(text))
		return none, err
	})
	if err != nil {
		return nil, fmt.Errorf("read texts of contacts: %w", err)
	}
	rows, err = r.Query(ctx, `SELECT v.contact_id, v.property_id, v.value FROM contact_numbers v
		WHERE v.contact_id = ANY($1) AND v.property_id = ANY($2) AND v.team_id = $3`, contactIDs, ids, teamID)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var contactID, propertyID string
		var n float64
		err = r.Scan(&contactID, &propertyID, &n)
		keep(contactID, propertyID, scalar.OfNumber(n))
		return none, err
	})
	if err != nil {
		return nil, fmt.Errorf("read numbers of contacts: %w", err)
	}
	return values, nil
}

// chosenAmong returns the default of a topic, and what contacts have chosen of it, by their ids.
func chosenAmong(ctx context.Context, r db.Reader, teamID, topicID string, contactIDs []string) (
	byDefault Subscription, chosen map[string]Subscription, err error) {
	err = r.QueryRow(ctx, `SELECT t.default_subscription FROM topics t WHERE t.id = $1 AND t.team_id = $2
		AND t.deleted_at = 0`, topicID, teamID).Scan(&byDefault)
	if errors.Is(err, db.ErrNoRows) {
		return "", nil, UnknownTopic()
	}
	if err != nil {
		return "", nil, fmt.Errorf("read a topic's default: %w", err)
	}
	rows, err := r.Query(ctx, `SELECT s.contact_id, s.subscription FROM contact_topics s WHERE s.team_id = $1
		AND s.contact_id = ANY($2) AND s.topic_id = $3`, teamID, contactIDs, topicID)
	chosen = map[string]Subscription{}
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var contactID string
		var s Subscription
		err = r.Scan(&contactID, &s)
		chosen[contactID] = s
		return none, err
	})
	if err != nil {
		return "", nil, fmt.Errorf("read what contacts chose of a topic: %w", err)
	}
	return byDefault, chosen, nil
}
