package tracking

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/tokens"
)

// record records a batch of hits in the transaction tx, which may be retried.
func (s *Service) record(ctx context.Context, tx *db.Tx, batch []*pendingHit) error {
	var refs []tokens.Ref
	var emailIDs []string
	var positions []int
	unsure := false
	for _, w := range batch {
		refs, emailIDs, positions = append(refs, w.Ref), append(emailIDs, w.EmailID), append(positions, w.Position)
		unsure = unsure || w.unsure
	}
	slices.SortFunc(refs, func(a, b tokens.Ref) int {
		return cmp.Or(cmp.Compare(a.Team, b.Team), cmp.Compare(a.EmailID, b.EmailID))
	})
	refs, emailIDs, positions = slices.Compact(refs), unique(emailIDs), unique(positions)
	found, err := s.emails.TrackedEmails(ctx, tx.Reader, refs, positions)
	if err != nil {
		return err
	}
	var before map[string]bool
	if unsure {
		if before, err = storedEventIDs(ctx, tx.Reader, emailIDs, batch); err != nil {
			return err
		}
	}
	var all []events.Event
	of := summaries{ctx: ctx, r: tx.Reader, s: s.emails, teams: map[string]*team{}}
	for _, w := range batch {
		e := found[w.EmailID]
		if e == nil || w.unsure && before[w.eventID] {
			continue
		}
		if w.eventID == "" {
			w.eventID = id.At(tx.Now())
		}
		all = append(all, s.event(tx.Now(), w, e))
	}
	if all, err = withinLimit(ctx, tx.Reader, all); err != nil {
		return err
	}
	for i := range all {
		all[i].Email = of.load(all[i].TeamID, all[i].EmailID)
	}
	// Listeners cache the data that they read about a team, so the events are sorted by team. The sort is stable, so
	// the events of one email keep their order.
	slices.SortStableFunc(all, func(a, b events.Event) int {
		return cmp.Or(cmp.Compare(a.TeamID, b.TeamID), cmp.Compare(a.EmailID, b.EmailID))
	})
	return s.recorder.Record(ctx, tx, all...)
}

// withinLimit returns the events in a batch that may be recorded, in order: together with the stored events, at most
// recordedMax of each kind. If several nodes record hits at the same time, each may exceed the limit by one batch.
func withinLimit(ctx context.Context, r db.Reader, all []events.Event) ([]events.Event, error) {
	byTeam := map[string][]*events.Event{}
	for i := range all {
		byTeam[all[i].TeamID] = append(byTeam[all[i].TeamID], &all[i])
	}
	n := map[hitKind]int{}
	for teamIDs := range slices.Chunk(slices.Sorted(maps.Keys(byTeam)), emails.TeamsPerQuery) {
		var emailIDs, recipients []string
		for _, teamID := range teamIDs {
			for _, e := range byTeam[teamID] {
				emailIDs, recipients = append(emailIDs, e.EmailID), append(recipients, e.Recipient)
			}
		}
		some, err := countStored(ctx, r, teamIDs, unique(emailIDs), unique(recipients))
		if err != nil {
			return nil, err
		}
		maps.Copy(n, some)
	}
	return slices.DeleteFunc(all, func(e events.Event) bool {
		k := hitKind{e.EmailID, e.Recipient, strings.TrimPrefix(string(e.Type), "email."), e.Detail()}
		n[k]++
		return n[k] > recordedMax
	}), nil
}

func unique[T cmp.Ordered](all []T) []T {
	slices.Sort(all)
	return slices.Compact(all)
}

// event returns the event that records a hit.
func (s *Service) event(now time.Time, w *pendingHit, of *emails.TrackedEmail) events.Event {
	to, known := of.Recipient(w.Position)
	reason := w.reason
	if known && s.isEarly(now, w, &to) && reason == "" {
		reason = ByTiming
	}
	e := events.Event{ID: w.eventID, TeamID: of.TeamID, EmailID: w.EmailID, DomainID: of.DomainID,
		BroadcastID: of.BroadcastID, Recipient: to.Address, ContactID: of.ContactID, OneRecipient: of.OneRecipient,
		At: w.at}
	machine, from := events.Machine{Is: reason != "", Reason: string(reason)}, ""
	if w.Addr.IsValid() {
		from = w.Addr.String()
	}
	if w.URL == "" {
		e.Type = events.EmailOpened
		e.Data = &events.Open{IPAddress: from, Timestamp: w.at, UserAgent: w.UserAgent, Machine: machine}
	} else {
		e.Type = events.EmailClicked
		e.Data = &events.Click{IPAddress: from, Link: w.URL, Timestamp: w.at, UserAgent: w.UserAgent, Machine: machine}
	}
	return e
}

// isEarly reports whether a hit came before the delivery to its recipient or right after it.
func (s *Service) isEarly(now time.Time, w *pendingHit, to *emails.TrackedRecipient) bool {
	who := recipient{w.EmailID, w.Position}
	if !to.Delivered() {
		return now.Sub(w.at) < outcomeWithin
	}
	at, ok := to.Since, to.State == emails.Delivered
	if ok {
		s.delivered.set(who, at, now)
	} else {
		at, ok = s.delivered.get(who) // an earlier hit has already changed the recipient's state and its time
	}
	return ok && w.at.Sub(at) < deliveredWithin
}

// summaries loads the email data for webhook payloads; the first request for an email loads all emails of its team in
// the batch.
type summaries struct {
	ctx   context.Context
	r     db.Reader
	s     *emails.Service
	teams map[string]*team
}

type team struct {
	emailIDs []string
	read     map[string]*events.Email
}

func (b *summaries) load(teamID, emailID string) func() (*events.Email, error) {
	t := b.teams[teamID]
	if t == nil {
		t = &team{}
		b.teams[teamID] = t
	}
	t.emailIDs = append(t.emailIDs, emailID)
	return func() (*events.Email, error) {
		if t.read == nil {
			read, err := b.s.EventSummaries(b.ctx, b.r, teamID, unique(t.emailIDs))
			if err != nil {
				return nil, err
			}
			t.read = read
		}
		if e := t.read[emailID]; e != nil {
			return e, nil
		}
		return nil, fault.NotFoundf("Email not found")
	}
}
