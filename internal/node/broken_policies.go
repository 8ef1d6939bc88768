package node

import (
	"fmt"
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
	brokenDomains  = 1000 // recipients' domains that are counted at a time
	brokenSessions = 20   // failed sessions from which on the operator is told of a domain
	brokenFor      = time.Hour
	brokenShown    = 5 // domains in the text of an alarm
)

// brokenPolicies counts the sessions that a recipient domain's enforced policy, or its TLSA records, did not allow. A
// session that succeeds ends the count of its domain, and so does an hour without a failure. The counts are in memory and
// bounded: while there are too many domains, further ones are not counted.
type brokenPolicies struct {
	mu      sync.Mutex
	domains map[string]brokenPolicy
}

type brokenPolicy struct {
	failed int
	kind   tlsrpt.PolicyType
	last   time.Time
}

// count counts a session.
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
	p, known := b.domains[x.Domain]
	if !enforced || !known && len(b.domains) >= brokenDomains {
		return
	}
	if b.domains == nil {
		b.domains = map[string]brokenPolicy{}
	}
	b.domains[x.Domain] = brokenPolicy{p.failed + 1, x.Policy.Type, now}
}

// broken returns the domains to which many sessions failed, in order of their names, with the kinds of their policies. It
// forgets domains without a recent failure.
func (b *brokenPolicies) broken(now time.Time) (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for domain, p := range b.domains {
		switch {
		case now.Sub(p.last) >= brokenFor:
			delete(b.domains, domain)
		case p.failed >= brokenSessions && p.kind == tlsrpt.TLSA:
			all = append(all, domain+" (DANE)")
		case p.failed >= brokenSessions:
			all = append(all, domain+" (MTA-STS)")
		}
	}
	slices.Sort(all)
	return all
}

// policiesCondition is about recipient domains whose policies stop mail of this node.
func (n *Node) policiesCondition(now time.Time) alarms.Condition {
	all := n.broken.broken(now)
	text := "No policy of a recipient's domain stops much mail of " + n.Config.Hostname + "."
	if len(all) > 0 {
		text = fmt.Sprintf("On %s, the mail to %d domains waits, because their mail hosts do not satisfy their own policies: "+
			"%s.", n.Config.Hostname, len(all), strings.Join(all[:min(len(all), brokenShown)], ", "))
		if more := len(all) - brokenShown; more > 0 {
			text = strings.TrimSuffix(text, ".") + fmt.Sprintf(" and %d more.", more)
		}
		text += " `postrider explain ID` shows what is wrong. The owners of the domains must mend it. If many domains fail, " +
			"look at the clock and the DNS servers of this machine."
	}
	return alarms.Condition{Cause: "policies", Node: n.Config.Hostname, Bad: len(all) > 0, Good: len(all) == 0,
		Title: "policies of recipients' domains stop mail", Text: text}
}
