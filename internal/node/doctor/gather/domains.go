package gather

import (
	"cmp"
	"context"
	"sync"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/node/doctor"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/servedpolicies"
)

// domains looks up the records of the teams' domains, and the domain of notice_from first.
func (c *collector) domains(ctx context.Context) {
	if c.DB == nil || c.Config.TrustDomains || c.DB.CheckProgram(ctx) != nil {
		return // a database that cannot be read has findings of its own
	}
	ctx, cancel := context.WithTimeout(ctx, domainsTime)
	defer cancel()
	found := &doctor.Domains{Only: c.Only}
	c.f.Domains = found
	first, err := c.notices(ctx)
	if err != nil {
		found.Err = err
		return
	}
	s := c.Selection
	s.Limit = cmp.Or(s.Limit, DomainsMax)
	all, more, err := domains.Select(ctx, c.DB.Reader, s)
	if err != nil {
		found.Err = err
		return
	}
	if first != nil && c.Only == "" {
		others := []domains.Domain{*first}
		for _, d := range all {
			if d.ID != first.ID {
				others = append(others, d)
			}
		}
		all = others
	}
	found.More, found.All = more, make([]doctor.Domain, len(all))
	names := teamNames{c: c, known: map[string]string{}}
	slots := make(chan struct{}, domainsAt)
	var wait sync.WaitGroup
	for i := range all {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			found.All[i] = c.domain(ctx, &all[i], &names)
		})
	}
	wait.Wait()
}

// domain looks up the records of a domain.
func (c *collector) domain(ctx context.Context, d *domains.Domain, names *teamNames) doctor.Domain {
	x := doctor.Domain{Name: d.Name, Team: names.of(ctx, d.TeamID)}
	if ctx.Err() != nil {
		x.Late = true
		return x
	}
	x.Records = c.Sources.Domains.LookUp(ctx, c.dns(), d)
	if d.Sending {
		x.DMARC = c.policy(ctx, d.Name)
	}
	// An error of the database has findings of its own.
	x.Policy, _ = servedpolicies.Examine(ctx, c.DB.Reader, d)
	x.Late = ctx.Err() != nil
	return x
}

// teamNames looks up the names of teams, each once.
type teamNames struct {
	c     *collector
	mu    sync.Mutex
	known map[string]string
}

// of returns the name of a team, or its id if the team cannot be read.
func (n *teamNames) of(ctx context.Context, teamID string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if name, ok := n.known[teamID]; ok {
		return name
	}
	name := teamID
	if t, err := teams.FindIn(ctx, n.c.DB.Reader, teamID); err == nil {
		name = t.Name
	}
	n.known[teamID] = name
	return name
}

// notices examines the sender of notices, and returns its domain if there is one.
func (c *collector) notices(ctx context.Context) (*domains.Domain, error) {
	n := &doctor.Notices{From: c.Config.NoticeFrom}
	c.f.Notices = n
	if n.From == "" {
		return nil, nil
	}
	from, err := message.ParseFrom(n.From)
	if err != nil {
		return nil, nil // doctor reports that there is no domain
	}
	n.Domain = from.Domain
	all, _, err := domains.Select(ctx, c.DB.Reader, domains.Selection{Name: n.Domain, Limit: 1})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	d := &all[0]
	n.Found, n.MaySend = true, d.MaySend()
	if t, err := teams.OperatorIn(ctx, c.DB.Reader, c.Config.OperatorTeam); err == nil {
		n.Team, n.Own = t.Name, t.ID == d.TeamID
	}
	if n.Own {
		return d, nil
	}
	return nil, nil
}
