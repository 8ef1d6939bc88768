package contacts

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

// mailability holds the data that decides whether a contact may be mailed.
type mailability struct {
	id, address  string
	unsubscribed bool
	chosen       Subscription // "" for no choice
	byDefault    Subscription // the topic's default; "" if the team has no such topic; opt_in if the email has no topic
}

func scanMailability(r db.Row) (c mailability, err error) {
	err = r.Scan((*db.ID)(&c.id), &c.address, &c.unsubscribed, &c.chosen, &c.byDefault)
	return c, err
}

// selectMailability returns a SELECT statement up to its WHERE clause, and the topic id as an argument unless it is "".
// In the statement, $1 is the team and $2 is the topic, if any. The topic's default is a subquery that the database
// evaluates only once.
func selectMailability(topicID string) (text string, topic []any) {
	if topicID == "" {
		return `SELECT c.id, c.address, c.unsubscribed, '', 'opt_in' FROM contacts c WHERE`, nil
	}
	return `SELECT c.id, c.address, c.unsubscribed, COALESCE((SELECT s.subscription FROM contact_topics s
		WHERE s.team_id = c.team_id AND s.contact_id = c.id AND s.topic_id = $2), ''),
		COALESCE((SELECT t.default_subscription FROM topics t WHERE t.id = $2 AND t.team_id = $1 AND t.deleted_at = 0), '')
		FROM contacts c WHERE`, []any{db.ID(topicID)}
}

// ofTeamByID is the condition on the team for queries by contact id. COALESCE keeps PostgreSQL from using the
// index on team_id, because it might then read all of the team's contacts.
const ofTeamByID = ` COALESCE(c.team_id, c.team_id) = $1 AND c.id`

// mailabilityByID returns the mailability of those of the given contacts that exist.
func mailabilityByID(ctx context.Context, r db.Reader, teamID, topicID string, contactIDs []string) ([]mailability,
	error) {
	text, topic := selectMailability(topicID)
	args := append([]any{db.ID(teamID)}, topic...)
	rows, err := r.Query(ctx, fmt.Sprintf(`%s = ANY($%d)`, text+ofTeamByID, len(args)+1), append(args,
		db.IDs(contactIDs))...)
	all, err := db.Collect(rows, err, scanMailability)
	if err != nil {
		return nil, fmt.Errorf("look up whether contacts may be mailed: %w", err)
	}
	return all, nil
}

// mailabilityAt returns the mailability of a contact and of the contacts that have the given addresses.
func mailabilityAt(ctx context.Context, r db.Reader, teamID, topicID, contactID string, addresses []string) (
	[]mailability, error) {
	text, topic := selectMailability(topicID)
	args := append([]any{db.ID(teamID)}, topic...)
	n := len(args)
	rows, err := r.Query(ctx, fmt.Sprintf(`%[1]s%[2]s = $%[3]d UNION ALL %[1]s c.team_id = $1 AND c.address = ANY($%[4]d)
		AND c.id <> $%[3]d`, text, ofTeamByID, n+1, n+2), append(args, db.OrNoID(contactID), addresses)...)
	all, err := db.Collect(rows, err, scanMailability)
	if err != nil {
		return nil, fmt.Errorf("look up whether a contact may be mailed: %w", err)
	}
	return all, nil
}

// AcceptsEmail is an SQL condition that is true only if [Service.RefusedContact] refuses nothing for the email in the
// row e of table emails. The only address is in the list parameter $2. AcceptsEmail may be false although the contact
// may be mailed, for example after its address has changed. The statement that loads an email contains AcceptsEmail, so
// that RefusedContact is called only if the condition is false.
const AcceptsEmail = `CASE
	WHEN e.contact_id IS NOT NULL THEN EXISTS (SELECT 1 FROM contacts c WHERE c.id = e.contact_id
		AND COALESCE(c.team_id, c.team_id) = e.team_id AND c.address = ANY($2) AND NOT c.unsubscribed
		AND (e.topic_id IS NULL OR EXISTS (SELECT 1 FROM topics t
		LEFT JOIN contact_topics s ON s.team_id = t.team_id AND s.contact_id = c.id AND s.topic_id = t.id
		WHERE t.id = e.topic_id AND COALESCE(t.team_id, t.team_id) = e.team_id AND t.deleted_at = 0
		AND COALESCE(s.subscription, t.default_subscription) = 'opt_in')))
	WHEN e.topic_id IS NOT NULL THEN EXISTS (SELECT 1 FROM topics t
		LEFT JOIN contacts c ON c.team_id = t.team_id AND c.address = ANY($2)
		LEFT JOIN contact_topics s ON s.team_id = t.team_id AND s.contact_id = c.id AND s.topic_id = t.id
		WHERE t.id = e.topic_id AND COALESCE(t.team_id, t.team_id) = e.team_id AND t.deleted_at = 0
		AND NOT COALESCE(c.unsubscribed, FALSE) AND COALESCE(s.subscription, t.default_subscription) = 'opt_in')
	ELSE e.broadcast_id IS NULL END`
