package emails

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// An email with a topic goes only to recipients who subscribe to the topic, and has unsubscribe links (see
// unsubscribeInfo). Therefore each recipient gets a separate message. Subscriptions are looked up when the email is
// accepted, when a scheduled email is released, and before later delivery attempts.

// refusals has the addresses, in lower case, that may not be mailed about the topic of an email, with the reasons.
type refusals map[string]contacts.Refusal

// refusals looks up which addresses may not be mailed about the topic of an email. Without a topic, it looks up which
// may not be mailed by a broadcast or an automation. The email's contact decides; without a contact, the addresses
// decide. It uses only the ids of e's team, topic, broadcast and contact. An unknown topic is an Invalid fault.
func (s *Service) refusals(ctx context.Context, r db.Reader, e *Email, keys []string) (refusals, error) {
	switch {
	case !e.canUnsubscribe():
		return nil, nil
	case e.TopicID != "" && e.ContactID == "":
		return s.Contacts.Refused(ctx, r, e.TeamID, e.TopicID, keys)
	}
	return s.Contacts.RefusedContact(ctx, r, e.TeamID, e.TopicID, e.ContactID, keys)
}

// currentRefusals is refusals for an email that was accepted before. If its topic was deleted since, no recipient may
// be mailed.
func (s *Service) currentRefusals(ctx context.Context, e *Email, keys []string) (refusals, error) {
	refused, err := s.refusals(ctx, s.DB.Reader, e, keys)
	if fault.KindOf(err) == fault.Invalid {
		refused, err = refusals{}, nil
		for _, key := range keys {
			refused[key] = contacts.TopicDeleted
		}
	}
	return refused, err
}

// topics caches which topics exist while the emails of a batch are checked.
type topics map[string]error

// check returns an Invalid fault if the team has no such topic. "" means no topic and is always valid.
func (t topics) check(ctx context.Context, s *Service, teamID, topicID string) error {
	err, known := t[topicID]
	if !known {
		_, err = s.refusals(ctx, s.DB.Reader, &Email{TeamID: teamID, TopicID: topicID}, nil)
		t[topicID] = err
	}
	return err
}

// lookUpTopics sets the refused recipients of drafts, with one look-up for each topic.
func (s *Service) lookUpTopics(ctx context.Context, teamID string, drafts []*draft) error {
	keys := map[string][]string{}
	for _, d := range drafts {
		if d.TopicID == "" {
			continue
		}
		for _, r := range d.recipients {
			keys[d.TopicID] = append(keys[d.TopicID], r.Key())
		}
	}
	for topicID, to := range keys {
		refused, err := s.refusals(ctx, s.DB.Reader, &Email{TeamID: teamID, TopicID: topicID}, to)
		if err != nil {
			return err
		}
		for _, d := range drafts {
			if d.TopicID == topicID {
				d.refused = refused
			}
		}
	}
	return nil
}

// splitRefused returns the recipients that may be mailed, and the events of the others.
func splitRefused(e *Email, to []recipient, refused refusals) (left []recipient, failed []events.Event) {
	if len(refused) == 0 {
		return to, nil
	}
	for _, r := range to {
		if why, ok := refused[r.Key()]; ok {
			failed = append(failed, refusedEvent(e, r.Addr(), why))
		} else {
			left = append(left, r)
		}
	}
	return left, failed
}

func refusedEvent(e *Email, to string, why contacts.Refusal) events.Event {
	return events.Event{TeamID: e.TeamID, EmailID: e.ID, DomainID: e.DomainID, BroadcastID: e.BroadcastID,
		Type: events.EmailFailed, Recipient: to, Data: &events.Failed{Reason: string(why), Unmailed: true}}
}

// dropTopicRefusals removes the addresses from o.To that may no longer be mailed about the email's topic, or by a
// broadcast or an automation. It returns the events to record for them.
func (s *Service) dropTopicRefusals(ctx context.Context, o *Outgoing) (failed []events.Event, err error) {
	if !o.row.canUnsubscribe() || len(o.To) == 0 {
		return nil, nil
	}
	keys, err := o.keys()
	if err != nil {
		return nil, err
	}
	refused, err := s.currentRefusals(ctx, &o.row.Email, keys)
	if err != nil {
		return nil, fmt.Errorf("look up the topic of email %s: %w", o.ID, err)
	}
	return removeAddresses(o, keys, refused, refusedEvent), nil
}

// unmailed reports whether an event says that the email must not be sent to its recipient. A refused recipient is not a
// failure of the email: the other recipients decide its state.
func unmailed(e *events.Event) bool {
	if d, ok := e.Data.(*events.Failed); ok {
		return d.Unmailed
	}
	return e.Type == events.EmailSuppressed
}
