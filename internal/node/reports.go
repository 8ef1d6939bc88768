package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/node/resources"
	"github.com/postrider/postrider/internal/sending/dailyreports"
	"github.com/postrider/postrider/internal/sending/delivery"
	"github.com/postrider/postrider/internal/sending/dmarcreports"
	"github.com/postrider/postrider/internal/sending/tlsreports"
)

// sendsTLSReports reports whether this node reports TLS sessions to other domains. That needs a sender, and mail that
// does not leave through relays or stay in the outbox.
func sendsTLSReports(c config.Config) bool {
	return c.TLSReports && c.NoticeFrom != "" && c.Transport == delivery.Direct
}

// sendsDMARCReports reports whether this node counts received messages for DMARC reports.
func sendsDMARCReports(c config.Config) bool {
	return c.DMARCReports && c.NoticeFrom != "" && c.CheckAuthentication
}

// newReports builds the services that count TLS sessions and received messages, and report them to other domains.
func (n *Node) newReports(resources.Hooks) (err error) {
	tls := tlsreports.Config{Off: !sendsTLSReports(n.Config)}
	dmarc := dmarcreports.Config{Off: !sendsDMARCReports(n.Config), Generator: "Postrider " + n.o.Version}
	if !tls.Off || !dmarc.Off {
		if tls.From, err = message.ParseFrom(n.Config.NoticeFrom); err != nil {
			return fmt.Errorf("notice_from: %w", err)
		}
		dmarc.From = tls.From
	}
	if n.TLSReports, err = tlsreports.New(tls, tlsreports.Deps{DB: n.DB, DNS: n.DNS, Guard: n.strangers, Log: n.Log,
		Mail: n.mailReport((*delivery.Service).SendReport)}); err != nil {
		return err
	}
	n.DMARCReports, err = dmarcreports.New(dmarc, dmarcreports.Deps{DB: n.DB, DNS: n.dns, Log: n.Log,
		Mail: n.mailReport((*delivery.Service).SendOnce)})
	return err
}

// mailReport returns the function that sends an email with a report from the operator's team, by a method of the
// delivery service.
func (n *Node) mailReport(send func(s *delivery.Service, ctx context.Context, teamID, from, to string,
	raw []byte) error) func(ctx context.Context, from, to string, raw []byte) error {
	return func(ctx context.Context, from, to string, raw []byte) error {
		team, err := n.Teams.Operator(ctx, n.Config.OperatorTeam)
		if err != nil {
			return fmt.Errorf("find the operator's team: %w", err)
		}
		err = send(n.Delivery, ctx, team.ID, from, to, raw)
		e, ok := errors.AsType[*smtpclient.Error](err)
		switch {
		case ok && e.Sent:
			return fmt.Errorf("%w: %w", dailyreports.ErrUnknown, err)
		case errors.Is(err, delivery.ErrRefused), errors.Is(err, resolve.ErrNoDomain), errors.Is(err, resolve.ErrNoHost),
			errors.Is(err, resolve.ErrNullMX):
			return fmt.Errorf("%w: %w", dailyreports.ErrBounced, err)
		}
		return err
	}
}

// countSessions returns the function that counts the TLS sessions of deliveries.
func (n *Node) countSessions() func(delivery.Session) {
	reports := sendsTLSReports(n.Config)
	return func(x delivery.Session) {
		n.broken.count(x, time.Now())
		if reports {
			n.TLSReports.Count(tlsreports.Session(x))
		}
	}
}

// storeTime limits how long a stopping node tries to store its last counts for reports of a kind.
const storeTime = 10 * time.Second

// storeCounts stores the counts of TLS sessions and received messages when this node stops. A failure is only logged,
// because only reports to others use the counts.
func (n *Node) storeCounts(ctx context.Context) {
	for what, flush := range map[string]func(context.Context) error{"TLS sessions": n.TLSReports.Flush,
		"received messages": n.DMARCReports.Flush} {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
		if err := flush(after); err != nil {
			n.Log.Warn("the counts of the last "+what+" are lost", "error", err)
		}
		cancel()
	}
}
