package contacts

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/db"
)

const eraseRows = 500 // deleted in one transaction

// EraseTeam deletes the contacts and topics of a team.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	for _, text := range []string{
		`DELETE FROM contact_topics WHERE team_id = $1 AND contact_id <= (SELECT MAX(contact_id) FROM
			(SELECT contact_id FROM contact_topics WHERE team_id = $1 ORDER BY contact_id LIMIT $2) x)`,
		`DELETE FROM contacts WHERE team_id = $1 AND id <= (SELECT MAX(id) FROM
			(SELECT id FROM contacts WHERE team_id = $1 ORDER BY id LIMIT $2) x)`,
		`DELETE FROM topics WHERE team_id = $1 AND id <= (SELECT MAX(id) FROM
			(SELECT id FROM topics WHERE team_id = $1 ORDER BY id LIMIT $2) x)`,
	} {
		err := s.d.Repeat(ctx, func(tx *db.Tx) (int64, error) { return tx.Exec(ctx, text, teamID, eraseRows) })
		if err != nil {
			return fmt.Errorf("erase the contacts of team %s: %w", teamID, err)
		}
	}
	return nil
}

// deletedTopics returns some topics of any team that are deleted and have rows.
func deletedTopics(ctx context.Context, r db.Reader, limit int) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT id FROM topics WHERE deleted_at <> 0 ORDER BY id LIMIT $1`, limit)
	return db.Collect(rows, err, scanText)
}

// deleteSomeOfTopic deletes some of what was chosen of a topic.
func deleteSomeOfTopic(ctx context.Context, tx *db.Tx, topicID string) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM contact_topics WHERE topic_id = $1 AND contact_id <= (SELECT MAX(contact_id) FROM
		(SELECT contact_id FROM contact_topics WHERE topic_id = $1 ORDER BY contact_id LIMIT $2) x)`, topicID, eraseRows)
}

func removeTopic(ctx context.Context, tx *db.Tx, topicID string) {
	tx.Queue(ctx, `DELETE FROM topics WHERE id = $1 AND deleted_at <> 0`, topicID)
}

// named is a contact with an address that is to be erased.
type named struct {
	id, teamID string
	refuses    bool // it is unsubscribed or opted out of something
}

// contactsNamed returns the contacts of some teams that have an address.
func contactsNamed(ctx context.Context, r db.Reader, teamIDs []string, address string) ([]named, error) {
	rows, err := r.Query(ctx, `SELECT c.id, c.team_id, c.unsubscribed OR (SELECT COUNT(*) FROM contact_topics s
		WHERE s.team_id = c.team_id AND s.contact_id = c.id AND s.subscription = 'opt_out') > 0
		FROM contacts c WHERE c.team_id = ANY($1) AND c.address = $2`, teamIDs, address)
	return db.Collect(rows, err, func(r db.Row) (n named, err error) {
		err = r.Scan(&n.id, &n.teamID, &n.refuses)
		return n, err
	})
}

func deleteContact(ctx context.Context, tx *db.Tx, teamID, contactID string) {
	tx.Queue(ctx, `DELETE FROM contact_topics WHERE team_id = $1 AND contact_id = $2`, teamID, contactID)
	tx.Queue(ctx, `DELETE FROM contacts WHERE id = $1 AND team_id = $2`, contactID, teamID)
}

// deleteNames deletes what is known of a contact, except what it does not want.
func deleteNames(ctx context.Context, tx *db.Tx, teamID, contactID string) {
	tx.Queue(ctx, `DELETE FROM contact_topics WHERE team_id = $1 AND contact_id = $2 AND subscription <> 'opt_out'`,
		teamID, contactID)
	tx.Queue(ctx, `UPDATE contacts SET first_name = '', last_name = '' WHERE id = $1 AND team_id = $2`, contactID, teamID)
}
