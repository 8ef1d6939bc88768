package contacts

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

const contactColumns = `id, team_id, address, first_name, last_name, unsubscribed, source_id, created_at, updated_at`

func scanContact(r db.Row) (c Contact, err error) {
	var created, updated int64
	err = r.Scan((*db.ID)(&c.ID), (*db.ID)(&c.TeamID), &c.Address, &c.FirstName, &c.LastName, &c.Unsubscribed,
		(*db.ID)(&c.source), &created, &updated)
	c.CreatedAt, c.UpdatedAt = db.Time(created), db.Time(updated)
	return c, err
}

func oneContact(r db.Row) (Contact, error) {
	c, err := scanContact(r)
	if errors.Is(err, db.ErrNoRows) {
		return c, noContact()
	}
	if err != nil {
		return c, fmt.Errorf("read contact: %w", err)
	}
	return c, nil
}

func contactByID(ctx context.Context, r db.Reader, teamID, contactID string) (Contact, error) {
	return oneContact(r.QueryRow(ctx, `SELECT `+contactColumns+` FROM contacts WHERE id = $1 AND team_id = $2`,
		db.ID(contactID), db.ID(teamID)))
}

func contactByAddress(ctx context.Context, r db.Reader, teamID, address string) (Contact, error) {
	return oneContact(r.QueryRow(ctx, `SELECT `+contactColumns+` FROM contacts WHERE team_id = $1 AND address = $2`,
		db.ID(teamID), address))
}

// lockContact locks and returns the contact that has the given address. If there is no such contact, found is false,
// and only the team and address are set in the result.
func lockContact(ctx context.Context, tx *db.Tx, teamID, address string) (c Contact, found bool, err error) {
	c, err = scanContact(tx.QueryRow(ctx, `UPDATE contacts SET updated_at = updated_at WHERE team_id = $1 AND address = $2
		RETURNING `+contactColumns, db.ID(teamID), address))
	if errors.Is(err, db.ErrNoRows) {
		return Contact{TeamID: teamID, Address: address}, false, nil
	}
	if err != nil {
		return c, false, fmt.Errorf("lock a contact: %w", err)
	}
	return c, true, nil
}

// insertContact inserts a contact, or returns false if the team already has a contact with the same address.
func insertContact(ctx context.Context, tx *db.Tx, c *Contact) (inserted bool, err error) {
	n, err := tx.Exec(ctx, `INSERT INTO contacts (`+contactColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		ON CONFLICT (team_id, address) DO NOTHING`, db.ID(c.ID), db.ID(c.TeamID), c.Address, c.FirstName, c.LastName,
		c.Unsubscribed, db.ID(c.source), c.CreatedAt.UnixMicro(), c.UpdatedAt.UnixMicro())
	if err != nil {
		return false, fmt.Errorf("insert a contact: %w", err)
	}
	if n > 0 {
		tx.Proof(`SELECT 1 FROM contacts WHERE id = $1`, db.ID(c.ID))
	}
	return n > 0, nil
}

// lockByID locks and returns a contact, or returns a NotFound fault if the contact does not exist.
func lockByID(ctx context.Context, tx *db.Tx, teamID, contactID string) (Contact, error) {
	return oneContact(tx.QueryRow(ctx, `UPDATE contacts SET updated_at = updated_at WHERE id = $1 AND team_id = $2
		RETURNING `+contactColumns, db.ID(contactID), db.ID(teamID)))
}

// updateContact queues an update of a contact. If another contact has the new address, the transaction fails with a
// violation of the unique index contacts_address.
func updateContact(ctx context.Context, tx *db.Tx, c *Contact) {
	tx.Queue(ctx, `UPDATE contacts SET address = $3, first_name = $4, last_name = $5, unsubscribed = $6, source_id = $7,
		updated_at = $8 WHERE id = $1 AND team_id = $2`, db.ID(c.ID), db.ID(c.TeamID), c.Address, c.FirstName, c.LastName,
		c.Unsubscribed, db.ID(c.source), c.UpdatedAt.UnixMicro())
}

func setSubscription(ctx context.Context, tx *db.Tx, of *Contact, c Choice, source string) {
	tx.Queue(ctx, `INSERT INTO contact_topics (team_id, contact_id, topic_id, subscription, source_id, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (team_id, contact_id, topic_id) DO UPDATE
		SET subscription = excluded.subscription, source_id = excluded.source_id, updated_at = excluded.updated_at`,
		db.ID(of.TeamID), db.ID(of.ID), db.ID(c.TopicID), string(c.Subscription), db.ID(source), tx.Now().UnixMicro())
}

const topicColumns = `t.id, t.team_id, t.name, t.description, t.default_subscription, t.visibility, t.created_at`

// topicRow is the scan destination for topicColumns.
type topicRow struct {
	Topic
	created int64
}

func (t *topicRow) dest(more ...any) []any {
	return append([]any{(*db.ID)(&t.ID), (*db.ID)(&t.TeamID), &t.Name, &t.Description, &t.Default, &t.Visibility,
		&t.created}, more...)
}

func (t *topicRow) topic() Topic {
	t.CreatedAt = db.Time(t.created)
	return t.Topic
}

func scanTopic(r db.Row) (Topic, error) {
	var t topicRow
	err := r.Scan(t.dest()...)
	return t.topic(), err
}

func oneTopic(r db.Row) (Topic, error) {
	t, err := scanTopic(r)
	if errors.Is(err, db.ErrNoRows) {
		return t, noTopic()
	}
	if err != nil {
		return t, fmt.Errorf("read topic: %w", err)
	}
	return t, nil
}

func insertTopic(ctx context.Context, tx *db.Tx, t *Topic) {
	tx.Proof(`SELECT 1 FROM topics WHERE id = $1`, db.ID(t.ID))
	tx.Queue(ctx, `INSERT INTO topics (id, team_id, name, description, default_subscription, visibility, created_at,
		deleted_at) VALUES ($1, $2, $3, $4, $5, $6, $7, 0)`, db.ID(t.ID), db.ID(t.TeamID), t.Name, t.Description,
		string(t.Default), string(t.Visibility), t.CreatedAt.UnixMicro())
}

func topicByID(ctx context.Context, r db.Reader, teamID, topicID string) (Topic, error) {
	if !id.Valid(topicID) {
		return Topic{}, noTopic()
	}
	return oneTopic(r.QueryRow(ctx, `SELECT `+topicColumns+` FROM topics t WHERE t.id = $1 AND t.team_id = $2
		AND t.deleted_at = 0`, db.ID(topicID), db.ID(teamID)))
}

// lockTopic locks and returns a topic.
func lockTopic(ctx context.Context, tx *db.Tx, teamID, topicID string) (Topic, error) {
	if !id.Valid(topicID) {
		return Topic{}, noTopic()
	}
	_, err := tx.Exec(ctx, `UPDATE topics SET name = name WHERE id = $1 AND team_id = $2`, db.ID(topicID), db.ID(teamID))
	if err != nil {
		return Topic{}, fmt.Errorf("lock a topic: %w", err)
	}
	return topicByID(ctx, tx.Reader, teamID, topicID)
}

func listTopics(ctx context.Context, r db.Reader, teamID string, p page.Page) ([]Topic, bool, error) {
	return page.Query(ctx, r, page.Select{Text: `SELECT ` + topicColumns + ` FROM topics t WHERE t.team_id = $1
		AND t.deleted_at = 0`, ID: "t.id", Args: []any{db.ID(teamID)}}, p, scanTopic)
}

func countTopics(ctx context.Context, r db.Reader, teamID string) (n int, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM topics WHERE team_id = $1 AND deleted_at = 0`, db.ID(teamID)).Scan(&n)
	return n, err
}

// topicsAmong returns those of the given ids that belong to the team's topics.
func topicsAmong(ctx context.Context, r db.Reader, teamID string, ids []string) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT id FROM topics WHERE id = ANY($1) AND team_id = $2 AND deleted_at = 0`,
		db.IDs(ids), db.ID(teamID))
	return db.Collect(rows, err, scanID)
}

func updateTopic(ctx context.Context, tx *db.Tx, t *Topic) {
	tx.Queue(ctx, `UPDATE topics SET name = $3, description = $4, visibility = $5 WHERE id = $1 AND team_id = $2`,
		db.ID(t.ID), db.ID(t.TeamID), t.Name, t.Description, string(t.Visibility))
}

const selectSubscribed = `SELECT ` + topicColumns + `, COALESCE(s.subscription, ''), s.source_id
	FROM topics t LEFT JOIN contact_topics s ON s.team_id = t.team_id AND s.contact_id = $2 AND s.topic_id = t.id
	WHERE t.team_id = $1 AND t.deleted_at = 0`

func scanSubscribed(r db.Row) (s TopicSubscription, err error) {
	var t topicRow
	err = r.Scan(t.dest(&s.chosen, (*db.ID)(&s.source))...)
	s.Topic, s.Subscription = t.topic(), s.chosen
	if s.chosen == "" {
		s.Subscription = s.Default
	}
	return s, err
}

// subscriptions returns a team's topics, oldest first, with a contact's subscriptions. The parameter contactID may be
// "".
func subscriptions(ctx context.Context, r db.Reader, teamID, contactID string) ([]TopicSubscription, error) {
	rows, err := r.Query(ctx, selectSubscribed+` ORDER BY t.id LIMIT $3`, db.ID(teamID), db.ID(contactID), MaxTopics)
	return db.Collect(rows, err, scanSubscribed)
}

func listSubscriptions(ctx context.Context, r db.Reader, teamID, contactID string, p page.Page) (
	[]TopicSubscription, bool, error) {
	return page.Query(ctx, r, page.Select{Text: selectSubscribed, ID: "t.id",
		Args: []any{db.ID(teamID), db.ID(contactID)}}, p, scanSubscribed)
}

const selectRefused = `SELECT t.default_subscription, COALESCE(c.address, ''), COALESCE(c.unsubscribed, FALSE),
	COALESCE(s.subscription, '')
	FROM topics t LEFT JOIN contacts c ON c.team_id = t.team_id AND c.address = ANY($3)
	LEFT JOIN contact_topics s ON s.team_id = t.team_id AND s.contact_id = c.id AND s.topic_id = t.id
	WHERE t.id = $2 AND t.team_id = $1 AND t.deleted_at = 0`

// refusedAmong adds to a map those of the given addresses that may not be mailed about a topic, with the reasons.
func refusedAmong(ctx context.Context, r db.Reader, teamID, topicID string, addresses []string,
	refused map[string]Refusal) error {
	var byDefault Subscription
	rows, err := r.Query(ctx, selectRefused, db.ID(teamID), db.ID(topicID), addresses)
	found := map[string]Refusal{}
	list, err := db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var address string
		var chosen Subscription
		var unsubscribed bool
		err = r.Scan(&byDefault, &address, &unsubscribed, &chosen)
		found[address] = refusal(byDefault, chosen, unsubscribed)
		return none, err
	})
	if err != nil {
		return fmt.Errorf("look up who may be mailed about a topic: %w", err)
	}
	if len(list) == 0 { // if the topic exists, the query returns at least one row
		return UnknownTopic()
	}
	for _, address := range addresses {
		why, isContact := found[address]
		if !isContact {
			why = refusal(byDefault, "", false)
		}
		if why != "" {
			refused[address] = why
		}
	}
	return nil
}

func scanID(r db.Row) (id string, err error) {
	err = r.Scan((*db.ID)(&id))
	return id, err
}

func scanText(r db.Row) (text string, err error) {
	err = r.Scan(&text)
	return text, err
}
