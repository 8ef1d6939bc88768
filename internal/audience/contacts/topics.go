package contacts

import (
	"context"
	"fmt"
	"strings"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/audience/softdelete"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

// NewTopic describes a topic to create.
type NewTopic struct {
	Name        string
	Description string
	Default     Subscription
	Visibility  Visibility // "" means Private
}

// Check validates a new topic in the same way as CreateTopic.
func (n *NewTopic) Check() error {
	_, err := n.topic("")
	return err
}

// topic returns a team's topic without its id.
func (n *NewTopic) topic(teamID string) (Topic, error) {
	t := Topic{TeamID: teamID, Name: n.Name, Description: n.Description, Default: n.Default, Visibility: n.Visibility}
	if t.Visibility == "" {
		t.Visibility = Private
	}
	if err := t.check(); err != nil {
		return t, err
	}
	if t.Default == "" {
		return t, fault.MissingField("default_subscription")
	}
	return t, checkSubscription("default_subscription", t.Default)
}

// CreateTopic creates a topic.
func (s *Service) CreateTopic(ctx context.Context, teamID string, n NewTopic) (Topic, error) {
	t, err := n.topic(teamID)
	if err != nil {
		return t, err
	}
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		// Concurrent transactions must count and insert topics one at a time, so that the limit is not exceeded.
		if err := tx.Serialize(ctx, "topics of "+teamID); err != nil {
			return err
		}
		n, err := countTopics(ctx, tx.Reader, teamID)
		if err != nil {
			return fmt.Errorf("count topics: %w", err)
		}
		if err := CheckTopicCount(n); err != nil {
			return err
		}
		t.ID, t.CreatedAt = id.At(tx.Now()), tx.Now()
		insertTopic(ctx, tx, &t)
		audit.Target(ctx, t.ID)
		return nil
	})
	return t, err
}

// CheckTopicCount returns an Invalid fault if a team that has so many topics cannot have another one.
func CheckTopicCount(have int) error {
	if have < MaxTopics {
		return nil
	}
	return fault.Invalidf("", "A team has at most %d topics. Delete one that is not needed.", MaxTopics)
}

func (t *Topic) check() error {
	if strings.TrimSpace(t.Name) == "" {
		return fault.MissingField("name")
	}
	if err := scalar.CheckLine("name", t.Name, maxTopicName); err != nil {
		return err
	}
	if err := scalar.CheckLine("description", t.Description, maxDescription); err != nil {
		return err
	}
	if t.Visibility != Public && t.Visibility != Private {
		return fault.Invalidf("visibility", "The `visibility` field must be `public` or `private`.")
	}
	return nil
}

// Topic returns a topic, or a NotFound fault.
func (s *Service) Topic(ctx context.Context, teamID, topicID string) (Topic, error) {
	return topicByID(ctx, s.DB.Reader, teamID, strings.ToLower(topicID))
}

// Topics returns a page of a team's topics, newest first.
func (s *Service) Topics(ctx context.Context, teamID string, p page.Page) ([]Topic, bool, error) {
	return listTopics(ctx, s.DB.Reader, teamID, p)
}

// TopicChange describes an update of a topic. If a field is nil, the topic keeps its value.
type TopicChange struct {
	Name        *string
	Description *string
	Visibility  *Visibility
}

// UpdateTopic changes a topic.
func (s *Service) UpdateTopic(ctx context.Context, teamID, topicID string, c TopicChange) (t Topic, err error) {
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		if t, err = lockTopic(ctx, tx, teamID, strings.ToLower(topicID)); err != nil {
			return err
		}
		if c.Name != nil {
			t.Name = *c.Name
		}
		if c.Description != nil {
			t.Description = *c.Description
		}
		if c.Visibility != nil {
			t.Visibility = *c.Visibility
		}
		if err := t.check(); err != nil {
			return err
		}
		updateTopic(ctx, tx, &t)
		return nil
	})
	return t, err
}

// DeleteTopic deletes a topic. The topic can no longer be read after the commit; [Service.Sweep] deletes the
// subscriptions later. Emails keep the topic's id. Emails on the topic that have not been sent yet fail, because the
// opt-outs are deleted along with the topic.
func (s *Service) DeleteTopic(ctx context.Context, teamID, topicID string) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		return softdelete.Mark(ctx, tx, topicTable, teamID, strings.ToLower(topicID))
	})
}

// Refused returns those of the given addresses that may not be mailed about a topic, with the reasons. The given
// addresses must be in lower case. Refused is called for every email that has a topic. If the team has no such topic,
// Refused returns an Invalid fault for the topic_id field.
func (s *Service) Refused(ctx context.Context, r db.Reader, teamID, topicID string, addresses []string,
) (map[string]Refusal, error) {
	const chunk = 500
	refused := map[string]Refusal{}
	if !id.Valid(topicID) {
		return nil, UnknownTopic()
	}
	for first := true; first || len(addresses) > 0; first = false {
		n := min(chunk, len(addresses))
		if err := refusedAmong(ctx, r, teamID, strings.ToLower(topicID), addresses[:n], refused); err != nil {
			return nil, err
		}
		addresses = addresses[n:]
	}
	return refused, nil
}

// UnknownTopic returns the fault for a topic_id that does not belong to any of the team's topics.
func UnknownTopic() error {
	return fault.Invalidf("topic_id", "The `topic_id` field names no topic of this team. Create the topic first.")
}

// refusal returns the reason why a contact may not be mailed about a topic, or "" if it may be mailed. The parameter
// chosen is "" if the contact has opted neither in nor out, or does not exist.
func refusal(byDefault, chosen Subscription, unsubscribed bool) Refusal {
	switch {
	case unsubscribed:
		return Unsubscribed
	case chosen == OptOut:
		return OptedOut
	case chosen == "" && byDefault != OptIn:
		return NotOptedIn
	}
	return ""
}

func noTopic() error { return fault.NotFoundf("Topic not found") }
