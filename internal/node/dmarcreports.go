package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/node/resources"
	"github.com/postrider/postrider/internal/sending/delivery"
	"github.com/postrider/postrider/internal/sending/dmarcreports"
)

// sendsDMARCReports reports whether this node counts received messages for DMARC reports.
func (n *Node) sendsDMARCReports() bool {
	return n.Config.DMARCReports && n.Config.NoticeFrom != "" && n.Config.CheckAuthentication
}

// newDMARCReports builds the service that counts received messages and sends DMARC reports to the domains in their From
// fields.
func (n *Node) newDMARCReports(resources.Hooks) (err error) {
	c := dmarcreports.Config{Off: !n.sendsDMARCReports(), Generator: "Postrider " + n.o.Version}
	if !c.Off {
		if c.From, err = message.ParseFrom(n.Config.NoticeFrom); err != nil {
			return fmt.Errorf("notice_from: %w", err)
		}
	}
	n.DMARCReports, err = dmarcreports.New(c, dmarcreports.Deps{DB: n.DB, DNS: n.dns, Log: n.Log, Mail: n.mailDMARCReport})
	return err
}

// mailDMARCReport sends an email with a report from the operator's team.
func (n *Node) mailDMARCReport(ctx context.Context, from, to string, raw []byte) error {
	team, err := n.Teams.Operator(ctx, n.Config.OperatorTeam)
	if err != nil {
		return fmt.Errorf("find the operator's team: %w", err)
	}
	err = n.Delivery.SendOnce(ctx, team.ID, from, to, raw)
	e, ok := errors.AsType[*smtpclient.Error](err)
	switch {
	case ok && e.Sent:
		return fmt.Errorf("%w: %w", dmarcreports.ErrUnknown, err)
	case errors.Is(err, delivery.ErrRefused), errors.Is(err, resolve.ErrNoDomain), errors.Is(err, resolve.ErrNoHost),
		errors.Is(err, resolve.ErrNullMX):
		return fmt.Errorf("%w: %w", dmarcreports.ErrBounced, err)
	}
	return err
}

// storeMessages stores the counts of received messages when this node stops. A failure is only logged, because only
// DMARC reports use the counts.
func (n *Node) storeMessages(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	if err := n.DMARCReports.Flush(ctx); err != nil {
		n.Log.Warn("the counts of the last received messages are lost", "error", err)
	}
}
