package emails

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// An email with a topic contains unsubscribe links (see unsubscribeInfo) and is sent only to recipients who subscribe
// to the topic. Each recipient of an email with a topic therefore gets a separate message. Subscriptions are looked up
// when the email is accepted, when a scheduled email is released, and at each delivery attempt.

// refusals lists the addresses to which an email may not be sent. The keys are addresses in lower case, and the values
// are reasons.
type refusals map[string]contacts.Refusal

// refusals looks up the addresses to which email about a topic may not be sent. If the email has no topic, refusals
// looks up the addresses to which broadcasts and automations may not send email. If the email has a contact, the
// subscriptions of that contact are used, not those of the addresses. The only fields of e that refusals uses are the
// ids of the team, topic, broadcast and contact. For an unknown topic, refusals returns an Invalid fault.
func (s *Service) refusals(ctx context.Context, r db.Reader, e *Email, keys []string) (refusals, error) {
	switch {
	case !e.canUnsubscribe():
		return nil, nil
	case e.TopicID != "" && e.ContactID == "":
		return s.Contacts.Refused(ctx, r, e.TeamID, e.TopicID, keys)
	}
	return s.Contacts.RefusedContact(ctx, r, e.TeamID, e.TopicID, e.ContactID, keys)
}

// currentRefusals is like refusals, but for an email that was accepted earlier. If the email's topic has been deleted
// in the meantime, the email may not be sent to any recipient.
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

// topics caches, while a batch is checked, which topics exist.
type topics map[string]error

// check returns an Invalid fault if the team has no topic with the given id. The topic id "" means no topic and is
// always valid.
func (t topics) check(ctx context.Context, s *Service, teamID, topicID string) error {
	err, known := t[topicID]
	if !known {
		_, err = s.refusals(ctx, s.DB.Reader, &Email{TeamID: teamID, TopicID: topicID}, nil)
		t[topicID] = err
	}
	return err
}

// lookUpTopics sets the refused recipients for each draft, with one look-up per topic.
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

// splitRefused returns the recipients to which the email may be sent, and an event for each of the others.
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

// refusedEvent returns the event for a recipient to whom the email may not be sent. The email to a deleted contact is
// canceled; any other refused email fails.
func refusedEvent(e *Email, to string, why contacts.Refusal) events.Event {
	refused := events.Event{TeamID: e.TeamID, EmailID: e.ID, DomainID: e.DomainID, BroadcastID: e.BroadcastID,
		Type: events.EmailFailed, Recipient: to, OneRecipient: e.only != "",
		Data: &events.Failed{Reason: string(why), Unmailed: true}}
	if why == contacts.Deleted {
		refused.Type, refused.Data = events.EmailCanceled, &events.Canceled{Reason: string(why)}
	}
	return refused
}

// dropTopicRefusals removes from o.To every address to which email about the topic, or email from broadcasts and
// automations, may no longer be sent. The result contains the events to record for the removed addresses.
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

// unmailed reports whether an event means that the email must not be sent to its recipient. If unmailed returns true,
// the event alone does not end the email, because the email's state depends on the other recipients.
func unmailed(e *events.Event) bool {
	switch d := e.Data.(type) {
	case *events.Failed:
		return d.Unmailed
	case *events.Canceled:
		return true
	}
	return e.Type == events.EmailSuppressed
}
