package emails

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/domains"
)

// Forward is a received message to send to another address.
type Forward struct {
	TeamID   string
	DomainID string // the domain at which the message arrived; its return path is used
	RuleID   string // the rule that forwards
	From     string // the author, as shown in lists
	Subject  string
	// MessageID is the id of the message, with angle brackets, or "" if the message has none. Forward adds no id.
	MessageID string
	To        message.Address
	Added     []byte // header fields to write above the message, each ended by CRLF
	Message   []byte // as it was received
	UTF8      bool   // the message arrived with SMTPUTF8; if its header has UTF-8, only hosts with SMTPUTF8 may get it
}

// needsUTF8 reports whether only hosts that support SMTPUTF8 accept the message. A header with bytes outside ASCII that
// arrived without SMTPUTF8 is forwarded without it, because most hosts accept that.
func (in *Forward) needsUTF8() bool {
	header, _, _ := bytes.Cut(in.Message, []byte("\r\n\r\n"))
	outside := func(r rune) bool { return r > 0x7e }
	return in.To.NeedsUTF8() || in.UTF8 && (bytes.ContainsFunc(header, outside) || bytes.ContainsFunc(in.Added, outside))
}

// ErrTooLarge is the error of Forward if a message exceeds the maximum size of emails.
var ErrTooLarge = fault.Invalidf("", "The message is larger than emails may be.")

// Forward accepts a message that a rule forwards, and returns the id of the email. The message is sent unchanged below
// the added fields, and not signed again. It counts in the team's quota; if that is used up, the error is the fault of
// package quotas. Addresses that were suppressed for bounces receive it, because their owners asked for it.
//
// Forward calls the function then in the transaction that accepts the email, possibly more than once.
func (s *Service) Forward(ctx context.Context, in Forward,
	then func(ctx context.Context, tx *db.Tx, emailID string) error) (string, error) {
	if int64(len(in.Added)+len(in.Message)) > s.c.MaxSize {
		return "", ErrTooLarge
	}
	from, err := message.ParseFrom(in.From)
	if err != nil {
		return "", fmt.Errorf("read the author of a message to forward: %w", err)
	}
	to := recipient{kind: "to", Address: in.To}
	d := &draft{Send: Send{From: in.From, To: []string{in.To.Addr()}, Subject: in.Subject, Tags: []Tag{Forwarded}},
		from: from, recipients: []recipient{to},
		raw: &Raw{Recipients: []message.Address{in.To}, Body: in.Message, MessageID: in.MessageID, HasDate: true,
			UTF8: in.needsUTF8(), forwarded: string(bytes.Clone(in.Added))}}
	blocked, err := s.Suppressions.SuppressedNow(ctx, in.TeamID, []string{in.To.Key()})
	if err != nil {
		return "", fmt.Errorf("look up suppressions: %w", err)
	}
	blocked = blocking(blocked, true)
	if _, err := s.storeRaw(ctx, in.TeamID, d); err != nil {
		return "", err
	}
	by := teams.Actor{Kind: teams.SystemActor, ID: in.RuleID, TeamID: in.TeamID}
	write := func(tx *db.Tx) error {
		d.id = id.At(tx.Now())
		if err := s.write(ctx, tx, by, d, domains.Sender{DomainID: in.DomainID}, nil, blocked); err != nil {
			return err
		}
		return then(ctx, tx, d.id)
	}
	if err := s.Quotas.UpdateAlone(ctx, in.TeamID, countQuota([]*draft{d}, blocked), write); err != nil {
		return "", err
	}
	s.accepted("forward", []string{d.id})
	return d.id, nil
}

// ForwardRule returns the id of the rule that forwarded the email, or "".
func (o *Outgoing) ForwardRule() string { return forwardRule(o.row.Actor) }

// CheckMailable returns a fault about a request field if this installation refuses to send to an address.
func (s *Service) CheckMailable(field string, a message.Address) error {
	if slices.Contains(s.c.TestDomainsRefused, a.Domain) {
		return testDomain(field, a.Domain)
	}
	return nil
}

// Arrival is an email that a team has received, which forwarding rules may forward. To lists the addresses at the
// team's domains.
type Arrival struct {
	TeamID, EmailID string
	To              []ArrivalAddress
}

// ArrivalAddress is an address at which an email arrived, with the id of its domain.
type ArrivalAddress struct{ Address, DomainID string }
