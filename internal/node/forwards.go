package node

import (
	"cmp"
	"context"
	"strings"

	"github.com/postrider/postrider/internal/node/resources"
	"github.com/postrider/postrider/internal/outbound/forwards"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/emails"
)

// newForwards builds the service that forwards received mail.
func (n *Node) newForwards(h resources.Hooks) (err error) {
	n.Forwards, err = forwards.New(forwards.Config{Hostname: n.Config.Hostname, PublicURL: n.Config.PublicURL},
		forwards.Deps{DB: n.DB, Queue: n.Queue, Keys: n.Keys, Domains: n.Domains, Emails: n.Emails, Teams: n.Teams,
			Log: n.Log, LookupTXT: n.dns.TXT, Notify: h.Notify, Mail: h.Mail, Received: n.receivedToForward,
			Payload:  n.receivedPayload,
			CheckURL: func(field, url string) (string, error) { return n.Webhooks.CheckURL(field, url) },
			Call: func(ctx context.Context, teamID, id, url string, body []byte, keys [][]byte) (int, error) {
				return n.Webhooks.CallSigned(ctx, teamID, id, url, nil, body, keys...)
			}})
	if err == nil {
		n.Recorder.Listen(n.Forwards)
	}
	return err
}

// arrived passes received emails on to the forwarding rules, which are built after package receiving's service.
func (n *Node) arrived(ctx context.Context, tx *db.Tx, all []emails.Arrival) error {
	return n.Forwards.Arrived(ctx, tx, all)
}

// receivedToForward returns a received email in the form in which it is forwarded.
func (n *Node) receivedToForward(ctx context.Context, teamID, emailID string) (m forwards.Message, err error) {
	o, err := n.Receiving.Original(ctx, teamID, emailID)
	if err != nil {
		return m, err
	}
	m = forwards.Message{From: o.From, Subject: o.Subject, MessageID: o.MessageID, MailFrom: o.Origin.MailFrom,
		UTF8: o.Origin.UTF8, Authentication: o.Authentication, Raw: o.Raw, TraceBytes: o.TraceBytes, Close: o.Close}
	m.Spam = spamReason(o.Spam)
	return m, nil
}

// receivedPayload returns the payload of the event email.received for a received email.
func (n *Node) receivedPayload(ctx context.Context, teamID, emailID string) (payload string, err error) {
	e, err := n.Receiving.Event(ctx, teamID, emailID)
	if err != nil {
		return "", err
	}
	err = n.DB.Update(ctx, func(tx *db.Tx) error {
		_, payload, err = n.Webhooks.Render(ctx, tx, &e)
		return err
	})
	return payload, err
}

// spamReason returns why the content filter classified an email as spam, or "" if it did not. Filters quarantine
// spam, or mark it with one of the header fields by which mail programs sort.
func spamReason(s *receiving.Spam) string {
	if s == nil {
		return ""
	}
	if s.Action == "quarantine" {
		return cmp.Or(s.Quarantine, "quarantine")
	}
	for _, name := range []string{"x-spam", "x-spam-flag", "x-spam-status"} {
		for _, value := range s.Fields[name] {
			if strings.HasPrefix(strings.ToLower(strings.TrimSpace(value)), "yes") {
				return name + ": " + value
			}
		}
	}
	return ""
}
