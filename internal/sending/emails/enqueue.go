package emails

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/render"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

// MaxEnqueue is the maximum number of emails in one call to Enqueue. All emails are written in one transaction, which
// takes a few tens of milliseconds. On SQLite, the transaction blocks all other writes.
const MaxEnqueue = 500

// These are limits for shared content and for the values of its placeholders.
const (
	MaxPlaceholders = 10_000    // in a content
	MaxValues       = 512 << 10 // maximum total size of one email's variables, in bytes
)

// Mailing holds the data that many emails share, including their content.
type Mailing struct {
	BroadcastID string
	TemplateID  string
	TopicID     string
	Tags        []Tag

	// If SkipUnmailable is true, Enqueue writes no email for a recipient who is suppressed or to whom the email may not be
	// sent. The reason is given in the result for the skipped recipient.
	SkipUnmailable bool

	by      teams.Actor
	content *content.Compiled
	from    domains.Sender
	sender  message.Address
	bulk    bool
	single  *draft // the draft rendered by MailingByTemplate; nil for other mailings
}

// MailingRecipient is the recipient of one email in a mailing, with the values for the placeholders.
type MailingRecipient struct {
	Address string        // address with or without a display name
	Values  render.Values // ignored if MailingByTemplate created the Mailing

	// ContactID is the id of the recipient's contact; "" for none. If ContactID is set, Address and Refused (why the email
	// may not be sent to the contact) must have been read from package contacts in the same transaction. Enqueue does not
	// look up the contact's address or the refusal again.
	ContactID string
	Refused   contacts.Refusal
}

// EnqueueResult is the result of Enqueue for one recipient.
type EnqueueResult struct {
	ID         string // "" if the email was refused or skipped
	Err        error  // why the email was refused
	SkipReason string // why the recipient was skipped: AddressSuppressed or a [contacts.Refusal]
}

// AddressSuppressed is the reason given when a recipient is skipped because the address is suppressed.
const AddressSuppressed = "suppressed"

// Mailing prepares emails that share content. Mailing checks that the content is a valid email even without values for
// placeholders, and that the actor may send from its domain. Use a Mailing within seconds, because the rules and the
// actor's rights may change later. The emails are delivered as bulk mail if bulk is true or if their header marks them
// as bulk mail.
func (s *Service) Mailing(ctx context.Context, by teams.Actor, contentID string, bulk bool) (*Mailing, error) {
	c, err := s.Contents.Get(ctx, by.TeamID, contentID)
	if err != nil {
		return nil, err
	}
	return s.MailingOf(ctx, by, c, bulk)
}

// MailingOf is like Mailing, but the content does not have to be stored yet. Callers use MailingOf to check whether
// emails with this content could be sent. Enqueue requires that the content is stored.
func (s *Service) MailingOf(ctx context.Context, by teams.Actor, c *content.Compiled, bulk bool) (*Mailing, error) {
	if err := by.RequireUnlimited(); err != nil {
		return nil, err
	}
	d := &draft{Send: Send{From: c.From(nil), ReplyTo: c.ReplyTo(nil), Subject: c.Subject(nil), HTML: c.HTML(nil),
		Text: c.Text(nil), Headers: c.Headers(nil)}}
	if err := d.checkAddresses(nil); err != nil {
		return nil, err
	}
	if err := d.checkContent(); err != nil {
		return nil, err
	}
	if err := d.checkHeaders(); err != nil {
		return nil, err
	}
	if (d.HTML == nil || *d.HTML == "") && (d.Text == nil || *d.Text == "") {
		return nil, fault.New(fault.Missing, "html", "Missing `html` or `text` field.")
	}
	if size := d.size(); size > s.c.MaxSize {
		return nil, s.tooLarge(size)
	}
	if size := c.Size(nil) + 2048; size > s.c.MaxSize {
		return nil, s.tooLarge(size)
	}
	if n := c.Placeholders(); n > MaxPlaceholders {
		return nil, fault.Invalidf("html", "The content has %d placeholders; the limit is %d.", n, MaxPlaceholders)
	}
	from, err := s.sender(ctx, by, d)
	if err != nil {
		return nil, err
	}
	return &Mailing{by: by, content: c, from: from, sender: d.from, bulk: bulk || isBulk(d.Headers)}, nil
}

// Enqueue writes an email and its delivery job for each of at most MaxEnqueue recipients, in the caller's transaction.
// The emails share their content. Enqueue returns a result for each recipient, in the order of the recipients. If
// Enqueue returns an error, the caller must roll back the transaction. If the error is that a quota is exceeded,
// however, Enqueue has written no rows, and the caller may continue the transaction. For a suppressed recipient,
// Enqueue writes an email in the state suppressed.
func (s *Service) Enqueue(ctx context.Context, tx *db.Tx, m *Mailing, to []MailingRecipient) ([]EnqueueResult, error) {
	if len(to) > MaxEnqueue {
		return nil, fmt.Errorf("enqueue %d emails at once: the limit is %d", len(to), MaxEnqueue)
	}
	if err := checkTags(m.Tags); err != nil {
		return nil, err
	}
	results := make([]EnqueueResult, len(to))
	list := make([]recipient, len(to))
	var keys, unknown []string
	for i, one := range to {
		if list[i], results[i].Err = s.recipientOf(ctx, m, one.Address); results[i].Err != nil {
			continue
		}
		keys = append(keys, list[i].Key())
		if one.ContactID == "" {
			unknown = append(unknown, list[i].Key())
		}
	}
	blocked, err := s.Suppressions.Suppressed(ctx, tx.Reader, m.by.TeamID, keys)
	if err != nil {
		return nil, fmt.Errorf("look up suppressions: %w", err)
	}
	var refused refusals
	if len(unknown) > 0 {
		refused, err = s.refusals(ctx, tx.Reader, &Email{TeamID: m.by.TeamID, BroadcastID: m.BroadcastID,
			TopicID: m.TopicID}, unknown)
	}
	if err != nil {
		return nil, err
	}
	var some []*enqueueItem
	n := 0
	for i, one := range to {
		key, why := list[i].Key(), one.Refused
		if one.ContactID == "" {
			why = refused[key]
		}
		if m.SkipUnmailable && results[i].Err == nil {
			results[i].SkipReason = skipReason(key, blocked, why)
		}
		if results[i].Err != nil || results[i].SkipReason != "" {
			continue
		}
		if m.single != nil {
			one.Values = m.single.values
		}
		size := m.content.Size(one.Values)
		e, err := s.emailOf(tx, m, one, size)
		if err != nil {
			results[i].Err = err
			continue
		}
		some = append(some, &enqueueItem{e, i, size, why})
		if _, suppressed := blocked[key]; !suppressed && why == "" {
			n++
		}
	}
	if err := s.Quotas.Count(ctx, tx, m.by.TeamID, n); err != nil {
		return nil, err
	}
	s.Contents.MarkUsed(ctx, tx, m.content.Ref)
	var all []events.Event
	s.enqueued(tx, m, some)
	for _, one := range some {
		e, i, size := one.Email, one.at, one.size
		e.only = list[i].Addr()
		if err := insertRow(ctx, tx, e, nil); err != nil {
			return nil, err
		}
		memory := memoryFor(size, 0)
		tracked := isTracking(m.from.Tracking) && m.content.HasHTML()
		if tracked {
			memory += memoryOfTracking(size)
		}
		e.onePerRecipient = tracked || e.TopicID != ""
		all = append(all, events.Event{ID: e.ID, TeamID: e.TeamID, EmailID: e.ID, DomainID: e.DomainID,
			BroadcastID: e.BroadcastID, Type: events.EmailQueued})
		to, failed := list[i:i+1], []events.Event(nil)
		if one.refused != "" {
			to, failed = nil, []events.Event{refusedEvent(e, list[i].Addr(), one.refused)}
		}
		for _, skipped := range append(failed, s.dispatch(ctx, tx, e, memory, to, blocked)...) {
			skipped.Email = func() (*events.Email, error) { return e.eventSummary(m.content.Headers(e.shared.values)), nil }
			all = append(all, skipped)
		}
		results[i].ID = e.ID
	}
	return results, s.Recorder.Record(ctx, tx, all...)
}

// enqueued tells the search index of the emails of a mailing, and reports them after the commit of tx.
func (s *Service) enqueued(tx *db.Tx, m *Mailing, some []*enqueueItem) {
	s.Index.Accepted(m.by.TeamID, len(some))
	source := "automation"
	if m.BroadcastID != "" {
		source = "broadcast"
	}
	ids := make([]string, len(some))
	for i, one := range some {
		ids[i] = one.ID
	}
	tx.AfterCommit(func() { s.accepted(source, ids) })
}

// MailableRecipients reports for each recipient whether Enqueue would mail it, considering only the address and
// suppressions.
func (s *Service) MailableRecipients(ctx context.Context, m *Mailing, to []MailingRecipient) ([]bool, error) {
	mailable, keys := make([]bool, len(to)), make([]string, len(to))
	for i, one := range to {
		r, err := s.recipientOf(ctx, m, one.Address)
		if fault.Ours(err) {
			return nil, err
		}
		mailable[i], keys[i] = err == nil, r.Key()
	}
	blocked, err := s.Suppressions.SuppressedNow(ctx, m.by.TeamID, keys)
	if err != nil {
		return nil, fmt.Errorf("look up suppressions: %w", err)
	}
	for i, key := range keys {
		if _, suppressed := blocked[key]; suppressed {
			mailable[i] = false
		}
	}
	return mailable, nil
}

// enqueueItem is an email that Enqueue writes.
type enqueueItem struct {
	*Email
	at      int   // index in the list of recipients
	size    int64 // size of the email's text and HTML in bytes
	refused contacts.Refusal
}

// skipReason returns the reason why no email is sent to an address, or "" if the email is sent.
func skipReason(key string, blocked map[string]suppressions.Suppression, refused contacts.Refusal) string {
	if _, ok := blocked[key]; ok {
		return AddressSuppressed
	}
	return string(refused)
}

// emailOf creates one email in a mailing, with the rendered sender, reply-to addresses and subject. The parameter size
// is the size of the email's text and HTML in bytes.
func (s *Service) emailOf(tx *db.Tx, m *Mailing, to MailingRecipient, size int64) (*Email, error) {
	c, values := m.content, m.content.UsedValues(to.Values)
	n := 0
	for name, value := range values {
		if n += len(name) + len(value); n > MaxValues {
			return nil, fault.Invalidf("variables", "The variables have more than %d bytes in all.", MaxValues)
		}
		if strings.ContainsRune(value, 0) || !utf8.ValidString(value) {
			return nil, fault.Invalidf("variables."+name, "The variable %s must be UTF-8 text without NUL characters.", name)
		}
	}
	e := &Email{ID: id.At(tx.Now()), TeamID: m.by.TeamID, Actor: m.by.Ref(), DomainID: m.from.DomainID,
		To: []string{to.Address}, Tags: m.Tags, TopicID: m.TopicID, TemplateID: m.TemplateID, BroadcastID: m.BroadcastID,
		ContactID: to.ContactID, LastEvent: Queued, CreatedAt: tx.Now(), bulk: m.bulk || m.TopicID != "",
		shared: shared{c.ID, values}}
	e.MessageID = "<" + e.ID + "@" + m.sender.Domain + ">"
	if size += 2048; size > s.c.MaxSize {
		return nil, s.tooLarge(size)
	}
	if m.single != nil {
		e.From, e.ReplyTo, e.Subject = m.single.From, m.single.ReplyTo, m.single.Subject
		return e, nil // MailingByTemplate has checked all other rules.
	}
	if err := c.CheckLines(values); err != nil {
		return nil, err
	}
	e.From, e.ReplyTo, e.Subject = c.From(values), c.ReplyTo(values), c.Subject(values)
	if !c.SameHeaders() {
		d := &draft{Send: Send{Headers: c.Headers(values)}}
		if err := d.checkHeaders(); err != nil {
			return nil, err
		}
	}
	if c.SameEnvelope() {
		return e, nil // Mailing has checked the envelope.
	}
	d := &draft{Send: Send{From: e.From, ReplyTo: e.ReplyTo, Subject: e.Subject}}
	if err := d.checkAddresses(nil); err != nil {
		return nil, err
	}
	if d.from.Domain != m.sender.Domain {
		return nil, fault.Invalidf("from",
			"The variables of this email make it come from %s, and not from %s as the others do.",
			d.from.Domain, m.sender.Domain)
	}
	return e, d.checkContent()
}
