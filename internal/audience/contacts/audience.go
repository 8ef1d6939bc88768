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

// Audience selects the contacts in a segment, or all of a team's contacts. Unsubscribed contacts are included.
type Audience struct {
	SegmentID  string       // "" selects all contacts
	Filter     *filter.Rule // selects only matching contacts; nil matches all
	Before     time.Time    // excludes contacts and memberships created after this time; zero means no limit
	Properties []string     // names of the properties that Walk reads
}

// Member is a contact in an audience.
type Member struct {
	Contact
	Properties map[string]scalar.Value // by property name; only MemberIn replaces missing values by fallbacks
	Fallbacks  map[string]bool         // names of the properties whose value is the fallback
}

// Walk returns a page of up to limit contacts in an audience, sorted by id and starting after the given id. A page is
// shorter at the end of the audience, or if the values of its contacts would exceed valuesMost bytes. The boolean
// result reports whether more contacts may follow.
//
// The filter is evaluated on the current state of each contact. Walk reads the contacts in parts, each as a separate
// long read ([db.DB.ReadLong]). A long walk therefore does not occupy a database reader the whole time. Walk returns a
// NotFound fault if the segment does not exist.
func (s *Service) Walk(ctx context.Context, teamID string, a Audience, after string, limit int) (
	members []Member, more bool, err error) {
	of, err := s.audience(ctx, s.DB.Reader, teamID, a)
	if err != nil {
		return nil, false, err
	}
	f := s.finder(of, after, true, limit)
	if f.isShort() {
		if err := f.readPart(ctx, s.DB.Reader); err != nil {
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

// valuesMost is the maximum total size, in bytes, of the property values that one call to Walk returns. The values of a
// single contact may exceed it. A contact may have 200 string values of 2,000 characters each, so the values of many
// contacts could exhaust the memory.
const valuesMost = 4 << 20

// addValues adds the values of the named properties to the first members and returns how many members got values.
// addValues reduces the number of members, to no less than one, until their values fit in valuesMost bytes.
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
		values, err := valuesOf(ctx, s.DB.Reader, teamID, ids, names, most)
		if errors.Is(err, errValuesTooLarge) {
			continue
		}
		for i := range ids {
			members[i].Properties = values[members[i].ID]
		}
		return n, err
	}
}

// walkOn finds more contacts for Walk. If few contacts match, walkOn looks them up through the indexes on values,
// unless this was recently too slow for the same filter. In all other cases, walkOn reads the next part.
func (s *Service) walkOn(ctx context.Context, f *finder) error {
	own := db.Long{Owner: f.of.teamID, Wait: s.limits.backgroundWait, Time: s.limits.read}
	if !f.sparse() || s.slow.contains(f.of.filterKey, s.DB.Now()) {
		return s.DB.ReadLong(ctx, own, f.readPart)
	}
	err := s.DB.ReadLong(ctx, own, f.sets)
	if errors.Is(err, db.ErrTooLong) {
		f.noSets = true
		s.markSlow(&f.of)
		return nil
	}
	return err
}

// Unmailable is the reason that [Service.CountRefused] gives for a contact whose address cannot be mailed.
const Unmailable = "email_refused"

// CountRefused counts the contacts in an audience by the reason why they would not be mailed. The count for "" is the
// number of contacts that would be mailed. The parameter topicID is the email's topic, or "" for a broadcast without a
// topic. The function mailable reports whether an address can be mailed at all; it must not use the database.
//
// CountRefused reads the whole audience, in parts, and returns an Unavailable fault if reading takes more than 30
// seconds. If the team has no such topic, CountRefused returns an Invalid fault for the topic_id field.
func (s *Service) CountRefused(ctx context.Context, teamID string, a Audience, topicID string,
	mailable func(address string) bool) (map[string]int64, error) {
	of, err := s.audience(ctx, s.DB.Reader, teamID, a)
	if err != nil {
		return nil, err
	}
	byDefault := OptIn
	if topicID = strings.ToLower(topicID); topicID != "" {
		if byDefault, err = defaultOf(ctx, s.DB.Reader, teamID, topicID); err != nil {
			return nil, err
		}
	}
	limited, cancel := context.WithTimeout(ctx, s.limits.preview)
	defer cancel()
	found := map[string]int64{}
	f := s.finder(of, "", true, 1)
	for !f.ended {
		if err := s.DB.ReadLong(limited, s.long(teamID), func(ctx context.Context, r db.Reader) error {
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

// tooSlow returns the fault for a read that took too long. The message names the filter or, if there is no filter, the
// number of contacts as the cause. The fault wraps db.ErrTooLong even if each single read was fast enough and only
// their total time was too long.
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

// Values returns a contact's values by property name, without fallbacks.
func (s *Service) Values(ctx context.Context, r db.Reader, teamID, contactID string) (map[string]scalar.Value, error) {
	values, err := valuesOf(ctx, r, teamID, []string{contactID}, nil, math.MaxInt)
	return values[contactID], err
}

// checkFilter validates a segment's filter and returns the JSON to store.
func (s *Service) checkFilter(ctx context.Context, teamID, text string) (string, error) {
	if text == "" {
		return "", nil
	}
	rule, err := filter.Parse([]byte(text))
	if err != nil {
		return "", err
	}
	schema, err := s.FilterSchema(ctx, s.DB.Reader, teamID, rule)
	if err != nil {
		return "", err
	}
	if err := rule.Check(schema); err != nil {
		return "", err
	}
	stored, err := rule.MarshalJSON()
	return string(stored), err
}
