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

// limits bounds how much a query reads, how long a read may wait, and how long it may take.
type limits struct {
	// partSize is the number of contacts in a part if there is no rule. With a rule, the part size is
	// limits.comparisons divided by the number of comparisons in the rule, but at least minPart and at most
	// maxRulePart. Each comparison is an index look-up, which takes a few microseconds.
	partSize, comparisons, minPart, maxRulePart int

	shortLookups int // maximum number of look-ups in an ordinary read; see source.lookups
	maxIDs       int // maximum number of ids in one query

	// setsCost is the estimated cost of finding the rest of a page's contacts through the indexes on values, expressed
	// as a number of parts.
	setsCost int

	wait           time.Duration // how long a request may wait for a read slot
	read           time.Duration // time limit for reading a page or a small count, excluding the wait
	backgroundWait time.Duration // how long background work may wait for a read slot
	preview        time.Duration // time limit for CountRefused
	count          time.Duration // time limit for a background count
	retryAfter     time.Duration // delay before a filter that took too long is tried again
}

var defaultLimits = limits{partSize: 20_000, comparisons: 20_000, minPart: 500, maxRulePart: 10_000,
	shortLookups: 1000, maxIDs: 2000,
	setsCost: 10, wait: 5 * time.Second, read: 5 * time.Second, backgroundWait: time.Minute, preview: 30 * time.Second,
	count: 15 * time.Second, retryAfter: time.Hour}

// finder finds the next contacts in a source, in order of their ids. A finder normally reads the contacts in parts and
// evaluates the rule on each contact. If few contacts match, the finder instead looks up the matching contacts through
// the indexes on values (see [finder.sets]).
type finder struct {
	limits
	of       source
	asc      bool
	want     int
	maxPart  int    // maximum number of contacts in a part
	nextPart int    // number of contacts in the next part
	beyond   string // the last contact id that was read
	scanned  int    // number of contacts that have been read
	ended    bool   // no more contacts match
	noSets   bool   // the indexes on values cannot find the contacts

	found []Contact
}

// finder returns a finder for up to want contacts, starting after the given id. The first parts are small, because a
// small part is enough if most contacts match.
func (s *Service) finder(of source, beyond string, asc bool, want int) *finder {
	f := &finder{limits: s.limits, of: of, asc: asc, want: want, beyond: beyond, maxPart: s.limits.partSize,
		noSets: of.rule == nil || of.segmentID != ""}
	if n := of.comparisons(); n > 0 {
		f.maxPart = min(max(f.comparisons/n, f.minPart), f.maxRulePart)
	}
	f.nextPart = min(max(4*want, f.minPart), f.maxPart)
	return f
}

// done reports whether the search is finished.
func (f *finder) done() bool { return f.ended || f.remaining() == 0 }

// remaining returns how many contacts must still be found.
func (f *finder) remaining() int { return f.want - len(f.found) }

// sparse reports whether so few contacts match that finding the rest through the indexes on values is likely to be
// faster than reading more parts.
func (f *finder) sparse() bool {
	return !f.noSets && f.remaining()*f.scanned > f.setsCost*f.maxPart*max(len(f.found), 1)
}

// isShort reports whether more contacts must be found and the next part of the contacts can be searched by an ordinary
// read. Without a rule, an ordinary read always suffices. With a rule, it suffices if the search is estimated to need
// at most shortLookups look-ups. All other searches need long reads, because a rule's cost depends on what the team
// wrote.
func (f *finder) isShort() bool {
	if f.done() {
		return false
	}
	return f.of.rule == nil || f.of.lookups()*max(f.nextPart, f.remaining()) <= f.shortLookups
}

// collect appends contacts to f.found until it contains the wanted number.
func (f *finder) collect(all []Contact) {
	f.found = append(f.found, all[:min(len(all), f.remaining())]...)
}

// next advances by n contacts and returns the span of these contacts.
func (f *finder) next(ctx context.Context, r db.Reader, n int) (span, error) {
	end, err := spanEnd(ctx, r, &f.of, f.beyond, f.asc, n)
	in := span{f.beyond, end, f.asc}
	f.beyond, f.ended = end, end == ""
	f.scanned += n
	return in, err
}

// readPart finds the matching contacts in the next part.
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

// span finds the contacts in a span that match the rule.
func (f *finder) span(ctx context.Context, r db.Reader, in span) error {
	all, err := contactsIn(ctx, r, &f.of, in, f.remaining())
	f.collect(all)
	f.ended = in.upTo == ""
	return err
}

// read finds the contacts in the next part for sources without a rule, and for segments that contacts are added to by
// hand. The method first reads the rows and then drops the few that were created after the audience's cutoff time.
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
	// There may be fewer contacts than wanted even before the end, because a contact may have been deleted after its
	// membership was read.
	if f.ended = len(members) < n; !f.ended {
		f.beyond = members[n-1].contactID
	}
	return nil
}

// among collects those of the contacts with the given ids that match the rule. The ids must be sorted and come after
// all ids that have been searched so far. Each query advances f.beyond, so that a retry after an error does not find a
// contact twice.
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

// tooNew reports whether a row was created after the audience's cutoff time.
func (f *finder) tooNew(created int64) bool { return f.of.before != 0 && created > f.of.before }

// sets finds the remaining contacts through the indexes on values (see [filter.Rule.Find]). If the indexes cannot find
// the contacts, the method sets f.noSets to true.
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

// List returns a page of the contacts in a segment or, if segmentID is "", of all the team's contacts, newest first. If
// the segment does not exist, List returns a NotFound fault. If a filter gets no read slot within five seconds, or
// takes more than five seconds to find a page, List returns an Unavailable fault.
func (s *Service) List(ctx context.Context, teamID, segmentID string, p page.Page) ([]Contact, bool, error) {
	of, err := s.audience(ctx, s.DB.Reader, teamID, Audience{SegmentID: segmentID})
	if err != nil {
		return nil, false, err
	}
	limit, beyond, back := p.Most(), p.After, p.Before != ""
	if back {
		beyond = p.Before
	}
	f := s.finder(of, beyond, back, limit+1)
	if f.isShort() {
		err = f.readPart(ctx, s.DB.Reader)
	}
	if err == nil && !f.done() {
		err = s.DB.ReadLong(ctx, s.long(teamID), f.fill)
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

// long returns the limits for long reads on behalf of requests.
func (s *Service) long(teamID string) db.Long {
	return db.Long{Owner: teamID, Wait: s.limits.wait, Time: s.limits.read}
}

// fill finds all wanted contacts. If the indexes on values cannot find the contacts, fill searches all remaining
// contacts as one span.
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

// markSlow records that a source's filter takes too long, and logs a warning the first time.
func (s *Service) markSlow(of *source) {
	if s.slow.add(of.filterKey, s.DB.Now(), s.limits.retryAfter) {
		s.Log.Warn("the filter of a segment takes too long; its last count is kept, and it is tried again later",
			"team", of.teamID, "filter_of", of.filterOf, "again_in", s.limits.retryAfter)
	}
}

// slowFilters contains the keys of filters that took too long, and the time at which each filter may be tried again.
type slowFilters struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// When slowFilters has maxSlowFilters entries, adding an entry removes the expired entries.
const maxSlowFilters = 10_000

// contains reports whether a filter recently took too long and must not be tried again yet.
func (s *slowFilters) contains(name string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Before(s.until[name])
}

// add blocks a filter for the duration d, and reports whether the filter is new to the list.
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

// remove removes a filter from the list once it has been fast enough.
func (s *slowFilters) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.until, name)
}
