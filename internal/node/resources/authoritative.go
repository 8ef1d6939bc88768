package resources

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/mail/authority"
	"github.com/postrider/postrider/internal/sending/domains"
)

// aliasesMax is the maximum number of zones whose servers are queried for a DKIM record behind aliases.
const aliasesMax = 4

// authoritativeTXT returns a function that queries all authoritative servers of a name for its TXT records. If all
// answers contain the same alias, the function queries the servers of its target instead. The TTL of an answer is at
// least that of its aliases.
func authoritativeTXT(client *authority.Client) func(ctx context.Context, name string) ([]domains.ServerAnswer, error) {
	return func(ctx context.Context, name string) (all []domains.ServerAnswer, err error) {
		var aliasTTL time.Duration
		for range aliasesMax {
			answers, err := client.Ask(ctx, name, "TXT")
			if err != nil {
				return nil, err
			}
			target, ttl := commonAlias(answers)
			if aliasTTL = max(aliasTTL, ttl); target == "" {
				return serverAnswers(answers, aliasTTL), nil
			}
			name = target
		}
		return nil, nil
	}
}

// commonAlias returns the alias target that all servers that answer have in common, with the TTL of the aliases. If
// their targets differ, or a server returned records, target is "".
func commonAlias(answers []authority.Answer) (target string, ttl time.Duration) {
	for _, a := range answers {
		if !a.Definite() {
			continue
		}
		if len(a.Aliases) == 0 || len(a.Records) > 0 {
			return "", 0
		}
		last := a.Aliases[len(a.Aliases)-1].Value
		if target != "" && target != last {
			return "", 0
		}
		target = last
		for _, alias := range a.Aliases {
			ttl = max(ttl, time.Duration(alias.TTL)*time.Second)
		}
	}
	return target, ttl
}

// askServers asks the name servers of this installation for the NS records of a domain. They are asked at the addresses
// of the settings, so a guard against private addresses does not apply.
func askServers(client *authority.Client,
	servers []NameServer) func(context.Context, string) []domains.NameServerAnswer {
	return func(ctx context.Context, domain string) []domains.NameServerAnswer {
		all := make([]domains.NameServerAnswer, len(servers))
		var wait sync.WaitGroup
		for i, s := range servers {
			wait.Go(func() {
				a := client.AskAddrs(ctx, s.Name, s.Addrs, domain, "NS")
				all[i] = domains.NameServerAnswer{Server: s.Name, Err: a.Err,
					Answered: a.Outcome != authority.Silent && a.Outcome != authority.NoAddress}
				if a.Err == nil && a.Outcome != authority.Found {
					all[i].Err = fmt.Errorf("%s has no zone of %s", s.Name, domain)
				}
				for _, r := range a.Records {
					if a.Outcome == authority.Found {
						all[i].NS = append(all[i].NS, r.Value)
					}
				}
			})
		}
		wait.Wait()
		return all
	}
}

func serverAnswers(answers []authority.Answer, aliasTTL time.Duration) (all []domains.ServerAnswer) {
	for _, a := range answers {
		one := domains.ServerAnswer{Server: a.Server, TTL: max(time.Duration(a.TTL)*time.Second, aliasTTL), Err: a.Err}
		for _, r := range a.Records {
			one.Texts = append(one.Texts, r.Value)
		}
		for _, alias := range a.Aliases {
			one.TTL = max(one.TTL, time.Duration(alias.TTL)*time.Second)
		}
		all = append(all, one)
	}
	return all
}
