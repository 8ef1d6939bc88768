package apply

import (
	"context"
	"iter"
	"net/url"
	"strings"

	"github.com/postrider/postrider/client"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/outbound/forwards"
	"github.com/postrider/postrider/internal/sending/domains"
)

// arrow separates the two parts of a rule's natural name, such as sales@in.acme.example -> bob@elsewhere.net.
const arrow = " -> "

// forwardSpec is a forwarding rule in a file. Its natural name has its match, its domain and its target.
type forwardSpec struct {
	Enabled *bool `toml:"enabled"`

	local, domain, address, url string
}

func (s *forwardSpec) read(name, _ string) (string, []error) {
	from, to, ok := strings.Cut(name, arrow)
	local, domain, isAddress := strings.Cut(strings.TrimSpace(from), "@")
	if to = strings.TrimSpace(to); !ok || !isAddress || to == "" {
		return name, faults(fault.Invalidf("match", "The name of the table must be such as "+
			"`sales@in.acme.example -> bob@elsewhere.net`."))
	}
	local, err := forwards.CheckMatch(local)
	all := faults(err)
	d := domains.NewDomain{Name: domain}
	if domain, err = d.Check(); err != nil {
		all = append(all, err)
	}
	s.local, s.domain = local, domain
	if u, err := url.Parse(to); err == nil && u.Host != "" {
		s.url = u.String()
		return forwardName(local, domain, s.url), all
	}
	a, err := message.ParseAddress(to)
	if err != nil {
		return name, append(all, fault.Invalidf("address", "Invalid target. %s", err))
	}
	s.address = a.Addr()
	return forwardName(local, domain, a.Key()), all
}

// forwardName returns the natural name of a rule.
func forwardName(local, domain, target string) string { return local + "@" + domain + arrow + target }

func (s *forwardSpec) references() []reference { return []reference{{"domain", "domains", s.domain}} }

func (s *forwardSpec) differences(ctx context.Context, t *team, id string) ([]Difference, error) {
	domainID, _ := t.idOf("domains", s.domain)
	// The list has no secrets. Reading a single rule needs the scope for changes, and is recorded in the audit log.
	for f, err := range t.api.Domains.AllForwards(ctx, domainID, client.Page{}) {
		if err != nil {
			return nil, err
		}
		if f.ID == id {
			return compare(nil, "enabled", s.Enabled, f.Enabled), nil
		}
	}
	return nil, nil
}

// create creates the rule. If another run created it at the same time, the result is that rule.
func (s *forwardSpec) create(ctx context.Context, t *team, name string, _ ...client.RequestOption) (made, error) {
	domainID, _ := t.idOf("domains", s.domain)
	f, err := t.api.Domains.CreateForward(ctx, domainID, client.CreateForward{Match: s.local, Address: s.address,
		URL: s.url, Enabled: s.Enabled})
	if err != nil {
		for other, listErr := range forwardsOf(ctx, t.api, domainID, s.domain) {
			if listErr == nil && other.name == name {
				secret, err := forwardSecret(ctx, t.api, other.id, name)
				return made{id: other.id, secret: secret}, err
			}
		}
		return made{}, err
	}
	m := made{id: f.ID, secret: deref(f.SigningSecret)}
	if f.State == string(forwards.Waiting) {
		m.note = "The owner of " + s.address + " must open the link in the confirmation mail before mail is forwarded."
	}
	return m, nil
}

func (s *forwardSpec) update(ctx context.Context, t *team, id, _ string, changes []Difference) error {
	domainID, _ := t.idOf("domains", s.domain)
	_, err := t.api.Domains.UpdateForward(ctx, domainID, id, client.UpdateForward{
		Enabled: set(changes, "enabled", s.Enabled), Match: newName(changes, s.local)})
	return err
}

// listForwards lists the rules of all domains.
func listForwards(ctx context.Context, c *client.Client) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		for d, err := range c.Domains.All(ctx, client.Page{}) {
			if err != nil {
				yield(entry{}, err)
				return
			}
			for e, err := range forwardsOf(ctx, c, d.ID, d.Name) {
				if !yield(e, err) {
					return
				}
			}
		}
	}
}

// forwardsOf lists the rules of a domain.
func forwardsOf(ctx context.Context, c *client.Client, domainID, domain string) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		for f, err := range c.Domains.AllForwards(ctx, domainID, client.Page{}) {
			target := deref(f.URL)
			if a, err := message.ParseAddress(deref(f.Address)); err == nil {
				target = a.Key()
			}
			if !yield(entry{id: f.ID, name: forwardName(f.Match, domain, target)}, err) || err != nil {
				return
			}
		}
	}
}

// forwardDomain returns the id of the domain in the name of a rule, or "" if the team has no such domain.
func forwardDomain(ctx context.Context, c *client.Client, name string) (string, error) {
	from, _, _ := strings.Cut(name, arrow)
	for d, err := range c.Domains.All(ctx, client.Page{}) {
		if err != nil {
			return "", err
		}
		if strings.HasSuffix(from, "@"+d.Name) {
			return d.ID, nil
		}
	}
	return "", nil
}

// removeForward deletes a rule, which it finds in the domain that its name has.
func removeForward(ctx context.Context, c *client.Client, id, name string) error {
	domainID, err := forwardDomain(ctx, c, name)
	if err != nil || domainID == "" {
		return err
	}
	if _, err = c.Domains.DeleteForward(ctx, domainID, id); client.IsNotFound(err) {
		err = nil
	}
	return err
}

// forwardSecret returns the secret with which the requests of a rule are signed, or "" if the rule has an address.
func forwardSecret(ctx context.Context, c *client.Client, id, name string) (string, error) {
	domainID, err := forwardDomain(ctx, c, name)
	if err != nil || domainID == "" {
		return "", err
	}
	f, err := c.Domains.GetForward(ctx, domainID, id)
	if err != nil {
		return "", err
	}
	return deref(f.SigningSecret), nil
}
