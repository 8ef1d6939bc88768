package domains

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/mail/resolve"
)

// delegationFunc is the type of Deps.Delegation, and serversFunc that of Service.lookUpServers.
type (
	delegationFunc = func(ctx context.Context, name string) ([]string, error)
	serversFunc    = func(ctx context.Context, d *Domain) (finding, string)
)

// lookUpDelegation looks up the delegation of a domain at its parent zone. The delegation counts if it names at least
// two of the wanted servers and no others. Resolvers would also ask the others, which have no records of the domain.
func lookUpDelegation(ctx context.Context, delegation delegationFunc, name string, wanted []string) (finding, string) {
	servers, err := delegation(ctx, name)
	for i, s := range servers {
		servers[i] = strings.ToLower(strings.TrimSuffix(s, "."))
	}
	slices.Sort(servers)
	servers = slices.Compact(servers)
	ours := func(server string) bool { return slices.Contains(wanted, server) }
	f := judged(err, func() bool {
		return len(servers) >= nameServersMin && !slices.ContainsFunc(servers, func(s string) bool { return !ours(s) })
	})
	return f, shorten(servers...)
}

// hideOwnAnswers removes findings that come from this installation's own name servers. While a domain is still
// delegated to them, resolvers cannot see the records that its owner has installed for another set-up, and the answers
// of our own servers say nothing about them.
func hideOwnAnswers(d *Domain, found map[string]finding, values map[string]string) {
	if !d.endsDelegation() {
		return
	}
	answer := absent
	switch found[delegationSeen] {
	case absent:
		return
	case unknown:
		answer = unknown
	}
	for key := range found {
		if countsAsHidden(key) {
			found[key] = answer
			delete(values, key)
		}
	}
}

// endsDelegation reports whether the owner of a delegated domain has chosen another set-up.
func (d *Domain) endsDelegation() bool {
	return d.setup() != SetupDelegation && d.FormerSetup == SetupDelegation
}

// HidesRecords reports whether the records of the domain's set-up cannot be seen, because the domain is still delegated
// to this installation.
func (d *Domain) HidesRecords() bool {
	return d.endsDelegation() && d.checks[delegationSeen].Status == Verified
}

// countsAsHidden reports whether a delegation of the domain hides the record with a key. It does not hide itself, and
// CAA records are looked up at the registrable domain.
func countsAsHidden(key string) bool {
	return key != delegated && key != delegationSeen && key != "caa"
}

// storedDelegation returns a function that answers what the last look-up of the domain's delegation has found.
func (c *Config) storedDelegation(d *Domain) delegationFunc {
	return func(context.Context, string) ([]string, error) {
		switch d.checks[delegationSeen].Status {
		case Verified:
			return c.nameServers(d), nil
		case TemporaryFailure, Failed:
			return nil, resolve.ErrNotFound
		}
		return nil, resolve.ErrTemporary
	}
}

// NameServerAnswer is what one of this installation's name servers answers about a domain.
type NameServerAnswer struct {
	Server   string
	NS       []string // the NS records of the domain, lower case, no final dot
	Answered bool     // whether the server answered at all
	Err      error    // why the server gave no NS records
}

// lookUpServers looks up whether this installation's name servers have the zone of a delegated domain. At least two
// servers must have the zone. No server that answers may lack it, because look-ups at that server would fail. The
// finding is never absent, because the owner cannot correct our servers. The second result says which servers do not
// count, and why.
//
// Servers have the zone if they return its NS records, whose names belong to one domain.
func (s *Service) lookUpServers(ctx context.Context, d *Domain) (finding, string) {
	if s.AskServers == nil {
		return present, ""
	}
	wanted := s.c.nameServers(d)
	good, lacks, problems := 0, false, []string{}
	for _, a := range s.AskServers(ctx, d.Name) {
		switch {
		case slices.ContainsFunc(a.NS, func(name string) bool { return slices.Contains(wanted, name) }):
			good++
		case a.Err == nil:
			lacks, problems = true, append(problems, a.Server+" has an earlier zone of "+d.Name)
		default:
			lacks, problems = lacks || a.Answered, append(problems, a.Err.Error())
		}
	}
	if good >= nameServersMin && !lacks {
		return present, ""
	}
	return unknown, cmp.Or(shorten(problems...), "fewer than two answer")
}

// watchedDelegation returns Deps.Delegation with its errors reported to w. It returns nil if Deps.Delegation is nil.
func (s *Service) watchedDelegation(w *outageWatch) delegationFunc {
	if s.Delegation == nil {
		return nil
	}
	return func(ctx context.Context, name string) ([]string, error) {
		servers, err := s.Delegation(ctx, name)
		return servers, w.watch(err)
	}
}
