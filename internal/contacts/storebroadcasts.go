package contacts

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/db"
)

// unsubscribedAmong adds the addresses whose contacts are unsubscribed.
func unsubscribedAmong(ctx context.Context, r db.Reader, teamID string, addresses []string,
	refused map[string]Refusal) error {
	rows, err := r.Query(ctx, `SELECT c.address FROM contacts c WHERE c.team_id = $1 AND c.address = ANY($2)
		AND c.unsubscribed`, teamID, addresses)
	all, err := db.Collect(rows, err, scanText)
	if err != nil {
		return fmt.Errorf("look up who is unsubscribed: %w", err)
	}
	for _, address := range all {
		refused[address] = Unsubscribed
	}
	return nil
}

// choices are how many contacts of an audience are alike in what decides whether they are mailed.
type choices struct {
	unsubscribed, suppressed bool
	chosen                   Subscription // "" for neither
	n                        int64
}

func countChoices(ctx context.Context, r db.Reader, of source, topicID string) ([]choices, error) {
	text := fmt.Sprintf(`SELECT c.unsubscribed, EXISTS (SELECT 1 FROM suppressions x WHERE x.team_id = c.team_id
		AND x.address = c.address), COALESCE((SELECT s.subscription FROM contact_topics s WHERE s.team_id = c.team_id
		AND s.contact_id = c.id AND s.topic_id = $%d), ''), COUNT(*) FROM %s GROUP BY 1, 2, 3`, len(of.args)+1, of.from)
	rows, err := r.Query(ctx, text, append(of.args[:len(of.args):len(of.args)], topicID)...)
	all, err := db.Collect(rows, err, func(r db.Row) (c choices, err error) {
		err = r.Scan(&c.unsubscribed, &c.suppressed, &c.chosen, &c.n)
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("count who of an audience is mailed: %w", err)
	}
	return all, nil
}
