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
	reverseKept    = time.Hour
	reverseTimeout = 20 * time.Second
)

// reverse knows the PTR records of this node's source addresses. An address is looked up by run, after the first attempt
// from it that did not go well; that attempt does not wait for the answer.
type reverse struct {
	ask chan netip.Addr

	mu    sync.Mutex
	known map[netip.Addr]knownPTR
}

type knownPTR struct {
	evidence.PTR
	at time.Time
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
	if time.Since(p.at) > reverseKept {
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
			p := evidence.PTR{}
			if s.guard.Allowed(addr) {
				p = s.lookUpPTR(ctx, addr)
			}
			s.reverse.learn(addr, p)
		}
	}
}

func (r *reverse) learn(addr netip.Addr, p evidence.PTR) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= reverseMax {
		clear(r.known)
	}
	r.known[addr] = knownPTR{p, time.Now()}
}

// lookUpPTR returns the state of an address's PTR record. It is unknown if a look-up failed.
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
	back, err := s.p.DNS.Addrs(ctx, names[0])
	same := func(a netip.Addr) bool { return a.Unmap() == addr }
	switch {
	case err == nil && slices.ContainsFunc(back, same):
		return evidence.PTR{State: evidence.PTRConfirmed, Name: names[0]}
	case err == nil || errors.Is(err, resolve.ErrNotFound):
		return evidence.PTR{State: evidence.PTRElsewhere, Name: names[0]}
	}
	return evidence.PTR{}
}
