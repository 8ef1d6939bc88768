package users

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

const (
	maxTasks    = 1000             // what may wait to be done
	taskTimeout = 10 * time.Second // for one of it
)

// enqueue has f done by Run, in a transaction of its own, and reports whether there was room. It is for what must not
// take time that shows whether an account exists, and for nothing that must not be lost: a crash loses it.
func (s *Service) enqueue(what string, f func(ctx context.Context, tx *db.Tx) error) bool {
	select {
	case s.tasks <- task{what, f}:
		return true
	default:
		s.log.Warn("there is too much to do; something is left out", "what", what)
		return false
	}
}

type task struct {
	what string
	f    func(ctx context.Context, tx *db.Tx) error
}

// Run does what is done apart from requests, until ctx ends, and then what is left: it records sign-ins that failed
// and mails links.
func (s *Service) Run(ctx context.Context) error {
	for {
		select {
		case x := <-s.tasks:
			s.runTask(ctx, x)
		case <-ctx.Done():
			s.drain(context.WithoutCancel(ctx))
			return nil
		}
	}
}

// drain does what is waiting.
func (s *Service) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, taskTimeout)
	defer cancel()
	for {
		select {
		case x := <-s.tasks:
			s.runTask(ctx, x)
		default:
			return
		}
	}
}

func (s *Service) runTask(ctx context.Context, x task) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), taskTimeout)
	defer cancel()
	if err := s.d.Update(ctx, func(tx *db.Tx) error { return x.f(ctx, tx) }); err != nil {
		s.log.Error("something of a user could not be done", "what", x.what, "error", err)
	}
}
