package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/outbound/alarms"
	"github.com/postrider/postrider/internal/sending/delivery"
)

// validator is a resolver that can say which of its servers validate signatures.
type validator interface {
	MayBelieve() bool
	Believes(ctx context.Context) (works bool, servers []resolve.Belief)
	Counts() resolve.Counts
}

// obeysDANE reports whether deliveries look up TLSA records.
func (n *Node) obeysDANE() bool {
	v, ok := n.DNS.(validator)
	return n.Config.DANE && ok && v.MayBelieve()
}

// wantsDNSSEC reports whether the settings ask for a DNS server that validates signatures.
func (n *Node) wantsDNSSEC() bool { return n.Config.DANE && n.Config.Transport == delivery.Direct }

// These are the failures of the check dnssec. Those who see them are strangers, so they name no server.
var (
	errNotValidating = errors.New("no DNS server validates signatures (DNSSEC), so TLSA records (DANE) have no effect")
	errSilent        = errors.New("the DNS server that validates signatures (DNSSEC) does not answer as it should, so emails wait")
)

// secureLookUps returns the numbers of look-ups for DANE, by outcome.
func (n *Node) secureLookUps() map[string]int64 {
	var c resolve.Counts
	if v, ok := n.DNS.(validator); ok {
		c = v.Counts()
	}
	all := map[string]int64{"lapsed": int64(c.Lapsed)}
	for outcome, count := range map[resolve.Outcome]uint64{resolve.OutcomeSecure: c.Secure, resolve.OutcomeAbsent: c.Absent,
		resolve.OutcomeInsecure: c.Insecure, resolve.OutcomeBogus: c.Bogus, resolve.OutcomeFailed: c.Failed} {
		all[string(outcome)] = int64(count)
	}
	return all
}

// checkDNSSEC is a check of /readyz. It also decides which servers the look-ups for DANE believe until the next check.
// A server that the operator did not name is optional: if it never validates signatures, the check passes. If such a
// server stops validating, the check fails, because the mail to some hosts has lost its protection, or waits.
func (n *Node) checkDNSSEC(ctx context.Context) error {
	if !n.obeysDANE() {
		return nil
	}
	works, servers := n.DNS.(validator).Believes(ctx)
	if works {
		n.dnssecWorked.Store(true)
	}
	err := dnssecProblem(works, servers, len(n.Config.DNSSECResolvers) > 0 || n.dnssecWorked.Load())
	defer n.dnssecChecked.Store(true)
	if err == nil {
		n.dnssecProblem.Store(nil)
		return nil
	}
	var found []string
	for _, s := range servers {
		switch {
		case s.Err != nil:
			found = append(found, fmt.Sprintf("%s: %v", s.Server, s.Err))
		case !s.Authentic:
			found = append(found, s.Server+" does not mark a signed answer as authenticated")
		}
	}
	text := err.Error() + ": " + strings.Join(found, "; ")
	if old := n.dnssecProblem.Swap(&text); old == nil || *old != text {
		n.Log.Error("look-ups for DANE find no authenticated answers", "problem", text)
	}
	return err
}

// dnssecProblem returns what a self-check found wrong, or nil. The parameter missed says that servers that validate are
// missed: the operator named them, or one has validated since the start of this node.
func dnssecProblem(works bool, servers []resolve.Belief, missed bool) error {
	answers := slices.ContainsFunc(servers, func(s resolve.Belief) bool { return s.Err == nil })
	standing := slices.ContainsFunc(servers, func(s resolve.Belief) bool { return s.Believed })
	switch {
	case works:
		return nil
	case standing, missed && !answers:
		return errSilent
	case missed:
		return errNotValidating
	}
	return nil
}

// lookUpsToJudge is the number of look-ups for DANE after which at least one should be authenticated, wherever the mail
// goes: about one of twenty domains is signed, and so are the mail hosts of large providers.
const lookUpsToJudge = 1000

// findsNothing reports whether so many look-ups found only insecure answers that the server, and not the domains, must
// be the reason. The check dnssec does not fail for a server that nobody named, but its operator should know.
func findsNothing(c resolve.Counts) bool {
	return c.Insecure >= lookUpsToJudge && c.Secure == 0 && c.Absent == 0
}

// dnssecCondition is about the DNS servers that validate signatures.
func (n *Node) dnssecCondition() alarms.Condition {
	var c resolve.Counts
	if v, ok := n.DNS.(validator); ok {
		c = v.Counts()
	}
	node, problem, worked := n.Config.Hostname, n.dnssecProblem.Load(), n.dnssecWorked.Load()
	nothing := !worked && findsNothing(c)
	text := "Look-ups for DANE find authenticated answers on " + node + "."
	switch {
	case problem != nil:
		text = fmt.Sprintf("On %s, %s. Correct the server, for example unbound on the same machine, or name another one in "+
			"dnssec_resolvers.", node, *problem)
	case nothing:
		text = fmt.Sprintf("On %s, none of %d look-ups for DANE found an authenticated answer, so TLSA records have no effect. "+
			"Install a DNS server that validates signatures, for example unbound on the same machine, name one in "+
			"dnssec_resolvers, or set dane = false.", node, c.Insecure)
	}
	return alarms.Condition{Cause: "dnssec", Node: node, Bad: problem != nil || nothing,
		Good:  problem == nil && n.dnssecChecked.Load() && (worked || c.Secure+c.Absent > 0),
		Title: "no DNS server validates signatures", Text: text}
}
