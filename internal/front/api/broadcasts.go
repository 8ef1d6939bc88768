package api

import (
	"cmp"
	"context"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/page"
)

// variantIn is a variant of an A/B test. A variant's fields replace the broadcast's fields.
type variantIn struct {
	From        *string `json:"from,omitzero"`
	Subject     *string `json:"subject,omitzero" maxLength:"998"`
	PreviewText *string `json:"preview_text,omitzero" maxLength:"998"`
	HTML        *string `json:"html,omitzero"`
	Text        *string `json:"text,omitzero"`
}

func variantsOf(in []variantIn) []broadcasts.Variant {
	all := make([]broadcasts.Variant, len(in))
	for i, v := range in {
		all[i] = broadcasts.Variant{From: v.From, Subject: v.Subject, PreviewText: v.PreviewText, HTML: v.HTML, Plain: v.Text}
	}
	return all
}

// abTest configures the comparison of the variants.
type abTest struct {
	Share  *float64 `json:"share,omitzero" nullable:"false" doc:"The percentage of the audience that receives the variants; the others receive the winner. The default of 100 sends the variants to everyone." minimum:"1" maximum:"100"`
	Metric *string  `json:"metric,omitzero" nullable:"false" doc:"The metric that decides the winner. Opens and clicks by bots are not counted." enum:"opens,clicks,manual" default:"opens"`
	Wait   *int64   `json:"wait,omitzero" nullable:"false" doc:"Minutes until the winner is chosen." default:"240" minimum:"1" maximum:"10080"`
}

// check rejects explicit zeros, because zero means "default" in Options.
func (t *abTest) check() error {
	switch {
	case t == nil:
	case t.Share != nil && *t.Share == 0:
		return fault.Invalidf("ab_test.share", "The `ab_test.share` field must be a percentage from 1 to 100.")
	case t.Metric != nil && *t.Metric == "":
		return invalidChoice("ab_test.metric", "opens", "clicks", "manual")
	case t.Wait != nil && *t.Wait == 0:
		return fault.Invalidf("ab_test.wait", "The `ab_test.wait` field must be at least 1 minute. To choose the winner "+
			"yourself, give `manual` as the `ab_test.metric`.")
	}
	return nil
}

// set copies the non-nil fields to o.
func (t *abTest) set(o *broadcasts.Options) {
	if t.Share != nil {
		o.TestShare = *t.Share
	}
	if t.Metric != nil {
		o.Metric = broadcasts.Metric(*t.Metric)
	}
	if t.Wait != nil {
		o.Wait = *t.Wait
	}
}

type createBroadcastIn struct {
	Name        string                      `json:"name,omitzero" doc:"The name for your own use. If absent, the subject is used." maxLength:"255"`
	SegmentID   string                      `json:"segment_id,omitzero" doc:"The segment whose contacts receive the broadcast." format:"uuid"`
	AudienceID  string                      `json:"audience_id,omitzero" doc:"Deprecated name of segment_id." deprecated:"true" format:"uuid"`
	From        string                      `json:"from" example:"Acme <news@acme.example>"`
	Subject     string                      `json:"subject" doc:"Placeholders such as {{{FIRST_NAME|there}}} are replaced." maxLength:"998"`
	ReplyTo     wire.Strings[maxRecipients] `json:"reply_to,omitzero"`
	PreviewText string                      `json:"preview_text,omitzero" doc:"The text that mail clients show next to the subject." maxLength:"998"`
	HTML        *string                     `json:"html,omitzero"`
	Text        *string                     `json:"text,omitzero" doc:"The plain text. Generated from the HTML if absent; an empty string sends no text part."`
	TopicID     topicRef                    `json:"topic_id,omitzero" doc:"Contacts who are not subscribed to the topic receive nothing." format:"uuid"`
	Send        bool                        `json:"send,omitzero" doc:"Whether to send the broadcast now, or at scheduled_at."`
	ScheduledAt string                      `json:"scheduled_at,omitzero" doc:"ISO 8601, or a phrase such as \"tomorrow at 9am\"; only if send is true."`

	Pace           int                                `json:"pace,omitzero" doc:"Recipients per hour; 0 means as fast as possible." minimum:"0" maximum:"1000000"`
	HoldOut        float64                            `json:"hold_out,omitzero" doc:"The percentage of the audience that receives nothing, for comparison." minimum:"0" maximum:"90"`
	Variants       wire.Array[variantIn, maxVariants] `json:"variants,omitzero" doc:"2 to 5 variants of an A/B test."`
	ABTest         *abTest                            `json:"ab_test,omitzero"`
	BounceLimit    *float64                           `json:"bounce_limit,omitzero" doc:"The percentage of bounces at which the broadcast pauses; overrides the installation's setting. 100 means never." minimum:"0" maximum:"100"`
	ComplaintLimit *float64                           `json:"complaint_limit,omitzero" doc:"The percentage of complaints at which the broadcast pauses; overrides the installation's setting. 100 means never." minimum:"0" maximum:"100"`
}

func (in *createBroadcastIn) broadcast() (broadcasts.NewBroadcast, error) {
	n := broadcasts.NewBroadcast{Name: in.Name, SegmentID: in.SegmentID, TopicID: string(in.TopicID),
		Text: broadcasts.Text{From: in.From, Subject: in.Subject, ReplyTo: in.ReplyTo, PreviewText: in.PreviewText,
			HTML: in.HTML, Plain: in.Text},
		Options: broadcasts.Options{Pace: in.Pace, HoldOut: in.HoldOut, BounceLimit: in.BounceLimit,
			ComplaintLimit: in.ComplaintLimit}}
	if len(in.Variants) > 0 {
		n.Variants = variantsOf(in.Variants)
	}
	if in.ABTest != nil {
		in.ABTest.set(&n.Options)
	}
	var err error
	if n.SegmentID, err = segmentOf(in.SegmentID, in.AudienceID); err != nil {
		return n, err
	}
	return n, in.ABTest.check()
}

// segmentOf returns the segment ID given by the request field segment_id or audience_id.
func segmentOf(segmentID, audienceID string) (string, error) {
	if segmentID != "" && audienceID != "" && !strings.EqualFold(segmentID, audienceID) {
		return "", fault.Invalidf("audience_id", "The `audience_id` field names another segment than `segment_id`, of which "+
			"it is an older name. Give one of them.")
	}
	return cmp.Or(segmentID, audienceID), nil
}

type updateBroadcastIn struct {
	Name        wire.Optional[string]                             `json:"name,omitzero" maxLength:"255"`
	SegmentID   string                                            `json:"segment_id,omitzero" format:"uuid"`
	AudienceID  string                                            `json:"audience_id,omitzero" doc:"Deprecated name of segment_id." deprecated:"true" format:"uuid"`
	From        string                                            `json:"from,omitzero" doc:"Can also be changed while the broadcast waits for its sender's domain."`
	Subject     string                                            `json:"subject,omitzero" maxLength:"998"`
	ReplyTo     wire.Optional[wire.Strings[maxRecipients]]        `json:"reply_to,omitzero" doc:"Null or an empty list removes all addresses."`
	PreviewText wire.Optional[string]                             `json:"preview_text,omitzero" doc:"Null removes it." maxLength:"998"`
	HTML        wire.Optional[string]                             `json:"html,omitzero" doc:"Null removes it."`
	Text        wire.Optional[string]                             `json:"text,omitzero" doc:"Null generates it from the HTML; an empty string means no text part."`
	TopicID     wire.Optional[topicRef]                           `json:"topic_id,omitzero" doc:"Null removes it."`
	Pace        wire.Optional[int]                                `json:"pace,omitzero" doc:"Null means 0, as fast as possible." minimum:"0" maximum:"1000000"`
	HoldOut     wire.Optional[float64]                            `json:"hold_out,omitzero" doc:"Null means 0: everyone receives the broadcast." minimum:"0" maximum:"90"`
	Variants    wire.Optional[wire.Array[variantIn, maxVariants]] `json:"variants,omitzero" doc:"Replaces all variants; null or an empty list ends the A/B test."`
	ABTest      wire.Optional[abTest]                             `json:"ab_test,omitzero" doc:"Omitted fields keep their value; null resets all fields to their defaults."`

	BounceLimit    wire.Optional[float64] `json:"bounce_limit,omitzero"`
	ComplaintLimit wire.Optional[float64] `json:"complaint_limit,omitzero"`

	Send        wire.ReadOnly `json:"send,omitzero" hidden:"true"`
	ScheduledAt wire.ReadOnly `json:"scheduled_at,omitzero" hidden:"true"`
}

// change converts an update request to a broadcasts.Change. In some fields, an empty string means no change, because
// some clients send empty strings for the fields that they leave unchanged.
func (in *updateBroadcastIn) change() (c broadcasts.Change, err error) {
	const instead = "Send or schedule a broadcast with POST /broadcasts/{broadcast_id}/send."
	if err := cmp.Or(in.Send.Refuse("send", instead), in.ScheduledAt.Refuse("scheduled_at", instead),
		in.ABTest.Value.check()); err != nil {
		return c, err
	}
	given := func(text string) *string {
		if text == "" {
			return nil
		}
		return &text
	}
	orEmpty := func(o wire.Optional[string]) *string {
		switch {
		case !o.Given || o.Value != nil && *o.Value == "":
			return nil
		case o.Value == nil:
			return new("")
		}
		return o.Value
	}
	segmentID, err := segmentOf(in.SegmentID, in.AudienceID)
	if err != nil {
		return c, err
	}
	c.SegmentID, c.From, c.Subject = given(segmentID), given(in.From), given(in.Subject)
	c.Name, c.PreviewText = orEmpty(in.Name), orEmpty(in.PreviewText)
	c.TopicID = (*string)(in.TopicID.Replacement())
	switch r := in.ReplyTo; {
	case r.Given && r.Value == nil:
		c.ReplyTo = new([]string)
	case r.Given && *r.Value != nil: // the value is nil if the client sent an empty string
		c.ReplyTo = (*[]string)(r.Value)
	}
	if h := in.HTML; h.Given && (h.Value == nil || *h.Value != "") {
		c.HTML = &h.Value
	}
	if in.Text.Given {
		c.Plain = &in.Text.Value
	}
	if in.Variants.Given {
		c.Variants = new([]broadcasts.Variant(nil))
		if in.Variants.Value != nil && len(*in.Variants.Value) > 0 {
			*c.Variants = variantsOf(*in.Variants.Value)
		}
	}
	endsTest := in.Variants.Given && *c.Variants == nil || in.ABTest.Given && in.ABTest.Value == nil
	if !in.Pace.Given && !in.HoldOut.Given && !in.ABTest.Given && !endsTest && !in.BounceLimit.Given &&
		!in.ComplaintLimit.Given {
		return c, nil
	}
	c.Options = func(o *broadcasts.Options) {
		if in.Pace.Given {
			o.Pace = in.Pace.OrZero()
		}
		if in.HoldOut.Given {
			o.HoldOut = in.HoldOut.OrZero()
		}
		if endsTest {
			o.TestShare, o.Metric, o.Wait = 0, "", 0
		}
		if in.ABTest.Value != nil {
			in.ABTest.Value.set(o)
		}
		if in.BounceLimit.Given {
			o.BounceLimit = in.BounceLimit.Value
		}
		if in.ComplaintLimit.Given {
			o.ComplaintLimit = in.ComplaintLimit.Value
		}
	}
	return c, nil
}

// BroadcastItem represents a broadcast in a list. BroadcastItem is exported because Huma skips the fields of
// unexported embedded types.
type BroadcastItem struct {
	ID          string      `json:"id"`
	Name        string      `json:"name"`
	AudienceID  string      `json:"audience_id" doc:"The same as segment_id." deprecated:"true"`
	SegmentID   string      `json:"segment_id"`
	TopicID     *string     `json:"topic_id" doc:"Also null if the topic was deleted. The broadcast then cannot be sent until topic_id is changed."`
	Status      string      `json:"status" enum:"draft,scheduled,queued,sent,failed" doc:"The state in terms that older clients know: paused is shown as queued, and canceled as sent."`
	State       string      `json:"state" enum:"draft,scheduled,queued,paused,canceled,sent,failed"`
	Reason      *string     `json:"reason" doc:"Why the broadcast paused automatically or failed."`
	CreatedAt   wire.DBTime `json:"created_at"`
	ScheduledAt wire.DBTime `json:"scheduled_at" nullable:"true"`
	SentAt      wire.DBTime `json:"sent_at" nullable:"true"`
}

func broadcastToItem(b broadcasts.Broadcast) BroadcastItem {
	if b.TopicDeleted {
		b.TopicID = ""
	}
	i := BroadcastItem{b.ID, b.Name, b.SegmentID, b.SegmentID, orNull(b.TopicID), string(b.Status), string(b.Status),
		orNull(string(b.Reason)), wire.DBTime(b.CreatedAt), wire.DBTime(b.ScheduledAt), wire.DBTime(b.SentAt)}
	switch b.Status {
	case broadcasts.Paused:
		i.Status = string(broadcasts.Queued)
	case broadcasts.Canceled:
		i.Status = string(broadcasts.Sent)
	}
	return i
}

type variantWire struct {
	From        *string `json:"from"`
	Subject     *string `json:"subject"`
	PreviewText *string `json:"preview_text"`
	HTML        *string `json:"html"`
	Text        *string `json:"text"`
}

type broadcastWire struct {
	Object string `json:"object"`
	BroadcastItem
	From           string        `json:"from"`
	Subject        string        `json:"subject"`
	ReplyTo        addresses     `json:"reply_to"`
	PreviewText    *string       `json:"preview_text"`
	HTML           *string       `json:"html"`
	Text           *string       `json:"text"`
	Message        *string       `json:"message" doc:"The reason as a sentence that says what to do."`
	Pace           int           `json:"pace"`
	HoldOut        float64       `json:"hold_out"`
	Variants       []variantWire `json:"variants"`
	ABTest         *abTest       `json:"ab_test"`
	Winner         *int          `json:"winner" doc:"The number of the variant that won, counted from 0."`
	BounceLimit    *float64      `json:"bounce_limit"`
	ComplaintLimit *float64      `json:"complaint_limit"`
}

func broadcastToWire(b broadcasts.Broadcast) broadcastWire {
	w := broadcastWire{Object: "broadcast", BroadcastItem: broadcastToItem(b), From: b.From, Subject: b.Subject,
		ReplyTo: b.ReplyTo, PreviewText: orNull(b.PreviewText), HTML: b.HTML, Text: b.Plain,
		Message: orNull(b.Reason.Message()), Pace: b.Options.Pace, HoldOut: b.Options.HoldOut, Variants: []variantWire{},
		BounceLimit: b.Options.BounceLimit, ComplaintLimit: b.Options.ComplaintLimit}
	for _, v := range b.Variants {
		w.Variants = append(w.Variants, variantWire{v.From, v.Subject, v.PreviewText, v.HTML, v.Plain})
	}
	if len(b.Variants) > 0 {
		w.ABTest = &abTest{Share: &b.Options.TestShare, Metric: (*string)(&b.Options.Metric)}
		if b.Options.Wait != 0 {
			w.ABTest.Wait = &b.Options.Wait
		}
	}
	if b.Winner >= 0 {
		w.Winner = &b.Winner
	}
	return w
}

func (a *API) createBroadcast(ctx context.Context, c *wire.Call, in createBroadcastIn) (ref, error) {
	if in.ScheduledAt != "" && !in.Send {
		return ref{}, fault.Invalidf("scheduled_at", "The `scheduled_at` field needs `send` to be true.")
	}
	n, err := in.broadcast()
	if err != nil {
		return ref{}, err
	}
	if !in.Send {
		b, err := a.Services.Broadcasts.Create(ctx, c.TeamID, n)
		return ref{"broadcast", b.ID}, err
	}
	if err := requireSending(c); err != nil {
		return ref{}, err
	}
	b, err := a.Services.Broadcasts.CreateAndSend(ctx, c.Actor, n, in.ScheduledAt)
	return ref{"broadcast", b.ID}, err
}

// requireSending returns a fault if the actor is allowed to write broadcasts but not to send them.
func requireSending(c *wire.Call) error {
	if err := c.RequireUnlimited(); err != nil {
		return err
	}
	return c.Require(teams.EmailsSend)
}

func (a *API) listBroadcasts(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[BroadcastItem], error) {
	p, err := c.Page(0)
	if err != nil {
		return wire.List[BroadcastItem]{}, err
	}
	read := func(p page.Page) ([]broadcasts.Broadcast, bool, error) {
		return a.Services.Broadcasts.List(ctx, c.TeamID, p)
	}
	return wire.FullList(p, read, func(b broadcasts.Broadcast) string { return b.ID }, broadcastToItem)
}

func (a *API) getBroadcast(ctx context.Context, c *wire.Call, _ wire.None) (broadcastWire, error) {
	id, err := c.ID("broadcast_id")
	if err != nil {
		return broadcastWire{}, err
	}
	b, err := a.Services.Broadcasts.Get(ctx, c.TeamID, id)
	return broadcastToWire(b), err
}

func (a *API) updateBroadcast(ctx context.Context, c *wire.Call, in updateBroadcastIn) (ref, error) {
	id, err := c.ID("broadcast_id")
	if err != nil {
		return ref{}, err
	}
	change, err := in.change()
	if err == nil {
		err = c.RequireChange(in, change)
	}
	if err != nil {
		return ref{}, err
	}
	_, err = a.Services.Broadcasts.Update(ctx, c.Actor, id, change)
	return ref{"broadcast", id}, err
}

func (a *API) deleteBroadcast(ctx context.Context, c *wire.Call, _ wire.None) (gone, error) {
	id, err := c.ID("broadcast_id")
	if err != nil {
		return gone{}, err
	}
	return gone{"broadcast", id, true}, a.Services.Broadcasts.Delete(ctx, c.TeamID, id)
}

type sendBroadcastIn struct {
	ScheduledAt string `json:"scheduled_at,omitzero" doc:"ISO 8601, or a phrase such as \"tomorrow at 9am\". If absent, the broadcast is sent now."`
}

type sentBroadcast struct {
	ID string `json:"id"`
}

func (a *API) sendBroadcast(ctx context.Context, c *wire.Call, in sendBroadcastIn) (sentBroadcast, error) {
	id, err := c.ID("broadcast_id")
	if err != nil {
		return sentBroadcast{}, err
	}
	_, err = a.Services.Broadcasts.Send(ctx, c.Actor, id, in.ScheduledAt)
	return sentBroadcast{id}, err
}

func (a *API) cancelBroadcast(ctx context.Context, c *wire.Call, _ wire.None) (ref, error) {
	id, err := c.ID("broadcast_id")
	if err != nil {
		return ref{}, err
	}
	_, err = a.Services.Broadcasts.Cancel(ctx, c.TeamID, id)
	return ref{"broadcast", id}, err
}

func (a *API) pauseBroadcast(ctx context.Context, c *wire.Call, _ wire.None) (ref, error) {
	id, err := c.ID("broadcast_id")
	if err != nil {
		return ref{}, err
	}
	return ref{"broadcast", id}, a.Services.Broadcasts.Pause(ctx, c.TeamID, id)
}

func (a *API) resumeBroadcast(ctx context.Context, c *wire.Call, _ wire.None) (ref, error) {
	id, err := c.ID("broadcast_id")
	if err != nil {
		return ref{}, err
	}
	return ref{"broadcast", id}, a.Services.Broadcasts.Resume(ctx, c.Actor, id)
}

type winnerIn struct {
	Variant *int `json:"variant" nullable:"false" doc:"The number of the variant, counted from 0." minimum:"0" maximum:"4"`
}

func (a *API) chooseBroadcastWinner(ctx context.Context, c *wire.Call, in winnerIn) (ref, error) {
	id, err := c.ID("broadcast_id")
	if err != nil {
		return ref{}, err
	}
	if in.Variant == nil {
		in.Variant = new(broadcasts.NoWinner)
	}
	if err := c.RequireUnlimited(); err != nil {
		return ref{}, err
	}
	return ref{"broadcast", id}, a.Services.Broadcasts.SetWinner(ctx, c.TeamID, id, *in.Variant)
}

func (a *API) duplicateBroadcast(ctx context.Context, c *wire.Call, _ wire.None) (ref, error) {
	id, err := c.ID("broadcast_id")
	if err != nil {
		return ref{}, err
	}
	b, err := a.Services.Broadcasts.Duplicate(ctx, c.TeamID, id)
	return ref{"broadcast", b.ID}, err
}

type testBroadcastIn struct {
	To      wire.Strings[maxTestRecipients] `json:"to" doc:"At most 10 addresses, which need not belong to contacts."`
	Contact string                          `json:"contact,omitzero" doc:"The ID or address of the contact whose values replace the placeholders. If absent, the fallbacks are used."`
	Variant int                             `json:"variant,omitzero" doc:"The number of the variant, counted from 0." minimum:"0" maximum:"4"`
}

type testBroadcastOut struct {
	Object string    `json:"object"`
	ID     string    `json:"id" doc:"The ID of the broadcast."`
	Emails []emailID `json:"emails" doc:"The emails in the order of to."`
}

func (a *API) testBroadcast(ctx context.Context, c *wire.Call, in testBroadcastIn) (testBroadcastOut, error) {
	id, err := c.ID("broadcast_id")
	if err != nil {
		return testBroadcastOut{}, err
	}
	if err := requireSending(c); err != nil {
		return testBroadcastOut{}, err
	}
	all, err := a.Services.Broadcasts.SendTest(ctx, c.Actor, id, broadcasts.TestSend{To: in.To, Contact: in.Contact,
		Variant: in.Variant})
	out := testBroadcastOut{Object: "broadcast_test", ID: id, Emails: make([]emailID, len(all))}
	for i := range all {
		out.Emails[i] = emailID{all[i]}
	}
	return out, err
}
