package eventstream

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// ErrClosed means that this node is shutting down. After ErrClosed, the tail can continue on another node, or on this
// node after its restart.
var ErrClosed = errors.New("the node stops")

// Tail streams the events of one team. A Tail must be used by only one goroutine.
type Tail struct {
	s       *Service
	team    string
	types   []events.Type
	wake    chan struct{} // signals that the team has new messages
	changed chan struct{} // signals that a team or an API key has changed

	from    string               // the lowest message id to show
	seen    map[string]time.Time // ids of recently shown messages, with their times
	newest  time.Time            // time of the newest message in seen
	renewed time.Time
	read    time.Time // when messages were last read
	missed  bool
}

// begin acquires the team's lease and determines the message id to continue from.
func (t *Tail) begin(ctx context.Context, after string) error {
	now := t.s.d.Now()
	t.from = firstAt(now.Add(-overlap))
	resume, ok := messageTime(after)
	if ok && resume.Before(now) {
		t.from = firstAt(resume.Add(-overlap))
		t.seen[after], t.newest = resume, resume
	} else if err := t.skipExisting(ctx); err != nil {
		return err
	}
	until, err := t.renewLease(ctx, now)
	t.missed = ok && until.Before(now)
	return err
}

// skipExisting marks the messages that exist above t.from as seen. A new tail cannot begin at the present time instead:
// the time in an id comes from the clock of the node that recorded the event, which differs a little from this clock.
func (t *Tail) skipExisting(ctx context.Context) error {
	for low := t.from; ; {
		ids, err := idsAfter(ctx, t.s.d.Reader, t.team, low, 10*batch)
		if err != nil {
			return err
		}
		for _, x := range ids {
			t.seen[x], _ = messageTime(x)
		}
		if len(ids) < 10*batch {
			return nil
		}
		low = ids[len(ids)-1]
	}
}

// renewLease extends the lease and returns its previous expiry time.
func (t *Tail) renewLease(ctx context.Context, now time.Time) (before time.Time, err error) {
	err = t.s.d.Update(ctx, func(tx *db.Tx) error {
		if before, err = leaseOf(ctx, tx.Reader, t.team); err != nil {
			return err
		}
		setLease(ctx, tx, t.team, now.Add(leaseTime))
		return nil
	})
	if err == nil {
		t.renewed = now
		t.s.d.Hint(hintTopic, watchPrefix+t.team)
	}
	return before, err
}

// Missed reports whether this tail may have missed events between its interruption and its resumption.
func (t *Tail) Missed() bool { return t.missed }

// Next waits for messages and returns them sorted by id. If no message arrives within the idle duration, or if a team
// or an API key has changed, Next returns no messages. After each call to Next, the caller must check whether the
// reader may still read the messages.
func (t *Tail) Next(ctx context.Context, idle time.Duration) ([]Message, error) {
	over := time.NewTimer(idle)
	defer over.Stop()
	for {
		if now := t.s.d.Now(); now.Sub(t.renewed) > renewInterval {
			if _, err := t.renewLease(ctx, now); err != nil {
				return nil, err
			}
		}
		if all, err := t.readNew(ctx); err != nil || len(all) > 0 {
			return all, err
		}
		again := time.NewTimer(pollInterval)
		select {
		case <-ctx.Done():
			again.Stop()
			return nil, ctx.Err()
		case <-t.s.closed:
			again.Stop()
			return nil, ErrClosed
		case <-over.C:
			again.Stop()
			return nil, nil
		case <-t.changed:
			again.Stop()
			return nil, nil
		case <-t.wake:
		case <-again.C:
		}
		again.Stop()
		// Events of a busy team wake its tails often, so a tail reads at most once per readInterval.
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Until(t.read.Add(readInterval))):
		}
	}
}

// readNew reads new messages, and rereads the messages of the last overlap period, because a transaction may commit
// after a transaction that began later.
func (t *Tail) readNew(ctx context.Context) ([]Message, error) {
	t.read = time.Now()
	low := t.from
	if recent := firstAt(t.newest.Add(-overlap)); recent > low {
		low = recent
		for x, at := range t.seen {
			if at.Before(t.newest.Add(-overlap)) {
				delete(t.seen, x)
			}
		}
	}
	for {
		ids, err := t.unseenIDs(ctx, low)
		if err != nil || len(ids) == 0 {
			return nil, err
		}
		all, err := messages(ctx, t.s.d.Reader, t.team, ids)
		if err != nil {
			return nil, err
		}
		for _, x := range ids {
			at, _ := messageTime(x)
			t.seen[x] = at
			if at.After(t.newest) {
				t.newest = at
			}
		}
		all = slices.DeleteFunc(all, func(m Message) bool { return len(t.types) > 0 && !slices.Contains(t.types, m.Type) })
		if len(all) > 0 || len(ids) < batch {
			return all, nil
		}
	}
}

// unseenIDs returns the first ids above low that the tail has not shown.
func (t *Tail) unseenIDs(ctx context.Context, low string) (unseen []string, err error) {
	for {
		ids, err := idsAfter(ctx, t.s.d.Reader, t.team, low, 10*batch)
		if err != nil {
			return nil, err
		}
		for _, x := range ids {
			if _, ok := t.seen[x]; !ok {
				if unseen = append(unseen, x); len(unseen) == batch {
					return unseen, nil
				}
			}
		}
		if len(ids) < 10*batch {
			return unseen, nil
		}
		low = ids[len(ids)-1]
	}
}

// Close closes the tail. The team stays watched until the lease expires, so that a client can resume the tail.
func (t *Tail) Close() {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	left := slices.DeleteFunc(t.s.tails[t.team], func(x *Tail) bool { return x == t })
	if t.s.tails[t.team] = left; len(left) == 0 {
		delete(t.s.tails, t.team)
	}
}

const prefix = "msg_"

// firstAt returns the lowest possible message id for a time.
func firstAt(at time.Time) string { return prefix + id.Compact(id.First(at)) }

// messageTime returns the time that a message's id contains.
func messageTime(messageID string) (time.Time, bool) {
	text, ok := strings.CutPrefix(messageID, prefix)
	if !ok {
		return time.Time{}, false
	}
	return id.Time(id.Expand(text))
}
