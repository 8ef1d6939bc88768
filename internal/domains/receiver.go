package domains

import (
	"context"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/fault"
)

// Receiver is what taking mail for a host needs to know of it.
type Receiver struct {
	TeamID     string
	DomainID   string
	CatchAll   bool // a verified receiving domain: every local part of it is the team's
	ReturnPath bool // the host of a domain's return paths
}

// Receiver returns whose mail for a host, in ASCII and lower case, is. It is the zero Receiver when it is nobody's here. It names
// no team, because it is what finds the team.
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

func receiverAt(ctx context.Context, r db.Reader, host string) (Receiver, error) {
	d, err := domainOwned(ctx, r, host)
	switch {
	case err == nil && d.Receiving && d.groupStatus([]string{"receiving"}) == Verified:
		return Receiver{TeamID: d.TeamID, DomainID: d.ID, CatchAll: true}, nil
	case err != nil && fault.KindOf(err) != fault.NotFound:
		return Receiver{}, err
	}
	label, name, _ := strings.Cut(host, ".")
	d, err = domainOwned(ctx, r, name)
	switch {
	case err == nil && d.Sending && d.ReturnPath == label:
		return Receiver{TeamID: d.TeamID, DomainID: d.ID, ReturnPath: true}, nil
	case err != nil && fault.KindOf(err) != fault.NotFound:
		return Receiver{}, err
	}
	return Receiver{}, nil
}
