package domains

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
)

// Selection selects the domains of a survey. At most one of TeamID and Name is set.
type Selection struct {
	TeamID string // domains of one team
	Name   string // the domain with this name, in any state
	Limit  int    // maximum number of domains
}

// Select returns the domains of all teams whose records must be in the DNS, because they were verified once and have
// not failed for good since. Domains that were looked up longest ago come first. The second result is whether there are
// more than Limit. Select needs no Service, so that a command can call it without the secret key.
func Select(ctx context.Context, r db.Reader, s Selection) ([]Domain, bool, error) {
	if s.Name != "" {
		d, err := domainOwned(ctx, r, s.Name)
		if fault.KindOf(err) == fault.NotFound {
			return nil, false, nil
		}
		return []Domain{d}, false, err
	}
	all, err := establishedDomains(ctx, r, s.TeamID, s.Limit+1)
	if err != nil {
		return nil, false, fmt.Errorf("read the domains of all teams: %w", err)
	}
	if len(all) > s.Limit {
		return all[:s.Limit], true, nil
	}
	return all, false, nil
}

// LookUp looks up the domain's records now, and stores nothing. A delegation has its stored status, because a resolver
// cannot see it at the parent zone. The status of a record is Verified if it was found, and Failed if it was not. If no
// name server answered, Unanswered is set, and Status is the stored one.
func (c *Config) LookUp(ctx context.Context, r resolve.Resolver, d *Domain) []Record {
	servers := func(context.Context, *Domain) (finding, string) { return unknown, "" }
	found, values := lookUp(ctx, c, r, c.storedDelegation(d), servers, d)
	all := c.Records(d)
	for i := range all {
		rec := &all[i]
		if rec.Key == delegated {
			continue
		}
		rec.Found, rec.Unanswered = "", false
		switch found[rec.Key] {
		case present, needless:
			rec.Status = Verified
		case absent:
			rec.Status, rec.Found = Failed, values[rec.Key]
		default:
			rec.Unanswered = true
		}
	}
	return all
}
