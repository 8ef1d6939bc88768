package segments

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

// Membership is a segment that a contact was added to.
type Membership struct {
	Segment
	Since time.Time
}

// MembershipsOf returns a page of the segments that a contact was added to, newest segment first. Segments that contain
// the contact because of a filter are not included.
func (s *Service) MembershipsOf(ctx context.Context, teamID, contactID string, p page.Page) ([]Membership, bool,
	error) {
	return listMemberships(ctx, s.d.Reader, teamID, contactID, p)
}

// Manual returns a segment that contacts are added to by hand. If the segment has a filter, Manual returns an Invalid
// fault.
func Manual(ctx context.Context, r db.Reader, teamID, segmentID string) (Segment, error) {
	g, err := ByID(ctx, r, teamID, segmentID)
	if err == nil && g.Filter != "" {
		err = hasFilter("segment_id", g.ID)
	}
	return g, err
}

// CheckManual validates the ids of the segments that a contact is being added to, and returns the ids in lower case,
// sorted and without duplicates. If an id does not belong to any of the team's segments, or belongs to a segment with a
// filter, CheckManual returns an Invalid fault.
func CheckManual(ctx context.Context, r db.Reader, teamID string, segmentIDs []string) ([]string, error) {
	if len(segmentIDs) == 0 {
		return nil, nil
	}
	if len(segmentIDs) > Max {
		return nil, fault.Invalidf("segments", "The `segments` field names more than %d segments.", Max)
	}
	var ids []string
	for _, segmentID := range segmentIDs {
		if !id.Valid(segmentID) {
			return nil, unknownSegment(segmentID)
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
			return nil, unknownSegment(segmentID)
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

func unknownSegment(segmentID string) error {
	return fault.Invalidf("segments", "The `segments` field names %.50q, which is no segment of this team.", segmentID)
}

// ByContact returns, by contact id, the segments that the given contacts were added to, oldest membership first.
// ByContact reads each segment only once, even if it contains many of the contacts.
func ByContact(ctx context.Context, r db.Reader, teamID string, contactIDs []string) (map[string][]Segment, error) {
	pairs, err := membershipPairs(ctx, r, teamID, contactIDs)
	if err != nil || len(pairs) == 0 {
		return nil, err
	}
	byID := map[string]*Segment{}
	var ids []string
	for _, p := range pairs {
		if _, ok := byID[p.segmentID]; !ok {
			byID[p.segmentID], ids = nil, append(ids, p.segmentID)
		}
	}
	all, err := segmentsAmong(ctx, r, teamID, ids)
	if err != nil {
		return nil, err
	}
	for i := range all {
		byID[all[i].ID] = &all[i]
	}
	byContact := map[string][]Segment{}
	for _, p := range pairs {
		if g := byID[p.segmentID]; g != nil { // nil if the segment is being deleted
			byContact[p.contactID] = append(byContact[p.contactID], *g)
		}
	}
	return byContact, nil
}
