package preflight

import (
	"context"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

// Checker runs the checks for emails of a team, with the state of the sender's domain.
type Checker struct {
	Domains *domains.Service
	DNS     resolve.Resolver // nil if DNS look-ups are disabled
}

// Check runs all checks on an email that belongs to the actor's team. The error is one of the database.
func (c Checker) Check(ctx context.Context, by teams.Actor, p emails.Preview) ([]Result, error) {
	from, err := c.sender(ctx, &by, p.From.Domain)
	if err != nil {
		return nil, err
	}
	return Run(ctx, Input{From: p.From, ReplyTo: p.ReplyTo, Subject: p.Subject, HTML: p.HTML, Text: p.Text,
		Headers: p.Headers, Bulk: p.Bulk, ContentIDs: p.ContentIDs, Sender: from, DNS: c.DNS}), nil
}

// sender returns the data about the sender's domain that the checks need. A domain that cannot send is not an error
// here, because the checks report the problem.
func (c Checker) sender(ctx context.Context, by *teams.Actor, name string) (s Sender, err error) {
	sender, err := c.Domains.Sender(ctx, by.TeamID, name)
	switch {
	case fault.Ours(err):
		return s, err
	case err != nil:
		s.Refused = err.Error()
	case sender.Sandbox:
		return Sender{Sandbox: true, SignedBy: name}, nil
	}
	d, err := c.Domains.GetByName(ctx, by.TeamID, name)
	switch {
	case fault.KindOf(err) == fault.NotFound && err != nil:
		return s, nil
	case err != nil:
		return s, err
	case by.DomainID != "" && by.DomainID != d.ID:
		return Sender{Refused: "This API key is not authorized to send from " + name + ". " +
			"Use a key without a domain restriction, or one of that domain."}, nil
	}
	s.SignedBy, s.Trusted = d.Name, c.Domains.TrustsRecords()
	on := c.Domains.Tracking(&d)
	s.Tracking = Tracking{Host: on.Host, Clicks: on.Clicks}
	for _, r := range c.Domains.SendingRecords(&d) {
		switch r.Key {
		case "spf":
			s.ReturnPath = r.FQDN
		case "dkim", "dkim-ed25519":
			s.Keys = append(s.Keys, Key{Name: r.FQDN, Optional: r.Key == "dkim-ed25519", State: stateOf(r.Status)})
		}
	}
	return s, nil
}

// stateOf returns the state of a record whose last look-ups had the given result.
func stateOf(s domains.Status) State {
	switch s {
	case domains.Verified:
		return Found
	case domains.Failed, domains.TemporaryFailure:
		return Gone
	}
	return NotFound
}
