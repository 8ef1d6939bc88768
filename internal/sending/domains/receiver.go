package domains

import (
	"context"
	"strings"

	"github.com/postrider/postrider/internal/platform/db"
)

// Receiver holds the data that is needed to receive mail for a host.
type Receiver struct {
	TeamID     string
	DomainID   string
	CatchAll   bool // the host is a proved receiving domain; its team receives mail for every local part
	ReturnPath bool // the host is a domain's return-path host
}

// Receiver returns the team and domain that receive mail for a host in lower-case ASCII, or the zero Receiver. Receiver
// does not require a team id, because the host determines the team.
func (s *Service) Receiver(ctx context.Context, host string) (Receiver, error) {
	return look(s, s.receivers, host, cacheFor,
		func() (Receiver, error) { return receiverAt(ctx, s.DB.Reader, host) }, always)
}

// receiverAt looks up the host both among the domains and among the return-path hosts. If the host is one team's domain
// and another team's return-path host, the return-path host takes precedence as long as its domain may send. A conflict
// between a domain and a return-path host can be caused only by rows that were written before names were registered.
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
