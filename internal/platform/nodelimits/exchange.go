package nodelimits

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"
)

const (
	soon          = 10 // factor by which exchanges are more frequent while shares change
	restFactor    = 4  // pause after an exchange, as a multiple of the exchange's duration
	restLeast     = 50 // the pause after an exchange is at least a fiftieth of the time between exchanges
	exchangeLimit = 5 * time.Second
	movesMax      = 20 // maximum number of consecutive frequent exchanges
	// exact is the maximum relative error in floating-point sums.
	exact = 1e-9
)

// Run exchanges demands with the other nodes until ctx ends. Run does not delete this node's limit rows; they are
// deleted together with the node's row in the nodes table. Run logs and repeats exchanges that fail.
func (s *Shares) Run(ctx context.Context) error {
	if s.d.Alone() {
		<-ctx.Done()
		return nil
	}
	timer := time.NewTimer(s.every)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.kick:
		case <-timer.C:
		}
		began := time.Now()
		next := s.exchange(ctx)
		rest := max(s.every/restLeast, restFactor*min(time.Since(began), s.every))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(min(rest, s.every)):
		}
		timer.Reset(max(next-rest, 0))
	}
}

// exchange writes this node's rows, reads the rows of all nodes, computes this node's shares from them, and returns the
// time until the next exchange.
func (s *Shares) exchange(ctx context.Context) (next time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, exchangeLimit)
	defer cancel()
	if s.live.Load() <= 1 {
		return s.alone(ctx)
	}
	now := time.Now()
	entries, gone := s.collect(now)
	rows := s.plan(entries, now)
	if len(rows) == 0 && len(gone) == 0 && len(entries) == 0 {
		return time.Hour
	}
	demands, err := s.swap(ctx, entries, rows, gone)
	if err != nil {
		s.failures.Add(1)
		if errors.Is(err, errNotANode) {
			clear(s.written)
		}
		if ok, more := s.away.Allow(); ok && ctx.Err() == nil {
			s.log.Warn("could not tell other nodes what this one uses of shared limits; shares stay as they are",
				"error", err, "more_like_it", more)
		}
		s.notifyChanged(s.overdue(entries))
		return s.every
	}
	changed, moving := s.apply(entries, demands, now)
	s.notifyChanged(changed)
	if !moving {
		s.moves = 0
	} else if s.moves++; s.moves <= movesMax {
		return s.every / soon
	}
	return s.every
}

// change describes a changed share.
type change struct {
	key Key
	n   float64
}

// overdue returns an even share for each slot limit whose first exchange takes too long.
func (s *Shares) overdue(entries []*entry) (changed []change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		if e.whole && s.late(e) {
			changed = append(changed, change{e.key, s.evenPlaces(e.limit)})
		}
	}
	return changed
}

// alone removes all entries and this node's rows if this node is the only node.
func (s *Shares) alone(ctx context.Context) time.Duration {
	s.mu.Lock()
	left := s.left
	s.mu.Unlock()
	if !s.whole.Load() {
		return time.Hour
	}
	if left {
		if err := s.leave(ctx); err != nil {
			return s.every
		}
		clear(s.written)
	}
	s.mu.Lock()
	if !s.whole.Load() { // another node has started in the meantime
		s.mu.Unlock()
		return 0
	}
	var changed []change
	for k, e := range s.entries {
		changed = append(changed, change{k, e.limit})
	}
	clear(s.entries)
	clear(s.counts)
	if left {
		s.left = false
	}
	s.mu.Unlock()
	s.notifyChanged(changed)
	return time.Hour
}

// notifyChanged calls Changed for each changed share.
func (s *Shares) notifyChanged(changed []change) {
	for _, c := range changed {
		if p, ok := s.kinds[c.key.Kind]; ok {
			p.Changed(c.key.Name, int(c.n))
		}
	}
}

// collect removes unused entries, and returns the entries in use and the keys whose rows must be deleted.
func (s *Shares) collect(now time.Time) (entries []*entry, gone []Key) {
	s.mu.Lock()
	if s.lost {
		clear(s.written)
		s.lost = false
	}
	s.left = false
	for _, e := range s.entries {
		if e.asked {
			e.asked, e.askedAt = false, now
		}
		entries = append(entries, e)
	}
	s.mu.Unlock()
	entries = slices.DeleteFunc(entries, func(e *entry) bool {
		want := 0
		if e.whole {
			if p, ok := s.kinds[e.key.Kind]; ok {
				want, e.held = p.Use(e.key.Name)
			}
			if now.Sub(e.askedAt) < s.every {
				want = max(want, 1)
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		r, old := s.counts[e.key.Kind], idleAfter*s.every
		if now.Sub(r.full) < s.every {
			old = busyFor * s.every
		}
		if now.Sub(e.askedAt) >= old && want == 0 && e.held == 0 && !e.asked {
			delete(s.entries, e.key)
			r.keys--
			return true
		}
		e.want = max(e.want, float64(want))
		return false
	})
	kept := map[Key]bool{}
	for _, e := range entries {
		kept[e.key] = true
	}
	for k := range s.written {
		if !kept[k] {
			gone = append(gone, k)
		}
	}
	return entries, gone
}

// plan returns the rows that differ from those in the database. Both plan and apply hold the lock only briefly, because
// every request needs the lock.
func (s *Shares) plan(entries []*entry, now time.Time) map[Key]row {
	rows := map[Key]row{}
	for _, e := range entries {
		old, has := s.written[e.key]
		r, limit := s.row(e, now)
		if !has || e.whole && r != old || !e.whole && r.differs(old, limit) {
			rows[e.key] = r
		}
	}
	return rows
}

// row returns this node's row for a limit.
func (s *Shares) row(e *entry, now time.Time) (r row, limit float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !e.known && e.target == 0 {
		if e.target = s.share(e, nil, now); !e.whole && !now.Before(s.settled) {
			e.target = e.limit // initial target; usually no other node uses this limit
		}
	}
	e.recent = max(e.want, e.recent)
	r = row{want: min(math.Ceil(e.recent), e.limit), held: max(e.share, float64(e.held), e.target)}
	if !e.whole {
		r.want = headroom(e.recent, e.limit)
	}
	if float64(e.held) > e.share {
		r.used = float64(e.held)
	}
	e.want = 0
	return r, e.limit
}

// differs reports whether the row for a rate has changed enough to be written. Small changes in demand, and small
// reductions in the held amount, are not written.
func (r row) differs(old row, limit float64) bool {
	return r.held > old.held || old.held-r.held > limit/100 || math.Abs(r.want-old.want) > limit/20 ||
		(r.want == 0) != (old.want == 0)
}

// share computes this node's share of a limit from the rows of all nodes. While these rows are unknown, or other nodes
// may not know this node, the share method returns an even share.
func (s *Shares) share(e *entry, all []demand, now time.Time) float64 {
	if all == nil || now.Before(s.settled) {
		n := s.even(e.limit)
		if e.whole {
			n = max(math.Floor(n), min(1, e.limit))
		}
		return n
	}
	if e.whole {
		turn := s.d.Now().UnixNano() / int64(turnTime*s.every)
		return float64(target(e.text, int(e.limit), all, s.node, turn))
	}
	return divide(e.limit, all)[s.node]
}

// swap writes this node's changed rows, deletes its rows for the keys in gone, and then reads the demands of all nodes.
func (s *Shares) swap(ctx context.Context, entries []*entry, rows map[Key]row, gone []Key) (
	map[string][]demand, error) {
	if len(rows) > 0 || len(gone) > 0 {
		if err := s.write(ctx, rows, gone); err != nil {
			for k := range rows { // the rows may have been written despite the error
				s.written[k] = row{held: -1}
			}
			return nil, err
		}
		maps.Copy(s.written, rows)
		for _, k := range gone {
			delete(s.written, k)
		}
	}
	if len(entries) == 0 {
		return nil, nil
	}
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = e.text
	}
	return s.read(ctx, keys)
}

// apply computes the shares from the demands of all nodes. If a share on this or another node has not yet reached its
// target, apply returns moving == true.
func (s *Shares) apply(entries []*entry, demands map[string][]demand, now time.Time) (changed []change, moving bool) {
	for _, e := range entries {
		all := demands[e.text]
		if !slices.ContainsFunc(all, func(d demand) bool { return d.node == s.node }) {
			delete(s.written, e.key) // the row was deleted when this node was declared dead
			moving = true
			continue
		}
		is, moves, ok := s.applyTo(e, all, now)
		if !ok {
			return nil, true
		}
		if is != nil {
			changed = append(changed, *is)
		}
		moving = moving || moves
	}
	return changed, moving
}

// applyTo computes this node's share of one limit. If the share changed, applyTo returns the change. applyTo returns ok
// == false if this node was declared dead and has no shares.
func (s *Shares) applyTo(e *entry, all []demand, now time.Time) (changed *change, moving, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost {
		return nil, true, false
	}
	mine, others := s.written[e.key], 0.0
	for _, d := range all {
		if d.node != s.node {
			others += d.held
		}
	}
	before, wasKnown := e.share, e.known
	e.target = s.share(e, all, now)
	if e.target <= e.share {
		e.share = e.target
	} else {
		// The part of the limit that no other node's row holds is free.
		free := (e.limit - others) * (1 + exact)
		if e.whole {
			free = math.Floor(free)
		}
		if !e.whole { // if two nodes both hold the whole rate, both still need a share
			free = max(free, s.even(e.limit))
		}
		e.share = max(min(e.target, mine.held, free), e.share)
	}
	e.known = true
	if e.share != before || !wasKnown {
		changed = &change{e.key, e.share}
	}
	// Small changes to a share wait for the next regular exchange.
	some := e.limit / 20
	if e.whole {
		some = 0.5
	}
	moving = e.target-e.share > some || mine.held-max(e.share, float64(e.held)) > some
	e.recent *= decay(now.Sub(e.decayed), s.every)
	e.decayed = now
	if e.recent < e.limit/1000 {
		e.recent = 0
	}
	return changed, moving, true
}

// decay returns the factor by which the weight of an earlier demand has decreased after the time d.
func decay(d, every time.Duration) float64 {
	return math.Exp2(-float64(d) / float64(halfLife*every))
}
