package servedpolicies

import (
	"slices"
	"time"

	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
)

// mergeHosts returns the hosts of a policy after a look-up of the domain's MX records: the installation's own host, the
// hosts that the team named, those of the MX records, and earlier ones that senders may still know. Invalid names are
// left out, because no sender would accept a policy with one. If there are too many hosts, those that the MX records do
// not have any more go first.
func mergeHosts(before []host, own string, mx []resolve.MX, now time.Time) []host {
	all := []host{{Name: own, Seen: db.Micros(now)}}
	add := func(h host) {
		i := slices.IndexFunc(all, func(o host) bool { return o.Name == h.Name })
		switch {
		case i >= 0:
			all[i].Named, all[i].Seen = all[i].Named || h.Named, max(all[i].Seen, h.Seen)
		case len(all) < hostsMax && mtasts.IsHost(h.Name):
			all = append(all, h)
		}
	}
	for _, h := range before {
		if h.Named {
			add(h)
		}
	}
	for _, m := range mx {
		add(host{Name: m.Host, Seen: db.Micros(now)})
	}
	for _, h := range before {
		if !h.Named && h.Seen > db.Micros(now.Add(-keepHost)) {
			add(h)
		}
	}
	// The order must not depend on that of a DNS answer, because each change of the text needs a new id.
	slices.SortFunc(all[1:], func(a, b host) int {
		switch {
		case a.Name < b.Name:
			return -1
		case a.Name > b.Name:
			return 1
		}
		return 0
	})
	return all
}

// nameHosts returns the hosts with exactly the given names marked as named by the team. It adds the names that are
// missing.
func nameHosts(before []host, names []string) []host {
	all := slices.Clone(before)
	for i := range all {
		all[i].Named = slices.Contains(names, all[i].Name)
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(h host) bool { return h.Name == name }) {
			all = append(all, host{Name: name, Named: true})
		}
	}
	return all
}
