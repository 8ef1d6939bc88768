package forwards

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// copiesPerStep is the maximum number of copies that one call of RemoveBefore deletes. Each has few rows.
const copiesPerStep = 20

// forwardedCopy is a forwarded email with the received email that it copies.
type forwardedCopy struct{ receivedID, emailID string }

// RemoveBefore deletes settled forwarded emails whose received email came before the given time, oldest first. Each call
// deletes a batch of copies that follow the parameter after. It returns the value to pass as after in the next call, or
// "" if no old copy is left.
func (s *Service) RemoveBefore(ctx context.Context, teamID string, before time.Time, after string) (next string,
	err error) {
	if next, err = s.removeCopies(ctx, teamID, id.First(before), after); err != nil {
		return "", fmt.Errorf("delete old forwarded emails of team %s: %w", teamID, err)
	}
	return next, nil
}

func (s *Service) removeCopies(ctx context.Context, teamID, before, after string) (next string, err error) {
	from := forwardedCopy{}
	from.receivedID, from.emailID, _ = strings.Cut(after, " ")
	some, err := copiesBetween(ctx, s.p.DB.Reader, teamID, from, before)
	if err != nil || len(some) == 0 {
		return "", err
	}
	ids := make([]string, len(some))
	for i, c := range some {
		ids[i] = c.emailID
	}
	gone, err := s.p.Emails.Remove(ctx, teamID, ids)
	if err == nil && len(gone) > 0 {
		err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
			deleteCopies(ctx, tx, teamID, some, gone)
			return nil
		})
	}
	if last := some[len(some)-1]; err == nil && len(some) == copiesPerStep {
		next = last.receivedID + " " + last.emailID
	}
	return next, err
}
