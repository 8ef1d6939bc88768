package contacts

import (
	"context"

	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
)

// SegmentsOf returns a page of the segments that a contact was added to, newest segment first. Segments that contain
// the contact because of a filter are not included.
func (s *Service) SegmentsOf(ctx context.Context, teamID, idOrAddress string, p page.Page) (
	[]segments.Membership, bool, error) {
	of, err := s.Get(ctx, teamID, idOrAddress)
	if err != nil {
		return nil, false, err
	}
	return s.Segments.MembershipsOf(ctx, teamID, of.ID, p)
}

// AddToSegment adds a contact, given by its id or address, to a segment. If the contact is already in the segment,
// nothing changes.
func (s *Service) AddToSegment(ctx context.Context, teamID, idOrAddress, segmentID string) (at Contact, err error) {
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		at, err = s.AddToSegmentIn(ctx, tx, teamID, idOrAddress, segmentID)
		return err
	})
	return at, err
}

// RemoveFromSegment removes a contact, given by its id or address, from a segment. If the contact is not in the
// segment, nothing changes.
func (s *Service) RemoveFromSegment(ctx context.Context, teamID, idOrAddress, segmentID string) (
	at Contact, err error) {
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		g, err := segments.Manual(ctx, tx.Reader, teamID, segmentID)
		if err != nil {
			return err
		}
		if at, err = lockNamed(ctx, tx, teamID, idOrAddress); err != nil {
			return err
		}
		was, err := segments.RemoveMember(ctx, tx, teamID, g.ID, at.ID)
		if err != nil || !was {
			return err
		}
		at.UpdatedAt = tx.Now()
		updateContact(ctx, tx, &at)
		left, err := segments.IDsOf(ctx, tx.Reader, teamID, at.ID)
		if err != nil {
			return err
		}
		return s.Recorder.Record(ctx, tx, events.Event{TeamID: teamID, Type: events.ContactUpdated, Data: at.event(left)})
	})
	return at, err
}
