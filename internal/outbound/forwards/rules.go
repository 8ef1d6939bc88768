package forwards

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

// NewRule is a rule to create. Exactly one of Address and URL is set.
type NewRule struct {
	Local, Address, URL string
	Off                 bool // whether the rule is created switched off
}

// Change is a change of a rule. Nil fields stay as they are.
type Change struct {
	Local   *string
	Enabled *bool
}

// CheckMatch returns the match of a rule, which is a local part or [Any], in the form in which it is stored.
func CheckMatch(local string) (string, error) {
	local = strings.ToLower(strings.TrimSpace(local))
	switch {
	case local == "":
		return "", fault.MissingField("match")
	// A slash is refused, because mail programs may show a text with slashes as a link.
	case len(local) > 64 || !utf8.ValidString(local) || strings.ContainsFunc(local, func(r rune) bool {
		return unicode.IsControl(r) || unicode.IsSpace(r) || strings.ContainsRune(`@<>()[],;:/\"`, r)
	}):
		return "", fault.Invalidf("match", "The `match` field must be the part of an address before the @, such as `sales`, "+
			"or `*` for all addresses.")
	case local != Any && strings.Contains(local, Any):
		return "", fault.Invalidf("match", "The `match` field must be a whole local part, or `*` alone. Patterns such as "+
			"`sales*` are not supported.")
	}
	return local, nil
}

// check checks a new rule for a domain.
func (s *Service) check(in NewRule, d *domains.Domain) (r Rule, err error) {
	r = Rule{ID: id.New(), TeamID: d.TeamID, DomainID: d.ID, Enabled: !in.Off}
	if r.Local, err = CheckMatch(in.Local); err != nil {
		return r, err
	}
	if !d.Receiving {
		return r, fault.Invalidf("domain_id", "The domain %s does not receive mail. Enable its `receiving` capability.",
			d.Name)
	}
	switch {
	case (in.Address == "") == (in.URL == ""):
		return r, fault.Invalidf("address", "Give either the `address` field or the `url` field.")
	case in.URL != "":
		if len(in.URL) > 2000 {
			return r, fault.Invalidf("url", "The `url` field must have at most 2,000 characters.")
		}
		r.URL, err = s.p.CheckURL("url", in.URL)
		r.target = r.URL
		return r, err
	}
	a, err := message.ParseAddress(in.Address)
	switch {
	case err != nil:
		return r, fault.Invalidf("address", "Invalid `address` field. %s", err).Because(err)
	case a.Domain == d.Name:
		return r, fault.Invalidf("address", "The address is at the same domain, so that the mail would go in a circle. Give "+
			"an address at another domain.")
	case s.p.Mail == nil:
		return r, cannotAsk("address")
	}
	r.Address, r.target = a.Addr(), a.Key()
	return r, s.p.Emails.CheckMailable("address", a)
}

// cannotAsk returns the fault of requests that need a confirmation mail, if this installation sends none.
func cannotAsk(field string) error {
	return fault.Invalidf(field, "This installation cannot ask the owner of the address for confirmation. The operator must "+
		"set `notice_from`. Rules with a `url` need no confirmation.")
}

// Create creates a rule, and returns it with its signing secret if it has a URL. A rule with an address waits until the
// owner of the address confirms it; Create enqueues the confirmation mail.
func (s *Service) Create(ctx context.Context, teamID, domainID string, in NewRule) (Rule, error) {
	d, err := s.p.Domains.Get(ctx, teamID, domainID)
	if err != nil {
		return Rule{}, err
	}
	r, err := s.check(in, &d)
	if err != nil {
		return r, err
	}
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		r.ID, r.CreatedAt = id.At(tx.Now()), tx.Now()
		if r.URL != "" {
			if r.Secret, r.secret.Sealed, err = s.secrets().New(r.ID); err != nil {
				return err
			}
		}
		inDomain, inTeam, err := countRules(ctx, tx.Reader, teamID, domainID)
		switch {
		case err != nil:
			return err
		case inDomain >= MaxPerDomain:
			return fault.Invalidf("", "The domain has %d forwarding rules, which is the most. Delete one first.", inDomain)
		case inTeam >= MaxPerTeam:
			return fault.Invalidf("", "The team has %d forwarding rules, which is the most. Delete one first.", inTeam)
		}
		if r.Address != "" {
			if err := s.addTarget(ctx, tx, &r); err != nil {
				return err
			}
		}
		insertRule(ctx, tx, &r)
		s.changed(tx, domainID)
		return nil
	})
	return r, s.taken(err)
}

// taken replaces the error for a second rule with the same match and target.
func (s *Service) taken(err error) error {
	if s.p.DB.Violates(err, ruleIndex) {
		return fault.Invalidf("match", "The domain has a rule with this match and this target. Change that rule instead.").
			Because(err)
	}
	return err
}

// changed tells all nodes that a domain has a rule.
func (s *Service) changed(tx *db.Tx, domainID string) {
	tx.AfterCommit(func() {
		s.mu.Lock()
		delete(s.empty, domainID)
		s.mu.Unlock()
		s.p.DB.Hint(topic, domainID)
	})
}

// addTarget stores the address of a new rule, and enqueues a confirmation mail. Earlier confirmations of the owner do not
// cover the rule.
func (s *Service) addTarget(ctx context.Context, tx *db.Tx, r *Rule) error {
	t, err := lockTarget(ctx, tx, r.TeamID, r.target, r.Address)
	switch {
	case err != nil:
		return err
	case t.state == refused:
		return fault.Forbiddenf("address", "The owner of %s has refused mail that this team forwards. Only the owner can "+
			"change that, with the link in the confirmation mail.", r.Address)
	}
	r.consent, r.agreed = t.state, t.changedAt
	if t.state == confirmed && !r.CreatedAt.After(t.changedAt) { // the clock was set back
		r.CreatedAt = t.changedAt.Add(time.Microsecond)
	}
	r.setAsked(t.askedAt)
	s.insertAsk(ctx, tx, &t)
	return nil
}

// Get returns a rule of a domain.
func (s *Service) Get(ctx context.Context, teamID, domainID, ruleID string) (Rule, error) {
	return getRule(ctx, s.p.DB.Reader, teamID, domainID, ruleID)
}

// List returns a page of a domain's rules, newest first.
func (s *Service) List(ctx context.Context, teamID, domainID string, p page.Page) ([]Rule, bool, error) {
	if _, err := s.p.Domains.Get(ctx, teamID, domainID); err != nil {
		return nil, false, err
	}
	return listRules(ctx, s.p.DB.Reader, teamID, domainID, p)
}

// Update changes a rule. Enabling a rule forgets its failures. The match of a rule with an address can only change from
// [Any], because its owner has agreed to nothing else.
func (s *Service) Update(ctx context.Context, teamID, domainID, ruleID string, c Change) (r Rule, err error) {
	if c.Local != nil {
		local, err := CheckMatch(*c.Local)
		if err != nil {
			return r, err
		}
		c.Local = &local
	}
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		if r, err = getRule(ctx, tx.Reader, teamID, domainID, ruleID); err != nil {
			return err
		}
		if c.Local != nil {
			if r.Address != "" && r.Local != *c.Local && r.Local != Any {
				return fault.Invalidf("match", "The owner of the address is asked about this `match`, which can therefore not "+
					"change. Create another rule, and delete this one.")
			}
			r.Local = *c.Local
		}
		if c.Enabled != nil {
			if *c.Enabled && !r.Enabled {
				r.FailingSince = time.Time{}
			}
			r.Enabled = *c.Enabled
		}
		updateRule(ctx, tx, &r)
		s.changed(tx, domainID)
		return nil
	})
	return r, s.taken(err)
}

// Delete deletes a rule. Messages that were accepted for delivery before are still delivered.
func (s *Service) Delete(ctx context.Context, teamID, domainID, ruleID string) error {
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		if _, err := getRule(ctx, tx.Reader, teamID, domainID, ruleID); err != nil {
			return err
		}
		deleteRule(ctx, tx, teamID, ruleID)
		return nil
	})
}

// Arrived enqueues the forwarding of received emails in the transaction that stores them. If several rules of a team
// have the same target, an email goes there once.
func (s *Service) Arrived(ctx context.Context, tx *db.Tx, all []emails.Arrival) error {
	for _, a := range all {
		rules, err := s.matching(ctx, tx, &a)
		if err != nil {
			return err
		}
		for _, m := range rules {
			p := payload{EmailID: a.EmailID, RuleID: m.rule.ID, For: m.address}
			j := jobs.New{Kind: forwardKind, Lane: a.TeamID, TeamID: a.TeamID, Payload: p.encode()}
			if m.rule.URL != "" {
				j.Kind, j.Lane = callKind, callLane(a.TeamID, m.rule.URL)
			}
			s.p.Queue.Insert(ctx, tx, j)
		}
	}
	return nil
}

// match is a rule with the address for which it matches.
type match struct {
	rule    Rule
	address string
}

// matching returns the enabled rules for an email, at most one per target.
func (s *Service) matching(ctx context.Context, tx *db.Tx, a *emails.Arrival) (all []match, err error) {
	rules := map[string][]Rule{}
	seen := map[string]bool{}
	for _, to := range a.To {
		if s.knownEmpty(to.DomainID) {
			continue
		}
		of, ok := rules[to.DomainID]
		if !ok {
			at := time.Now()
			if of, err = rulesOf(ctx, tx.Reader, a.TeamID, to.DomainID); err != nil {
				return nil, fmt.Errorf("look up the forwarding rules of a domain: %w", err)
			}
			if rules[to.DomainID] = of; len(of) == 0 {
				s.setEmpty(to.DomainID, at)
			}
		}
		local := to.Address
		if at := strings.LastIndexByte(local, '@'); at >= 0 {
			local = local[:at]
		}
		for _, r := range of {
			if !seen[r.target] && r.Matches(local) && (r.State() == Active || r.State() == Failing) {
				seen[r.target] = true
				all = append(all, match{r, to.Address})
			}
		}
	}
	return all, nil
}
