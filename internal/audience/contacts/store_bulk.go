package contacts

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

// lockContacts locks the contacts that have the given addresses and returns them by address.
func lockContacts(ctx context.Context, tx *db.Tx, teamID string, addresses []string) (map[string]*Contact, error) {
	return contactsByAddress(ctx, tx.Reader, teamID, addresses, !tx.OneWriter())
}

// contactsByAddress returns the contacts that have the given addresses, by address. If lock is set, it locks them, which
// needs a transaction on PostgreSQL.
func contactsByAddress(ctx context.Context, r db.Reader, teamID string, addresses []string, lock bool) (
	map[string]*Contact, error) {
	text := `SELECT ` + contactColumns + ` FROM contacts WHERE team_id = $1 AND address = ANY($2)`
	if lock {
		text += ` FOR UPDATE`
	}
	rows, err := r.Query(ctx, text, db.ID(teamID), addresses)
	all, err := db.Collect(rows, err, scanContact)
	if err != nil {
		return nil, fmt.Errorf("read contacts by their addresses: %w", err)
	}
	byAddress := make(map[string]*Contact, len(all))
	for i := range all {
		byAddress[all[i].Address] = &all[i]
	}
	return byAddress, nil
}

// contactRows holds contacts as columns, the form that db.Tx.InsertRows accepts.
type contactRows struct {
	ids                                       []db.ID
	addresses, firstNames, lastNames, sources []string
	unsubscribed                              []bool
	created, updated                          []int64
}

func columnsOf(all []*Contact) (c contactRows) {
	for _, at := range all {
		c.ids, c.addresses = append(c.ids, db.ID(at.ID)), append(c.addresses, at.Address)
		c.firstNames, c.lastNames = append(c.firstNames, at.FirstName), append(c.lastNames, at.LastName)
		c.unsubscribed, c.sources = append(c.unsubscribed, at.Unsubscribed), append(c.sources, at.source)
		c.created = append(c.created, at.CreatedAt.UnixMicro())
		c.updated = append(c.updated, at.UpdatedAt.UnixMicro())
	}
	return c
}

// insertContacts inserts contacts and returns how many were new.
func insertContacts(ctx context.Context, tx *db.Tx, teamID string, all []*Contact) (int, error) {
	if len(all) == 0 {
		return 0, nil
	}
	c := columnsOf(all)
	n, err := tx.InsertRows(ctx, `contacts (`+contactColumns+`)`, `ON CONFLICT (team_id, address) DO NOTHING`, c.ids,
		db.ID(teamID), c.addresses, c.firstNames, c.lastNames, c.unsubscribed, db.IDs(c.sources), c.created, c.updated)
	if err != nil {
		return 0, fmt.Errorf("insert contacts: %w", err)
	}
	return int(n), nil
}

// updateContacts updates contacts that lockContacts returned.
func updateContacts(ctx context.Context, tx *db.Tx, teamID string, all []*Contact) {
	if len(all) == 0 {
		return
	}
	c := columnsOf(all)
	tx.QueueRows(ctx, `contacts (`+contactColumns+`)`, `ON CONFLICT (id) DO UPDATE
		SET first_name = excluded.first_name, last_name = excluded.last_name, unsubscribed = excluded.unsubscribed,
		source_id = excluded.source_id, updated_at = excluded.updated_at`, c.ids, db.ID(teamID), c.addresses, c.firstNames,
		c.lastNames, c.unsubscribed, db.IDs(c.sources), c.created, c.updated)
}

func textsOf(ctx context.Context, r db.Reader, teamID string, contacts, properties []string) (map[valueKey]string,
	error) {
	return bulkValues[string](ctx, r, `SELECT contact_id, property_id, value FROM contact_texts
		WHERE contact_id = ANY($2) AND `+ofProperties("")+` = ANY($3) AND team_id = $1`, teamID, contacts, properties)
}

func numbersOf(ctx context.Context, r db.Reader, teamID string, contacts, properties []string) (map[valueKey]float64,
	error) {
	return bulkValues[float64](ctx, r, `SELECT contact_id, property_id, value FROM contact_numbers
		WHERE contact_id = ANY($2) AND `+ofProperties("")+` = ANY($3) AND team_id = $1`, teamID, contacts, properties)
}

func bulkValues[T any](ctx context.Context, r db.Reader, text, teamID string, contacts, properties []string) (
	map[valueKey]T, error) {
	if len(contacts) == 0 || len(properties) == 0 {
		return nil, nil
	}
	found := map[valueKey]T{}
	rows, err := r.Query(ctx, text, db.ID(teamID), db.IDs(contacts), db.IDs(properties))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var key valueKey
		var value T
		err = r.Scan((*db.ID)(&key.contactID), (*db.ID)(&key.propertyID), &value)
		found[key] = value
		return none, err
	})
	if err != nil {
		return nil, fmt.Errorf("read values of contacts: %w", err)
	}
	return found, nil
}

const orReplaceValue = `ON CONFLICT (contact_id, property_id) DO UPDATE SET value = excluded.value`

func upsertTexts(ctx context.Context, tx *db.Tx, teamID string, c *valueColumns[string]) {
	if len(c.values) > 0 {
		tx.QueueRows(ctx, `contact_texts (team_id, contact_id, property_id, value)`, orReplaceValue, db.ID(teamID),
			db.IDs(c.contacts), db.IDs(c.properties), c.values)
	}
}

func upsertNumbers(ctx context.Context, tx *db.Tx, teamID string, c *valueColumns[float64]) {
	if len(c.values) > 0 {
		tx.QueueRows(ctx, `contact_numbers (team_id, contact_id, property_id, value)`, orReplaceValue, db.ID(teamID),
			db.IDs(c.contacts), db.IDs(c.properties), c.values)
	}
}

// choice is a contact's stored decision to opt in to a topic or out of it.
type choice struct {
	subscription Subscription
	source       string // id of the email whose link was used; "" for none
}

func choicesAmong(ctx context.Context, r db.Reader, teamID, topicID string, contacts []string) (map[string]choice,
	error) {
	if len(contacts) == 0 {
		return nil, nil
	}
	found := map[string]choice{}
	rows, err := r.Query(ctx, `SELECT contact_id, subscription, source_id FROM contact_topics
		WHERE team_id = $1 AND contact_id = ANY($3) AND topic_id = $2`, db.ID(teamID), db.ID(topicID), db.IDs(contacts))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var contactID string
		var c choice
		err = r.Scan((*db.ID)(&contactID), &c.subscription, (*db.ID)(&c.source))
		found[contactID] = c
		return none, err
	})
	if err != nil {
		return nil, fmt.Errorf("read who is subscribed to a topic: %w", err)
	}
	return found, nil
}

func setSubscriptions(ctx context.Context, tx *db.Tx, teamID string, c Choice, contacts []string) {
	if len(contacts) > 0 {
		tx.QueueRows(ctx, `contact_topics (team_id, contact_id, topic_id, subscription, source_id, updated_at)`,
			`ON CONFLICT (team_id, contact_id, topic_id) DO UPDATE SET subscription = excluded.subscription,
			source_id = excluded.source_id, updated_at = excluded.updated_at`, db.ID(teamID), db.IDs(contacts),
			db.ID(c.TopicID), string(c.Subscription), db.ID(""), tx.Now().UnixMicro())
	}
}
