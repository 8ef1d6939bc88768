package emails

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// Batch is the result of SendBatch.
type Batch struct {
	IDs    []string
	Errors []BatchError // the emails in a permissive batch that were refused
}

// BatchError is the reason why one email in a batch was refused.
type BatchError struct {
	Index   int    `json:"index"`
	Message string `json:"message"`
}

// SendBatch accepts up to MaxBatch emails in one transaction. A strict batch is accepted entirely or not at all. A
// permissive batch accepts the emails that pass all checks and do not exceed the actor's limits. If the daily limit
// allows none of the emails, the batch is refused.
func (s *Service) SendBatch(ctx context.Context, by teams.Actor, in []Send, permissive bool, key Idempotency,
) (Batch, error) {
	if len(in) == 0 || len(in) > MaxBatch {
		return Batch{}, BadBatchSize(len(in))
	}
	r, err := s.once(ctx, by, key, func(a *answer) error {
		var drafts []*draft
		var indexes []int // the index of each draft in the batch
		topics := topics{}
		for i, one := range in {
			d, err := s.draft(ctx, by.TeamID, one, true)
			if err == nil {
				_, err = s.sender(ctx, by, d)
			}
			if err == nil {
				err = topics.check(ctx, s, by.TeamID, d.TopicID)
			}
			switch e, ok := errors.AsType[*fault.Error](err); {
			case err == nil:
				drafts, indexes = append(drafts, d), append(indexes, i)
			case fault.Ours(err):
				return err // caused by the server, not by the email
			case ok && permissive:
				a.Errors = append(a.Errors, BatchError{i, e.Message})
			case ok:
				return fault.New(e.Kind, fmt.Sprintf("[%d].%s", i, e.Field), "Email %d of the batch: %s", i, e.Message).Because(err)
			}
		}
		if permissive && by.Limited {
			return s.acceptWithinLimits(ctx, by, drafts, indexes, a)
		}
		return s.accept(ctx, by, drafts, a)
	})
	return Batch{IDs: r.IDs, Errors: r.Errors}, err
}

// acceptWithinLimits accepts the drafts that are within the actor's limits. If concurrent requests use up the remaining
// limit, acceptWithinLimits retries with fewer drafts.
func (s *Service) acceptWithinLimits(ctx context.Context, by teams.Actor, drafts []*draft, indexes []int,
	a *answer) error {
	broken := a.Errors
	for tried := len(drafts) + 1; ; {
		a.Errors = slices.Clone(broken)
		some, err := s.withinLimits(ctx, by, drafts, indexes, a)
		if err != nil {
			return err
		}
		if err = s.accept(ctx, by, some, a); fault.KindOf(err) != fault.DailyQuota || len(some) >= tried {
			return err
		}
		tried = len(some)
	}
}

// withinLimits returns the drafts that are within the actor's limits. For each of the other drafts, withinLimits adds
// an error to the answer.
func (s *Service) withinLimits(ctx context.Context, by teams.Actor, drafts []*draft, indexes []int,
	a *answer) ([]*draft, error) {
	faults, err := s.CheckLimit(ctx, by, countEach(drafts))
	if err != nil {
		return nil, err
	}
	var some []*draft
	var exceeded error
	for i, d := range drafts {
		e, ok := errors.AsType[*fault.Error](faults[i])
		switch {
		case faults[i] == nil:
			some = append(some, d)
			continue
		case !ok:
			return nil, faults[i]
		case e.Kind == fault.DailyQuota:
			exceeded = e
		}
		a.Errors = append(a.Errors, BatchError{indexes[i], e.Message})
	}
	if len(some) == 0 && exceeded != nil {
		return nil, exceeded
	}
	slices.SortFunc(a.Errors, func(x, y BatchError) int { return x.Index - y.Index })
	return some, nil
}

// consumeLimit counts emails against an actor's limits; it counts all recipients, including suppressed recipients and
// recipients of scheduled emails.
func (s *Service) consumeLimit(ctx context.Context, tx *db.Tx, by teams.Actor, drafts []*draft) error {
	if !by.Limited {
		return nil
	}
	return s.ConsumeLimit(ctx, tx, by, countEach(drafts))
}

// countEach returns the number of recipients for each draft.
func countEach(drafts []*draft) []int {
	recipients := make([]int, len(drafts))
	for i, d := range drafts {
		recipients[i] = len(d.recipients)
	}
	return recipients
}

// BadBatchSize returns the error for a batch whose size, n emails, is too small or too large.
func BadBatchSize(n int) error {
	return fault.Invalidf("", "A batch must have 1 to %d emails; this one has %d.", MaxBatch, n)
}
