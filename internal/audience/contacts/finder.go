package contacts

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

// limits are how much is read at once, and for how long.
type limits struct {
	// partSize is how many contacts a part goes through. With a rule it is comparisons / its comparisons, within bounds: each
	// is one look-up of some microseconds.
	partSize, comparisons, minPart, maxRulePart int

	shortLookups int // look-ups of a part that needs no place of long reads, at most; see source.lookups
	maxIDs       int // that one query names

	// setsCost is how many parts take as long as finding the rest of a page by sets does, about.
	setsCost int

	wait           time.Duration // for a place
	read           time.Duration // of a page or of a small count, once it has a place
	backgroundWait time.Duration // for a place, of what nobody waits for
	preview        time.Duration // of counting who of an audience is mailed
	count          time.Duration // of a count beside requests
	retryAfter     time.Duration // for which a filter that took too long is not tried again
}

var defaultLimits = limits{partSize: 20_000, comparisons: 20_000, minPart: 500, maxRulePart: 10_000, shortLookups: 1000, maxIDs: 2000,
	setsCost: 10, wait: 5 * time.Second, read: 5 * time.Second, backgroundWait: time.Minute, preview: 30 * time.Second,
	count: 15 * time.Second, retryAfter: time.Hour}

// finder finds the next contacts of a source in the order of their ids. It goes through them in parts, and asks of each
// what the source asks. When few of them are chosen it is faster to look for all who are, by indexes of values.
type finder struct {
	limits
	of       source
	asc      bool
	want     int
	maxPart  int    // contacts of a part
	nextPart int    // contacts of the next part
	beyond   string // the id up to which it has looked
	scanned  int    // contacts that it has gone through
	ended    bool   // nobody comes after those found
	noSets   bool   // whom the rule chooses is not to be found by sets

	found []Contact
}

// finder returns a finder for want contacts beyond an id. The first parts are small: where many are chosen, they do.
func (s *Service) finder(of source, beyond string, asc bool, want int) *finder {
	f := &finder{limits: s.limits, of: of, asc: asc, want: want, beyond: beyond, maxPart: s.limits.partSize,
		noSets: of.rule == nil || of.segmentID != ""}
	if n := of.comparisons(); n > 0 {
		f.maxPart = min(max(f.comparisons/n, f.minPart), f.maxRulePart)
	}
	f.nextPart = min(max(4*want, f.minPart), f.maxPart)
	return f
}

// done reports whether there is nothing more to find.
func (f *finder) done() bool { return f.ended || f.remaining() == 0 }

// rest is how many are still to be found.
func (f *finder) remaining() int { return f.want - len(f.found) }

// sparse reports whether the rest is likely to be found sooner by sets.
func (f *finder) sparse() bool {
	return !f.noSets && f.remaining()*f.scanned > f.setsCost*f.maxPart*max(len(f.found), 1)
}

// isShort reports whether there is more to find, and the next part is so short that any reader may read it. This is known
// before it is read: either it has as many contacts as are wanted, or a rule makes few look-ups for so many. All others
// are long reads, because whoever writes the rule decides what it costs.
func (f *finder) isShort() bool {
	if f.done() {
		return false
	}
	return f.of.rule == nil || f.of.lookups()*max(f.nextPart, f.remaining()) <= f.shortLookups
}

// collect adds contacts to those found, up to as many as are wanted.
func (f *finder) collect(all []Contact) {
	f.found = append(f.found, all[:min(len(all), f.remaining())]...)
}

// next moves on by some contacts, and returns the span that they are.
func (f *finder) next(ctx context.Context, r db.Reader, n int) (span, error) {
	end, err := spanEnd(ctx, r, &f.of, f.beyond, f.asc, n)
	in := span{f.beyond, end, f.asc}
	f.beyond, f.ended = end, end == ""
	f.scanned += n
	return in, err
}

// part finds those of the next part.
func (f *finder) readPart(ctx context.Context, r db.Reader) error {
	if f.of.segmentID != "" || f.of.rule == nil {
		return f.read(ctx, r)
	}
	in, err := f.next(ctx, r, f.nextPart)
	if err != nil {
		return err
	}
	f.nextPart = min(4*f.nextPart, f.maxPart)
	return f.span(ctx, r, in)
}

// span finds those of a span by the rule.
func (f *finder) span(ctx context.Context, r db.Reader, in span) error {
	all, err := contactsIn(ctx, r, &f.of, in, f.remaining())
	f.collect(all)
	f.ended = in.upTo == ""
	return err
}

// read finds those of the next part that nothing is asked of but when they came and, of those of a segment, the rule.
// They are read and then passed over, which few are as a rule.
func (f *finder) read(ctx context.Context, r db.Reader) (err error) {
	n := f.remaining()
	if f.scanned > 0 || f.of.rule != nil {
		n = max(n, f.nextPart)
	}
	f.scanned += n
	in := span{beyond: f.beyond, asc: f.asc}
	var all []Contact
	if f.of.segmentID == "" {
		all, err = contactsIn(ctx, r, &f.of, in, n)
		if f.ended = len(all) < n; !f.ended {
			f.beyond = all[n-1].ID
		}
		f.collect(slices.DeleteFunc(all, func(c Contact) bool { return f.tooNew(db.Micros(c.CreatedAt)) }))
		return err
	}
	members, err := membershipsIn(ctx, r, &f.of, in, n)
	if err != nil {
		return err
	}
	var ids []string
	for _, m := range members {
		if !f.tooNew(m.created) {
			ids = append(ids, m.contactID)
		}
	}
	if err = f.among(ctx, r, ids); err != nil {
		return err
	}
	// Fewer than wanted need not be the end: a contact may have been deleted since its membership was read.
	if f.ended = len(members) < n; !f.ended {
		f.beyond = members[n-1].contactID
	}
	return nil
}

// among finds those of some contacts, who are the next in order. It moves on with each query, so that whoever goes on
// after an error does not find anybody twice.
func (f *finder) among(ctx context.Context, r db.Reader, ids []string) error {
	for chunk := range slices.Chunk(ids, f.maxIDs) {
		if f.remaining() == 0 {
			return nil
		}
		all, err := contactsAmong(ctx, r, &f.of, chunk, f.asc)
		if err != nil {
			return err
		}
		f.collect(all)
		f.beyond = chunk[len(chunk)-1]
	}
	return nil
}

// tooNew reports whether what was created at a time came too late to be one of them.
func (f *finder) tooNew(created int64) bool { return f.of.before != 0 && created > f.of.before }

// sets finds the rest by sets, if there are sets.
func (f *finder) sets(ctx context.Context, r db.Reader) error {
	for !f.done() {
		rest := f.remaining()
		ids, ok, err := matchIDs(ctx, r, &f.of, span{beyond: f.beyond, asc: f.asc}, rest)
		if f.noSets = !ok; err != nil || !ok {
			return err
		}
		if err := f.among(ctx, r, ids); err != nil {
			return err
		}
		f.ended = len(ids) < rest
	}
	return nil
}

// List returns a page of a team's contacts, newest first: those of a segment, or all when segmentID is "". A segment
// that the team does not have is a NotFound fault. When a filter finds no place to read within five seconds, or then
// takes more than five seconds to find a page, it is an Unavailable fault.
func (s *Service) List(ctx context.Context, teamID, segmentID string, p page.Page) ([]Contact, bool, error) {
	of, err := s.audience(ctx, s.d.Reader, teamID, Audience{SegmentID: segmentID})
	if err != nil {
		return nil, false, err
	}
	limit, beyond, back := p.Most(), p.After, p.Before != ""
	if back {
		beyond = p.Before
	}
	f := s.finder(of, beyond, back, limit+1)
	if f.isShort() {
		err = f.readPart(ctx, s.d.Reader)
	}
	if err == nil && !f.done() {
		err = s.d.ReadLong(ctx, s.long(teamID), f.fill)
	}
	if errors.Is(err, db.ErrTooLong) {
		err = tooSlow(&of, err)
	}
	if err != nil {
		return nil, false, err
	}
	more := len(f.found) > limit
	all := f.found[:min(len(f.found), limit)]
	if back {
		slices.Reverse(all)
	}
	return all, more, nil
}

// long is the long read of a request.
func (s *Service) long(teamID string) db.Long {
	return db.Long{Owner: teamID, Wait: s.limits.wait, Time: s.limits.read}
}

// fill finds all that there is to find. What sets do not find it goes through to the end at once.
func (f *finder) fill(ctx context.Context, r db.Reader) (err error) {
	for err == nil && !f.done() {
		sparse := f.sparse()
		if !sparse {
			err = f.readPart(ctx, r)
		} else if err = f.sets(ctx, r); err == nil && f.noSets {
			err = f.span(ctx, r, span{beyond: f.beyond, asc: f.asc})
		}
	}
	return err
}

// markSlow notes that the filter of a segment takes too long, and says so once.
func (s *Service) markSlow(of *source) {
	if s.slow.add(of.filterKey, s.d.Now(), s.limits.retryAfter) {
		s.Log.Warn("the filter of a segment takes too long; its last count is kept, and it is tried again later",
			"team", of.teamID, "filter_of", of.filterOf, "again_in", s.limits.retryAfter)
	}
}

// slowFilters is the filters that took too long to be evaluated by sets, by their names.
type slowFilters struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// maxSlowFilters is how many filters are remembered before those are forgotten that may be tried again.
const maxSlowFilters = 10_000

// contains reports whether a filter is not to be tried.
func (s *slowFilters) contains(name string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Before(s.until[name])
}

// add keeps a filter from being tried for some time, and reports whether it took too long for the first time.
func (s *slowFilters) add(name string, now time.Time, d time.Duration) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name == "" {
		return false
	}
	if s.until == nil {
		s.until = map[string]time.Time{}
	}
	if len(s.until) >= maxSlowFilters {
		for name, end := range s.until {
			if end.Before(now) {
				delete(s.until, name)
			}
		}
	}
	_, known := s.until[name]
	s.until[name] = now.Add(d)
	return !known
}

// remove forgets a filter that did not take too long.
func (s *slowFilters) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.until, name)
}
