package emails

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"

	"github.com/postrider/postrider/internal/accounts/quotas"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/fairshare"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/suppressions"
	"github.com/postrider/postrider/internal/sending/templates"
)

// Config is the part of the configuration that concerns emails.
type Config struct {
	MaxSize            int64    // octets of a whole message, attachments encoded
	TestDomainsRefused []string // recipients there are refused
	PublicURL          string   // prefix of links to downloads and shared emails, without a slash at the end
	TrackingURL        string   // prefix of tracked links; "" is https:// and the domain's tracking host
}

// Service implements the operations on emails.
type Service struct {
	c            Config
	d            *db.DB
	q            *jobs.Queue
	recorder     *events.Recorder
	blobs        *blob.Store
	keys         *keyring.Keyring
	guard        *netguard.Guard
	domains      *domains.Service
	suppressions *suppressions.Service
	teams        *teams.Service
	contents     *content.Service
	contacts     *contacts.Service
	templates    *templates.Service
	volume       *quotas.Service
	running      running
	fetching     *fairshare.Pool // octets
	log          *slog.Logger

	// Budget counts emails of an actor with limits, in the transaction that accepts them, and refuses those beyond;
	// recipients is how many addresses each goes to. It is asked for such actors alone. Set it before use; nil refuses
	// nothing.
	Budget func(ctx context.Context, tx *db.Tx, by teams.Actor, recipients []int) error
	// Affords returns for each of some emails nil, or the fault for which Budget would refuse it beside those before it
	// that it would not. It counts nothing; set it with Budget.
	Affords func(ctx context.Context, by teams.Actor, recipients []int) ([]error, error)
}

// Parts are the dependencies of a Service.
type Parts struct {
	DB           *db.DB
	Queue        *jobs.Queue
	Recorder     *events.Recorder
	Blobs        *blob.Store
	Keys         *keyring.Keyring
	Guard        *netguard.Guard
	Domains      *domains.Service
	Suppressions *suppressions.Service
	Teams        *teams.Service
	Contents     *content.Service   // nil makes one
	Contacts     *contacts.Service  // nil makes one
	Templates    *templates.Service // nil makes one
	Volume       *quotas.Service    // nil makes one
	Log          *slog.Logger       // nil logs nothing
}

// New returns the service.
func New(c Config, p Parts) *Service {
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	if c.TestDomainsRefused == nil {
		c.TestDomainsRefused = []string{"example.com", "test.com"}
	}
	if p.Contents == nil {
		p.Contents = content.New(p.DB)
	}
	if p.Contacts == nil {
		p.Contacts = contacts.New(p.DB, p.Recorder, p.Keys)
	}
	if p.Templates == nil {
		p.Templates = templates.New(p.DB, p.Contents, c.MaxSize)
	}
	if p.Volume == nil {
		p.Volume = quotas.New(p.DB)
	}
	return &Service{c: c, d: p.DB, q: p.Queue, recorder: p.Recorder, blobs: p.Blobs, keys: p.Keys, guard: p.Guard,
		domains: p.Domains, suppressions: p.Suppressions, teams: p.Teams, contents: p.Contents, contacts: p.Contacts,
		templates: p.Templates, volume: p.Volume, running: running{m: map[string]bool{}}, fetching: fairshare.New(fetchMemory, 1), log: p.Log}
}

// Send accepts one email and returns its id. The caller checks that the actor has the scope to send.
func (s *Service) Send(ctx context.Context, by teams.Actor, in Send, key Idempotency) (string, error) {
	r, err := s.once(ctx, by, key, func(a *answer) error {
		d, err := s.draft(ctx, by.TeamID, in, false)
		if err != nil {
			return err
		}
		return s.accept(ctx, by, []*draft{d}, a)
	})
	if err != nil {
		return "", err
	}
	return r.IDs[0], nil
}

// SendThen is Send without an idempotency key. It calls then in the transaction that accepts the email, with its id: if
// that fails, the email is not accepted. It may be called more than once.
func (s *Service) SendThen(ctx context.Context, by teams.Actor, in Send,
	then func(ctx context.Context, tx *db.Tx, emailID string) error) (string, error) {
	d, err := s.draft(ctx, by.TeamID, in, false)
	if err != nil {
		return "", err
	}
	a := answer{then: then}
	if err := s.accept(ctx, by, []*draft{d}, &a); err != nil {
		return "", err
	}
	return a.IDs[0], nil
}

// Batch is the outcome of a batch.
type Batch struct {
	IDs    []string
	Errors []BatchError // the emails of a permissive batch that were refused
}

// BatchError is the reason why one email of a batch was refused.
type BatchError struct {
	Index   int    `json:"index"`
	Message string `json:"message"`
}

// SendBatch accepts up to MaxBatch emails in one transaction. A strict batch is accepted whole or not at all; of a
// permissive batch, the emails that break no rule are accepted, and of an actor with limits those that are within them.
// If its limit of a day lets none of them go, the batch is refused.
func (s *Service) SendBatch(ctx context.Context, by teams.Actor, in []Send, permissive bool, key Idempotency,
) (Batch, error) {
	if len(in) == 0 || len(in) > MaxBatch {
		return Batch{}, BadBatchSize(len(in))
	}
	r, err := s.once(ctx, by, key, func(a *answer) error {
		var drafts []*draft
		var places []int // of the drafts, in the batch
		topics := topics{}
		for i, one := range in {
			d, err := s.draft(ctx, by.TeamID, one, true)
			if err == nil {
				_, err = s.sender(ctx, by, d)
			}
			if err == nil {
				err = topics.check(ctx, s, by.TeamID, d.TopicID)
			}
			switch e, ok := errors.AsType[*fault.Error](err); {
			case err == nil:
				drafts, places = append(drafts, d), append(places, i)
			case fault.Ours(err):
				return err // our own failure, not the email's
			case ok && permissive:
				a.Errors = append(a.Errors, BatchError{i, e.Message})
			case ok:
				return fault.New(e.Kind, fmt.Sprintf("[%d].%s", i, e.Field), "Email %d of the batch: %s", i, e.Message).Because(err)
			}
		}
		if permissive && by.Limited && s.Affords != nil {
			return s.acceptWithinLimits(ctx, by, drafts, places, a)
		}
		return s.accept(ctx, by, drafts, a)
	})
	return Batch{IDs: r.IDs, Errors: r.Errors}, err
}

// acceptWithinLimits accepts the drafts that are within the limits of an actor. While others of its requests use up what
// was left, fewer are tried.
func (s *Service) acceptWithinLimits(ctx context.Context, by teams.Actor, drafts []*draft, places []int, a *answer) error {
	broken := a.Errors
	for tried := len(drafts) + 1; ; {
		a.Errors = slices.Clone(broken)
		some, err := s.withinLimits(ctx, by, drafts, places, a)
		if err != nil {
			return err
		}
		if err = s.accept(ctx, by, some, a); fault.KindOf(err) != fault.DailyQuota || len(some) >= tried {
			return err
		}
		tried = len(some)
	}
}

// withinLimits returns the drafts that are within the limits of an actor, and adds the others to the errors of the answer.
func (s *Service) withinLimits(ctx context.Context, by teams.Actor, drafts []*draft, places []int, a *answer) ([]*draft,
	error) {
	faults, err := s.Affords(ctx, by, countEach(drafts))
	if err != nil {
		return nil, err
	}
	var some []*draft
	var exceeded error
	for i, d := range drafts {
		e, ok := errors.AsType[*fault.Error](faults[i])
		switch {
		case faults[i] == nil:
			some = append(some, d)
			continue
		case !ok:
			return nil, faults[i]
		case e.Kind == fault.DailyQuota:
			exceeded = e
		}
		a.Errors = append(a.Errors, BatchError{places[i], e.Message})
	}
	if len(some) == 0 && exceeded != nil {
		return nil, exceeded
	}
	slices.SortFunc(a.Errors, func(x, y BatchError) int { return x.Index - y.Index })
	return some, nil
}

// countEach returns how many recipients each of some drafts has.
func countEach(drafts []*draft) []int {
	recipients := make([]int, len(drafts))
	for i, d := range drafts {
		recipients[i] = len(d.recipients)
	}
	return recipients
}

// BadBatchSize returns the error for a batch of n emails.
func BadBatchSize(n int) error {
	return fault.Invalidf("", "A batch must have 1 to %d emails; this one has %d.", MaxBatch, n)
}

// sender checks that the actor may send as the draft's From, and returns the sending domain.
func (s *Service) sender(ctx context.Context, by teams.Actor, d *draft) (domains.Sender, error) {
	if by.Suspended {
		return domains.Sender{}, fault.New(fault.Suspended, "", "This team may not send at present. Ask the operator why.")
	}
	from, err := s.domains.Sender(ctx, by.TeamID, d.from.Domain)
	if err != nil {
		return from, err
	}
	if by.DomainID != "" && by.DomainID != from.DomainID {
		return from, fault.Forbiddenf("from", "This API key is not authorized to send from %s. Use a key without a domain "+
			"restriction, or one of that domain.", d.from.Domain)
	}
	return from, s.mayWriteTo(ctx, by.TeamID, from, d.from, d.recipients)
}

// mayWriteTo refuses recipients other than the team's owner and sandbox addresses if the sender is a sandbox domain
// that is restricted to them.
func (s *Service) mayWriteTo(ctx context.Context, teamID string, from domains.Sender, sender message.Address,
	to []recipient) error {
	mayWriteTo, err := s.recipientFilter(ctx, teamID, from)
	if err != nil {
		return err
	}
	for _, r := range to {
		if !mayWriteTo(r.Address) {
			return fault.Forbiddenf("to", "The sender %s is for trying things out and writes only to the address of this "+
				"team's owner. To write to others, add and verify a domain of your own.", sender.Addr())
		}
	}
	return nil
}

// recipientFilter returns what says whether a sender may write to an address.
func (s *Service) recipientFilter(ctx context.Context, teamID string, from domains.Sender) (func(message.Address) bool, error) {
	if !from.Sandbox || !from.OwnerOnly {
		return func(message.Address) bool { return true }, nil
	}
	team, err := s.teams.Get(ctx, teamID)
	return func(a message.Address) bool {
		return s.domains.IsSandbox(a.Domain) || team.Email != "" && a.Key() == team.Email
	}, err
}

// accept writes drafts that break no rule, in one transaction.
func (s *Service) accept(ctx context.Context, by teams.Actor, drafts []*draft, a *answer) error {
	senders := make([]domains.Sender, len(drafts))
	var addresses []string
	for i, d := range drafts {
		var err error
		if senders[i], err = s.sender(ctx, by, d); err != nil {
			return err
		}
		for _, r := range d.recipients {
			addresses = append(addresses, r.Key())
		}
	}
	blocked, err := s.suppressions.Suppressed(ctx, s.d.Reader, by.TeamID, addresses)
	if err != nil {
		return fmt.Errorf("look up suppressions: %w", err)
	}
	blocked = blocking(blocked, len(drafts) == 1 && isPrivate(by.Kind, drafts[0].Tags))
	if err := s.lookUpTopics(ctx, by.TeamID, drafts); err != nil {
		return err
	}
	files := make([][]Attachment, len(drafts))
	for i, d := range drafts {
		if files[i], err = s.storeAttachments(ctx, by.TeamID, d); err != nil {
			return err
		}
	}
	// Files are not deleted when this fails, because the commit may have succeeded; the sweep deletes them if not.
	write := func(tx *db.Tx) error {
		if err := s.consumeLimit(ctx, tx, by, drafts); err != nil {
			return err
		}
		a.IDs = a.IDs[:0]
		s.useTemplates(ctx, tx, drafts)
		for i, d := range drafts {
			// The id is made here: with an earlier one, a client that polls the list could miss the email, having already seen
			// the id of an email accepted meanwhile.
			d.id = id.At(tx.Now())
			if err := s.write(ctx, tx, by, d, senders[i], files[i], blocked); err != nil {
				return err
			}
			a.IDs = append(a.IDs, d.id)
		}
		if a.then != nil {
			if err := a.then(ctx, tx, a.IDs[0]); err != nil {
				return err
			}
		}
		return s.remember(ctx, tx, by.TeamID, a)
	}
	if n := countQuota(drafts, blocked); by.Limited || a.then != nil {
		err = s.volume.UpdateAlone(ctx, by.TeamID, n, write) // it locks a row of its own, which others would wait for
	} else {
		err = s.volume.Update(ctx, by.TeamID, n, write)
	}
	if errors.Is(err, db.ErrUnknown) {
		return a.unknownError(err)
	}
	return err
}

// consumeLimit counts emails of an actor with limits, all that they are addressed to: also those that are scheduled or suppressed.
func (s *Service) consumeLimit(ctx context.Context, tx *db.Tx, by teams.Actor, drafts []*draft) error {
	if !by.Limited || s.Budget == nil {
		return nil
	}
	return s.Budget(ctx, tx, by, countEach(drafts))
}

// RemainingQuota returns how many emails a team may still send in this day and month, and false if it has no quota.
func (s *Service) RemainingQuota(ctx context.Context, teamID string) (n int64, limited bool, err error) {
	u, err := s.volume.Usage(ctx, teamID)
	n, limited = u.Left()
	return n, limited, err
}

// countQuota returns how many emails of a quota drafts are: one for each recipient that is mailed. Those that are
// scheduled count when their time has come.
func countQuota(drafts []*draft, blocked map[string]suppressions.Suppression) (n int) {
	for _, d := range drafts {
		if !d.at.IsZero() {
			continue
		}
		n += countMailed(d.recipients, d.refused, blocked)
	}
	return n
}

// countMailed returns how many recipients are mailed.
func countMailed(to []recipient, refused refusals, blocked map[string]suppressions.Suppression) (n int) {
	for _, r := range to {
		_, no := refused[r.Key()]
		if _, suppressed := blocked[r.Key()]; !no && !suppressed {
			n++
		}
	}
	return n
}

// keep stores the content of attachments durably, before the email that needs it is accepted.
func (s *Service) storeAttachments(ctx context.Context, teamID string, d *draft) (kept []Attachment, err error) {
	if d.raw != nil {
		return s.storeRaw(ctx, teamID, d)
	}
	defer func() {
		if err != nil {
			for i := range kept {
				s.discardFiles(ctx, &kept[i])
			}
		}
	}()
	for i, u := range d.Attachments {
		a := Attachment{ID: id.New(), TeamID: teamID, Filename: u.Filename, ContentType: u.ContentType,
			ContentID: u.ContentID,
			path:      u.Path}
		if u.Path != "" {
			if _, err := s.guard.CheckURL(u.Path); err != nil {
				return kept, fault.New(fault.BadAttachment, fmt.Sprintf("attachments[%d].path", i),
					"The `path` of an attachment cannot be fetched: %s (`attachments[%d].path`).", err, i).Because(err)
			}
		} else {
			a.Size = int64(len(u.Content))
			a.blobKey = newFileKey()
			if _, err := s.blobs.Put(ctx, a.blobKey, bytes.NewReader(u.Content)); err != nil {
				return kept, fault.New(fault.Unavailable, "",
					"The attachments cannot be stored at present. Try again in a moment.").
					Because(fmt.Errorf("store attachment: %w", err))
			}
		}
		kept = append(kept, a)
	}
	return kept, nil
}

// discardFiles deletes content that no row refers to. What it fails to delete is deleted by the sweep.
func (s *Service) discardFiles(ctx context.Context, list ...*Attachment) {
	for _, a := range list {
		if a.blobKey != "" {
			s.blobs.Delete(context.WithoutCancel(ctx), a.blobKey)
		}
	}
}

// write inserts one email with everything that belongs to it.
func (s *Service) write(ctx context.Context, tx *db.Tx, by teams.Actor, d *draft, from domains.Sender,
	files []Attachment,
	blocked map[string]suppressions.Suppression) error {
	e := Email{ID: d.id, TeamID: by.TeamID, Actor: by.Ref(), DomainID: from.DomainID, MessageID: d.messageID(d.id),
		From: d.From, To: d.To, Cc: d.Cc, Bcc: d.Bcc, ReplyTo: d.ReplyTo, Subject: d.Subject, Tags: d.Tags,
		TopicID: d.TopicID, LastEvent: Queued, ScheduledAt: d.at, CreatedAt: tx.Now()}
	e.bulk = isBulk(d.Headers) || e.TopicID != ""
	if d.template != nil {
		e.TemplateID, e.shared = d.template.templateID, shared{d.template.content.ID, d.values}
	}
	first := events.Event{TeamID: e.TeamID, EmailID: e.ID, DomainID: e.DomainID, Type: events.EmailQueued}
	if !d.at.IsZero() {
		e.LastEvent, first.Type = Scheduled, events.EmailScheduled
	}
	if d.raw != nil {
		d.name(d.id)
	}
	if err := insertEmail(ctx, tx, &e, d); err != nil {
		return err
	}
	for i := range files {
		files[i].EmailID = e.ID
		insertAttachment(ctx, tx, &files[i])
	}
	to, refused := splitRefused(&e, d.recipients, d.refused)
	all := append([]events.Event{first}, refused...)
	switch {
	case len(to) == 0: // nothing is left to do
	case !d.at.IsZero():
		s.q.Insert(ctx, tx, releaseJob(e.TeamID, e.ID, d.at))
	case slices.ContainsFunc(files, func(a Attachment) bool { return a.needsFetch() }):
		s.q.Insert(ctx, tx, fetchJob(&e))
	default:
		memory := d.memory()
		tracked := isTracking(from.Tracking) && d.raw == nil && d.hasHTML()
		if tracked {
			memory += memoryOfTracking(d.texts())
		}
		e.onePerRecipient = tracked || e.TopicID != ""
		all = append(all, s.dispatch(ctx, tx, &e, memory, to, blocked)...)
	}
	for i := range all {
		all[i].Email = func() (*events.Email, error) { return e.eventSummary(d.Headers), nil }
	}
	return s.recorder.Record(ctx, tx, all...)
}

// dispatch enters the delivery jobs of the recipients that are not suppressed, one for each destination or for each
// recipient, and returns the events of those that are. memory is the estimate for composing, in octets; see [Delivery].
func (s *Service) dispatch(ctx context.Context, tx *db.Tx, e *Email, memory int64, to []recipient,
	blocked map[string]suppressions.Suppression) (skipped []events.Event) {
	var all []Delivery
	at := map[string]int{} // destination -> index of its job
	for _, r := range to {
		if b, ok := blocked[r.Key()]; ok {
			skipped = append(skipped, suppressedEvent(e, r.Addr(), b))
			continue
		}
		if i, ok := at[r.Domain]; ok && !e.onePerRecipient {
			all[i].To = append(all[i].To, r.Addr())
			continue
		}
		at[r.Domain] = len(all)
		j := Delivery{EmailID: e.ID, Domain: r.Domain, To: []string{r.Addr()}, Size: memory}
		if e.onePerRecipient {
			j.Ordinal = r.position + 1
		}
		all = append(all, j)
	}
	for _, j := range all {
		j.Only = len(all) == 1
		s.q.Insert(ctx, tx, jobs.New{Kind: DeliveryKind, Lane: Lane(j.Domain, e.TeamID, e.bulk), TeamID: e.TeamID,
			Payload: j.encode()})
	}
	return skipped
}

// suppressedEvent returns the event of a recipient that is not mailed because of an entry of the suppression list.
func suppressedEvent(e *Email, to string, b suppressions.Suppression) events.Event {
	return events.Event{TeamID: e.TeamID, EmailID: e.ID, DomainID: e.DomainID, BroadcastID: e.BroadcastID,
		Type: events.EmailSuppressed, Recipient: to, Data: suppressedBy(b)}
}

func suppressedBy(b suppressions.Suppression) *events.Suppressed {
	d := &events.Suppressed{Type: "OnAccountSuppressionList", Reason: "previous_bounce", DiagnosticCode: []string{},
		Message: "The address is on the team's suppression list because an earlier email to it bounced."}
	switch b.Origin {
	case suppressions.Complaint:
		d.Reason = "previous_complaint"
		d.Message = "The address is on the team's suppression list because its owner reported an earlier email as spam."
	case suppressions.Manual:
		d.Message = "The address is on the team's suppression list because it was added by hand (manual)."
	}
	return d
}

// Get returns an email of the team with its bodies. The text of one that is [Private] is not among them.
func (s *Service) Get(ctx context.Context, teamID, emailID string) (Email, error) {
	e, err := getEmail(ctx, s.d.Reader, teamID, emailID)
	if err != nil {
		return e, err
	}
	return e, s.loadBodies(ctx, &e)
}

// shown gives an email the bodies that its team may read.
func (s *Service) loadBodies(ctx context.Context, e *Email) error {
	if isPrivate(e.Actor.Kind, e.Tags) {
		e.HTML, e.Text = nil, new("The text of this email is for its recipient alone.")
		return nil
	}
	return s.fill(ctx, e)
}

// GetWithin is Get for an email whose bodies, which it does not share with others, have at most so many octets. size is
// how many they have; if they have more, the email is returned without them.
func (s *Service) GetWithin(ctx context.Context, teamID, emailID string, most int) (e Email, size int64, err error) {
	e, size, err = getEmailWithin(ctx, s.d.Reader, teamID, emailID, most)
	if err != nil || size > int64(most) {
		return e, size, err
	}
	return e, size, s.loadBodies(ctx, &e)
}

// TextSize returns how many octets the bodies of an email have, which it does not share with others.
func (s *Service) TextSize(ctx context.Context, teamID, emailID string) (int64, error) {
	_, size, err := getEmailWithin(ctx, s.d.Reader, teamID, emailID, 0)
	return size, err
}

// Exists returns a NotFound fault if the team has no such email.
func (s *Service) Exists(ctx context.Context, teamID, emailID string) error {
	return exists(ctx, s.d.Reader, teamID, emailID)
}

// List returns a page of the team's emails, newest first, without bodies and tags.
func (s *Service) List(ctx context.Context, teamID string, p page.Page) ([]Email, bool, error) {
	return listEmails(ctx, s.d.Reader, teamID, p)
}

// Recipients returns the envelope addresses of an email with their states.
func (s *Service) Recipients(ctx context.Context, teamID, emailID string) ([]Recipient, error) {
	return listRecipients(ctx, s.d.Reader, teamID, emailID)
}

// Timeline returns a page of what happened to an email, oldest first, and whether there is more; see [events.Timeline].
func (s *Service) Timeline(ctx context.Context, teamID, emailID string, p page.Page) ([]events.Entry, bool, error) {
	return events.Timeline(ctx, s.d.Reader, teamID, emailID, p)
}

// Attempts returns a page of the tries to deliver an email with their conversations, oldest first, and whether there
// are more. Without a limit it has at most 500.
func (s *Service) Attempts(ctx context.Context, teamID, emailID string, p page.Page) ([]Attempt, bool, error) {
	return listAttempts(ctx, s.d.Reader, teamID, emailID, p)
}

// Reschedule changes the time of a scheduled email.
func (s *Service) Reschedule(ctx context.Context, teamID, emailID, when string) error {
	if when == "" {
		return fault.MissingField("scheduled_at")
	}
	at, err := scheduledAt(when, s.d.Now())
	if err != nil {
		return err
	}
	return s.d.Update(ctx, func(tx *db.Tx) error {
		if at.IsZero() {
			at = tx.Now()
		}
		changed, err := setSchedule(ctx, tx, teamID, emailID, at)
		if err != nil {
			return err
		}
		if !changed {
			return s.notScheduled(ctx, tx, teamID, emailID, "rescheduled")
		}
		moved, err := s.q.Move(ctx, tx, ReleaseKind, teamID, emailID, at)
		if err == nil && !moved {
			// A worker that has claimed the job sees the new time. If there is no job at all, this enters one.
			s.q.Insert(ctx, tx, releaseJob(teamID, emailID, at))
		}
		return err
	})
}

// Cancel ends a scheduled email permanently.
func (s *Service) Cancel(ctx context.Context, teamID, emailID string) error {
	return s.d.Update(ctx, func(tx *db.Tx) error {
		e, err := takeScheduled(ctx, tx, teamID, emailID, Canceled, math.MaxInt64)
		if err != nil {
			return err
		}
		if e == nil {
			return s.notScheduled(ctx, tx, teamID, emailID, "canceled")
		}
		if _, err := s.q.Remove(ctx, tx, ReleaseKind, emailID); err != nil {
			return err
		}
		return s.recorder.Record(ctx, tx, events.Event{TeamID: teamID, EmailID: emailID, DomainID: e.DomainID,
			Type: events.EmailCanceled})
	})
}

// notScheduled returns why an email cannot be changed: it does not exist, or it is no longer scheduled.
func (s *Service) notScheduled(ctx context.Context, tx *db.Tx, teamID, emailID, what string) error {
	e, err := readEmail(ctx, tx.Reader, teamID, emailID)
	if err != nil {
		return err
	}
	return fault.Invalidf("", "Only a scheduled email can be %s; this one is %s.", what, e.LastEvent)
}

// HasScheduledFrom reports whether the team has scheduled emails from the domain.
func (s *Service) HasScheduledFrom(ctx context.Context, teamID, domainID string) (bool, error) {
	return anyScheduled(ctx, s.d.Reader, teamID, domainID)
}

// Sweep deletes expired idempotency keys. It is called periodically.
func (s *Service) Sweep(ctx context.Context) error {
	return s.d.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM idempotency_keys WHERE created_at < $1`, tx.Now().Add(-keyLifetime).UnixMicro())
		return err
	})
}

// addresses parses stored addresses. They were checked when they were accepted, so it fails only for a damaged row.
func addresses(list []string) ([]message.Address, error) {
	all := make([]message.Address, 0, len(list))
	for _, text := range list {
		a, err := message.ParseAddress(text)
		if err != nil {
			return nil, fmt.Errorf("read stored address %q: %w", text, err)
		}
		all = append(all, a)
	}
	return all, nil
}
