package users

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

const (
	maxTasks    = 1000             // waiting tasks
	taskTimeout = 10 * time.Second // for one task
)

// enqueue lets Run call f in a transaction of its own, and reports whether the queue had space. It is for work whose
// duration would reveal whether an account exists. A crash loses waiting tasks.
func (s *Service) enqueue(what string, f func(ctx context.Context, tx *db.Tx) error) bool {
	select {
	case s.tasks <- task{what, f}:
		return true
	default:
		s.Log.Warn("too many tasks wait; one is dropped", "what", what)
		return false
	}
}

type task struct {
	what string
	f    func(ctx context.Context, tx *db.Tx) error
}

// Run executes queued tasks until ctx ends, and then the remaining ones. Tasks record failed sign-ins and mail links.
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

// drain executes the waiting tasks.
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
	if err := s.DB.Update(ctx, func(tx *db.Tx) error { return x.f(ctx, tx) }); err != nil {
		s.Log.Error("a task for a user failed", "what", x.what, "error", err)
	}
}
