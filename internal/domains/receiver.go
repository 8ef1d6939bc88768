package domains

import (
	"context"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/db"
)

// Receiver is what taking mail for a host needs to know of it.
type Receiver struct {
	TeamID     string
	DomainID   string
	CatchAll   bool // a proved receiving domain: every local part of it is the team's
	ReturnPath bool // the host of a domain's return paths
}

// Receiver returns whose mail for a host, in ASCII and lower case, is. It is the zero Receiver when it is nobody's
// here. It names no team, because it is what finds the team.
func (s *Service) Receiver(ctx context.Context, host string) (Receiver, error) {
	now := time.Now()
	s.mu.Lock()
	c, ok := s.receivers[host]
	s.mu.Unlock()
	if ok && now.Before(c.until) {
		return c.value, nil
	}
	to, err := receiverAt(ctx, s.d.Reader, host)
	if err != nil {
		return to, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.receivers) >= cacheMax {
		clear(s.receivers)
	}
	s.receivers[host] = remembered[Receiver]{to, now.Add(cacheFor)}
	return to, nil
}

// receiverAt finds the host among the domains and among the hosts of return paths. A host that is both, of two teams,
// is the return path's while its team may send: only rows from before names were entered for their teams can say
// otherwise.
func receiverAt(ctx context.Context, r db.Reader, host string) (Receiver, error) {
	label, parent, _ := strings.Cut(host, ".")
	all, err := domainsNamed(ctx, r, host, parent)
	if err != nil {
		return Receiver{}, err
	}
	at, above := all[host], all[parent]
	bounces := above.Sending && above.ReturnPath == label
	switch {
	case bounces && above.MaySend() && above.TeamID != at.TeamID:
		return Receiver{TeamID: above.TeamID, DomainID: above.ID, ReturnPath: true}, nil
	case at.MayReceive():
		return Receiver{TeamID: at.TeamID, DomainID: at.ID, CatchAll: true}, nil
	case bounces:
		return Receiver{TeamID: above.TeamID, DomainID: above.ID, ReturnPath: true}, nil
	}
	return Receiver{}, nil
}
