package contacts

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

const eraseRows = 500 // contacts deleted per transaction

// EraseTeam deletes a team's contacts, topics, segments and properties.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	err := s.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) {
		rows, err := tx.Query(ctx, `SELECT id FROM contacts WHERE team_id = $1 ORDER BY id LIMIT $2`, db.ID(teamID),
			eraseRows)
		ids, err := db.Collect(rows, err, scanID)
		if err == nil && len(ids) > 0 {
			deleteContacts(ctx, tx, teamID, ids)
		}
		return int64(len(ids)), err
	})
	for _, text := range []string{
		`DELETE FROM contact_topics WHERE team_id = $1 AND contact_id <= (SELECT contact_id FROM
			(SELECT contact_id FROM contact_topics WHERE team_id = $1 ORDER BY contact_id LIMIT $2) x
			ORDER BY contact_id DESC LIMIT 1)`,
		`DELETE FROM topics WHERE team_id = $1 AND id <= (SELECT id FROM
			(SELECT id FROM topics WHERE team_id = $1 ORDER BY id LIMIT $2) x
			ORDER BY id DESC LIMIT 1)`,
		`DELETE FROM contact_properties WHERE team_id = $1 AND id <= (SELECT id FROM
			(SELECT id FROM contact_properties WHERE team_id = $1 ORDER BY id LIMIT $2) x
			ORDER BY id DESC LIMIT 1)`,
	} {
		if err == nil {
			err = s.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return tx.Exec(ctx, text, db.ID(teamID), eraseRows) })
		}
	}
	if err != nil {
		return fmt.Errorf("erase the contacts of team %s: %w", teamID, err)
	}
	return s.Segments.EraseTeam(ctx, teamID)
}

// erasableContact is a contact that has the address to be erased by EraseAddress.
type erasableContact struct {
	id, teamID string
	refuses    bool // whether the contact is unsubscribed or has opted out of a topic
}

// erasableContacts returns the contacts of the given teams that have the given address.
func erasableContacts(ctx context.Context, r db.Reader, teamIDs []string, address string) ([]erasableContact, error) {
	rows, err := r.Query(ctx, `SELECT c.id, c.team_id, c.unsubscribed OR (SELECT COUNT(*) FROM contact_topics s
		WHERE s.team_id = c.team_id AND s.contact_id = c.id AND s.subscription = 'opt_out') > 0
		FROM contacts c WHERE c.team_id = ANY($1) AND c.address = $2`, db.IDs(teamIDs), address)
	return db.Collect(rows, err, func(r db.Row) (n erasableContact, err error) {
		err = r.Scan((*db.ID)(&n.id), (*db.ID)(&n.teamID), &n.refuses)
		return n, err
	})
}

// detailTables are the tables whose rows belong to contacts, except the subscriptions table.
var detailTables = []string{"contact_texts", "contact_numbers", "contact_segments", "contact_engagement"}

// deleteContacts deletes contacts and all rows that refer to them. deleteContacts locks the contacts first, so that it
// also deletes rows written by transactions that held these locks before.
func deleteContacts(ctx context.Context, tx *db.Tx, teamID string, ids []string) {
	some := db.IDs(ids)
	tx.Queue(ctx, `UPDATE contacts SET updated_at = updated_at WHERE id = ANY($1) AND team_id = $2`, some, db.ID(teamID))
	for _, table := range append([]string{"contact_topics"}, detailTables...) {
		tx.Queue(ctx, `DELETE FROM `+table+` WHERE contact_id = ANY($1) AND team_id = $2`, some, db.ID(teamID))
	}
	tx.Queue(ctx, `DELETE FROM contacts WHERE id = ANY($1) AND team_id = $2`, some, db.ID(teamID))
}

// deleteDetails deletes all data about contacts except their addresses and opt-outs.
func deleteDetails(ctx context.Context, tx *db.Tx, teamID string, ids []string) {
	some := db.IDs(ids)
	for _, table := range detailTables {
		tx.Queue(ctx, `DELETE FROM `+table+` WHERE contact_id = ANY($1) AND team_id = $2`, some, db.ID(teamID))
	}
	tx.Queue(ctx, `DELETE FROM contact_topics WHERE contact_id = ANY($1) AND team_id = $2 AND subscription <> 'opt_out'`,
		some, db.ID(teamID))
	tx.Queue(ctx, `UPDATE contacts SET first_name = '', last_name = '' WHERE id = ANY($1) AND team_id = $2`, some,
		db.ID(teamID))
}
