package domains

import (
	"context"
	"slices"
	"strings"
)

// delegationFunc is the type of Deps.Delegation.
type delegationFunc = func(ctx context.Context, name string) ([]string, error)

// lookUpDelegation looks up the delegation of a domain at its parent zone. The delegation counts if at least two of the
// wanted servers are in it, and no others: resolvers would ask the others too, which have no records of the domain.
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
func hideOwnAnswers(d *Domain, found map[string]finding) {
	if d.setup() == SetupDelegation || d.FormerSetup != SetupDelegation {
		return
	}
	answer := absent
	switch found[delegated] {
	case absent:
		return
	case unknown:
		answer = unknown
	}
	for key := range found {
		if key != delegated && key != "caa" {
			found[key] = answer
		}
	}
}

// watchedDelegation returns Deps.Delegation, which may be nil, as part of the look-ups that the watch observes.
func (s *Service) watchedDelegation(w *outageWatch) delegationFunc {
	if s.Delegation == nil {
		return nil
	}
	return func(ctx context.Context, name string) ([]string, error) {
		servers, err := s.Delegation(ctx, name)
		return servers, w.watch(err)
	}
}
