package emails

import (
	"context"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/sending/domains"
)

// sender checks that the actor may send with the draft's From address, and returns the sending domain.
func (s *Service) sender(ctx context.Context, by teams.Actor, d *draft) (domains.Sender, error) {
	if by.Suspended {
		return domains.Sender{}, fault.New(fault.Suspended, "", "This team may not send at present. Ask the operator why.")
	}
	from, err := s.Domains.Sender(ctx, by.TeamID, d.from.Domain)
	if err != nil {
		return from, err
	}
	if by.DomainID != "" && by.DomainID != from.DomainID {
		return from, fault.Forbiddenf("from", "This API key is not authorized to send from %s. Use a key without a domain "+
			"restriction, or one of that domain.", d.from.Domain)
	}
	return from, s.mayWriteTo(ctx, by.TeamID, from, d.from, d.recipients)
}

// CheckSender returns a fault if a team may not send emails from the given mailbox. If the mailbox cannot be parsed
// because its address contains placeholders, CheckSender returns nil.
func (s *Service) CheckSender(ctx context.Context, teamID, from string) error {
	a, err := message.ParseFrom(from)
	if err != nil || strings.ContainsAny(a.Domain, "{}") {
		if strings.Contains(from, "{{{") {
			return nil
		}
		return fault.Invalidf("from", "Invalid `from` field. %s", err).Because(err)
	}
	_, err = s.Domains.Sender(ctx, teamID, a.Domain)
	return err
}

// mayWriteTo returns a fault if the sender may write only to test recipients and the email has any other recipient.
// Test recipients are the team owner's address and sandbox addresses.
func (s *Service) mayWriteTo(ctx context.Context, teamID string, from domains.Sender, sender message.Address,
	to []recipient) error {
	mayWriteTo, err := s.recipientFilter(ctx, teamID, from)
	if err != nil {
		return err
	}
	for _, r := range to {
		if !mayWriteTo(r.Address) {
			return fault.Forbiddenf("to", "The sender %s is for trying things out and writes only to the address of this "+
				"team's owner. To write to others, add and verify a domain of your own.", sender.Addr())
		}
	}
	return nil
}

// RequireAnyRecipient returns a fault if the mailing's sender may write only to test recipients.
func (m *Mailing) RequireAnyRecipient() error {
	if m.from.Sandbox && m.from.OwnerOnly {
		return fault.Forbiddenf("from", "The sender %s is for trying things out and writes only to the address of this "+
			"team's owner. Use a sender of a verified domain of your own.", m.sender.Addr())
	}
	return nil
}

// recipientFilter returns a function that reports whether the sender may write to an address.
func (s *Service) recipientFilter(ctx context.Context, teamID string, from domains.Sender) (func(message.Address) bool,
	error) {
	if !from.Sandbox || !from.OwnerOnly {
		return func(message.Address) bool { return true }, nil
	}
	team, err := s.Teams.Get(ctx, teamID)
	return func(a message.Address) bool {
		return s.Domains.IsSandbox(a.Domain) || team.Email != "" && a.Key() == team.Email
	}, err
}

// recipientOf parses and checks the address of one recipient in a mailing.
func (s *Service) recipientOf(ctx context.Context, m *Mailing, text string) (recipient, error) {
	a, err := s.mailable(text)
	if err != nil {
		return recipient{}, err
	}
	r := recipient{kind: "to", Address: a}
	return r, s.mayWriteTo(ctx, m.by.TeamID, m.from, m.sender, []recipient{r})
}

// mailable parses an address; it returns a fault if the address is invalid or if this server refuses its domain.
func (s *Service) mailable(text string) (message.Address, error) {
	a, err := parseAddress("to", text, message.ParseAddress)
	if err == nil && slices.Contains(s.c.TestDomainsRefused, a.Domain) {
		err = testDomain("to", a.Domain)
	}
	return a, err
}

// Mailable returns a function that reports whether Enqueue would accept an address, considering only the address and
// the sender. Mailable looks up neither suppressions nor subscriptions. If the sender is not verified or contains
// placeholders, only the address is considered.
func (s *Service) Mailable(ctx context.Context, teamID, from string) (func(address string) bool, error) {
	var of domains.Sender
	if sender, err := message.ParseFrom(from); err == nil {
		if of, err = s.Domains.Sender(ctx, teamID, sender.Domain); fault.Ours(err) {
			return nil, err
		}
	}
	writesTo, err := s.recipientFilter(ctx, teamID, of)
	return func(address string) bool {
		a, err := s.mailable(address)
		return err == nil && writesTo(a)
	}, err
}
