package domains

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/publicsuffix"

	"github.com/postrider/postrider/internal/mail/dnstext"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/spf"
)

// lookUpMax is the time limit for looking up all records for a domain.
const lookUpMax = 15 * time.Second

// lookUp queries DNS for all records of a domain, and of its former set-up, concurrently. If a query gets no answer
// within lookUpMax, the finding for its record is unknown. The second result holds the values that the queries
// returned, as [shorten] makes them. The parameter delegation is that of Deps; if it is nil, delegations have no
// findings. The parameter servers is [Service.lookUpServers].
func lookUp(ctx context.Context, c *Config, r resolve.Resolver, delegation delegationFunc, servers serversFunc,
	d *Domain) (map[string]finding, map[string]string) {
	ctx, cancel := context.WithTimeout(ctx, lookUpMax)
	defer cancel()
	found, values := map[string]finding{}, map[string]string{}
	var mu sync.Mutex
	var all sync.WaitGroup
	ask := func(key string, look func() (f finding, value string, counts bool)) {
		all.Go(func() {
			f, value, counts := look()
			mu.Lock()
			defer mu.Unlock()
			if counts {
				found[key], values[key] = f, value
			}
		})
	}
	for _, rec := range c.recordsInUse(d) {
		if rec.Key != "caa" && rec.Key != delegated {
			ask(rec.Key, func() (finding, string, bool) {
				f, value := lookUpOne(ctx, r, rec)
				return f, value, true
			})
		}
	}
	if d.uses(SetupDelegation) && delegation != nil {
		all.Go(func() {
			seen, value := lookUpDelegation(ctx, delegation, d.Name, c.nameServers(d))
			f, problem := seen, ""
			// A verified domain goes on working while name servers fail, so they are asked only before.
			if seen == present && !d.found(delegated) {
				f, problem = servers(ctx, d)
			}
			mu.Lock()
			defer mu.Unlock()
			found[delegationSeen], values[delegationSeen] = seen, problem
			found[delegated], values[delegated] = f, value
		})
	}
	if d.TrackingSubdomain != "" && d.setup() != SetupDelegation {
		ask("caa", func() (finding, string, bool) { return lookUpCAA(ctx, c, r, d) })
	}
	all.Wait()
	hideOwnAnswers(d, found, values)
	return found, values
}

// lookUpOne queries DNS for a record. The second result holds the values that the query returned. For SPF, it leaves
// out the TXT records that have other purposes.
func lookUpOne(ctx context.Context, r resolve.Resolver, rec Record) (finding, string) {
	switch rec.Type {
	case "MX":
		all, err := r.MX(ctx, rec.FQDN)
		return judged(err, func() bool { return hasMX(all, rec.Value, rec.Kind == "Receiving") }), shortenMX(all)
	case "CNAME":
		host, err := r.CNAME(ctx, rec.FQDN)
		host = strings.TrimSuffix(host, ".")
		return judged(err, func() bool { return strings.EqualFold(host, rec.Value) }), shorten(host)
	}
	all, err := r.TXT(ctx, rec.FQDN)
	f := judged(err, func() bool {
		return slices.ContainsFunc(all, func(text string) bool {
			if rec.Kind == "SPF" {
				return dnstext.SameInclude(text, rec.Value)
			}
			return dnstext.SameKey(text, rec.Value)
		})
	})
	if rec.Kind == "SPF" {
		all = slices.DeleteFunc(slices.Clone(all), func(text string) bool { return !spf.IsRecord(dnstext.Unquote(text)) })
	}
	return f, shorten(all...)
}

func judged(err error, ok func() bool) finding {
	switch {
	case errors.Is(err, resolve.ErrNotFound):
		return absent
	case err != nil:
		return unknown
	case ok():
		return present
	}
	return absent
}

// hasMX reports whether host is among the MX records. If best is true, hasMX also requires that no other MX record has
// a better preference than the host's.
func hasMX(all []resolve.MX, host string, best bool) bool {
	i := slices.IndexFunc(all, func(m resolve.MX) bool { return strings.EqualFold(m.Host, host) })
	if i < 0 {
		return false
	}
	return !best || !slices.ContainsFunc(all, func(m resolve.MX) bool { return m.Pref < all[i].Pref })
}

// lookUpCAA looks up which certificate authorities may issue certificates for the registrable domain. If CAA records
// exist, they must include the configured issuer, so that links can be served with TLS. If no CAA records exist,
// lookUpCAA returns the finding needless. If lookUpCAA returns counts == false, the caller must ignore the finding. A
// failed query counts only if the record was needed before.
func lookUpCAA(ctx context.Context, c *Config, r resolve.Resolver, d *Domain) (f finding, value string, counts bool) {
	root, err := publicsuffix.EffectiveTLDPlusOne(d.Name)
	if err != nil || c.CAAIssuer == "" {
		return needless, "", true
	}
	all, err := r.CAA(ctx, root)
	if err != nil && !errors.Is(err, resolve.ErrNotFound) {
		_, known := d.checks["caa"]
		return unknown, "", known
	}
	if len(all) == 0 {
		return needless, "", true
	}
	var texts []string
	for _, rec := range all {
		if issuer, _, _ := strings.Cut(rec.Value, ";"); rec.Tag == "issue" && strings.TrimSpace(issuer) == c.CAAIssuer {
			return present, "", true
		}
		texts = append(texts, fmt.Sprintf("%d %s %q", rec.Flag, rec.Tag, rec.Value))
	}
	return absent, shorten(texts...), true
}
