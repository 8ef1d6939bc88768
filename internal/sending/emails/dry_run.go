package emails

import (
	"context"
	"errors"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/db"
)

// errDryRun rolls back the transaction of a dry run.
var errDryRun = errors.New("this is only a dry run")

// DryRun returns the error with which Send would refuse an email, or nil if Send would accept it. DryRun takes the same
// way as Send, including quotas and the limits of the actor's grant, and rolls the transaction back. DryRun stores no
// attachments, and does not fetch those specified by path.
func (s *Service) DryRun(ctx context.Context, by teams.Actor, in Send) error {
	d, err := s.draft(ctx, by.TeamID, in, false)
	if err != nil {
		return err
	}
	a := answer{dry: true, then: func(context.Context, *db.Tx, string) error { return errDryRun }}
	if err := s.accept(ctx, by, []*draft{d}, &a); !errors.Is(err, errDryRun) {
		return err
	}
	return nil
}
