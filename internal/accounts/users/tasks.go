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

// enqueue queues the function f for [Service.Run], which calls it in a separate transaction. If the queue is full,
// enqueue returns false. Use enqueue for work for which a request should not wait, for example because the time would
// reveal whether an account exists. Queued tasks are lost if the program crashes.
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

// Run executes queued tasks until ctx ends, and then executes the tasks that remain in the queue. The queued tasks
// record failed sign-ins and uses of sessions, and email reset links.
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

// drain executes all tasks that are in the queue.
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
