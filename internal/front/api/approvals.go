package api

import (
	"context"
	"slices"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/sending/approvals"
	"github.com/postrider/postrider/internal/sending/emails"
)

// ApprovalItem represents an approval in a list.
type ApprovalItem struct {
	ID          string       `json:"id"`
	Status      string       `json:"status" enum:"pending,approved,rejected,expired,failed" doc:"Only pending approvals can change. With the status approved, the email was sent; with failed, it could not be sent."`
	RequestedBy actorWire    `json:"requested_by"`
	From        string       `json:"from"`
	Recipients  int          `json:"recipients" doc:"The number of addresses in To, Cc and Bcc."`
	Subject     string       `json:"subject"`
	CreatedAt   wire.DBTime  `json:"created_at"`
	ExpiresAt   wire.DBTime  `json:"expires_at" doc:"When the approval expires. The email is not sent unless it is approved before."`
	DecidedAt   wire.DBTime  `json:"decided_at" nullable:"true"`
	DecidedBy   *deciderWire `json:"decided_by" doc:"Null until the email is approved or rejected."`
	Reason      *string      `json:"reason" nullable:"true" doc:"Why the email was rejected or could not be sent."`
	EmailID     *string      `json:"email_id" nullable:"true" doc:"The ID of the sent email."`
	URL         string       `json:"url" doc:"The page on which a user approves or rejects the email."`
}

// deciderWire is the actor who approved or rejected an email.
type deciderWire struct {
	Type string `json:"type" enum:"key,user"`
	ID   string `json:"id"`
}

type approvalWire struct {
	Object string `json:"object"`
	ApprovalItem
	Email *approvalEmail `json:"email" doc:"The email to be sent; null once it is decided."`
}

// approvalEmail is an email that is waiting for approval, with the content that would be sent.
type approvalEmail struct {
	From        string         `json:"from"`
	To          []string       `json:"to"`
	Cc          []string       `json:"cc"`
	Bcc         []string       `json:"bcc"`
	ReplyTo     []string       `json:"reply_to"`
	Subject     string         `json:"subject"`
	HTML        *string        `json:"html" nullable:"true"`
	Text        *string        `json:"text" nullable:"true"`
	Headers     fieldsOut      `json:"headers"`
	Attachments []approvalFile `json:"attachments"`
	Tags        []emails.Tag   `json:"tags"`
	ScheduledAt *string        `json:"scheduled_at" nullable:"true"`
	TopicID     *string        `json:"topic_id" nullable:"true"`
}

// fieldsOut holds header fields in the same order as in the message.
type fieldsOut []fieldOut

type fieldOut struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type approvalFile struct {
	Filename    string  `json:"filename"`
	ContentType string  `json:"content_type"`
	ContentID   *string `json:"content_id" nullable:"true"`
	Size        int     `json:"size" doc:"In bytes."`
}

func (a *API) approvalToItem(p approvals.Approval) ApprovalItem {
	item := ApprovalItem{ID: p.ID, Status: string(p.State),
		RequestedBy: actorWire{string(p.Actor.Kind), orNull(p.Actor.ID), orNull(p.ActorName)}, From: p.From,
		Recipients: p.Recipients, Subject: p.Subject, CreatedAt: wire.DBTime(p.CreatedAt),
		ExpiresAt: wire.DBTime(p.ExpiresAt),
		DecidedAt: wire.DBTime(p.DecidedAt), Reason: orNull(p.Reason), EmailID: orNull(p.EmailID),
		URL: a.Services.Approvals.URL(p.ID)}
	if p.DecidedBy.Kind != "" {
		item.DecidedBy = &deciderWire{string(p.DecidedBy.Kind), p.DecidedBy.ID}
	}
	return item
}

func (a *API) approvalToWire(p approvals.Approval) approvalWire {
	w := approvalWire{Object: "approval", ApprovalItem: a.approvalToItem(p)}
	if e := p.Email; e != nil {
		w.Email = &approvalEmail{From: e.From, To: orEmpty(e.To), Cc: orEmpty(e.Cc), Bcc: orEmpty(e.Bcc),
			ReplyTo: orEmpty(e.ReplyTo), Subject: e.Subject, HTML: e.HTML, Text: e.Text, Headers: fieldsOut{},
			Attachments: []approvalFile{}, Tags: e.Tags, ScheduledAt: orNull(e.ScheduledAt),
			TopicID: orNull(e.TopicID)}
		if w.Email.Tags == nil {
			w.Email.Tags = []emails.Tag{}
		}
		for _, f := range e.Headers {
			w.Email.Headers = append(w.Email.Headers, fieldOut(f))
		}
		for _, f := range e.Attachments {
			w.Email.Attachments = append(w.Email.Attachments, approvalFile{f.Filename, f.ContentType, orNull(f.ContentID),
				len(f.Content)})
		}
	}
	return w
}

func (a *API) requestApproval(ctx context.Context, c *wire.Call, in sendEmailIn) (approvalWire, error) {
	email := in.send()
	key, err := idempotencyOf(c, "POST /approvals", "", email)
	if err != nil {
		return approvalWire{}, err
	}
	p, err := a.Services.Approvals.Request(ctx, c.Actor, email, key)
	if err != nil {
		return approvalWire{}, err
	}
	return a.approvalToWire(p), nil
}

func (a *API) listApprovals(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[ApprovalItem], error) {
	p, err := c.Page(20)
	if err != nil {
		return wire.List[ApprovalItem]{}, err
	}
	state := approvals.State(c.Query().Get("status"))
	if state != "" && !slices.Contains(approvals.States, state) {
		return wire.List[ApprovalItem]{}, invalidChoice("status", "pending", "approved", "rejected", "expired", "failed")
	}
	all, more, err := a.Services.Approvals.List(ctx, c.Actor, state, p)
	return wire.ListOf(all, more, a.approvalToItem), err
}

func (a *API) getApproval(ctx context.Context, c *wire.Call, _ wire.None) (approvalWire, error) {
	id, err := c.ID("approval_id")
	if err != nil {
		return approvalWire{}, err
	}
	p, err := a.Services.Approvals.Get(ctx, c.Actor, id)
	return a.approvalToWire(p), err
}

func (a *API) approve(ctx context.Context, c *wire.Call, _ wire.None) (approvalWire, error) {
	id, err := c.ID("approval_id")
	if err != nil {
		return approvalWire{}, err
	}
	p, err := a.Services.Approvals.Approve(ctx, c.Actor, id)
	return a.approvalToWire(p), err
}

type rejectIn struct {
	Reason string `json:"reason,omitzero" doc:"A reason for the OAuth client; at most 500 characters." maxLength:"500"`
}

func (a *API) reject(ctx context.Context, c *wire.Call, in rejectIn) (approvalWire, error) {
	id, err := c.ID("approval_id")
	if err != nil {
		return approvalWire{}, err
	}
	p, err := a.Services.Approvals.Reject(ctx, c.Actor, id, in.Reason)
	return a.approvalToWire(p), err
}
