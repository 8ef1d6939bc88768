package domains

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// Standing says whether a team may send from a domain name.
type Standing int

const (
	Lost      Standing = iota // the domain was deleted, is not verified or may not send; emails are withheld
	Usable                    // the team may send
	TakenOver                 // another team may send from the name; emails of this team fail
)

// Standing returns a team's standing toward a domain name and, if the team may send, the domain's id.
func (s *Service) Standing(ctx context.Context, teamID, name string) (Standing, string, error) {
	return s.standing(ctx, s.DB.Reader, teamID, name)
}

// LockStanding is like Standing. Until the transaction ends, no domain with this name can become able to send. A caller
// that withholds an email in the same transaction can therefore rely on OnSendingBack to release the email.
func (s *Service) LockStanding(ctx context.Context, tx *db.Tx, teamID, name string) (Standing, string, error) {
	if err := lockSending(ctx, tx, name); err != nil {
		return Lost, "", err
	}
	return s.standing(ctx, tx.Reader, teamID, name)
}

func (s *Service) standing(ctx context.Context, r db.Reader, teamID, name string) (Standing, string, error) {
	d, err := domainOwned(ctx, r, name)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return Lost, "", nil
	case err != nil:
		return Lost, "", err
	case !d.MaySend():
		return Lost, "", nil
	case d.TeamID == teamID, s.IsSandbox(name):
		return Usable, d.ID, nil
	}
	return TakenOver, "", nil
}

// lockSending serializes the transactions that withhold emails from a domain name with those after which the domain may
// send. The lock names the domain instead of its row, because a deleted domain has no row.
func lockSending(ctx context.Context, tx *db.Tx, name string) error {
	if err := tx.Serialize(ctx, "sending from "+name); err != nil {
		return fmt.Errorf("wait for others that change whether %s may send: %w", name, err)
	}
	return nil
}

// sendingChanged calls OnSendingLost or OnSendingBack if a change takes or gives the right to send from a domain. The
// zero Domain stands for a domain that does not exist.
func (s *Service) sendingChanged(ctx context.Context, tx *db.Tx, before, after *Domain) error {
	switch may := after.MaySend(); {
	case may == before.MaySend():
		return nil
	case !may:
		return s.OnSendingLost(ctx, tx, before.TeamID, before.Name)
	}
	if err := lockSending(ctx, tx, after.Name); err != nil {
		return err
	}
	return s.OnSendingBack(ctx, tx, after.TeamID, after.Name)
}
