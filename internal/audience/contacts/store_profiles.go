package contacts

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/postrider/postrider/internal/platform/db"
)

func propertyNames(ctx context.Context, r db.Reader, teamID string) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT name FROM contact_properties WHERE team_id = $1 AND deleted_at = 0`, db.ID(teamID))
	names, err := db.Collect(rows, err, scanText)
	if err != nil {
		return nil, fmt.Errorf("read the names of properties: %w", err)
	}
	slices.Sort(names) // The names are sorted in Go, because PostgreSQL and SQLite sort letters differently.
	return names, nil
}

// addTopics adds to the given profiles the topics that the contacts have opted in to or out of.
func addTopics(ctx context.Context, r db.Reader, teamID string, contactIDs []string, at map[string]*Profile) error {
	rows, err := r.Query(ctx, `SELECT s.contact_id, s.topic_id, t.name, s.subscription FROM contact_topics s
		JOIN topics t ON t.id = s.topic_id AND t.team_id = s.team_id AND t.deleted_at = 0
		WHERE s.team_id = $2 AND s.contact_id = ANY($1) ORDER BY s.contact_id, s.topic_id`, db.IDs(contactIDs),
		db.ID(teamID))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var contactID string
		var c ChosenTopic
		if err = r.Scan((*db.ID)(&contactID), (*db.ID)(&c.TopicID), &c.Name, &c.Subscription); err == nil {
			at[contactID].Topics = append(at[contactID].Topics, c)
		}
		return none, err
	})
	if err != nil {
		return fmt.Errorf("read the topics of contacts: %w", err)
	}
	return nil
}

// engagementOf returns a contact's engagement. The result is zero if the contact has no engagement yet.
func engagementOf(ctx context.Context, r db.Reader, teamID, contactID string) (e Engagement, err error) {
	var mailed, opened, clicked int64
	err = r.QueryRow(ctx, `SELECT mailed, opened, clicked, COALESCE(mailed_at, 0), COALESCE(opened_at, 0),
		COALESCE(clicked_at, 0) FROM contact_engagement
		WHERE contact_id = $1 AND team_id = $2`, db.ID(contactID), db.ID(teamID)).
		Scan(&e.Mailed, &e.Opened, &e.Clicked, &mailed, &opened, &clicked)
	if errors.Is(err, db.ErrNoRows) {
		return e, nil
	}
	if err != nil {
		return e, fmt.Errorf("read the engagement of a contact: %w", err)
	}
	e.MailedAt, e.OpenedAt, e.ClickedAt = db.Time(mailed), db.Time(opened), db.Time(clicked)
	return e, nil
}
