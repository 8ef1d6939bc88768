package broadcasts

import (
	"context"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/audience/contacts"
)

// prefetcher reads the contacts in an audience one page ahead, while the emails for the previous page are written. On
// SQLite, reading takes an eighth of the total time for a page, and readers do not wait for the writer. A prefetcher is
// used by only one worker.
//
// A prefetcher returns contacts that were read up to two pages earlier, but no more than five seconds ago. In its
// transaction, the caller must reread all data that must be up to date.
type prefetcher struct {
	// read returns at most limit contacts with ids greater than after, and whether more contacts may follow.
	read func(ctx context.Context, after string, limit int) (members []contacts.Member, more bool, err error)

	fetched []contacts.Member // contacts ordered by id; the caller has used those up to its position
	since   time.Time         // when the oldest of these contacts were read
	ended   bool              // no contacts follow
	next    chan pageRead     // receives the next page; nil if no read is in progress
}

type pageRead struct {
	at      time.Time
	members []contacts.Member
	ended   bool
	short   bool // the page has fewer contacts than the limit, although more contacts follow
	err     error
}

// contactsAfter returns at most limit contacts after a position, and reports whether they are the last ones. The result
// has fewer contacts at the end of the audience, or if a read returned fewer. Before contactsAfter returns, it starts
// reading the next page.
func (a *prefetcher) contactsAfter(ctx context.Context, after string, limit int) (members []contacts.Member, ended bool,
	err error) {
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

// forget discards all contacts that were read ahead. If a read is in progress, forget waits until it has finished.
func (a *prefetcher) forget() {
	if a.next != nil {
		<-a.next
	}
	a.fetched, a.ended, a.next = nil, false, nil
}
