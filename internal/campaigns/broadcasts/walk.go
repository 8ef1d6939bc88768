package broadcasts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/accounts/quotas"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/emails"
)

const (
	maxTurn = 20 * time.Second // maximum time that one broadcast may occupy a worker

	// On SQLite, a transaction that enqueues a page blocks all other writes. On SQLite, the page size is therefore
	// adjusted to the measured duration of the transaction, not counting the time for the lock and the disk. On
	// PostgreSQL, the transaction does not block others, and a page has as many emails as one call to Enqueue allows.
	pageTime  = 50 * time.Millisecond
	firstPage = 100
	minPage   = 50

	// readMax is the maximum number of contacts that are read to fill one page. It limits the work when most contacts do
	// not receive the email.
	readMax = 2000

	mailingsTTL = 5 * time.Second // interval at which prepareMailings checks whether the broadcast may still be sent
	maxLate     = time.Minute     // if a page is later than this, a faster pace does not make up for it
	settleMax   = 30 * time.Second
)

// Kinds returns the job kinds of this package.
func (s *Service) Kinds() []jobs.Kind {
	waits := []time.Duration{time.Second, 10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute}
	return []jobs.Kind{
		{Name: Kind, Handle: s.send, Workers: 8, Schedule: waits, Endless: true},
		{Name: releaseKind, Handle: s.releaseHeld, Workers: 4, Schedule: waits, Endless: true},
		{Name: stopKind, Handle: s.stopSender, Workers: 4, Schedule: waits, Endless: true},
		{Name: lostKind, Handle: s.pauseOthers, Workers: 4, Schedule: waits, Endless: true},
		{Name: continueKind, Handle: s.continueAll, Workers: 4, Schedule: waits, Endless: true},
		{Name: guardKind, Handle: s.guard, Workers: 4, Schedule: waits, Endless: true},
	}
}

// run is the state of a worker that sends a broadcast.
type run struct {
	s         *Service
	job       jobs.Job
	max       int // maximum number of emails on the next page
	quotaLeft int // number of emails left in the quota, set after a page has exceeded it; 0 if unknown

	variants []Variant // only their contents
	revision int64     // the broadcast's revision before the variants were read; it changes with the sender
	loaded   time.Time
	changes  int64             // the service's teamChanges when the mailings were prepared
	mailings []*emails.Mailing // by variant
	filling  filling
	prefetch prefetcher

	empty   []int  // variants of the test without a recipient at the position emptyAt; nil if not known
	emptyAt string // see emptyVariants
}

// send handles jobs of the kind Kind: it carries out steps until the job has ended or must wait.
func (s *Service) send(ctx context.Context, j jobs.Job) error {
	r := &run{s: s, job: j, max: emails.MaxEnqueue}
	if s.p.DB.Alone() {
		r.max = firstPage
	}
	ctx, cancel := context.WithCancel(ctx)
	defer r.prefetch.forget()
	defer cancel()
	for began := time.Now(); ; {
		if err := j.Sure(ctx); err != nil {
			return err
		}
		more, err := r.step(ctx)
		if err != nil || !more {
			return err
		}
		if time.Since(began) > maxTurn {
			return s.p.DB.Update(ctx, func(tx *db.Tx) error {
				s.p.Queue.Wait(ctx, tx, j, tx.Now(), "")
				return nil
			})
		}
	}
}

// step carries out the next step of sending a broadcast, and returns false if the job has ended or must wait.
func (r *run) step(ctx context.Context) (more bool, err error) {
	b, err := getRow(ctx, r.s.p.DB.Reader, r.job.TeamID, r.job.Payload)
	if fault.KindOf(err) == fault.NotFound {
		return false, r.s.p.Queue.End(ctx, r.job)
	}
	if err != nil {
		return false, err
	}
	switch {
	case b.Status != Queued && b.Status != Scheduled, b.Status == Scheduled && b.ScheduledAt.After(r.s.p.DB.Now()):
		return r.updateLocked(ctx, &b, nil) // this ends the job or makes it wait
	case b.StartedAt.IsZero():
		return r.start(ctx, b.ID)
	}
	if err := r.loadVariants(ctx, &b); err != nil {
		return false, err
	}
	switch b.phase {
	case walkAll, walkTest, walkRest:
		if why, err := r.prepareMailings(ctx, &b); err != nil || why != "" {
			return r.stop(ctx, &b, why, err)
		}
		more, err := r.page(ctx, &b)
		if quotas.Exceeded(err) {
			if fits, err := r.fitQuota(ctx, b.TeamID); err != nil || fits {
				return fits, err
			}
		}
		if why := stopReason(err); why != "" {
			return r.stop(ctx, &b, why, nil)
		}
		return more, err
	case choose:
		return r.choose(ctx, &b)
	case settle:
		return r.settle(ctx, &b)
	}
	return false, fmt.Errorf("broadcast %s is in the phase %q, which this release does not know", b.ID, b.phase)
}

// updateLocked locks a broadcast and, if it is being sent, calls the function change and saves the broadcast. The
// function change must return true if the job continues. Before the function change returns false, it must end or
// reschedule the job. If the broadcast is not being sent, updateLocked ends the job, or makes it wait until the
// scheduled time.
func (r *run) updateLocked(ctx context.Context, read *Broadcast,
	change func(tx *db.Tx, b *Broadcast) (bool, error)) (more bool, err error) {
	s := r.s
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		b, err := lock(ctx, tx, read.TeamID, read.ID)
		if err != nil {
			return err
		}
		b.Text, b.Variants = read.Text, read.Variants
		switch {
		case b.Status == Scheduled && b.ScheduledAt.After(tx.Now()):
			s.p.Queue.Wait(ctx, tx, r.job, b.ScheduledAt, "")
			more = false
			return nil
		case b.Status != Queued && b.Status != Scheduled:
			s.p.Queue.Finish(ctx, tx, r.job)
			more = false
			return nil
		case change == nil: // the broadcast has been changed since it was read
			more = true
			return nil
		}
		if more, err = change(tx, &b); err != nil {
			return err
		}
		save(ctx, tx, &b)
		return nil
	})
	return more && err == nil, err
}

// start starts a broadcast and stores the content to send. Once the broadcast has started, this content no longer
// changes.
func (r *run) start(ctx context.Context, broadcastID string) (more bool, err error) {
	s := r.s
	read, err := s.Get(ctx, r.job.TeamID, broadcastID)
	if err != nil {
		return false, err
	}
	all, err := s.contents(ctx, &read)
	if err != nil {
		return false, err
	}
	for _, c := range all {
		err := s.p.Emails.CheckSender(ctx, read.TeamID, c.From)
		if isDomainFault(err) { // pausing before the start lets Cancel turn the broadcast back into a draft
			return r.stop(ctx, &read, DomainNotVerified, err)
		}
		if fault.Ours(err) {
			return false, err
		}
	}
	return r.updateLocked(ctx, &read, func(tx *db.Tx, b *Broadcast) (bool, error) {
		if b.revision != read.revision || !b.StartedAt.IsZero() {
			return true, nil // another worker has started the broadcast, or the draft was changed and sent again
		}
		if b.Status == Scheduled {
			// A concurrent suspension or deletion of a key either ends first, and the next step sees it, or waits and then
			// pauses this broadcast. Neither locks a scheduled broadcast, so this order of locks causes no deadlock.
			if _, err := s.p.Teams.LockSenders(ctx, tx, b.TeamID); err != nil {
				return false, err
			}
		}
		for i, c := range all {
			added := *c
			if err := s.p.Contents.Add(ctx, tx, &added); err != nil {
				return false, err
			}
			if len(b.Variants) == 0 {
				insertVariants(ctx, tx, &Broadcast{ID: b.ID, TeamID: b.TeamID, Variants: []Variant{{contentID: added.ID}}})
			} else {
				setVariantContent(ctx, tx, b, i, added.ID)
			}
		}
		insertCounts(ctx, tx, b)
		b.Status, b.StartedAt, b.phase, b.position, b.nextAt = Queued, tx.Now(), walkAll, "", time.Time{}
		if len(b.Variants) > 1 {
			b.phase = walkTest
		}
		s.invalidate(tx, b)
		return true, nil
	})
}

// loadVariants sets the variants of a started broadcast, with their content ids but without their texts.
func (r *run) loadVariants(ctx context.Context, b *Broadcast) (err error) {
	if r.variants == nil || r.revision != b.revision {
		r.revision, r.loaded = b.revision, time.Time{}
		if r.variants, err = variantContents(ctx, r.s.p.DB.Reader, b.TeamID, b.ID); err != nil {
			return err
		}
	}
	if len(r.variants) > 1 {
		b.Variants = r.variants
	}
	return nil
}

// prepareMailings checks that a broadcast may still be sent, and prepares its emails. If the broadcast may not be sent,
// prepareMailings returns the reason.
func (r *run) prepareMailings(ctx context.Context, b *Broadcast) (Reason, error) {
	s := r.s
	changes := s.teamChanges.Load()
	if !r.loaded.IsZero() && time.Since(r.loaded) < mailingsTTL && r.changes == changes {
		return "", nil
	}
	if why, err := s.obstacle(ctx, s.p.DB.Reader, b); err != nil || why != "" {
		return why, err
	}
	by := actorOf(b)
	r.mailings = r.mailings[:0]
	var compiled []*content.Compiled
	for _, v := range r.variants {
		m, err := s.p.Emails.Mailing(ctx, by, v.contentID, true)
		if err != nil {
			return refusalReason(err), err
		}
		m.BroadcastID, m.TopicID, m.SkipUnmailable = b.ID, b.TopicID, true
		r.mailings = append(r.mailings, m)
		c, err := s.p.Contents.Get(ctx, b.TeamID, v.contentID)
		if err != nil {
			return "", err
		}
		compiled = append(compiled, c)
	}
	filling, err := s.fillingOf(ctx, b.TeamID, compiled)
	if err != nil {
		return "", err
	}
	r.filling = filling
	r.loaded, r.changes = time.Now(), changes
	return "", nil
}

// refusalReason returns the reason why emails can no longer be sent, or "" if a retry may succeed.
func refusalReason(err error) Reason {
	switch {
	case fault.Ours(err):
		return ""
	case fault.KindOf(err) == fault.Suspended:
		return TeamSuspended
	case isDomainFault(err):
		return DomainNotVerified
	case fault.KindOf(err) == fault.Forbidden:
		return NotAllowed
	}
	return BadContent
}

// stopReason returns the reason why a page cannot be enqueued, or "" if the error does not require the broadcast to
// stop.
func stopReason(err error) Reason {
	switch {
	case err == nil, fault.Ours(err):
		return ""
	case fault.KindOf(err) == fault.DailyQuota:
		return DailyQuota
	case fault.KindOf(err) == fault.MonthlyQuota:
		return MonthlyQuota
	case fault.KindOf(err) == fault.NotFound:
		return SegmentDeleted
	}
	if f, ok := errors.AsType[*fault.Error](err); ok && f.Field == "topic_id" {
		return TopicDeleted
	}
	return BadFilter
}

// stop pauses a broadcast, or ends it with the status failed if the problem cannot be fixed. If the reason is empty,
// stop only returns err.
func (r *run) stop(ctx context.Context, read *Broadcast, why Reason, err error) (bool, error) {
	if why == "" {
		return false, err
	}
	if err != nil {
		r.s.p.Log.Warn("a broadcast stops", "broadcast", read.ID, "team", read.TeamID, "reason", why, "error", err)
	}
	return r.updateLocked(ctx, read, func(tx *db.Tx, b *Broadcast) (bool, error) {
		if why == DomainNotVerified {
			if why, err := r.s.domainObstacle(ctx, tx, b); err != nil || why == "" {
				return true, err // the domain has been verified since it was looked up
			}
		}
		b.Status, b.Reason = Paused, why
		if why == SegmentDeleted || why == TopicDeleted {
			b.Status, b.SentAt = Failed, tx.Now()
			if err := r.s.end(ctx, tx, b); err != nil {
				return false, err
			}
		}
		r.s.invalidate(tx, b)
		r.s.p.Queue.Finish(ctx, tx, r.job)
		return false, r.s.notifyTeam(ctx, tx, b)
	})
}

// page enqueues the emails for the contacts after the broadcast's position. The contacts are read before the
// transaction begins, because a filter may skip very many contacts, and on SQLite a transaction blocks other writes.
// The transaction then rereads which contacts exist, which addresses they have, and which of them may not be mailed.
func (r *run) page(ctx context.Context, read *Broadcast) (more bool, err error) {
	if read.nextAt.After(r.s.p.DB.Now()) {
		return r.updateLocked(ctx, read, func(tx *db.Tx, b *Broadcast) (bool, error) {
			r.s.p.Queue.Wait(ctx, tx, r.job, b.nextAt, "")
			return false, nil
		})
	}
	most := r.max
	if read.Options.Pace > 0 {
		most = min(most, pacedPageSize(read.Options.Pace))
	}
	if r.quotaLeft > 0 {
		most, r.quotaLeft = min(most, r.quotaLeft), 0
	}
	empty, err := r.emptyVariants(ctx, read)
	if err != nil {
		return false, err
	}
	limit := min(readMax, most)
	if read.phase != walkAll && len(empty) == 0 {
		limit = readMax
	}
	of := contacts.Audience{SegmentID: read.SegmentID, Before: read.StartedAt, Properties: r.filling.properties}
	r.prefetch.read = func(ctx context.Context, after string, limit int) ([]contacts.Member, bool, error) {
		return r.s.p.Contacts.Walk(ctx, read.TeamID, of, after, limit)
	}
	members, last, err := r.prefetch.contactsAfter(ctx, read.position, limit)
	if err != nil {
		return false, err
	}
	done, err := r.done(ctx, read, members)
	if err != nil {
		return false, err
	}
	var refused map[string]bool
	if len(empty) > 0 {
		if refused, err = r.refused(ctx, read, members); err != nil {
			return false, err
		}
	}
	var took time.Duration
	mailed := 0
	var got []int // variants
	at := read.position
	more, err = r.updateLocked(ctx, read, func(tx *db.Tx, b *Broadcast) (bool, error) {
		mailed = 0 // reset, because the transaction may be retried
		if b.position != read.position || b.phase != read.phase || b.revision != read.revision {
			return true, nil // another worker has already enqueued this page, or the sender was changed
		}
		began := time.Now()
		defer func() { took = max(1, time.Since(began)) }()
		p := batch{b: b, to: make([][]emails.MailingRecipient, len(r.mailings)), of: make([][]*contacts.Member,
			len(r.mailings)), empty: slices.Clone(empty), seeding: len(empty) > 0, refused: refused, done: done}
		used := p.fill(members, most, &r.filling)
		if err := r.enqueuePage(ctx, tx, b, &p); err != nil {
			return false, err
		}
		mailed = p.n
		if used > 0 {
			b.position = members[used-1].ID
		}
		got, at = p.got, b.position
		if b.Options.Pace > 0 && p.enqueued > 0 {
			from := tx.Now()
			if late := from.Sub(b.nextAt); late < maxLate {
				from = b.nextAt
			}
			b.nextAt = from.Add(time.Duration(p.enqueued) * time.Hour / time.Duration(b.Options.Pace))
		}
		if used == len(members) && last {
			b.finishWalk(tx.Now())
		}
		return true, nil
	})
	if r.emptyAt = at; err != nil {
		r.empty, got = nil, nil // it is not known whether the page was written
	}
	r.empty = slices.DeleteFunc(r.empty, func(variant int) bool { return slices.Contains(got, variant) })
	if err == nil && mailed >= r.max/2 && r.s.p.DB.Alone() {
		r.max = min(emails.MaxEnqueue, 2*r.max, max(minPage, int(int64(r.max)*int64(pageTime)/int64(took))))
	}
	return more, err
}

// fitQuota limits the next page to the number of emails that the team's quota still allows, and returns false if the
// quota is used up.
func (r *run) fitQuota(ctx context.Context, teamID string) (bool, error) {
	left, limited, err := r.s.p.Emails.RemainingQuota(ctx, teamID)
	if err != nil || limited && left == 0 {
		return false, err
	}
	if limited {
		r.quotaLeft = int(min(left, emails.MaxEnqueue))
	}
	return true, nil
}

// pacedPageSize returns the number of emails per page at a given pace. A page contains only a few seconds' worth of
// emails, so that the emails are sent evenly.
func pacedPageSize(pace int) int { return max(1, pace/900) }

// finishWalk moves a broadcast to its next phase after the last page of its audience.
func (b *Broadcast) finishWalk(now time.Time) {
	switch {
	case b.phase == walkTest && b.waitsForWinner() && b.Winner < 0:
		b.phase, b.nextAt = choose, now.Add(time.Duration(b.Options.Wait)*time.Minute)
	case b.phase == walkTest && b.waitsForWinner():
		b.phase, b.position = walkRest, ""
	default:
		b.phase, b.nextAt = settle, now
	}
}

// enqueuePage enqueues the emails on a page, inserts the rows of the page's recipients, and updates the counters.
func (r *run) enqueuePage(ctx context.Context, tx *db.Tx, b *Broadcast, p *batch) error {
	s := r.s
	if err := r.refresh(ctx, tx, b, p); err != nil {
		return err
	}
	var mailed []string
	counts := map[tallyKey]int64{}
	for variant, to := range p.to {
		if len(to) == 0 {
			continue
		}
		done, err := s.p.Emails.Enqueue(ctx, tx, r.mailings[variant], to)
		if err != nil {
			return err
		}
		for i, one := range done {
			row := recipient{broadcastID: b.ID, contactID: to[i].ContactID, emailID: one.ID, address: to[i].Address,
				variant: variant, state: waiting}
			if one.ID == "" {
				row.state, row.reason = leftOut, one.SkipReason
				if one.Err != nil {
					if fault.Ours(one.Err) {
						return one.Err
					}
					row.reason = refused
				}
				b.LeftOut++
			} else {
				mailed = append(mailed, row.contactID)
				b.Entered++
				p.enqueued++
				p.got = append(p.got, variant)
			}
			counts[tallyKey{variant, row.reason}]++
			insertRecipient(ctx, tx, &row)
		}
	}
	for _, m := range p.held {
		insertRecipient(ctx, tx, &recipient{broadcastID: b.ID, contactID: m.ID, address: m.Address, state: leftOut,
			reason: heldOut})
		counts[tallyKey{0, heldOut}]++
		b.LeftOut++
	}
	addEntered(ctx, tx, b, counts)
	s.p.Contacts.RecordMailed(ctx, tx, b.TeamID, mailed)
	return nil
}

// settle ends a broadcast once each of its emails has been handed to a mail server or has ended.
func (r *run) settle(ctx context.Context, read *Broadcast) (bool, error) {
	now, err := totalTally(ctx, r.s.p.DB.Reader, read.TeamID, read.ID)
	if err != nil {
		return false, err
	}
	if now.Waiting > 0 {
		if why, err := r.s.obstacle(ctx, r.s.p.DB.Reader, read); err != nil || why != "" {
			return r.stop(ctx, read, why, err)
		}
	}
	return r.updateLocked(ctx, read, func(tx *db.Tx, b *Broadcast) (bool, error) {
		if now.Waiting > 0 {
			// The interval between checks grows with the time since the last page.
			wait := min(settleMax, max(500*time.Millisecond, tx.Now().Sub(b.nextAt)/8))
			r.s.p.Queue.Wait(ctx, tx, r.job, tx.Now().Add(wait), "")
			return false, nil
		}
		b.Status, b.SentAt = Sent, tx.Now()
		r.s.p.Queue.Finish(ctx, tx, r.job)
		r.s.invalidate(tx, b)
		return false, r.s.end(ctx, tx, b)
	})
}
