package servedpolicies

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/domains"
)

// Examined is what the last check of a policy found.
type Examined struct {
	Mode      Mode
	Worked    bool      // a check has found no problem since the policy was switched on
	Problems  []Problem // of the last check
	CheckedAt time.Time // zero before the first check
	CheckAt   time.Time // when the next check is due
}

// Examine returns what the last check of the policy of a domain found, or nil if the domain has no policy. It needs no
// service, so that a command can call it beside the nodes.
func Examine(ctx context.Context, r db.Reader, d *domains.Domain) (*Examined, error) {
	p, err := find(ctx, r, d.TeamID, d.ID)
	if err != nil || p == nil || p.mode() == Off {
		return nil, err
	}
	return &Examined{p.mode(), p.Watch.Worked, p.Watch.Problems, p.CheckedAt, p.CheckAt}, nil
}
