package contacts

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/postrider/postrider/internal/platform/db"
)

func propertyNames(ctx context.Context, r db.Reader, teamID string) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT name FROM contact_properties WHERE team_id = $1 AND deleted_at = 0`, teamID)
	names, err := db.Collect(rows, err, scanText)
	if err != nil {
		return nil, fmt.Errorf("read the names of properties: %w", err)
	}
	slices.Sort(names) // Engines sort letters differently.
	return names, nil
}

// addSegments adds the segments that contacts were added to. A segment is read once, however many have it.
func addSegments(ctx context.Context, r db.Reader, teamID string, contactIDs []string, at map[string]*Profile) error {
	rows, err := r.Query(ctx, `SELECT m.contact_id, m.segment_id FROM contact_segments m WHERE m.contact_id = ANY($1)
		AND m.team_id = $2 ORDER BY m.contact_id, m.created_at, m.segment_id`, contactIDs, teamID)
	pairs, err := db.Collect(rows, err, func(r db.Row) (p [2]string, err error) {
		err = r.Scan(&p[0], &p[1])
		return p, err
	})
	if err != nil || len(pairs) == 0 {
		return err
	}
	seen := map[string]*Segment{}
	var ids []string
	for _, p := range pairs {
		if _, ok := seen[p[1]]; !ok {
			seen[p[1]], ids = nil, append(ids, p[1])
		}
	}
	segments, err := segmentsAmong(ctx, r, teamID, ids)
	if err != nil {
		return err
	}
	for i := range segments {
		seen[segments[i].ID] = &segments[i]
	}
	for _, p := range pairs {
		if g := seen[p[1]]; g != nil { // otherwise it is being deleted
			at[p[0]].Segments = append(at[p[0]].Segments, *g)
		}
	}
	return nil
}

// addTopics adds what contacts chose of topics.
func addTopics(ctx context.Context, r db.Reader, teamID string, contactIDs []string, at map[string]*Profile) error {
	rows, err := r.Query(ctx, `SELECT s.contact_id, s.topic_id, t.name, s.subscription FROM contact_topics s
		JOIN topics t ON t.id = s.topic_id AND t.team_id = s.team_id AND t.deleted_at = 0
		WHERE s.team_id = $2 AND s.contact_id = ANY($1) ORDER BY s.contact_id, s.topic_id`, contactIDs, teamID)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var contactID string
		var c ChosenTopic
		if err = r.Scan(&contactID, &c.TopicID, &c.Name, &c.Subscription); err == nil {
			at[contactID].Topics = append(at[contactID].Topics, c)
		}
		return none, err
	})
	if err != nil {
		return fmt.Errorf("read the topics of contacts: %w", err)
	}
	return nil
}

// engagementOf returns the zero Engagement for a contact that was never mailed.
func engagementOf(ctx context.Context, r db.Reader, teamID, contactID string) (e Engagement, err error) {
	var mailed, opened, clicked int64
	err = r.QueryRow(ctx, `SELECT mailed, opened, clicked, mailed_at, opened_at, clicked_at FROM contact_engagement
		WHERE contact_id = $1 AND team_id = $2`, contactID, teamID).
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
