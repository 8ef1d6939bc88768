package emails

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/htmltext"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/render"
	"github.com/postrider/postrider/internal/sending/tokens"
)

// DeliveryKind is the kind of the jobs that package delivery handles. A job delivers an email to one destination
// domain, or to one recipient if the email is tracked or has a topic.
const DeliveryKind = "delivery"

// Delivery is the payload of a delivery job.
type Delivery struct {
	EmailID string `json:"email"`
	TeamID  string `json:"-"`              // the email's team, which the job's lane names
	Domain  string `json:"-"`              // the destination, which the job's lane names
	Only    bool   `json:"only,omitempty"` // the email has no other delivery job

	// To lists the job's recipients: all recipients at the destination when the job was enqueued, or only one of them.
	// On the job's first attempt, its recipients cannot be settled yet, so the method Outgoing does not look up their
	// states.
	To    []string `json:"to"`
	First bool     `json:"-"`
	Bulk  bool     `json:"-"` // whether the job's lane is for bulk mail

	// If the job has only one recipient, Ordinal is the recipient's position in the envelope, counted from 1. Ordinal
	// is 0 if the position is unknown. Ordinal is needed only for tracking.
	Ordinal int `json:"place,omitempty"`

	// WithheldUntil is the time, in Unix microseconds, until which the job is withheld because of its sender's domain.
	// If the job was never withheld, WithheldUntil is 0. WithheldTries is the number of the job's tries when the job
	// was first withheld until that time. After another try, the job has a new due time.
	WithheldUntil int64 `json:"until,omitempty"`
	WithheldTries int   `json:"until_tries,omitempty"`

	// FileFailedAt is the time, in Unix microseconds, since which a file of the email cannot be read, or 0. FileTries
	// is the number of the job's tries at that time. After another try, the file was readable again.
	FileFailedAt int64 `json:"file,omitempty"`
	FileTries    int   `json:"file_tries,omitempty"`

	// Audience is true if the email has a contact, a topic or a broadcast, so that its recipient may refuse it.
	Audience bool `json:"audience,omitempty"`

	// Size is the memory needed to compose the email, in bytes, as estimated by [Service.Size]. If the estimate is
	// unknown, Size is 0.
	Size int64 `json:"size,omitempty"`
}

// Encode returns the payload of the delivery's job.
func (d Delivery) Encode() string {
	text, err := json.Marshal(d)
	if err != nil {
		panic("emails: a delivery cannot be encoded: " + err.Error()) // strings and numbers can always be encoded
	}
	return string(text)
}

// DecodeDelivery decodes the payload of a delivery job in the given lane.
func DecodeDelivery(payload, lane string) (d Delivery, err error) {
	if err := json.Unmarshal([]byte(payload), &d); err != nil {
		return d, fmt.Errorf("read the payload of a delivery job: %w", err)
	}
	d.Domain, d.TeamID, d.Bulk = Destination(lane), LaneTeam(lane), IsBulk(lane)
	return d, nil
}

// bulkMark is the suffix that marks lanes for bulk mail.
const bulkMark = "|bulk"

// BulkLanes is the end of the names of lanes for bulk mail; see [Lane].
const BulkLanes = bulkMark

// Lane returns the lane for a team's mail to a destination; see [Destination]. Bulk mail has a separate lane with a
// lower priority, so that a password reset does not wait behind a newsletter.
func Lane(domain, teamID string, bulk bool) string {
	lane := domain + "|" + teamID
	if bulk {
		lane += bulkMark
	}
	return lane
}

// LaneTurn returns the key under which a lane takes its turn to use a shared resource. Each team has one key for bulk
// mail and another for its other mail.
func LaneTurn(lane string) string {
	_, turn, _ := strings.Cut(lane, "|")
	return turn
}

// IsBulk reports whether a lane is for bulk mail.
func IsBulk(lane string) bool { return strings.HasSuffix(lane, bulkMark) }

// Destination returns the destination domain of a lane. All teams' lanes to a destination domain share the limits for
// that domain.
func Destination(lane string) string {
	domain, _, _ := strings.Cut(lane, "|")
	return domain
}

// LaneTeam returns the id of the team to which a lane belongs.
func LaneTeam(lane string) string {
	return strings.TrimSuffix(LaneTurn(lane), bulkMark)
}

// Outgoing holds the data needed to deliver an email to one destination.
type Outgoing struct {
	ID             string
	Ref            tokens.Ref // names the email in tokens
	TeamID         string
	DomainID       string
	BroadcastID    string
	ContactID      string // the recipient's contact; "" for none
	ContentID      string // the content that the email shares with others; "" for none
	CreatedAt      time.Time
	LastEvent      State
	To             []string // envelope addresses at the destination that are not settled
	UTF8           bool     // whether an address or the message requires SMTPUTF8
	OneRecipient   bool     // whether the email has no other recipients; see [events.Event]
	ContentMissing bool     // the content is missing even though the email is not settled

	// MayBeRefused is false if, when the email was loaded, none of its recipients was suppressed and all of them
	// accepted the email. If MayBeRefused is true, DropSuppressed decides.
	MayBeRefused bool

	ComplaintLoop ComplaintLoop // set by the caller before Compose

	row         emailRow
	bulk        bool
	body        bodies
	attachments []Attachment
	fields      func() ([]message.Field, error) // set by ReleaseContent for an email with shared content
	positions   map[string]int                  // positions of addresses in the envelope, as far as known
}

type bodies struct {
	html, text string
	flags      int
	headers    string
	shared     *content.Compiled // nil if the email does not share its content
}

// ErrGone is returned if an email does not exist, for example because its team was deleted.
var ErrGone = errors.New("the email does not exist")

// Outgoing loads an email and its bodies so that it can be delivered to a destination. The content of attachments is
// read later by Compose.
func (s *Service) Outgoing(ctx context.Context, d Delivery) (*Outgoing, error) {
	o := &Outgoing{To: d.To, bulk: d.Bulk}
	r := &o.row
	keys, err := o.keys()
	if err != nil {
		return nil, err
	}
	own, err := readOutgoing(ctx, s.DB, d, keys, o)
	if errors.Is(err, db.ErrNoRows) {
		return nil, ErrGone
	}
	if err == nil {
		o.body.shared, err = s.content(ctx, r.TeamID, &r.shared)
	}
	if err == nil {
		o.Ref, err = s.Ref(ctx, r.TeamID, r.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("load email %s: %w", d.EmailID, err)
	}
	if err := r.complete(); err != nil {
		return nil, err
	}
	o.ContentMissing = r.shared.contentID != "" && o.body.shared == nil || r.shared.contentID == "" && !own
	o.ID, o.TeamID, o.DomainID, o.BroadcastID, o.ContactID = r.ID, r.TeamID, r.DomainID, r.BroadcastID, r.ContactID
	o.ContentID, o.CreatedAt, o.LastEvent = r.shared.contentID, db.Time(r.created), r.LastEvent
	o.OneRecipient = r.only != ""
	// The statement compares only one recipient with the choices of contacts. A job for an email with unsubscribe links
	// has one recipient, and jobs that an old release inserted may name none.
	o.MayBeRefused = o.MayBeRefused || len(keys) == 0 || len(keys) > 1 && r.canUnsubscribe()
	if o.body.flags&hasFiles != 0 {
		if o.attachments, err = attachmentsOf(ctx, s.DB.Reader, o.TeamID, o.ID); err != nil {
			return nil, fmt.Errorf("load attachments of email %s: %w", o.ID, err)
		}
	}
	switch {
	case !d.First:
		if err := s.stillPending(ctx, d, o); err != nil {
			return nil, err
		}
	case d.Ordinal > 0 && len(d.To) == 1:
		o.positions = map[string]int{d.To[0]: d.Ordinal - 1}
	}
	o.UTF8 = o.needsUTF8()
	return o, nil
}

// stillPending sets o.To to those recipients of the job that are not settled.
func (s *Service) stillPending(ctx context.Context, d Delivery, o *Outgoing) error {
	e := o.row.Email
	e.LastEvent = o.LastEvent
	to, err := pending(ctx, s.DB.Reader, &e, d.Domain)
	if err != nil {
		return fmt.Errorf("load recipients of email %s: %w", d.EmailID, err)
	}
	o.To, o.positions = o.To[:0:0], map[string]int{}
	for _, a := range to {
		if len(d.To) == 0 || slices.Contains(d.To, a.Addr()) {
			o.To = append(o.To, a.Addr())
			o.positions[a.Addr()] = a.position
		}
	}
	return nil
}

func (o *Outgoing) needsUTF8() bool {
	return o.body.flags&needsUTF8 != 0 ||
		slices.ContainsFunc(o.To, func(a string) bool {
			return strings.ContainsFunc(a,
				func(r rune) bool { return r > 0x7e })
		})
}

// DropSuppressed removes from o.To every address that is suppressed for the team or no longer subscribes to the email's
// topic. DropSuppressed returns the events to record for the removed addresses. Suppressions caused by bounces do not
// block a [Private] email.
func (s *Service) DropSuppressed(ctx context.Context, o *Outgoing) (skipped []events.Event, err error) {
	if skipped, err = s.dropTopicRefusals(ctx, o); err != nil {
		return nil, err
	}
	keys, err := o.keys()
	if err != nil {
		return nil, err
	}
	blocked, err := s.Suppressions.SuppressedNow(ctx, o.TeamID, keys)
	if err != nil {
		return nil, fmt.Errorf("look up suppressions for email %s: %w", o.ID, err)
	}
	if len(blocked) > 0 && o.row.Actor.Kind == teams.SystemActor {
		e, err := o.row.email()
		if err != nil {
			return nil, err
		}
		blocked = blocking(blocked, isPrivate(e.Actor.Kind, e.Tags) || o.ForwardRule() != "")
	}
	return append(skipped, removeAddresses(o, keys, blocked, suppressedEvent)...), nil
}

// keys returns the keys of the addresses in o.To, in order; see [message.Address.Key].
func (o *Outgoing) keys() ([]string, error) {
	to, err := addresses(o.To)
	if err != nil {
		return nil, err
	}
	keys := make([]string, len(to))
	for i, a := range to {
		keys[i] = a.Key()
	}
	return keys, nil
}

// removeAddresses removes from o.To every address that has an entry in reasons, and returns an event for each. The
// slice keys holds, in the order of o.To, the key under which each address is found in reasons.
func removeAddresses[R any](o *Outgoing, keys []string, reasons map[string]R,
	event func(e *Email, to string, why R) events.Event) (removed []events.Event) {
	if len(reasons) == 0 {
		return nil
	}
	var left []string
	for i, key := range keys {
		why, ok := reasons[key]
		if !ok {
			left = append(left, o.To[i])
			continue
		}
		e := event(&o.row.Email, o.To[i], why)
		e.Email = o.EventSummary
		removed = append(removed, e)
	}
	o.To = left
	o.UTF8 = o.needsUTF8()
	return removed
}

// memoryFor estimates the memory, in bytes, needed to compose an email. Text and HTML are held in memory twice, in
// plain and encoded form. Attachments are held in memory twice, as plain bytes and in base64.
func memoryFor(texts, attachments int64) int64 { return 2*texts + memoryOfFiles(attachments) + 1024 }

// memoryOfFiles estimates the memory, in bytes, needed to compose attachments.
func memoryOfFiles(attachments int64) int64 { return attachments * 5 / 2 }

// memoryForRaw estimates the memory, in bytes, needed for a raw message.
func memoryForRaw(texts, message int64) int64 { return texts + 2*message + 1024 }

// memory estimates the memory, in bytes, needed to compose the draft's message.
func (d *draft) memory() int64 {
	var files int64
	texts := d.texts()
	if d.raw != nil {
		return memoryForRaw(texts, int64(len(d.raw.Header)+len(d.raw.Body)))
	}
	for _, a := range d.Attachments {
		files += int64(len(a.Content))
	}
	return memoryFor(texts, files)
}

// Size estimates the memory, in bytes, needed to compose and send an email, without reading its content. Size returns
// ErrGone if the email does not exist.
func (s *Service) Size(ctx context.Context, teamID, emailID string) (int64, error) {
	z, err := sizeOf(ctx, s.DB.Reader, teamID, emailID)
	if errors.Is(err, db.ErrNoRows) {
		return 0, ErrGone
	}
	if err != nil {
		return 0, fmt.Errorf("look up the size of email %s: %w", emailID, err)
	}
	c, err := s.content(ctx, z.teamID, &z.shared)
	if err != nil {
		return 0, fmt.Errorf("look up the size of what email %s shares: %w", emailID, err)
	}
	if c != nil {
		z.texts += c.Size(z.shared.values)
	}
	switch {
	case z.flags&isRaw == 0:
		on, err := s.trackingOf(ctx, z.domainID)
		if err != nil {
			return 0, fmt.Errorf("look up the size of email %s: %w", emailID, err)
		}
		n := memoryFor(z.texts, z.attachments)
		if isTracking(on) {
			n += memoryOfTracking(z.texts)
		}
		return n, nil
	case z.flags&isBlob != 0:
		return memoryForRaw(z.texts, s.c.MaxSize), nil
	}
	return memoryForRaw(z.texts, rawInRow), nil
}

// ReleaseContent releases the memory that holds the content. Call ReleaseContent after the message has been composed.
// The header fields are kept for [Outgoing.EventSummary].
func (o *Outgoing) ReleaseContent() {
	if o.body.shared != nil {
		fields, err := o.headers(&o.row.Email)
		o.fields = func() ([]message.Field, error) { return fields, err }
	}
	o.body, o.attachments = bodies{headers: o.body.headers}, nil
}

// Compose returns the message without signatures. Compose returns the same bytes for the same email and recipients,
// unless the domain's tracking settings change.
func (s *Service) Compose(ctx context.Context, o *Outgoing) ([]byte, error) {
	if o.body.flags&isRaw != 0 {
		text, err := s.raw(ctx, o.TeamID, o.ID)
		if err != nil || o.ForwardRule() != "" {
			return text, err
		}
		l := s.unsubscribeInfo(o)
		return prependFields(text, func(has func(string) bool) []message.Field { return s.addedFields(o, l, has) }), nil
	}
	e, err := o.row.email()
	if err != nil {
		return nil, err
	}
	m, err := e.envelope()
	if err != nil {
		return nil, err
	}
	if m.Headers, err = o.headers(&e); err != nil {
		return nil, err
	}
	l := s.unsubscribeInfo(o)
	m.Headers = appendFields(m.Headers, func(has func(string) bool) []message.Field { return s.addedFields(o, l, has) })
	t, err := s.tracker(ctx, o, m.Headers)
	if err != nil {
		return nil, err
	}
	if t != nil && l.url != "" {
		t.own = append(t.own, l.url)
	}
	m.HTML, m.Text = o.bodyParts(e.shared.values, l, t)
	if t != nil {
		t.tokens.Release()
	}
	for i := range o.attachments {
		a := &o.attachments[i]
		content, err := s.readContent(ctx, a)
		if err != nil {
			return nil, err
		}
		m.Attachments = append(m.Attachments, message.Attachment{Filename: a.Filename, ContentType: a.ContentType,
			ContentID: a.ContentID, Content: content})
	}
	composed, err := m.Compose()
	if err != nil {
		return nil, fault.Invalidf("", "The email cannot be composed: %s", err).Because(err)
	}
	return composed, nil
}

// envelope returns the email as a message without bodies, attachments and further header fields.
func (e *Email) envelope() (m message.Message, err error) {
	m = message.Message{ID: e.MessageID, Date: e.CreatedAt, Subject: e.Subject, Seed: e.ID}
	if !e.ScheduledAt.IsZero() {
		m.Date = e.ScheduledAt
	}
	if m.From, err = message.ParseAddress(e.From); err != nil {
		return m, fmt.Errorf("read stored sender of email %s: %w", e.ID, err)
	}
	for _, l := range []struct {
		dst  *[]message.Address
		list []string
	}{{&m.To, e.To}, {&m.Cc, e.Cc}, {&m.ReplyTo, e.ReplyTo}} {
		if *l.dst, err = addresses(l.list); err != nil {
			return m, err
		}
	}
	return m, nil
}

// bodyParts returns the HTML and the text of the message. If t is not nil, links in the HTML are tracked; links in the
// text are not. Unsubscribe links, which l provides, are not tracked.
func (o *Outgoing) bodyParts(values render.Values, l unsubscribeInfo, t *tracker) (html, text string) {
	values = l.values(values)
	switch c := o.body.shared; {
	case c != nil && t != nil:
		return c.TrackedBodies(values, t.links(), t.pixels())
	case c != nil:
		return c.Bodies(values)
	}
	html, text = l.fill(o.body.html), l.fill(o.body.text)
	if o.body.flags&gaveText == 0 {
		text = htmltext.FromHTML(html)
	}
	if t != nil {
		html = t.html(render.LiteralHTML(html))
	}
	return html, text
}

// FileError is the error of Compose if a file of the email cannot be read. The file may be unreadable, or the whole
// blob store may be away; in the second case, the error may be an outage ([fault.IsOutage]).
type FileError struct {
	Name string // the file name of the attachment; "" if the file contains the whole message
	err  error
}

func (e *FileError) Error() string { return e.err.Error() }
func (e *FileError) Unwrap() error { return e.err }

// Missing reports whether the blob store does not have the file.
func (e *FileError) Missing() bool { return errors.Is(e.err, blob.ErrNotFound) }

// fileError returns a *FileError, or the error itself if it occurred because the context has ended.
func fileError(ctx context.Context, name string, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return &FileError{name, err}
}

// readContent reads the content of an attachment.
func (s *Service) readContent(ctx context.Context, a *Attachment) ([]byte, error) {
	r, err := s.open(ctx, a)
	if err != nil {
		return nil, fileError(ctx, a.Filename, fmt.Errorf("open attachment %s: %w", a.ID, err))
	}
	defer r.Close()
	content := make([]byte, a.Size)
	if _, err := io.ReadFull(r, content); err != nil {
		return nil, fileError(ctx, a.Filename, fmt.Errorf("read attachment %s: %w", a.ID, err))
	}
	return content, nil
}
