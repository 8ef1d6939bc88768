package users

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

const (
	laterMost = 1000             // what may wait to be done
	laterTime = 10 * time.Second // for one of it
)

// later has f done by Run, in a transaction of its own, and reports whether there was room. It is for what must not
// take time that shows whether an account exists, and for nothing that must not be lost: a crash loses it.
func (s *Service) later(what string, f func(ctx context.Context, tx *db.Tx) error) bool {
	select {
	case s.laters <- deferred{what, f}:
		return true
	default:
		s.log.Warn("there is too much to do; something is left out", "what", what)
		return false
	}
}

type deferred struct {
	what string
	f    func(ctx context.Context, tx *db.Tx) error
}

// Run does what is done apart from requests, until ctx ends, and then what is left: it records sign-ins that failed
// and mails links.
func (s *Service) Run(ctx context.Context) error {
	for {
		select {
		case x := <-s.laters:
			s.do(ctx, x)
		case <-ctx.Done():
			s.rest(context.WithoutCancel(ctx))
			return nil
		}
	}
}

// rest does what is waiting.
func (s *Service) rest(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, laterTime)
	defer cancel()
	for {
		select {
		case x := <-s.laters:
			s.do(ctx, x)
		default:
			return
		}
	}
}

func (s *Service) do(ctx context.Context, x deferred) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), laterTime)
	defer cancel()
	if err := s.d.Update(ctx, func(tx *db.Tx) error { return x.f(ctx, tx) }); err != nil {
		s.log.Error("something of a user could not be done", "what", x.what, "error", err)
	}
}
