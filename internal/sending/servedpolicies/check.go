package servedpolicies

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/domains"
)

const (
	checkBatch   = 100
	checkWorkers = 8
	checkTime    = 4 * time.Minute  // of one run
	lookUpTime   = 10 * time.Second // of the look-ups of one domain
	fetchTime    = 30 * time.Second
	// retryCheck is the time after which a check is repeated that was interrupted.
	retryCheck = 10 * time.Minute
)

// Check checks the policies whose check is due. The caller runs Check each minute, on one node at a time.
func (s *Service) Check(ctx context.Context) error {
	for began := time.Now(); time.Since(began) < checkTime; {
		due, err := s.due(ctx, s.c.Now(), checkBatch)
		if err != nil || len(due) == 0 {
			return err
		}
		group, within := errgroup.WithContext(ctx)
		group.SetLimit(checkWorkers)
		for _, p := range due {
			group.Go(func() error { return s.checkOne(within, p) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// checkOne checks a policy. It first postpones the next check, so that a failure does not leave the policy due.
func (s *Service) checkOne(ctx context.Context, p *row) error {
	postponed := s.c.Now().Add(retryCheck)
	if ok, err := s.postpone(ctx, p, postponed); err != nil || !ok {
		return err
	}
	d, err := s.p.Domains.Get(ctx, p.TeamID, p.DomainID)
	deleted := fault.KindOf(err) == fault.NotFound
	if err != nil && !deleted {
		return err
	}
	ended := p.mode() == Off && p.LeadsHere // only its record is checked
	if deleted || d.Placeholder || !d.Receiving && !ended {
		return s.end(ctx, p, deleted)
	}
	var f findings
	active := p.mode() != Off && d.MayReceive()
	switch {
	case active:
		if f, err = s.lookUp(ctx, &d, p); err != nil {
			return err
		}
	case p.mode() == Off:
		f.record = s.findRecord(ctx, d.Name, p)
	}
	f.postponed = postponed
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.p.DB.Update(ctx, func(tx *db.Tx) error { return s.conclude(ctx, tx, &d, f, active) })
}

// conclude stores the outcome of a check. The policy may have changed since the look-ups.
func (s *Service) conclude(ctx context.Context, tx *db.Tx, d *domains.Domain, f findings, active bool) error {
	if err := lock(ctx, tx, d.ID); err != nil {
		return err
	}
	p, err := find(ctx, tx.Reader, d.TeamID, d.ID)
	if err != nil || p == nil {
		return err
	}
	now := s.c.Now()
	if p.mode() == Off && !now.Before(p.ObsoleteAt) {
		remove(ctx, tx, p)
		s.changed(tx, d.ID)
		return nil
	}
	before, checked := p.recordID(now), p.CheckedAt
	if p.mode() != Off || f.record.known {
		p.CheckedAt = now
	}
	if p.mode() == Off {
		p.judgeEnding(d, f.record, now)
	} else if active {
		if f.mxKnown {
			p.Hosts = mergeHosts(p.Hosts, s.inboundHost(d), f.mx, now)
		}
		p.Watch.note(f.record)
		// The owner of a delegated domain has nothing to publish, but caches of the DNS have the former id for a while.
		if p.renew(now, p.mayBeKnown(d, f.record)) && d.Served() {
			p.allowTime()
		}
		p.LeadsHere = f.leadsHere
		if problems, ok := p.judge(d, &f, s.c.PublicHost, now); ok {
			if err := s.tell(ctx, tx, d, p, problems, now); err != nil {
				return err
			}
		}
	}
	if db.Micros(p.CheckAt) == db.Micros(f.postponed) { // no other check was requested meanwhile
		p.CheckAt = p.nextCheck(now)
	}
	// The zones of the installation's name servers have the id, which changes without a change of the row.
	if now := p.recordID(now); now != before || now != p.recordID(checked) {
		s.changed(tx, d.ID)
	}
	return save(ctx, tx, p)
}

// end withdraws the policy of a domain that was deleted or does not receive any more. The host of a policy that was
// never checked is looked up first, because senders may have found the policy.
func (s *Service) end(ctx context.Context, p *row, deleted bool) error {
	if !p.LeadsHere && p.CheckedAt.IsZero() && !s.c.TrustRecords {
		within, cancel := context.WithTimeout(ctx, lookUpTime)
		defer cancel()
		if leads, err := s.leadsHere(within, mtasts.HostName(p.Name)); err == nil && leads {
			if err := s.noteHost(ctx, p); err != nil {
				return fmt.Errorf("store that mta-sts.%s leads here: %w", p.Name, err)
			}
		}
	}
	return s.p.DB.Update(ctx, func(tx *db.Tx) error { return s.withdraw(ctx, tx, p.TeamID, p.DomainID, deleted) })
}

// withdraw replaces the policy of a domain that was deleted or does not receive any more by one of mode none, and deletes
// that when no sender can have an earlier one. A policy that no sender has ever found is deleted at once.
func (s *Service) withdraw(ctx context.Context, tx *db.Tx, teamID, domainID string, deleted bool) error {
	if err := lock(ctx, tx, domainID); err != nil {
		return err
	}
	p, err := find(ctx, tx.Reader, teamID, domainID)
	if err != nil || p == nil {
		return err
	}
	now := s.c.Now()
	if p.mode() != Off {
		p.apply(Change{Mode: Off}, "", nil, now)
		p.renew(now, true)
		s.changed(tx, domainID)
	}
	if deleted { // the problems of the record matter only to the domain's team
		p.Watch = watch{}
	}
	if !p.LeadsHere || !now.Before(p.ObsoleteAt) {
		remove(ctx, tx, p)
		s.changed(tx, domainID)
		return nil
	}
	p.CheckedAt, p.CheckAt = now, p.nextCheck(now)
	return save(ctx, tx, p)
}

// findings are what the look-ups of one check found. A look-up without an answer has an error.
type findings struct {
	postponed time.Time // what the check has set the time of the next check to
	id, body  string    // of the policy before the check
	mx        []resolve.MX
	mxKnown   bool
	leadsHere bool
	hostErr   error // why it is unknown where mta-sts.DOMAIN leads
	record    recordFinding
	policy    mtasts.Policy // fetched; only if leadsHere
	result    mtasts.Result
	reason    string
	certErr   error // of the inbound host
	silent    bool  // our own DNS servers do not answer
}

// lookUp makes the look-ups of a check. If mta-sts.DOMAIN leads to this installation for the first time, that is stored
// before the policy is fetched, because the fetch needs a certificate for the host.
func (s *Service) lookUp(ctx context.Context, d *domains.Domain, p *row) (findings, error) {
	f := findings{id: p.ID, body: p.Body}
	_, f.certErr = s.p.Certificate(ctx, s.inboundHost(d))
	if s.c.TrustRecords {
		f.leadsHere, f.record, f.policy = true, s.findRecord(ctx, d.Name, p), p.policy()
		return f, nil
	}
	within, cancel := context.WithTimeout(ctx, lookUpTime)
	defer cancel()
	var mxErr error
	f.mx, mxErr = s.p.DNS.MX(within, d.Name)
	f.mxKnown = mxErr == nil
	f.record = s.lookUpRecord(within, d.Name)
	f.leadsHere, f.hostErr = s.leadsHere(within, mtasts.HostName(d.Name))
	if f.hostErr != nil {
		f.leadsHere = p.LeadsHere
	}
	f.silent = mxErr != nil && !errors.Is(mxErr, resolve.ErrNotFound) && !f.record.known && f.hostErr != nil
	if !f.leadsHere || f.silent {
		return f, ctx.Err()
	}
	if !p.LeadsHere {
		if err := s.noteHost(ctx, p); err != nil {
			return f, fmt.Errorf("store that mta-sts.%s leads here: %w", d.Name, err)
		}
	}
	within, cancel = context.WithTimeout(ctx, fetchTime)
	defer cancel()
	f.policy, f.result, f.reason = s.p.Fetch(within, d.Name)
	return f, ctx.Err()
}

// leadsHere reports whether a host is an alias of the public host, or has one of its addresses.
func (s *Service) leadsHere(ctx context.Context, name string) (bool, error) {
	target, err := s.p.DNS.CNAME(ctx, name)
	if err == nil && strings.EqualFold(strings.TrimSuffix(target, "."), s.c.PublicHost) {
		return true, nil
	}
	at, err := s.p.DNS.Addrs(ctx, name)
	if errors.Is(err, resolve.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	ours, err := s.p.DNS.Addrs(ctx, s.c.PublicHost)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(at, func(a netip.Addr) bool { return slices.Contains(ours, a) }), nil
}

// lookUpMX returns the MX records of a domain, or none if they cannot be looked up now. The next check repeats the
// look-up.
func (s *Service) lookUpMX(ctx context.Context, domain string) []resolve.MX {
	ctx, cancel := context.WithTimeout(ctx, lookUpTime)
	defer cancel()
	mx, err := s.p.DNS.MX(ctx, domain)
	if err != nil {
		return nil
	}
	return mx
}

// judge returns the problems of a policy. ok is false if too little is known; the state of the policy must then stay as
// it is.
func (r *row) judge(d *domains.Domain, f *findings, publicHost string, now time.Time) (problems []Problem, ok bool) {
	if f.silent || f.hostErr != nil || !f.record.known || r.ID != f.id || r.Body != f.body {
		return nil, false
	}
	add := func(kind, format string, args ...any) {
		problems = append(problems, Problem{kind, fmt.Sprintf(format, args...)})
	}
	switch served := r.policy(); {
	case !f.leadsHere && d.Served():
		add(HostProblem, "%s does not lead to %s, although the name servers of this installation publish that. Check the "+
			"delegation of %s.", mtasts.HostName(d.Name), publicHost, d.Name)
	case !f.leadsHere:
		add(HostProblem, "%s does not lead to %s. Publish the CNAME record.", mtasts.HostName(d.Name), publicHost)
	case f.result == mtasts.WebPKIInvalid:
		add(PolicyProblem, "Senders do not accept the certificate of mta-sts.%s: %s.", d.Name, f.reason)
	case f.result != "":
		add(PolicyProblem, "The policy of %s cannot be fetched: %s.", d.Name, f.reason)
	case !f.policy.Equal(served):
		add(PolicyProblem, "https://mta-sts.%s serves another policy. Check where the host leads.", d.Name)
	}
	want := r.recordID(now)
	switch id, err := mtasts.FindRecord(f.record.texts); {
	case err != nil:
		problems = append(problems, invalidRecord(d, err, want))
	// Directly after a change, a DNS cache may have the former id, and our own zones may have the new one already.
	case id != r.ID && id != want && !(r.Watch.Worked && r.isUpdating(now)):
		problems = append(problems, staleRecord(d, id, want))
	}
	for _, m := range f.mx {
		if m.Host != "" && r.Mode == mtasts.Enforce && !r.policy().Matches(m.Host) {
			add(MXProblem, "The policy cannot list the mail host %.100q of the MX records, so senders do not use it.", m.Host)
		}
	}
	if r.Mode == mtasts.Enforce && f.certErr != nil {
		add(CertificateProblem, "Senders do not accept the certificate of %s, so they keep their mail: %v. Choose the "+
			"mode testing until the operator has corrected it.", r.Hosts[0].Name, f.certErr)
	}
	return problems, true
}

// tell stores the problems of a check. If a breakage begins or ends, it records the event and enqueues the notice.
func (s *Service) tell(ctx context.Context, tx *db.Tx, d *domains.Domain, p *row, problems []Problem,
	now time.Time) error {
	since := p.Watch.BrokenAt
	next, what := p.Watch.next(problems, now)
	p.Watch = next
	if what == unchanged {
		return nil
	}
	e := events.Transport{DomainID: d.ID, Name: d.Name, Mode: string(p.mode()), Since: time.UnixMicro(max(since,
		next.BrokenAt)), Problems: []events.TransportProblem{}}
	typ, subject, text := events.DomainTransportRecovered, "The MTA-STS policy of "+d.Name+" works again",
		"Senders can obtain and obey the MTA-STS policy of "+d.Name+" again."
	if what == failed {
		typ, subject = events.DomainTransportFailed, "The MTA-STS policy of "+d.Name+" does not work"
		text = failureText(d.Name, p.Mode, problems)
		for _, x := range problems {
			e.Problems = append(e.Problems, events.TransportProblem(x))
		}
	}
	err := s.p.Recorder.Record(ctx, tx, events.Event{TeamID: d.TeamID, Type: typ, DomainID: d.ID, Data: &e})
	if err != nil {
		return err
	}
	return s.p.Notify(ctx, tx, d.TeamID, subject, text)
}

// failureText returns the text of the notice that a policy does not work.
func failureText(name string, mode mtasts.Mode, problems []Problem) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Senders can no longer obtain or obey the MTA-STS policy of %s as they should:\n", name)
	for _, p := range problems {
		b.WriteString("\n- " + p.Message + "\n")
	}
	if mode == mtasts.Enforce {
		b.WriteString("\nThe policy is enforced. Senders that know it may keep mail for the domain until this is corrected.\n")
	}
	b.WriteString("\nPostrider checks again every 15 minutes, and tells you when the policy works again.\n")
	return b.String()
}
