package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/node/resources"
	"github.com/postrider/postrider/internal/sending/delivery"
	"github.com/postrider/postrider/internal/sending/tlsreports"
)

// sendsTLSReports reports whether this node reports TLS sessions to other domains. That needs a sender, and mail that
// does not leave through relays or stay in the outbox.
func (n *Node) sendsTLSReports() bool {
	return n.Config.TLSReports && n.Config.NoticeFrom != "" && n.Config.Transport == delivery.Direct
}

// newTLSReports builds the service that counts TLS sessions and reports them.
func (n *Node) newTLSReports(resources.Hooks) (err error) {
	c := tlsreports.Config{Off: !n.sendsTLSReports()}
	if !c.Off {
		if c.From, err = message.ParseFrom(n.Config.NoticeFrom); err != nil {
			return fmt.Errorf("notice_from: %w", err)
		}
	}
	n.TLSReports, err = tlsreports.New(c, tlsreports.Deps{DB: n.DB, DNS: n.DNS, Guard: n.strangers, Log: n.Log,
		Mail: n.mailReport})
	return err
}

// countSessions returns the function that counts the TLS sessions of deliveries.
func (n *Node) countSessions() func(delivery.Session) {
	reports := n.sendsTLSReports()
	return func(x delivery.Session) {
		n.broken.count(x, time.Now())
		if reports {
			n.TLSReports.Count(tlsreports.Session(x))
		}
	}
}

// mailReport sends an email with a report from the operator's team.
func (n *Node) mailReport(ctx context.Context, from, to string, raw []byte) error {
	team, err := n.Teams.Operator(ctx, n.Config.OperatorTeam)
	if err != nil {
		return fmt.Errorf("find the operator's team: %w", err)
	}
	err = n.Delivery.SendReport(ctx, team.ID, from, to, raw)
	if e, ok := errors.AsType[*smtpclient.Error](err); ok && e.Sent {
		return fmt.Errorf("%w: %w", tlsreports.ErrUnknown, err)
	}
	return err
}

// storeTime limits how long a stopping node tries to store the counts of its last TLS sessions.
const storeTime = 10 * time.Second

// storeSessions stores the counts of TLS sessions when this node stops. A failure is only logged, because the counts
// concern reports to others alone.
func (n *Node) storeSessions(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	if err := n.TLSReports.Flush(ctx); err != nil {
		n.Log.Warn("the counts of the last TLS sessions are lost", "error", err)
	}
}
