package broadcasts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

// Config contains the settings of a [Service].
type Config struct {
	MaxSize        int64   // maximum size of a message in bytes
	BounceLimit    float64 // percentage of the emails handed to mail servers; see [Options]
	ComplaintLimit float64
}

// Deps are the dependencies of a [Service].
type Deps struct {
	DB       *db.DB
	Queue    *jobs.Queue
	Recorder *events.Recorder
	Emails   *emails.Service
	Contents *content.Service
	Contacts *contacts.Service
	Teams    *teams.Service
	Domains  *domains.Service
	Log      *slog.Logger

	// Notify enqueues an email to a team's owner as part of the transaction tx.
	Notify func(ctx context.Context, tx *db.Tx, teamID, subject, text string) error
}

// Service implements the operations on broadcasts and sends them. Register the service as a listener with the event
// recorder, after package emails.
type Service struct {
	c               Config
	p               Deps
	audienceTimeout time.Duration // time limit within which Send looks for a first contact in the audience
	decisions       decisions
	teamChanges     atomic.Int64 // incremented when a team or its keys change, so that senders are checked again
}

// New returns the service. New fails if a dependency is missing.
func New(c Config, p Deps) (*Service, error) {
	if err := fault.Complete(p); err != nil {
		return nil, err
	}
	s := &Service{c: c, p: p, audienceTimeout: 5 * time.Second}
	s.decisions.cache = map[string]cachedDecision{}
	p.DB.OnHint(hintTopic, s.decisions.forget)
	p.DB.OnHint(teams.HintTopic, func(string) { s.teamChanges.Add(1) })
	return s, nil
}

// NewBroadcast describes a broadcast to create.
type NewBroadcast struct {
	Name      string // "" to use the subject
	SegmentID string
	TopicID   string
	Text
	Options  Options
	Variants []Variant
}

// Create creates a draft.
func (s *Service) Create(ctx context.Context, teamID string, n NewBroadcast) (Broadcast, error) {
	b, err := s.newDraft(ctx, teamID, n)
	if err != nil {
		return b, err
	}
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error { return s.add(ctx, tx, &b) })
	return b, err
}

// newDraft validates the fields of a new broadcast and returns it as a draft.
func (s *Service) newDraft(ctx context.Context, teamID string, n NewBroadcast) (b Broadcast, err error) {
	for _, required := range []struct{ field, text string }{{"from", n.From}, {"subject", n.Subject},
		{"segment_id", n.SegmentID}} {
		if strings.TrimSpace(required.text) == "" {
			return b, fault.MissingField(required.field)
		}
	}
	b = Broadcast{TeamID: teamID, Name: n.Name, SegmentID: n.SegmentID, TopicID: n.TopicID, Text: n.Text,
		Options: n.Options, Variants: n.Variants, Status: Draft, Winner: -1, significance: unknown,
		guarded: true}
	if strings.TrimSpace(b.Name) == "" {
		b.Name = nameOf(n.Subject)
	}
	if err := s.check(&b); err != nil {
		return b, err
	}
	return b, s.checkAudience(ctx, &b)
}

// nameOf returns the default name of a broadcast, which is its subject truncated to MaxName characters.
func nameOf(subject string) string {
	if runes := []rune(subject); len(runes) > MaxName {
		return string(runes[:MaxName])
	}
	return subject
}

// check validates everything in a draft except its audience.
func (s *Service) check(b *Broadcast) error {
	if err := checkName(b.Name); err != nil {
		return err
	}
	if err := b.Text.check("", s.c.MaxSize); err != nil {
		return err
	}
	if err := b.Options.check(len(b.Variants)); err != nil {
		return err
	}
	return b.Options.checkVariants(b.Text, b.Variants, s.c.MaxSize)
}

// checkAudience returns an error if a broadcast's segment or topic does not exist. The ids of the segment and the topic
// are converted to lower case.
func (s *Service) checkAudience(ctx context.Context, b *Broadcast) error {
	if !id.Valid(b.SegmentID) {
		return fault.New(fault.BadID, "segment_id", "The `segment_id` must be a valid UUID.")
	}
	b.SegmentID, b.TopicID = strings.ToLower(b.SegmentID), strings.ToLower(b.TopicID)
	if _, err := s.p.Contacts.Segments.Get(ctx, b.TeamID, b.SegmentID); fault.KindOf(err) == fault.NotFound {
		return fault.Invalidf("segment_id", "The `segment_id` field names no segment of this team: it was "+
			"deleted, or never created. Set it to a segment that there is.")
	} else if err != nil {
		return err
	}
	if b.TopicID == "" {
		return nil
	}
	if !id.Valid(b.TopicID) {
		return fault.New(fault.BadID, "topic_id", "The `topic_id` must be a valid UUID.")
	}
	_, err := s.p.Contacts.Topic(ctx, b.TeamID, b.TopicID)
	if fault.KindOf(err) == fault.NotFound {
		return fault.Invalidf("topic_id", "The `topic_id` field names no topic of this team: it was deleted, or never "+
			"created. Set it to a topic that there is, or to null if everybody in the segment is to be mailed.")
	}
	return err
}

// add inserts a draft.
func (s *Service) add(ctx context.Context, tx *db.Tx, b *Broadcast) error {
	b.ID, b.CreatedAt = id.At(tx.Now()), tx.Now()
	if err := s.addText(ctx, tx, b); err != nil {
		return err
	}
	if err := insertBroadcast(ctx, tx, b); err != nil {
		return err
	}
	audit.Target(ctx, b.ID)
	insertVariants(ctx, tx, b)
	return nil
}

// addText stores a draft's text, without the parts that are added for sending.
func (s *Service) addText(ctx context.Context, tx *db.Tx, b *Broadcast) error {
	c := b.Text.content(b.TeamID)
	if err := s.p.Contents.Add(ctx, tx, c); err != nil {
		return err
	}
	b.contentID = c.ID
	return nil
}

// content converts a text into a content that can be stored. The content is marked as Kept, because the broadcast
// determines when the content is deleted.
func (t *Text) content(teamID string) *content.Content {
	return &content.Content{TeamID: teamID, From: t.From, Subject: t.Subject, ReplyTo: t.ReplyTo, HTML: t.HTML,
		Text: t.Plain, Kept: true}
}

// readTries is the number of times that Get reads a draft that is changed at the same time, before Get locks the draft.
const readTries = 3

// Get returns a broadcast with its text and variants, all of the same revision.
func (s *Service) Get(ctx context.Context, teamID, broadcastID string) (b Broadcast, err error) {
	whole := false
	for range readTries {
		if b, whole, err = read(ctx, s.p.DB.Reader, teamID, broadcastID); err != nil {
			return b, err
		}
		if whole {
			return b, s.markTopics(ctx, teamID, []*Broadcast{&b})
		}
	}
	err = s.p.DB.Update(ctx, func(tx *db.Tx) (err error) {
		if _, err = lockStatus(ctx, tx, teamID, broadcastID); errors.Is(err, db.ErrNoRows) {
			return notFound()
		}
		if err == nil {
			b, _, err = read(ctx, tx.Reader, teamID, broadcastID)
		}
		return err
	})
	if err != nil {
		return b, err
	}
	return b, s.markTopics(ctx, teamID, []*Broadcast{&b})
}

// read reads a broadcast with its text and variants, with several queries. If the broadcast was changed in the
// meantime, read returns false: changing a draft replaces its content.
func read(ctx context.Context, r db.Reader, teamID, broadcastID string) (b Broadcast, whole bool, err error) {
	if b, err = getBroadcast(ctx, r, teamID, broadcastID); err != nil {
		return b, false, err
	}
	err = readText(ctx, r, &b)
	if fault.KindOf(err) == fault.NotFound || err == nil && b.Status == Draft {
		now, rowErr := getRow(ctx, r, teamID, broadcastID)
		if rowErr != nil || now.revision != b.revision {
			return b, false, rowErr
		}
	}
	return b, err == nil, err
}

// markTopics sets the TopicDeleted field of each broadcast.
func (s *Service) markTopics(ctx context.Context, teamID string, all []*Broadcast) error {
	deleted := map[string]bool{"": false}
	for _, b := range all {
		isDeleted, cached := deleted[b.TopicID]
		if !cached {
			_, err := s.p.Contacts.Topic(ctx, teamID, b.TopicID)
			if isDeleted = fault.KindOf(err) == fault.NotFound; err != nil && !isDeleted {
				return fmt.Errorf("look for the topic of broadcast %s: %w", b.ID, err)
			}
			deleted[b.TopicID] = isDeleted
		}
		b.TopicDeleted = isDeleted
	}
	return nil
}

// readText loads a broadcast's text from its content.
func readText(ctx context.Context, r db.Reader, b *Broadcast) error {
	c, err := content.Read(ctx, r, b.TeamID, b.contentID)
	if err != nil {
		return fmt.Errorf("read the text of broadcast %s: %w", b.ID, err)
	}
	b.From, b.Subject, b.ReplyTo, b.HTML, b.Plain = c.From, c.Subject, c.ReplyTo, c.HTML, c.Text
	return nil
}

// List returns a page of the team's broadcasts, newest first, without their texts.
func (s *Service) List(ctx context.Context, teamID string, p page.Page) ([]Broadcast, bool, error) {
	all, more, err := listBroadcasts(ctx, s.p.DB.Reader, teamID, p)
	if err != nil {
		return nil, false, err
	}
	of := make([]*Broadcast, len(all))
	for i := range all {
		of[i] = &all[i]
	}
	return all, more, s.markTopics(ctx, teamID, of)
}

// maxCount is the number of broadcasts at which CountStarted stops.
const maxCount = 100_000

// CountStarted returns the number of a team's broadcasts that are being sent, have been sent or have stopped; it counts
// up to 100,000. Drafts and scheduled broadcasts do not count.
func (s *Service) CountStarted(ctx context.Context, teamID string) (int, error) {
	return countStarted(ctx, s.p.DB.Reader, teamID, maxCount)
}

// Change describes a change to a draft. A nil field leaves the draft's value unchanged.
type Change struct {
	Name        *string
	SegmentID   *string
	TopicID     *string // "" for none
	From        *string
	Subject     *string
	ReplyTo     *[]string
	PreviewText *string
	HTML        **string
	Plain       **string
	Options     func(*Options) // nil for none
	Variants    *[]Variant
}

// apply applies the change to a draft, and reports whether the draft's text may have changed.
func (c *Change) apply(b *Broadcast) (text bool) {
	for _, f := range []struct {
		to   *string
		dst  *string
		text bool
	}{{c.Name, &b.Name, false}, {c.SegmentID, &b.SegmentID, false}, {c.TopicID, &b.TopicID, false},
		{c.PreviewText, &b.PreviewText, false}, {c.From, &b.From, true}, {c.Subject, &b.Subject, true}} {
		if f.to != nil && *f.dst != *f.to {
			*f.dst, text = *f.to, text || f.text
		}
	}
	if c.ReplyTo != nil {
		b.ReplyTo, text = *c.ReplyTo, true
	}
	if c.HTML != nil {
		b.HTML, text = *c.HTML, true
	}
	if c.Plain != nil {
		b.Plain, text = *c.Plain, true
	}
	if c.Variants != nil {
		b.Variants = *c.Variants
	}
	if c.Options != nil {
		c.Options(&b.Options)
	}
	return text
}

// Update changes a draft. If a broadcast waits for its sender's domain, Update changes its sender; see mayChangeSender.
func (s *Service) Update(ctx context.Context, by teams.Actor, broadcastID string, c Change) (Broadcast, error) {
	teamID := by.TeamID
	b, err := s.Get(ctx, teamID, broadcastID)
	if err != nil {
		return b, err
	}
	if c.From != nil || c.Variants != nil {
		if may, err := s.mayChangeSender(ctx, &b); err != nil || may {
			if err != nil {
				return b, err
			}
			return s.changeSender(ctx, by, b, c)
		}
	}
	if err := b.requireStatus("changed", Draft); err != nil {
		return b, err
	}
	text := c.apply(&b)
	if strings.TrimSpace(b.Name) == "" {
		b.Name = nameOf(b.Subject)
	}
	for _, required := range []struct{ field, text string }{{"from", b.From}, {"subject", b.Subject}} {
		if strings.TrimSpace(required.text) == "" {
			return b, fault.MissingField(required.field)
		}
	}
	if err := s.check(&b); err != nil {
		return b, err
	}
	if c.SegmentID != nil || c.TopicID != nil { // if neither is changed, Send detects a deleted segment or topic
		if err := s.checkAudience(ctx, &b); err != nil {
			return b, err
		}
	}
	changed := b
	err = s.p.DB.Update(ctx, func(tx *db.Tx) (err error) {
		if changed, err = s.lockUnchanged(ctx, tx, b, "changed", Draft); err != nil {
			return err
		}
		if text {
			s.p.Contents.Delete(ctx, tx, teamID, b.contentID) // no email uses it, because each start stores a separate content
			if err := s.addText(ctx, tx, &changed); err != nil {
				return err
			}
		}
		if err := updateDraft(ctx, tx, &changed); err != nil {
			return err
		}
		if c.Variants != nil {
			deleteVariants(ctx, tx, teamID, b.ID)
			insertVariants(ctx, tx, &changed)
		}
		return nil
	})
	return changed, err
}

// requireStatus returns an Invalid fault unless the broadcast has one of the given statuses. The parameter what names
// the operation in the fault's message.
func (b *Broadcast) requireStatus(what string, any ...Status) error {
	var names []string
	for _, status := range any {
		if b.Status == status {
			return nil
		}
		names = append(names, string(status))
	}
	return fault.Invalidf("", "Only a broadcast that is %s can be %s; this one is %s.", strings.Join(names, " or "), what,
		b.Status)
}

// lockUnchanged locks a broadcast that was read before the transaction began. The result is a copy with the next
// revision, which the caller changes and saves. If the broadcast has been changed since it was read, or has none of the
// given statuses, lockUnchanged returns an error. If two requests send the same draft, the second request therefore
// fails. The broadcast passed as read is not modified, because the transaction may be retried.
func (s *Service) lockUnchanged(ctx context.Context, tx *db.Tx, read Broadcast, what string, any ...Status) (Broadcast,
	error) {
	now, err := lock(ctx, tx, read.TeamID, read.ID)
	if err != nil {
		return read, err
	}
	if err := now.requireStatus(what, any...); err != nil {
		return read, err
	}
	if now.revision != read.revision {
		return read, changedMeanwhile()
	}
	read.revision++
	return read, nil
}

func changedMeanwhile() error {
	return fault.New(fault.Locked, "", "The broadcast was changed at the same time. Look at it and try again.")
}

// Delete deletes a draft or a scheduled broadcast. A deleted broadcast is not sent.
func (s *Service) Delete(ctx context.Context, teamID, broadcastID string) error {
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		b, err := lock(ctx, tx, teamID, broadcastID)
		if err != nil {
			return err
		}
		if err := b.requireStatus("deleted", Draft, Scheduled); err != nil {
			return err
		}
		if _, err := s.p.Queue.Remove(ctx, tx, Kind, b.TeamID, b.ID); err != nil {
			return fmt.Errorf("remove the job of broadcast %s: %w", b.ID, err)
		}
		s.p.Contents.Delete(ctx, tx, teamID, b.contentID)
		deleteVariants(ctx, tx, teamID, b.ID)
		deleteBroadcast(ctx, tx, teamID, b.ID)
		return nil
	})
}

// copySuffix is appended to a broadcast's name to form the name of its copy.
const copySuffix = " (copy)"

// Duplicate creates a draft that is a copy of a broadcast.
func (s *Service) Duplicate(ctx context.Context, teamID, broadcastID string) (Broadcast, error) {
	b, err := s.Get(ctx, teamID, broadcastID)
	if err != nil {
		return b, err
	}
	if b.Variants, err = getVariants(ctx, s.p.DB.Reader, teamID, b.ID); err != nil {
		return b, err
	}
	if len(b.Variants) == 1 { // a started broadcast without an A/B test has one empty variant
		b.Variants = nil
	}
	for i := range b.Variants {
		b.Variants[i].contentID = "" // the content is stored when the copy is started
	}
	name := b.Name
	if most := copiedName - utf8.RuneCountInString(copySuffix); utf8.RuneCountInString(name) > most {
		name = strings.TrimSpace(string([]rune(name)[:most]))
	}
	duplicate := Broadcast{TeamID: teamID, Name: name + copySuffix, SegmentID: b.SegmentID, TopicID: b.TopicID,
		Text: b.Text, Options: b.Options, Variants: b.Variants, Status: Draft, Winner: -1, significance: unknown,
		guarded: true}
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error { return s.add(ctx, tx, &duplicate) })
	return duplicate, err
}
