package domains

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// nameMax is the maximum length of a DNS name in bytes, without the final dot (RFC 1035 section 2.3.4).
const nameMax = 253

// mayAdd returns an error if a domain cannot be added; it runs outside the transaction, so it cannot detect concurrent
// additions.
func (s *Service) mayAdd(ctx context.Context, r db.Reader, d *Domain) error {
	owner, err := domainOwned(ctx, r, d.Name)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return err
	}
	// The hosts of an existing domain with the same name are ignored, because choosing another label would not help.
	if err := s.checkFree(ctx, r, d, d.names(), owner.ID); err != nil {
		return err
	}
	if err == nil && owner.TeamID == d.TeamID {
		return fault.Forbiddenf("name", "The domain `%s` has been registered already, by this team. GET /domains lists it.",
			d.Name)
	}
	if err == nil {
		return registered(d.Name)
	}
	if err := s.checkAbove(ctx, r, d); err != nil {
		return err
	}
	return s.checkCount(ctx, r, d.TeamID)
}

// checkCount returns an error if a team has too many unverified domains. If a team sends requests concurrently, it may
// exceed the limit on unverified domains.
func (s *Service) checkCount(ctx context.Context, r db.Reader, teamID string) error {
	n, err := unprovedDomains(ctx, r, teamID, s.c.UnprovedMax)
	if err != nil {
		return fmt.Errorf("count domains that are not verified: %w", err)
	}
	if n >= s.c.UnprovedMax {
		return fault.Forbiddenf("name",
			"This team has %d domains that are not verified, the most it may have. Verify some of "+
				"them, or delete them.", n)
	}
	return nil
}

// checkLengths returns an error if a record of the domain would have a name that is too long.
func (c *Config) checkLengths(d *Domain) error {
	labels := []string{d.ReturnPath, d.TrackingSubdomain, "default._bimi", "_smtp._tls", policyLabel}
	for _, selector := range []string{c.Selector, c.SelectorEd25519, strings.Repeat("x", selectorLength)} {
		labels = append(labels, selector+"._domainkey")
	}
	longest := slices.MaxFunc(labels, func(a, b string) int { return len(a) - len(b) })
	if len(longest)+1+len(d.Name) <= nameMax {
		return nil
	}
	return fault.Invalidf("name", "The `name` field is too long: with the label `%s`, which one of its records needs, the "+
		"name would have more than %d characters.", longest, nameMax)
}

// checkTrackingHost returns an error if a changed label of the tracking host makes the host's name too long.
func checkTrackingHost(d *Domain, was string) error {
	if d.TrackingSubdomain == was || len(d.TrackingSubdomain)+1+len(d.Name) <= nameMax {
		return nil
	}
	return fault.Invalidf("tracking_subdomain", "The `tracking_subdomain` field is too long: the name of the tracking host "+
		"would have more than %d characters.", nameMax)
}

// checkAbove returns an error if the domain lies below one that is delegated to this installation. The name servers of
// this installation answer for such a name, so its owner cannot install any record there. A delegation that the same
// team has only chosen would make the domain's records disappear later.
func (s *Service) checkAbove(ctx context.Context, r db.Reader, d *Domain) error {
	_, name, _ := strings.Cut(d.Name, ".")
	var above []string
	for ; strings.Contains(name, "."); _, name, _ = strings.Cut(name, ".") {
		above = append(above, name)
	}
	if s.c.DNSZone == "" || len(above) == 0 {
		return nil
	}
	all, err := domainsNamed(ctx, r, above...)
	if err != nil {
		return fmt.Errorf("find the domains above %s: %w", d.Name, err)
	}
	for _, name := range above {
		if parent, ok := all[name]; ok && parent.Served() {
			return fault.Invalidf("name", "The domain `%s` lies below `%s`, which is delegated to this service, so no records "+
				"can be installed for it. Add a domain that is not below `%s`, or change the set-up of `%s` first.", d.Name, name,
				name, name)
		} else if ok && parent.TeamID == d.TeamID && parent.setup() == SetupDelegation && !parent.Placeholder {
			return fault.Invalidf("name", "The domain `%s` lies below `%s`, for which this team has chosen the set-up "+
				"`delegation`: its records would disappear from the DNS. Add a domain that is not below `%s`, or change the "+
				"set-up of `%s` first.", d.Name, name, name, name)
		}
	}
	return nil
}

// reasonBelow returns why the domain cannot be delegated if the team has a domain below it: the records of that one
// would disappear from the DNS. It returns "" if the team has none.
func (s *Service) reasonBelow(ctx context.Context, r db.Reader, d *Domain) (string, error) {
	below, err := domainBelow(ctx, r, d.TeamID, d.Name)
	if err != nil || below == "" {
		return "", err
	}
	return "This team has the domain `" + below + "`, whose records would no longer be found. Delete that domain, or " +
		"choose another set-up.", nil
}
