package contacts

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/audience/segments"
)

// Profile is a contact with all that a team has noted of it.
type Profile struct {
	Member
	Segments []segments.Segment // that it was added to, the first one first; not those whose filter finds it
	Topics   []ChosenTopic      // that it opted in to or out of, in no order
}

// ChosenTopic is what a contact chose of a topic.
type ChosenTopic struct {
	TopicID, Name string
	Subscription  Subscription
}

// Engagement is how a contact answers what it is sent.
type Engagement struct {
	Mailed, Opened, Clicked       int64     // emails of broadcasts and automations, and what people did with them
	MailedAt, OpenedAt, ClickedAt time.Time // the last time; zero when never
}

// AudienceNow returns a segment, or all contacts for "", as of now: who is added later does not belong.
func (s *Service) AudienceNow(segmentID string) Audience {
	return Audience{SegmentID: segmentID, Before: s.d.Now()}
}

// PropertyNames returns the names of all properties of a team, sorted.
func (s *Service) PropertyNames(ctx context.Context, teamID string) ([]string, error) {
	return propertyNames(ctx, s.d.Reader, teamID)
}

// Profiles is Walk with what else is noted of the contacts.
func (s *Service) Profiles(ctx context.Context, teamID string, a Audience, after string, limit int) (
	all []Profile, more bool, err error) {
	members, more, err := s.Walk(ctx, teamID, a, after, limit)
	if err != nil || len(members) == 0 {
		return nil, false, err
	}
	all = make([]Profile, len(members))
	ids, at := make([]string, len(members)), map[string]*Profile{}
	for i, m := range members {
		all[i].Member, ids[i], at[m.ID] = m, m.ID, &all[i]
	}
	if err := s.addSegments(ctx, teamID, ids, at); err != nil {
		return nil, false, err
	}
	return all, more, addTopics(ctx, s.d.Reader, teamID, ids, at)
}

// Profile returns all that is noted of one contact.
func (s *Service) Profile(ctx context.Context, c Contact) (Profile, Engagement, error) {
	p := Profile{Member: Member{Contact: c}}
	var err error
	if p.Properties, err = s.Values(ctx, s.d.Reader, c.TeamID, c.ID); err != nil {
		return p, Engagement{}, err
	}
	ids, at := []string{c.ID}, map[string]*Profile{c.ID: &p}
	if err := s.addSegments(ctx, c.TeamID, ids, at); err != nil {
		return p, Engagement{}, err
	}
	if err := addTopics(ctx, s.d.Reader, c.TeamID, ids, at); err != nil {
		return p, Engagement{}, err
	}
	e, err := engagementOf(ctx, s.d.Reader, c.TeamID, c.ID)
	return p, e, err
}

// addSegments adds the segments to which the contacts were added.
func (s *Service) addSegments(ctx context.Context, teamID string, ids []string, at map[string]*Profile) error {
	byContact, err := segments.ByContact(ctx, s.d.Reader, teamID, ids)
	for contactID, all := range byContact {
		at[contactID].Segments = all
	}
	return err
}
