package broadcasts

import (
	"context"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/audience/contacts"
)

// ahead reads the contacts of an audience one page before they are needed, while the page before is written: on SQLite
// reading takes an eighth of a page's time, and reads do not wait for the writer. It belongs to one worker.
//
// What it returns was read up to two pages, and at most five seconds, before it is used. Whoever uses it must look up
// again, when it writes, what must not be out of date, as it must with what it has just read.
type prefetcher struct {
	// read returns at most limit contacts that come after an id, and whether others may follow.
	read func(ctx context.Context, after string, limit int) (members []contacts.Member, more bool, err error)

	fetched []contacts.Member // in order; those up to the position were used
	since   time.Time         // when the first of them were read
	ended   bool              // nobody follows those
	next    chan pageRead     // the page that follows those, nil when it is not being read
}

type pageRead struct {
	at      time.Time
	members []contacts.Member
	ended   bool
	short   bool // others follow, though it has fewer than were asked for
	err     error
}

// contactsAfter returns at most limit contacts that follow a position, and whether nobody follows them: fewer at the end, and
// fewer where a read returned fewer. It begins to read what follows.
func (a *prefetcher) contactsAfter(ctx context.Context, after string, limit int) (members []contacts.Member, ended bool, err error) {
	at := slices.IndexFunc(a.fetched, func(m contacts.Member) bool { return m.ID == after })
	if at < 0 || time.Since(a.since) > mailingsTTL {
		a.forget()
		at = -1
	}
	a.fetched = a.fetched[at+1:]
	for short := false; len(a.fetched) < limit && !a.ended && !short; {
		if a.next == nil {
			a.begin(ctx, a.last(after), limit-len(a.fetched))
		}
		page := <-a.next
		if a.next = nil; page.err != nil {
			return nil, false, page.err
		}
		short = page.short
		if len(a.fetched) == 0 {
			a.since = page.at
		}
		a.fetched, a.ended = append(slices.Clip(a.fetched), page.members...), page.ended
	}
	if a.next == nil && !a.ended {
		a.begin(ctx, a.last(after), limit)
	}
	n := min(limit, len(a.fetched))
	return a.fetched[:n:n], a.ended && n == len(a.fetched), nil
}

func (a *prefetcher) last(after string) string {
	if len(a.fetched) == 0 {
		return after
	}
	return a.fetched[len(a.fetched)-1].ID
}

func (a *prefetcher) begin(ctx context.Context, after string, limit int) {
	to, read := make(chan pageRead, 1), a.read
	a.next = to
	go func() {
		now := time.Now()
		members, more, err := read(ctx, after, limit)
		to <- pageRead{at: now, members: members, ended: !more, short: more && len(members) < limit, err: err}
	}()
}

// forget waits for what is being read, and drops all that was.
func (a *prefetcher) forget() {
	if a.next != nil {
		<-a.next
	}
	a.fetched, a.ended, a.next = nil, false, nil
}
