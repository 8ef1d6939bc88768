package delivery

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/sending/evidence"
)

const (
	reverseMax     = 64 // source addresses
	reverseNames   = 8  // names of an address
	reverseKept    = time.Hour
	reverseRetry   = time.Minute // after a look-up that failed
	reverseTimeout = 20 * time.Second
)

// reverse knows the PTR records of this node's source addresses. An address is looked up by runReverse, after the first
// attempt from it that did not go well; that attempt does not wait for the answer.
type reverse struct {
	ask chan netip.Addr

	mu    sync.Mutex
	known map[netip.Addr]knownPTR
}

type knownPTR struct {
	evidence.PTR
	until time.Time // when the address is looked up again
}

func newReverse() *reverse {
	return &reverse{ask: make(chan netip.Addr, 1), known: map[netip.Addr]knownPTR{}}
}

// of returns what is known about an address, and has it looked up if the knowledge is missing or old.
func (r *reverse) of(addr netip.Addr) evidence.PTR {
	if !addr.IsValid() {
		return evidence.PTR{}
	}
	r.mu.Lock()
	p := r.known[addr]
	r.mu.Unlock()
	if !time.Now().Before(p.until) {
		select {
		case r.ask <- addr:
		default: // a look-up is in progress; a later attempt asks again
		}
	}
	return p.PTR
}

// runReverse looks up addresses until ctx ends. An address that is not public has no meaningful record.
func (s *Service) runReverse(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case addr := <-s.reverse.ask:
			p, kept := evidence.PTR{}, reverseKept
			if s.guard.Allowed(addr) {
				if p = s.lookUpPTR(ctx, addr); p == (evidence.PTR{}) {
					kept = reverseRetry
				}
			}
			s.reverse.learn(addr, p, kept)
		}
	}
}

// learn stores what a look-up has found, and for how long it is valid.
func (r *reverse) learn(addr netip.Addr, p evidence.PTR, valid time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= reverseMax {
		clear(r.known)
	}
	r.known[addr] = knownPTR{p, time.Now().Add(valid)}
}

// lookUpPTR returns the state of an address's PTR records. It is confirmed if one of the first names leads back to the
// address. It is unknown if a look-up failed and no name leads back.
func (s *Service) lookUpPTR(ctx context.Context, addr netip.Addr) evidence.PTR {
	ctx, cancel := context.WithTimeout(ctx, reverseTimeout)
	defer cancel()
	names, err := s.p.DNS.PTR(ctx, addr)
	if errors.Is(err, resolve.ErrNotFound) || err == nil && len(names) == 0 {
		return evidence.PTR{State: evidence.PTRMissing}
	}
	if err != nil {
		return evidence.PTR{}
	}
	failed := false
	for _, name := range names[:min(len(names), reverseNames)] {
		back, err := s.p.DNS.Addrs(ctx, name)
		if err == nil && slices.ContainsFunc(back, func(a netip.Addr) bool { return a.Unmap() == addr }) {
			return evidence.PTR{State: evidence.PTRConfirmed, Name: name}
		}
		failed = failed || err != nil && !errors.Is(err, resolve.ErrNotFound)
	}
	if failed {
		return evidence.PTR{}
	}
	return evidence.PTR{State: evidence.PTRElsewhere, Name: names[0]}
}
