// Package segments stores teams' segments, and the memberships of contacts that were added to a segment by hand.
//
// A segment is a named group of contacts. A segment either has a filter, which selects its contacts, or has contacts
// added to it by hand. The choice between the two is made when the segment is created. Package segments stores filters
// as JSON and does not evaluate them: package contacts checks filters, and finds and counts the contacts in a segment.
// Package segments also stores how many contacts each segment has.
//
// Package contacts adds contacts to segments and removes them, in a transaction that calls [AddMember] or
// [RemoveMember]. The transaction that changes a membership also updates the contact and records an event.
//
// A deleted segment can no longer be read after the commit. [Service.Sweep] deletes its memberships and its count
// later. A query for memberships must therefore join the segments table.
package segments

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/audience/softdelete"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

// Limits on segments (API reference section 13).
const (
	Max     = 1000 // maximum number of segments per team
	maxName = 255  // maximum length of a segment's name, in characters
)

// Segment is a named group of contacts.
type Segment struct {
	ID        string
	TeamID    string
	Name      string
	Filter    string // JSON; "" if contacts are added by hand
	CreatedAt time.Time
}

// AllContacts returns a pseudo-segment for all of a team's contacts. The id of this pseudo-segment is the team's id.
func AllContacts(teamID string) Segment { return Segment{ID: teamID, TeamID: teamID} }

// IsAllContacts reports whether g is the result of [AllContacts].
func (g *Segment) IsAllContacts() bool { return g.ID == g.TeamID }

// Service creates, reads, changes and deletes segments.
type Service struct {
	d           *db.DB
	checkFilter func(ctx context.Context, teamID, filter string) (stored string, err error)
}

// New returns a Service. The function checkFilter validates a team's filter and returns the JSON to store, or an
// Invalid fault.
func New(d *db.DB, checkFilter func(ctx context.Context, teamID, filter string) (stored string, err error)) *Service {
	return &Service{d: d, checkFilter: checkFilter}
}

// Definition describes a segment to be created.
type Definition struct {
	Name   string
	Filter string // JSON; "" if contacts are to be added by hand
}

// Create creates a segment. Create returns an Invalid fault if the team already has [Max] segments.
func (s *Service) Create(ctx context.Context, teamID string, n Definition) (Segment, error) {
	g := Segment{TeamID: teamID, Name: n.Name}
	if err := checkName(n.Name); err != nil {
		return g, err
	}
	if n.Filter != "" {
		var err error
		if g.Filter, err = s.checkFilter(ctx, teamID, n.Filter); err != nil {
			return g, err
		}
	}
	err := s.d.Update(ctx, func(tx *db.Tx) error {
		// Concurrent transactions must count and insert segments one at a time, so that the limit is not exceeded.
		if err := tx.Serialize(ctx, "segments of "+teamID); err != nil {
			return err
		}
		count, err := countSegments(ctx, tx.Reader, teamID)
		if err != nil {
			return err
		}
		if err := CheckCount(count); err != nil {
			return err
		}
		g.ID, g.CreatedAt = id.At(tx.Now()), tx.Now()
		insertSegment(ctx, tx, &g)
		audit.Target(ctx, g.ID)
		return nil
	})
	return g, err
}

// CheckCount returns an Invalid fault if a team that has so many segments cannot have another one.
func CheckCount(have int) error {
	if have < Max {
		return nil
	}
	return fault.Invalidf("", "A team has at most %d segments. Delete one that is not needed.", Max)
}

// Get returns a segment, or a NotFound fault.
func (s *Service) Get(ctx context.Context, teamID, segmentID string) (Segment, error) {
	return ByID(ctx, s.d.Reader, teamID, segmentID)
}

// List returns a page of a team's segments, newest first.
func (s *Service) List(ctx context.Context, teamID string, p page.Page) ([]Segment, bool, error) {
	return listSegments(ctx, s.d.Reader, teamID, p)
}

// Total returns how many segments a team has.
func (s *Service) Total(ctx context.Context, teamID string) (int, error) {
	return countSegments(ctx, s.d.Reader, teamID)
}

// Change describes an update of a segment.
type Change struct {
	Name   *string // nil keeps the name
	Filter string  // JSON; "" keeps the filter
}

// Update changes a segment. Update returns an Invalid fault if it would set a filter on a segment that contacts are
// added to by hand. If the filter changes, Update deletes the segment's last count.
func (s *Service) Update(ctx context.Context, teamID, segmentID string, c Change) (g Segment, err error) {
	if c.Name != nil {
		if err := checkName(*c.Name); err != nil {
			return g, err
		}
	}
	if g, err = s.Get(ctx, teamID, segmentID); err != nil {
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
			deleteCount(ctx, tx, teamID, g.ID)
		}
		updateSegment(ctx, tx, &g)
		return nil
	})
	return g, err
}

func checkName(name string) error {
	if strings.TrimSpace(name) == "" {
		return fault.MissingField("name")
	}
	return scalar.CheckLine("name", name, maxName)
}

// Check validates the name of a new segment. Package contacts checks filters.
func (n *Definition) Check() error { return checkName(n.Name) }

// table tells package softdelete how segments are deleted.
var table = softdelete.Table{Name: "segments", NotFound: notFound, Children: []softdelete.Child{
	{Table: "contact_segments", Column: "segment_id", Order: "contact_id"},
	{Table: "segment_counts", Column: "segment_id", Order: "counted_at"}}}

// Delete deletes a segment. Its contacts stay.
func (s *Service) Delete(ctx context.Context, teamID, segmentID string) error {
	return s.d.Update(ctx, func(tx *db.Tx) error {
		return softdelete.Mark(ctx, tx, table, teamID, strings.ToLower(segmentID))
	})
}

// Sweep removes the rows of deleted segments, along with their memberships and counts. Sweep must be called
// periodically.
func (s *Service) Sweep(ctx context.Context) error { return softdelete.Sweep(ctx, s.d, table) }

// EraseTeam deletes a team's segments and their counts. The caller must already have deleted the team's contacts and
// their memberships.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	for _, erase := range []func(ctx context.Context, tx *db.Tx, teamID string) (int64, error){eraseSegments,
		eraseCounts} {
		if err := s.d.Repeat(ctx, func(tx *db.Tx) (int64, error) { return erase(ctx, tx, teamID) }); err != nil {
			return fmt.Errorf("erase the segments of team %s: %w", teamID, err)
		}
	}
	return nil
}

// notFound returns a NotFound fault with the message that clients expect (API reference section 4.3).
func notFound() error { return fault.NotFoundf("Audience not found") }
