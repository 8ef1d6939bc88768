package receiving

import (
	"context"
	"encoding/base32"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"golang.org/x/net/idna"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/sending/domainreports"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/tokens"
)

// target is the destination of a recipient address: a team, or the processing of bounce and complaint reports.
type target struct {
	address  string
	teamID   string
	domainID string
	report   *emails.BounceTarget // the email to which a return path belongs; nil for other addresses
	ref      tokens.Ref           // the email that a return path names
	local    string               // the local part of the address if it is a return path
	feedback bool                 // whether the address receives complaints

	reportsOn domainreports.Target // the domain whose reports the address receives
}

// isEmail reports whether the address may receive the message as an email.
func (p *target) isEmail() bool { return p.report == nil && p.reportsOn.DomainID == "" }

// distinctTargets removes duplicate recipients. Two return paths with the same local part count as one, whatever their
// hosts.
func distinctTargets(to []target) (all []target) {
	for _, p := range to {
		if !slices.ContainsFunc(all, func(o target) bool {
			return o.address == p.address || o.report != nil && p.report != nil && o.local == p.local
		}) {
			all = append(all, p)
		}
	}
	return all
}

var labelEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// ManagedHost returns the team's host name below the managed domain, or "" if no managed domain is configured. The team
// receives all mail for its managed host. The first label of a managed host is the team's id in base32, so managed
// hosts never change and need no table.
func (s *Service) ManagedHost(teamID string) string {
	u, err := uuid.Parse(teamID)
	if s.c.ManagedDomain == "" || err != nil {
		return ""
	}
	return labelEncoding.EncodeToString(u[:]) + "." + s.c.ManagedDomain
}

func teamOfLabel(label string) (teamID string, ok bool) {
	b, err := labelEncoding.DecodeString(label)
	if err != nil || len(b) != len(uuid.UUID{}) || labelEncoding.EncodeToString(b) != label {
		return "", false
	}
	return uuid.UUID(b).String(), true
}

// SMTP replies that refuse a recipient address.
var (
	badRecipient = smtpserver.Refuse(553, "5.1.3", "This is not an address")
	notOurs      = smtpserver.Refuse(550, "5.7.1", "Relaying denied: this host takes no mail for that domain")
	unknown      = smtpserver.Refuse(550, "5.1.1", "No such mailbox here")
)

// findTarget returns the target of a recipient address. If the address is refused, the error is a *smtpserver.Refusal.
func (s *Service) findTarget(ctx context.Context, to string) (target, error) {
	local, host, err := split(to)
	if err != nil {
		return target{}, err
	}
	p := target{address: local + "@" + host}
	if host == "" {
		p.address = local
	}
	own := host == "" || slices.Contains(s.c.Hosts, host)
	if slices.ContainsFunc(s.c.Feedback, func(f string) bool { return strings.EqualFold(f, p.address) }) {
		p.feedback = true
		return s.operatorTarget(ctx, p)
	}
	// The signature in the local part proves that this installation created the address, so the address's host does not
	// matter.
	if of, ok := tokens.ParseReturnPath(s.p.Keys, local); ok {
		return s.returnPathTarget(ctx, p, of, local)
	}
	if own {
		if name := strings.ToLower(local); name == "postmaster" || name == "abuse" {
			return s.operatorTarget(ctx, p)
		}
		return s.reportTarget(ctx, p, local)
	}
	if label, below, _ := strings.Cut(host, "."); s.c.ManagedDomain != "" && below == s.c.ManagedDomain {
		return s.managedTarget(ctx, p, label)
	}
	r, err := s.p.Domains.Receiver(ctx, host)
	switch {
	case err != nil:
		return p, err
	case r.CatchAll:
		p.teamID, p.domainID = r.TeamID, r.DomainID
		return p, nil
	case r.ReturnPath && len(s.c.Feedback) > 0 && strings.EqualFold(local, tokens.ComplaintsLocal):
		p.feedback = true
		return s.operatorTarget(ctx, p)
	case r.ReturnPath:
		return p, unknown
	}
	return p, notOurs
}

// split splits an address at the last @. The host is empty for the address postmaster without a domain (RFC 5321
// section 4.5.1).
func split(to string) (local, host string, err error) {
	if len(to) > 320 || !utf8.ValidString(to) || strings.ContainsFunc(to, unicode.IsControl) {
		return "", "", badRecipient
	}
	at := strings.LastIndexByte(to, '@')
	if at < 0 {
		if strings.EqualFold(to, "postmaster") {
			return "postmaster", "", nil
		}
		return "", "", badRecipient
	}
	local, host = to[:at], strings.ToLower(strings.TrimSuffix(to[at+1:], "."))
	if ascii, err := idna.Lookup.ToASCII(host); err == nil {
		host = strings.ToLower(ascii)
	}
	if local == "" || host == "" {
		return "", "", badRecipient
	}
	return local, host, nil
}

func (s *Service) returnPathTarget(ctx context.Context, p target, of tokens.Ref, local string) (target, error) {
	e, err := s.p.Emails.BounceTarget(ctx, of)
	if err != nil {
		return p, refuseMissing(err)
	}
	p.report, p.ref, p.local = &e, of, strings.ToLower(local)
	return p, nil
}

// reportTarget returns the target of an address that receives reports about a domain. The random local part identifies
// the domain, which need not be verified.
func (s *Service) reportTarget(ctx context.Context, p target, local string) (target, error) {
	if s.p.Reports == nil {
		return p, unknown
	}
	on, ok, err := s.p.Reports.Find(ctx, local)
	switch {
	case err != nil:
		return p, err
	case !ok:
		return p, unknown
	}
	p.reportsOn = on
	return p, nil
}

func (s *Service) managedTarget(ctx context.Context, p target, label string) (target, error) {
	teamID, ok := teamOfLabel(label)
	if !ok {
		return p, unknown
	}
	if _, err := s.p.Teams.Get(ctx, teamID); err != nil {
		return p, refuseMissing(err)
	}
	p.teamID = teamID
	return p, nil
}

// operatorTarget sets the target to the team that receives the operator's mail: the configured team or the oldest one.
func (s *Service) operatorTarget(ctx context.Context, p target) (target, error) {
	team, err := s.p.Teams.Operator(ctx, s.c.OperatorTeam)
	if err != nil {
		return p, refuseMissing(err)
	}
	p.teamID = team.ID
	return p, nil
}

// refuseMissing converts a NotFound fault to the SMTP reply for an unknown mailbox. All other errors are returned
// unchanged.
func refuseMissing(err error) error {
	if fault.KindOf(err) == fault.NotFound {
		return unknown
	}
	return err
}
