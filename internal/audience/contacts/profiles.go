package contacts

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/audience/segments"
)

// Profile is a contact with its values, segments and topics.
type Profile struct {
	Member
	Segments []segments.Segment // segments without a filter that the contact was added to, oldest membership first
	Topics   []ChosenTopic      // topics that the contact has opted in to or out of, unsorted
}

// ChosenTopic is a topic that a contact has opted in to or out of.
type ChosenTopic struct {
	TopicID, Name string
	Subscription  Subscription
}

// Engagement counts the emails sent to a contact and the contact's responses.
type Engagement struct {
	Mailed, Opened, Clicked       int64     // emails from broadcasts and automations; opens and clicks exclude bots
	MailedAt, OpenedAt, ClickedAt time.Time // times of the last email, open and click; zero if there was none
}

// AudienceNow returns an audience that consists of a segment's contacts, or of all contacts if segmentID is "". The
// audience excludes contacts that are added after the call.
func (s *Service) AudienceNow(segmentID string) Audience {
	return Audience{SegmentID: segmentID, Before: s.DB.Now()}
}

// PropertyNames returns the sorted names of a team's properties.
func (s *Service) PropertyNames(ctx context.Context, teamID string) ([]string, error) {
	return propertyNames(ctx, s.DB.Reader, teamID)
}

// Profiles is like [Service.Walk], but also returns each contact's segments and topics.
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
	return all, more, addTopics(ctx, s.DB.Reader, teamID, ids, at)
}

// Profile returns one contact's profile and engagement.
func (s *Service) Profile(ctx context.Context, c Contact) (Profile, Engagement, error) {
	p := Profile{Member: Member{Contact: c}}
	var err error
	if p.Properties, err = s.Values(ctx, s.DB.Reader, c.TeamID, c.ID); err != nil {
		return p, Engagement{}, err
	}
	ids, at := []string{c.ID}, map[string]*Profile{c.ID: &p}
	if err := s.addSegments(ctx, c.TeamID, ids, at); err != nil {
		return p, Engagement{}, err
	}
	if err := addTopics(ctx, s.DB.Reader, c.TeamID, ids, at); err != nil {
		return p, Engagement{}, err
	}
	e, err := engagementOf(ctx, s.DB.Reader, c.TeamID, c.ID)
	return p, e, err
}

// addSegments sets the segments of each profile.
func (s *Service) addSegments(ctx context.Context, teamID string, ids []string, at map[string]*Profile) error {
	byContact, err := segments.ByContact(ctx, s.DB.Reader, teamID, ids)
	for contactID, all := range byContact {
		at[contactID].Segments = all
	}
	return err
}
