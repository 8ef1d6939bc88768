package teams

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// MinRetention is the shortest retention that can be set for any data. MinRetention equals the lifetime of idempotency
// keys, and is longer than the delay before events are counted in statistics.
const MinRetention = 24 * time.Hour

// Retention is how long a team's data is kept. In the configuration, a zero field means that the data is kept forever.
// In a team's own retention, a zero field means that the configured value applies.
type Retention struct {
	Emails   time.Duration // sent emails with all their data
	Bodies   time.Duration // bodies, headers and attachments of sent emails, if the emails are kept longer
	Received time.Duration // received emails
	Events   time.Duration // timelines and delivery attempts of emails, if the emails are kept longer
}

// retentionField is one field of Retention, together with the name of its setting and column.
type retentionField struct {
	name string
	of   func(*Retention) *time.Duration
}

var retentionFields = []retentionField{
	{"email_retention", func(r *Retention) *time.Duration { return &r.Emails }},
	{"body_retention", func(r *Retention) *time.Duration { return &r.Bodies }},
	{"received_retention", func(r *Retention) *time.Duration { return &r.Received }},
	{"event_retention", func(r *Retention) *time.Duration { return &r.Events }},
}

// Effective returns the retention that applies to a team. Each field of the result is the shorter of the team's own
// value and the installation's value.
func (r Retention) Effective(most Retention) Retention {
	for _, f := range retentionFields {
		if own, limit := f.of(&r), *f.of(&most); *own == 0 || limit > 0 && limit < *own {
			*own = limit
		}
	}
	return r
}

// check returns a fault if any field is shorter than MinRetention or longer than the installation's value.
func (r Retention) check(most Retention) error {
	for _, f := range retentionFields {
		own, limit := *f.of(&r), *f.of(&most)
		switch {
		case own == 0:
		case own < MinRetention:
			return fault.Invalidf(f.name,
				"The `%s` of a team must be at least %s, or 0 for that of the configuration; it is %s.",
				f.name, MinRetention, own)
		case limit > 0 && own > limit:
			return fault.Invalidf(f.name, "The `%s` of a team must not be longer than that of the configuration, %s; it is %s.",
				f.name, limit, own)
		}
	}
	return nil
}

// SetRetention changes a team's own retention. The parameter most is the installation's retention, which is the upper
// limit. If the transaction is retried, SetRetention calls the change function again.
func (s *Service) SetRetention(ctx context.Context, teamID string, most Retention, change func(*Retention)) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		r, err := getRetention(ctx, tx.Reader, teamID)
		if err != nil {
			return err
		}
		if change(&r); r.check(most) != nil {
			return r.check(most)
		}
		for _, f := range retentionFields {
			if err := setTeam(ctx, tx, teamID, f.name, f.of(&r).Microseconds()); err != nil {
				return err
			}
		}
		return nil
	})
}

// Retention returns the team's own retention.
func (s *Service) Retention(ctx context.Context, teamID string) (Retention, error) {
	return getRetention(ctx, s.DB.Reader, teamID)
}

// TeamRetention is a team's id and short id, and the team's own retention.
type TeamRetention struct {
	TeamID string
	Short  int64
	Retention
}

// RetentionsOf returns a page of up to limit teams with their own retention, whose short ids are greater than after and
// at most last, sorted by short id.
func (s *Service) RetentionsOf(ctx context.Context, after, last int64, limit int) ([]TeamRetention, error) {
	all, err := rangeRetentions(ctx, s.DB.Reader, after, last, limit)
	if err != nil {
		return nil, fmt.Errorf("list for how long a range of teams keep what they have: %w", err)
	}
	return all, nil
}

// EmailRetentions returns the smallest and the largest value that teams have set for Retention.Emails. The smallest is
// 0 if a team has set none. Both are 0 without teams.
func (s *Service) EmailRetentions(ctx context.Context) (shortest, longest time.Duration, err error) {
	return emailRetentions(ctx, s.DB.Reader)
}
