package broadcasts

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/page"
)

// RecipientType selects which recipients of a broadcast are listed.
type RecipientType string

// RecipientTypes contains all recipient types; the types in the API reference (section 17) come first.
var RecipientTypes = []RecipientType{"sent", "delivered", "opened", "clicked", "bounced", "complained", "unsubscribed",
	"suppressed", "left_out", "failed", "canceled", "waiting"}

// linksMax is the maximum number of links listed for one recipient.
const linksMax = 100

// RecipientQuery selects recipients.
type RecipientQuery struct {
	Type       RecipientType
	BounceType string // permanent, transient or undetermined; "" for all
	Email      string // "" for all

	contactID string
}

// Recipient is a contact in a broadcast's audience, together with the state of its email.
type Recipient struct {
	ContactID  string
	Deleted    bool   // whether the contact was deleted
	EmailID    string // "" if it got no email
	Address    string
	State      string
	Reason     string // why the recipient received no email
	BounceType string
	Variant    int
	Opens      int
	Clicks     int
	Links      []Link // set only for the recipient type clicked
}

// Cursor returns the pagination cursor of a recipient.
func (r *Recipient) Cursor() string { return encodeCursor(r.ContactID) }

func encodeCursor(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// decodeCursor decodes a pagination cursor, and returns an error if the result is a string that PostgreSQL cannot
// compare. An empty cursor is decoded as "".
func decodeCursor(field, cursor string) (string, error) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || cursor != "" && len(text) == 0 || len(text) > 100 || !utf8.Valid(text) ||
		bytes.IndexByte(text, 0) >= 0 {
		return "", invalidCursor(field)
	}
	return string(text), nil
}

func invalidCursor(field string) error {
	return fault.Invalidf(field, "The `%s` parameter must be the id of an item: the pagination cursor is invalid.", field)
}

// decodeRecipientCursor returns the contact's id in a cursor of a recipient.
func decodeRecipientCursor(field, cursor string) (string, error) {
	contactID, err := decodeCursor(field, cursor)
	if err == nil && contactID != "" && !id.Valid(contactID) {
		err = invalidCursor(field)
	}
	return contactID, err
}

// Recipients returns a page of those recipients of a broadcast that have the given type. The page p must have a limit,
// and its cursors must come from [Recipient.Cursor]. A call examines at most about 100,000 recipients, so a page may
// have fewer recipients than its limit, even though more recipients exist. If a page ends early, the result next is the
// cursor for continuing in the same direction.
func (s *Service) Recipients(ctx context.Context, teamID, broadcastID string, q RecipientQuery, p page.Page) (
	all []Recipient, more bool, next string, err error) {
	if _, err := getRow(ctx, s.p.DB.Reader, teamID, broadcastID); err != nil {
		return nil, false, "", err
	}
	if err := q.check(); err != nil {
		return nil, false, "", err
	}
	if p.After, err = decodeRecipientCursor("after", p.After); err != nil {
		return nil, false, "", err
	}
	if p.Before, err = decodeRecipientCursor("before", p.Before); err != nil {
		return nil, false, "", err
	}
	if q.Email != "" {
		of, err := s.p.Contacts.Get(ctx, teamID, q.Email)
		if fault.KindOf(err) == fault.NotFound {
			return nil, false, "", nil
		}
		if err != nil {
			return nil, false, "", err
		}
		q.contactID = of.ID
	}
	all, more, next, err = listRecipients(ctx, s.p.DB.Reader, teamID, broadcastID, q, p)
	if err == nil && q.Type == "clicked" && len(all) > 0 {
		err = clicksOf(ctx, s.p.DB.Reader, teamID, broadcastID, all)
	}
	if err == nil && len(all) > 0 {
		err = s.markDeleted(ctx, teamID, all)
	}
	return all, more, encodeCursor(next), err
}

// markDeleted sets the Deleted field of each recipient.
func (s *Service) markDeleted(ctx context.Context, teamID string, all []Recipient) error {
	ids := make([]string, len(all))
	for i := range all {
		ids[i] = all[i].ContactID
	}
	there, err := s.p.Contacts.Existing(ctx, teamID, ids)
	for i := range all {
		all[i].Deleted = !there[all[i].ContactID]
	}
	return err
}

func (q *RecipientQuery) check() error {
	var names []string
	for _, t := range RecipientTypes {
		names = append(names, string(t))
	}
	switch {
	case q.Type == "":
		return fault.New(fault.MissingParameter, "type", "Missing `type` parameter. It is one of %s.",
			strings.Join(names, ", "))
	case !slices.Contains(RecipientTypes, q.Type):
		return fault.Invalidf("type", "The `type` parameter must be one of %s.", strings.Join(names, ", "))
	case q.BounceType != "" && q.Type != "bounced":
		return fault.Invalidf("bounce_type", "The `bounce_type` parameter goes only with the type `bounced`.")
	case q.BounceType != "" && !slices.Contains([]string{"permanent", "transient", "undetermined"}, q.BounceType):
		return fault.Invalidf("bounce_type",
			"The `bounce_type` parameter must be `permanent`, `transient` or `undetermined`.")
	}
	return nil
}

// Link is a link in a broadcast that recipients clicked.
type Link struct {
	URL        string
	Clicks     int
	Recipients int // number of recipients who clicked the link

	id string
}

// linkCursor is the position of a link in the list of a broadcast's links.
type linkCursor struct {
	clicks int
	link   string
}

// Cursor returns the pagination cursor of a link. The cursor changes when the link is clicked.
func (l *Link) Cursor() string { return encodeCursor(strconv.Itoa(l.Clicks) + " " + l.id) }

func decodeLinkCursor(field, cursor string) (at linkCursor, err error) {
	text, err := decodeCursor(field, cursor)
	if err != nil || text == "" {
		return at, err
	}
	clicks, link, ok := strings.Cut(text, " ")
	if at.clicks, err = strconv.Atoi(clicks); err != nil || !ok || link == "" {
		return at, invalidCursor(field)
	}
	at.link = link
	return at, nil
}

// Links returns a page of the links that a broadcast's recipients clicked, with the most clicked links first. The page
// p must have a limit, and its cursors must come from [Link.Cursor].
func (s *Service) Links(ctx context.Context, teamID, broadcastID string, p page.Page) (all []Link, more bool,
	err error) {
	if _, err := getRow(ctx, s.p.DB.Reader, teamID, broadcastID); err != nil {
		return nil, false, err
	}
	field, cursor, before := "after", p.After, false
	if p.Before != "" {
		field, cursor, before = "before", p.Before, true
	}
	at, err := decodeLinkCursor(field, cursor)
	if err != nil {
		return nil, false, err
	}
	if all, err = listLinks(ctx, s.p.DB.Reader, teamID, broadcastID, at, before, p.Limit+1); err != nil {
		return nil, false, err
	}
	if more = len(all) > p.Limit; more {
		all = all[:p.Limit]
	}
	if before {
		slices.Reverse(all)
	}
	return all, more, nil
}

// Tally contains the number of recipients in each state. Opened and Clicked do not include bots.
type Tally struct {
	Entered      int64 // emails enqueued, without those to contacts that were deleted before their email was sent
	Waiting      int64
	Sent         int64 // handed to a mail server
	Delivered    int64
	Bounced      int64
	Failed       int64
	Suppressed   int64 // recipients suppressed after their email was enqueued
	Canceled     int64
	Opened       int64
	Clicked      int64
	Complained   int64
	Unsubscribed int64
}

// Results contains the recipient counts of a broadcast.
type Results struct {
	Broadcast Broadcast
	Tally
	LeftOut  map[string]int64 // by reason
	Variants []Tally          // empty if there is no A/B test
}

// Results returns the recipient counts of a broadcast. Results reads only stored counters, so the time it takes does
// not depend on the number of recipients.
func (s *Service) Results(ctx context.Context, teamID, broadcastID string) (r Results, err error) {
	if r.Broadcast, err = getBroadcast(ctx, s.p.DB.Reader, teamID, broadcastID); err != nil {
		return r, err
	}
	all, _, leftOut, err := tallies(ctx, s.p.DB.Reader, teamID, broadcastID)
	if err != nil {
		return r, err
	}
	for _, t := range all {
		r.add(t)
	}
	r.LeftOut = leftOut
	if n := len(r.Broadcast.Variants); n > 1 {
		r.Variants = append(all, make([]Tally, n)...)[:n]
	}
	return r, nil
}

// Audience says how many contacts would receive a broadcast, and how many would be left out, if the broadcast were sent
// now.
type Audience struct {
	Contacts int64            // all contacts in the segment
	Mailed   int64            // contacts that would receive the broadcast
	LeftOut  map[string]int64 // number of contacts for each reason, without HeldOut
	HeldOut  int64            // approximate number of contacts that are held out
}

// Audience counts the contacts that would receive a broadcast. Audience reads the whole segment and sends nothing.
// Audience applies the same rules as sending, except that Audience does not detect emails that break a rule only once
// their placeholders have been replaced.
func (s *Service) Audience(ctx context.Context, teamID, broadcastID string) (a Audience, err error) {
	b, err := s.Get(ctx, teamID, broadcastID)
	if err != nil {
		return a, err
	}
	if err := s.checkAudience(ctx, &b); err != nil {
		return a, err
	}
	mailable, err := s.p.Emails.Mailable(ctx, teamID, b.From)
	if err != nil {
		return a, err
	}
	all, err := s.p.Contacts.CountRefused(ctx, teamID, contacts.Audience{SegmentID: b.SegmentID}, b.TopicID,
		mailable)
	if err != nil {
		return a, fmt.Errorf("count the audience of broadcast %s: %w", b.ID, err)
	}
	a.LeftOut = map[string]int64{}
	for why, n := range all {
		a.Contacts += n
		if why == "" {
			a.Mailed = n
		} else {
			a.LeftOut[why] = n
		}
	}
	a.HeldOut = int64(float64(a.Mailed) * b.Options.HoldOut / 100)
	a.Mailed -= a.HeldOut
	return a, nil
}
