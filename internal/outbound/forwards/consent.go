package forwards

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/visible"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/keyring"
)

// askKind is the kind of the jobs that send confirmation mails. A job's dedupe key is the id of its target.
const askKind = "forwards.ask"

// consent is the answer of the owner of an address, as a number in forward_targets.state.
type consent int16

const (
	asked     consent = 1 // the owner has not answered
	confirmed consent = 2
	refused   consent = 3
)

// target is an address to which a team wants to forward mail.
type target struct {
	id, teamID, key, address string
	state                    consent
	askedAt                  time.Time
	changedAt                time.Time // if confirmed, the answer covers rules created until then
}

// waits reports whether a rule that was created at the given time still needs an answer of the owner.
func (t *target) waits(created time.Time) bool {
	return t.state == asked || t.state == confirmed && created.After(t.changedAt)
}

// Purposes of the tokens in the links of a confirmation mail.
const (
	confirmPurpose = "forward-confirm"
	refusePurpose  = "forward-refuse"
)

func (s *Service) insertAsk(ctx context.Context, tx *db.Tx, t *target) {
	s.p.Queue.Insert(ctx, tx, jobs.New{Kind: askKind, Lane: t.teamID, TeamID: t.teamID, Dedupe: t.id, Payload: t.id})
}

// Ask enqueues another confirmation email for a rule. The email is sent as soon as the limits for its address allow it.
func (s *Service) Ask(ctx context.Context, teamID, domainID, ruleID string) (r Rule, err error) {
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		if r, err = getRule(ctx, tx.Reader, teamID, domainID, ruleID); err != nil {
			return err
		}
		if r.State() != Waiting {
			return fault.Invalidf("", "The rule does not wait for a confirmation: its state is `%s`.", r.State())
		}
		if s.p.Mail == nil {
			return cannotAsk("")
		}
		t, err := lockTarget(ctx, tx, teamID, r.target, r.Address)
		if err != nil {
			return err
		}
		s.insertAsk(ctx, tx, &t)
		return nil
	})
	return r, err
}

// ask handles jobs of the kind askKind.
func (s *Service) ask(ctx context.Context, j jobs.Job) error {
	team, err := s.p.Teams.Get(ctx, j.TeamID)
	if fault.KindOf(err) == fault.NotFound {
		return s.p.Queue.End(ctx, j)
	}
	if err != nil {
		return err
	}
	ready, err := s.mayReceive(ctx, j.TeamID, j.Payload)
	if err != nil {
		return err
	}
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		t, err := targetByID(ctx, tx.Reader, j.TeamID, j.Payload)
		if errors.Is(err, db.ErrNoRows) || err == nil && t.address == "" {
			s.p.Queue.Finish(ctx, tx, j)
			return nil
		}
		if err != nil {
			return err
		}
		domainIDs, err := domainsTo(ctx, tx.Reader, t.teamID, t.key)
		if err != nil {
			return err
		}
		names, newest, err := addressesTo(ctx, tx.Reader, t.teamID, t.key, time.Time{})
		switch {
		case err != nil:
			return err
		case !t.waits(newest) || len(names) == 0 || s.p.Mail == nil:
			s.p.Queue.Finish(ctx, tx, j)
			return nil
		case team.Suspended:
			s.p.Queue.Wait(ctx, tx, j, tx.Now().Add(jobs.Jitter(time.Hour)), "the team is suspended")
			return nil
		case slices.ContainsFunc(domainIDs, func(id string) bool { return !ready[id] }):
			s.p.Queue.Wait(ctx, tx, j, tx.Now().Add(jobs.Jitter(lookAgain(tx.Now().Sub(newest)))),
				"a domain of the rules may not receive yet")
			return nil
		}
		recent, err := asksSince(ctx, tx.Reader, t.teamID, tx.Now().Add(-askEvery))
		if err != nil {
			return err
		}
		if recent >= asksPerDay {
			s.p.Queue.Wait(ctx, tx, j, tx.Now().Add(jobs.Jitter(time.Hour)),
				"the team has sent its daily maximum of confirmation emails")
			return nil
		}
		again, err := claimAsk(ctx, tx, s.askKey(t.key), tx.Now())
		if err != nil {
			return err
		}
		if again.After(tx.Now()) {
			s.p.Queue.Wait(ctx, tx, j, again, "the address got a confirmation email within the last day")
			return nil
		}
		subject, text := s.confirmationMail(team.Name, names, &t, newest, tx.Now())
		if err := s.p.Mail(ctx, tx, t.address, subject, text); err != nil {
			return err
		}
		setAsked(ctx, tx, &t, tx.Now())
		s.p.Queue.Finish(ctx, tx, j)
		return nil
	})
}

// lookAgain returns the time until the next look whether the domains of a target's rules may receive. waited is the age
// of the newest rule: an owner who sets up a domain does it soon after the rule, or much later.
func lookAgain(waited time.Duration) time.Duration {
	return min(max(waited/10, lookFirst), lookLatest)
}

// mayReceive returns which of the domains whose mail a team wants to forward to a target may receive. Strangers are
// asked only about mail that can arrive. Otherwise, a team could have them read the name of a domain that is not its
// own.
func (s *Service) mayReceive(ctx context.Context, teamID, targetID string) (map[string]bool, error) {
	t, err := targetByID(ctx, s.p.DB.Reader, teamID, targetID)
	if errors.Is(err, db.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read a forwarding address: %w", err)
	}
	domainIDs, err := domainsTo(ctx, s.p.DB.Reader, teamID, t.key)
	if err != nil {
		return nil, err
	}
	ready := map[string]bool{}
	for _, id := range domainIDs {
		d, err := s.p.Domains.Get(ctx, teamID, id)
		if err != nil && fault.KindOf(err) != fault.NotFound {
			return nil, err
		}
		ready[id] = err == nil && d.MayReceive()
	}
	return ready, nil
}

// askKey returns the keyed hash that forward_asks stores in place of an address, so that the table contains no personal
// data.
func (s *Service) askKey(key string) string {
	return hex.EncodeToString(s.p.Keys.Tag("forward-ask", []byte(key), 16))
}

// confirmationMail returns the email that asks the owner of an address for consent. names are the addresses whose mail
// is forwarded by rules created until the time until. The link covers only these rules.
func (s *Service) confirmationMail(team string, names []string, t *target, until, now time.Time) (subject, text string) {
	const most = 10
	more := ""
	if len(names) > most {
		more = fmt.Sprintf("\nand %d more.", len(names)-most)
		names = names[:most]
	}
	confirm := s.p.Keys.Sign(confirmPurpose, now.Add(confirmFor), t.teamID, t.id,
		strconv.FormatInt(until.UnixMicro(), 10))
	refuse := s.p.Keys.Sign(refusePurpose, time.Time{}, t.teamID, t.id)
	subject = "Confirm that mail may be forwarded to you"
	text = fmt.Sprintf(`The team “%s” asks to forward mail to %s.

It would be the mail that arrives for:
%s%s

If you agree, open this page within 7 days and press the button:
%s

If you do not agree, you need not do anything: nothing is forwarded to you without your consent. If the team wants to
forward the mail of further addresses, it must ask you again.

-- 
You can refuse at any time, also after you have agreed. This team then cannot ask you again:
%s
`, visible.Show(team), t.address, strings.Join(names, "\n"), more, s.c.PublicURL+"/forwarding/confirm/"+confirm,
		s.c.PublicURL+"/forwarding/refuse/"+refuse)
	return subject, text
}

// Request is what a page about a confirmation shows.
type Request struct {
	Team      string
	Address   string
	Names     []string // the addresses whose mail is forwarded
	Confirmed bool
	Refused   bool

	target target
	until  time.Time // the confirmation email covers rules created until then
}

// ReadConfirm returns the request of a link for confirming. ReadRefuse does so for a link for refusing. Both return a
// NotFound fault if the link is invalid or has expired, or if the team or the address was deleted.
func (s *Service) ReadConfirm(ctx context.Context, token string) (Request, error) {
	parts, err := s.p.Keys.Verify(confirmPurpose, token, s.c.Now())
	if errors.Is(err, keyring.ErrExpired) {
		return Request{}, fault.NotFoundf("This link has expired. Ask the team for another confirmation email.")
	}
	var until int64
	if err == nil && len(parts) == 3 {
		until, err = strconv.ParseInt(parts[2], 10, 64)
		parts = parts[:2]
	}
	if err == nil && until <= 0 {
		parts = nil
	}
	return s.request(ctx, parts, db.Time(until), err)
}

// ReadRefuse returns the request of a link for refusing. The link does not expire.
func (s *Service) ReadRefuse(ctx context.Context, token string) (Request, error) {
	parts, err := s.p.Keys.VerifyLasting(refusePurpose, token)
	return s.request(ctx, parts, time.Time{}, err)
}

func (s *Service) request(ctx context.Context, parts []string, until time.Time, err error) (r Request, _ error) {
	none := fault.NotFoundf("There is nothing at this address.")
	if err != nil || len(parts) != 2 {
		return r, fault.NotFoundf("This link is not complete. Your mail program may have cut it: copy the whole link from " +
			"the email into the address bar. If that does not help, ask the team for another confirmation email.")
	}
	team, err := s.p.Teams.Get(ctx, parts[0])
	if fault.KindOf(err) == fault.NotFound {
		return r, none
	}
	if err != nil {
		return r, err
	}
	t, err := targetByID(ctx, s.p.DB.Reader, parts[0], parts[1])
	if errors.Is(err, db.ErrNoRows) || err == nil && t.address == "" { // an erased address
		return r, none
	}
	if err != nil {
		return r, fmt.Errorf("read a forwarding address: %w", err)
	}
	r = Request{Team: team.Name, Address: t.address, Confirmed: t.state == confirmed && !until.After(t.changedAt),
		Refused: t.state == refused, target: t, until: until}
	r.Names, _, err = addressesTo(ctx, s.p.DB.Reader, t.teamID, t.key, until)
	return r, err
}

// Confirm stores that the owner of the address agrees to the rules in the confirmation email. The request comes from
// ReadConfirm.
func (s *Service) Confirm(ctx context.Context, r Request) error {
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		setConsent(ctx, tx, &r.target, confirmed, r.until)
		return nil
	})
}

// Refuse stores that the owner of the address does not agree. Afterwards, the team cannot ask the owner again.
func (s *Service) Refuse(ctx context.Context, r Request) error {
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		setConsent(ctx, tx, &r.target, refused, tx.Now())
		return nil
	})
}

// Sweep deletes old times of confirmation emails, and addresses without rules whose owners have not refused.
func (s *Service) Sweep(ctx context.Context) error {
	if err := sweepAsks(ctx, s.p.DB, s.c.Now().Add(-2*askEvery)); err != nil {
		return fmt.Errorf("delete old confirmations of forwarding: %w", err)
	}
	return nil
}
