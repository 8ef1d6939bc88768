package dmarcreports

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/lib/visible"
	"github.com/postrider/postrider/internal/mail/dmarc"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/sending/dailyreports"
)

// targets returns the addresses that get a report. A day with too few messages has no targets.
func (s *Service) targets(ctx context.Context, x *dailyreports.Report) (all []string, err error) {
	n, err := s.received(ctx, x.Day)
	if err == nil && n < minMessages {
		return nil, nil
	}
	var p published
	if err == nil {
		p, err = publishedIn(x)
	}
	if err == nil {
		all, err = s.accepting(ctx, x.Domain, p.Targets)
	}
	if err != nil {
		s.p.Log.Info("the targets of a DMARC report cannot be looked up yet", "domain", x.Domain, "error", err)
	}
	return all, err
}

// accepting returns the targets in a domain's record that accept reports about the domain. A target at another
// organization must confirm this in the DNS. Otherwise, anybody could flood strangers with reports (RFC 9990 section
// 4). Errors are temporary: the caller must ask again later.
func (s *Service) accepting(ctx context.Context, domain string, published []string) (all []string, err error) {
	walker := dmarc.NewWalker(s.p.DNS.TXT)
	org, err := walker.Organizational(ctx, domain)
	if err != nil {
		return nil, err
	}
	for _, to := range published {
		address, err := message.ParseAddress(to)
		if err != nil {
			continue
		}
		host := strings.ToLower(address.Domain)
		theirs, err := walker.Organizational(ctx, host)
		if err != nil {
			return nil, err
		}
		targets := []string{address.Addr()}
		if theirs != org {
			if targets, err = s.permitted(ctx, domain, host, address.Addr()); err != nil {
				return nil, err
			}
		}
		for _, to := range targets {
			if len(all) < maxTargets && !slices.Contains(all, to) {
				all = append(all, to)
			}
		}
	}
	return all, nil
}

// permitted returns the addresses at a host that get the reports about a domain of another organization. They are those
// in the host's record, or the given address if the record names none. If the host has no such record, there are no
// addresses.
func (s *Service) permitted(ctx context.Context, domain, host, address string) ([]string, error) {
	texts, err := s.p.DNS.TXT(ctx, domain+"._report._dmarc."+host)
	switch {
	case errors.Is(err, resolve.ErrNotFound):
		s.p.Log.Info("a DMARC report is not sent, because the target does not say that it accepts reports about the domain",
			"domain", domain, "target", visible.Show(address))
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look up whether %s accepts reports about %s: %w", host, domain, err)
	}
	for _, text := range texts {
		r, ok := dmarc.Parse(text)
		if !ok {
			continue
		}
		var others []string
		for _, uri := range r.RUA {
			other, isMail := mailTarget(uri)
			if to, err := message.ParseAddress(other); isMail && err == nil && strings.EqualFold(to.Domain, host) {
				others = append(others, to.Addr())
			}
		}
		if len(others) > 0 {
			return others, nil
		}
		return []string{address}, nil
	}
	return nil, nil
}
