package node

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/mail/tlsrpt"
	"github.com/postrider/postrider/internal/outbound/alarms"
	"github.com/postrider/postrider/internal/sending/delivery"
)

const (
	brokenDomains  = 1000 // maximum number of recipient domains with a count
	brokenSessions = 20   // failed sessions after which an alarm names the domain
	brokenFor      = time.Hour
	brokenShown    = 5 // domains in the text of an alarm
)

// brokenPolicies counts failed sessions per recipient domain: those that an enforced MTA-STS policy or TLSA records did
// not allow. A successful session, or an hour without a failure, removes the count of a domain. The counts are in
// memory. If brokenDomains domains have a count, further domains are not counted.
type brokenPolicies struct {
	mu      sync.Mutex
	domains map[string]brokenPolicy
}

type brokenPolicy struct {
	failed int
	kind   tlsrpt.PolicyType
	last   time.Time
}

// count adds a failed session to the count of its domain. A successful session removes the count.
func (b *brokenPolicies) count(x delivery.Session, now time.Time) {
	if x.Domain == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if x.Result == "" {
		delete(b.domains, x.Domain)
		return
	}
	enforced := x.Policy.Type == tlsrpt.TLSA ||
		x.Policy.Type == tlsrpt.STS && slices.Contains(x.Policy.Strings, "mode: "+string(mtasts.Enforce))
	if !enforced {
		return
	}
	b.forget(now)
	p, known := b.domains[x.Domain]
	if !known && len(b.domains) >= brokenDomains {
		return
	}
	if b.domains == nil {
		b.domains = map[string]brokenPolicy{}
	}
	b.domains[x.Domain] = brokenPolicy{p.failed + 1, x.Policy.Type, now}
}

// forget removes the counts of domains without a recent failure. The caller holds mu.
func (b *brokenPolicies) forget(now time.Time) {
	maps.DeleteFunc(b.domains, func(_ string, p brokenPolicy) bool { return now.Sub(p.last) >= brokenFor })
}

// broken returns the domains with at least brokenSessions failed sessions, sorted by name, with the kinds of their
// policies.
func (b *brokenPolicies) broken(now time.Time) (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(now)
	for domain, p := range b.domains {
		switch {
		case p.failed >= brokenSessions && p.kind == tlsrpt.TLSA:
			all = append(all, domain+" (DANE)")
		case p.failed >= brokenSessions:
			all = append(all, domain+" (MTA-STS)")
		}
	}
	slices.Sort(all)
	return all
}

// policiesCondition returns the condition of the alarm about recipient domains whose policies stop mail of this node.
func (n *Node) policiesCondition(now time.Time) alarms.Condition {
	all := n.broken.broken(now)
	text := "No policy of a recipient domain stops mail from " + n.Config.Hostname + "."
	if len(all) > 0 {
		text = fmt.Sprintf("On %s, the mail to %d domains waits, because their mail hosts do not satisfy their own policies: "+
			"%s.", n.Config.Hostname, len(all), strings.Join(all[:min(len(all), brokenShown)], ", "))
		if more := len(all) - brokenShown; more > 0 {
			text = strings.TrimSuffix(text, ".") + fmt.Sprintf(" and %d more.", more)
		}
		text += " `postrider explain ID` shows what is wrong. The owners of the domains must fix it. If many domains fail, " +
			"check the clock and the DNS servers of this machine."
	}
	return alarms.Condition{Cause: "policies", Node: n.Config.Hostname, Bad: len(all) > 0, Good: len(all) == 0,
		Title: "policies of recipient domains stop mail", Text: text}
}
