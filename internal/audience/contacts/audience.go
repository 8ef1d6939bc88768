package contacts

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// Audience is the contacts that a segment has, or all contacts of a team. Who is unsubscribed is one of them too.
type Audience struct {
	SegmentID  string       // "" is all contacts
	Filter     *filter.Rule // leaves out those whom it does not find; nil leaves out none
	Before     time.Time    // contacts and memberships that were created after this do not belong; zero is no limit
	Properties []string     // the names of those whose values Walk reads
}

// Member is a contact of an audience.
type Member struct {
	Contact
	Properties map[string]scalar.Value // by name; those that the contact has a value of, without fallbacks
}

// Walk returns the contacts of an audience whose ids come after the id after, in the order of their ids: limit at most,
// fewer at the end, and fewer when their values have more than valuesMost octets. more reports whether others may
// follow. A rule is asked of each contact as it is now. What the audience does not have is passed over in parts, each a
// long read of its own (see [db.DB.ReadLong]), so that a walk of any length keeps no reader.
// A segment that the team does not have is a NotFound fault.
func (s *Service) Walk(ctx context.Context, teamID string, a Audience, after string, limit int) (
	members []Member, more bool, err error) {
	of, err := s.audience(ctx, s.d.Reader, teamID, a)
	if err != nil {
		return nil, false, err
	}
	f := s.finder(of, after, true, limit)
	if f.isShort() {
		if err := f.readPart(ctx, s.d.Reader); err != nil {
			return nil, false, err
		}
	}
	for !f.done() {
		if err := s.walkOn(ctx, f); err != nil {
			return nil, false, err
		}
	}
	members = make([]Member, len(f.found))
	for i, c := range f.found {
		members[i].Contact = c
	}
	n := len(members)
	if n > 0 && len(a.Properties) > 0 {
		if n, err = s.addValues(ctx, teamID, members, a.Properties); err != nil {
			return nil, false, err
		}
	}
	return members[:n], n == limit || n < len(members), nil
}

// valuesMost is how many octets the texts of a page of a walk have, unless it is a page of one contact: a contact may
// have 200 texts of 2,000 characters, so that a page of many contacts could fill the memory.
const valuesMost = 4 << 20

// addValues adds the values of named properties to contacts, from the first on, to as many of them as have valuesMost
// octets of texts together, about, and at least to one. It returns to how many.
func (s *Service) addValues(ctx context.Context, teamID string, members []Member, names []string) (int, error) {
	for n := len(members); ; n = max(1, n/4) {
		ids := make([]string, n)
		for i := range ids {
			ids[i] = members[i].ID
		}
		most := valuesMost
		if n == 1 {
			most = math.MaxInt
		}
		values, err := valuesOf(ctx, s.d.Reader, teamID, ids, names, most)
		if errors.Is(err, errValuesTooLarge) {
			continue
		}
		for i := range ids {
			members[i].Properties = values[members[i].ID]
		}
		return n, err
	}
}

// walkOn finds more contacts of a walk: the rest by sets, if that is likely to be faster and does not take too long,
// and otherwise those of the next part.
func (s *Service) walkOn(ctx context.Context, f *finder) error {
	own := db.Long{Owner: f.of.teamID, Wait: s.limits.backgroundWait, Time: s.limits.read}
	if !f.sparse() || s.slow.contains(f.of.filterKey, s.d.Now()) {
		return s.d.ReadLong(ctx, own, f.readPart)
	}
	err := s.d.ReadLong(ctx, own, f.sets)
	if errors.Is(err, db.ErrTooLong) {
		f.noSets = true
		s.markSlow(&f.of)
		return nil
	}
	return err
}

// Unmailable is why a contact is not mailed whose address cannot be mailed.
const Unmailable = "email_refused"

// CountRefused counts the contacts of an audience by why they would not be mailed about a topic, or by a broadcast
// without one if topicID is ""; "" is who would be. mailable says of an address whether it can be mailed at all; it
// must not use the database. It reads the whole audience, in parts. A topic that the team does not have is an Invalid
// fault for the field topic_id. When it takes more than half a minute, it is an Unavailable fault.
func (s *Service) CountRefused(ctx context.Context, teamID string, a Audience, topicID string,
	mailable func(address string) bool) (map[string]int64, error) {
	of, err := s.audience(ctx, s.d.Reader, teamID, a)
	if err != nil {
		return nil, err
	}
	byDefault := OptIn
	if topicID = strings.ToLower(topicID); topicID != "" {
		if byDefault, err = defaultOf(ctx, s.d.Reader, teamID, topicID); err != nil {
			return nil, err
		}
	}
	limited, cancel := context.WithTimeout(ctx, s.limits.preview)
	defer cancel()
	found := map[string]int64{}
	f := s.finder(of, "", true, 1)
	for !f.ended {
		if err := s.d.ReadLong(limited, s.long(teamID), func(ctx context.Context, r db.Reader) error {
			in, err := f.next(ctx, r, f.maxPart)
			if err != nil {
				return err
			}
			return eachChoice(ctx, r, &f.of, in, topicID, func(c *choices) {
				switch {
				case !mailable(c.address):
					found[Unmailable]++
				case c.suppressed:
					found["suppressed"]++
				default:
					found[string(refusal(byDefault, c.chosen, c.unsubscribed))]++
				}
			})
		}); err != nil {
			if limited.Err() != nil && ctx.Err() == nil {
				err = tooSlow(&of, err)
			}
			return nil, err
		}
	}
	return found, nil
}

// tooSlow is the fault of what needs more time than there is, by its filter or, without one, by how many there are. It
// is db.ErrTooLong, also when several reads took too long together.
func tooSlow(of *source, err error) error {
	if !errors.Is(err, db.ErrTooLong) {
		err = fmt.Errorf("%w: %w", db.ErrTooLong, err)
	}
	if of.rule == nil {
		return fault.New(fault.Unavailable, "", "It takes too long to go through so many contacts at present. Try again "+
			"later.").Because(err)
	}
	return fault.New(fault.Unavailable, "", "The filter takes too long to find its contacts among so many. Use fewer or "+
		"narrower rules, such as `eq` and `in`, or try again later.").Because(err)
}

// Values returns what a contact has of its team's properties, by their names, without fallbacks.
func (s *Service) Values(ctx context.Context, r db.Reader, teamID, contactID string) (map[string]scalar.Value, error) {
	values, err := valuesOf(ctx, r, teamID, []string{contactID}, nil, math.MaxInt)
	return values[contactID], err
}

// checkFilter returns the filter of a new segment as it is stored.
func (s *Service) checkFilter(ctx context.Context, teamID, text string) (string, error) {
	if text == "" {
		return "", nil
	}
	rule, err := filter.Parse([]byte(text))
	if err != nil {
		return "", err
	}
	schema, err := s.FilterSchema(ctx, s.d.Reader, teamID, rule)
	if err != nil {
		return "", err
	}
	if err := rule.Check(schema); err != nil {
		return "", err
	}
	stored, err := rule.MarshalJSON()
	return string(stored), err
}
