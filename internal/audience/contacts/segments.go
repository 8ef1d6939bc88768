package contacts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
)

// Segment is a named set of contacts: those that were added to it, or those that a filter finds.
type Segment struct {
	ID        string
	TeamID    string
	Name      string
	Filter    string // JSON; "" when contacts are added by hand
	CreatedAt time.Time
}

// NewSegment is a segment to create.
type NewSegment struct {
	Name   string
	Filter string // JSON; "" when contacts are to be added by hand
}

// CreateSegment creates a segment.
func (s *Service) CreateSegment(ctx context.Context, teamID string, n NewSegment) (Segment, error) {
	g := Segment{TeamID: teamID, Name: n.Name}
	if err := checkSegmentName(n.Name); err != nil {
		return g, err
	}
	var err error
	if g.Filter, err = s.checkFilter(ctx, teamID, n.Filter); err != nil {
		return g, err
	}
	err = s.d.Update(ctx, func(tx *db.Tx) error {
		// Two that create the last one at once must not both see room for it.
		if err := tx.Serialize(ctx, "segments of "+teamID); err != nil {
			return err
		}
		count, err := countSegments(ctx, tx.Reader, teamID)
		if err != nil {
			return fmt.Errorf("count segments: %w", err)
		}
		if count >= MaxSegments {
			return fault.Invalidf("", "A team has at most %d segments. Delete one that is not needed.", MaxSegments)
		}
		g.ID, g.CreatedAt = id.At(tx.Now()), tx.Now()
		insertSegment(ctx, tx, &g)
		audit.Target(ctx, g.ID)
		return nil
	})
	return g, err
}

// Segment returns a segment.
func (s *Service) Segment(ctx context.Context, teamID, segmentID string) (Segment, error) {
	return segmentByID(ctx, s.d.Reader, teamID, segmentID)
}

// Segments returns a page of a team's segments, newest first.
func (s *Service) Segments(ctx context.Context, teamID string, p page.Page) ([]Segment, bool, error) {
	return listSegments(ctx, s.d.Reader, teamID, p)
}

// SegmentChange is what to change in a segment.
type SegmentChange struct {
	Name   *string // nil leaves it as it is
	Filter string  // JSON; "" leaves it as it is: a segment has one from the start or never
}

// UpdateSegment changes a segment. A filter for one to which contacts are added by hand is an Invalid fault.
func (s *Service) UpdateSegment(ctx context.Context, teamID, segmentID string, c SegmentChange) (g Segment, err error) {
	if c.Name != nil {
		if err := checkSegmentName(*c.Name); err != nil {
			return g, err
		}
	}
	if g, err = s.Segment(ctx, teamID, segmentID); err != nil {
		return g, err
	}
	stored := ""
	if c.Filter != "" {
		if g.Filter == "" {
			return g, fault.Invalidf("filter", "Contacts are added to this segment by hand. Create another with the filter.")
		}
		if stored, err = s.checkFilter(ctx, teamID, c.Filter); err != nil {
			return g, err
		}
	}
	err = s.d.Update(ctx, func(tx *db.Tx) error {
		if g, err = lockSegment(ctx, tx, teamID, segmentID); err != nil {
			return err
		}
		if c.Name != nil {
			g.Name = *c.Name
		}
		if stored != "" && stored != g.Filter {
			g.Filter = stored
			forgetCount(ctx, tx, teamID, g.ID)
		}
		updateSegment(ctx, tx, &g)
		return nil
	})
	return g, err
}

func checkSegmentName(name string) error {
	if strings.TrimSpace(name) == "" {
		return fault.MissingField("name")
	}
	return checkText("name", name, maxName)
}

// DeleteSegment deletes a segment, at once for everybody who asks; its contacts stay. The memberships are deleted by
// Sweep.
func (s *Service) DeleteSegment(ctx context.Context, teamID, segmentID string) error {
	return s.d.Update(ctx, func(tx *db.Tx) error { return mark(ctx, tx, segments, teamID, strings.ToLower(segmentID)) })
}

// Membership is a segment that a contact was added to.
type Membership struct {
	Segment
	Since time.Time
}

// SegmentsOf returns a page of the segments that a contact was added to, the newest segment first. Those whose filters
// find it are not among them.
func (s *Service) SegmentsOf(ctx context.Context, teamID, idOrAddress string, p page.Page) ([]Membership, bool, error) {
	of, err := s.Get(ctx, teamID, idOrAddress)
	if err != nil {
		return nil, false, err
	}
	return listMemberships(ctx, s.d.Reader, teamID, of.ID, p)
}

// AddToSegment adds a contact, which is named by its id or its address, to a segment. Adding it again changes nothing.
func (s *Service) AddToSegment(ctx context.Context, teamID, idOrAddress, segmentID string) (at Contact, err error) {
	err = s.d.Update(ctx, func(tx *db.Tx) error {
		at, err = s.AddToSegmentIn(ctx, tx, teamID, idOrAddress, segmentID)
		return err
	})
	return at, err
}

// RemoveFromSegment removes a contact, which is named by its id or its address, from a segment. If it is not in it,
// nothing changes.
func (s *Service) RemoveFromSegment(ctx context.Context, teamID, idOrAddress, segmentID string) (
	at Contact, err error) {
	err = s.d.Update(ctx, func(tx *db.Tx) error {
		g, err := manualSegment(ctx, tx.Reader, teamID, segmentID)
		if err != nil {
			return err
		}
		if at, err = lockNamed(ctx, tx, teamID, idOrAddress); err != nil {
			return err
		}
		was, err := removeMember(ctx, tx, &at, g.ID)
		if err != nil || !was {
			return err
		}
		at.UpdatedAt = tx.Now()
		updateContact(ctx, tx, &at)
		left, err := segmentIDsOf(ctx, tx.Reader, teamID, at.ID)
		if err != nil {
			return err
		}
		return s.recorder.Record(ctx, tx, events.Event{TeamID: teamID, Type: events.ContactUpdated, Data: at.event(left)})
	})
	return at, err
}

// manualSegment returns a segment whose contacts are added by hand.
func manualSegment(ctx context.Context, r db.Reader, teamID, segmentID string) (Segment, error) {
	g, err := segmentByID(ctx, r, teamID, segmentID)
	if err == nil && g.Filter != "" {
		err = hasFilter("segment_id", g.ID)
	}
	return g, err
}

// checkManualSegments returns the ids of segments to add a contact to, in lower case and order, each once. Those that the team does
// not have, and those with a filter, are an Invalid fault.
func checkManualSegments(ctx context.Context, r db.Reader, teamID string, segmentIDs []string) ([]string, error) {
	if len(segmentIDs) == 0 {
		return nil, nil
	}
	if len(segmentIDs) > MaxSegments {
		return nil, fault.Invalidf("segments", "The `segments` field names more than %d segments.", MaxSegments)
	}
	var ids []string
	for _, segmentID := range segmentIDs {
		if !id.Valid(segmentID) {
			return nil, noSuchSegment(segmentID)
		}
		ids = append(ids, strings.ToLower(segmentID))
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	have, err := segmentsAmong(ctx, r, teamID, ids)
	if err != nil {
		return nil, err
	}
	for _, segmentID := range ids {
		i := slices.IndexFunc(have, func(g Segment) bool { return g.ID == segmentID })
		if i < 0 {
			return nil, noSuchSegment(segmentID)
		}
		if have[i].Filter != "" {
			return nil, hasFilter("segments", segmentID)
		}
	}
	return ids, nil
}

func hasFilter(field, segmentID string) error {
	return fault.Invalidf(field, "The segment %s has a filter, which says who is in it: nobody is added or removed by "+
		"hand. Change the contact so that the filter finds it, or use a segment without a filter.", segmentID)
}

func noSuchSegment(segmentID string) error {
	return fault.Invalidf("segments", "The `segments` field names %.50q, which is no segment of this team.", segmentID)
}

// noSegment is in the words that clients know (API reference section 4.3).
func noSegment() error { return fault.NotFoundf("Audience not found") }
