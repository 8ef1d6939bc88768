package api

import (
	"context"
	"reflect"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/preflight"
	"github.com/postrider/postrider/internal/sending/templates"
)

// checkEmailIn is either a draft with the same fields as sendEmailIn, or the ID of a sent email.
type checkEmailIn struct {
	EmailID     string                                   `json:"email_id,omitzero" format:"uuid" doc:"The ID of a sent email, instead of a draft. The API key must be allowed to read emails."`
	From        string                                   `json:"from,omitzero" doc:"The sender as email@example.com or Name <email@example.com>."`
	To          wire.Strings[maxRecipients]              `json:"to,omitzero" doc:"At most 50; optional."`
	Cc          wire.Strings[maxRecipients]              `json:"cc,omitzero" doc:"At most 50."`
	Bcc         wire.Strings[maxRecipients]              `json:"bcc,omitzero" doc:"At most 50."`
	ReplyTo     wire.Strings[maxRecipients]              `json:"reply_to,omitzero"`
	ReplyToOld  wire.Strings[maxRecipients]              `json:"replyTo,omitzero" doc:"Deprecated name of reply_to."`
	Subject     string                                   `json:"subject,omitzero" maxLength:"998"`
	HTML        *string                                  `json:"html,omitzero"`
	Text        *string                                  `json:"text,omitzero" doc:"The plain text. Generated from the HTML if absent; an empty string sends no text part."`
	Template    *templateIn                              `json:"template,omitzero"`
	Headers     headerFields                             `json:"headers,omitzero" doc:"Custom header fields by name."`
	Attachments wire.Array[attachmentIn, maxAttachments] `json:"attachments,omitzero" doc:"At most 40 MB in total, encoded. Attachments are not stored or fetched."`
	Tags        wire.Array[tagIn, maxTags]               `json:"tags,omitzero"`
	ScheduledAt string                                   `json:"scheduled_at,omitzero"`
	TopicID     topicRef                                 `json:"topic_id,omitzero"`
}

func (in *checkEmailIn) draft() *sendEmailIn {
	return &sendEmailIn{From: in.From, To: in.To, Cc: in.Cc, Bcc: in.Bcc, ReplyTo: in.ReplyTo, ReplyToOld: in.ReplyToOld,
		Subject: in.Subject, HTML: in.HTML, Text: in.Text, Template: in.Template, Headers: in.Headers,
		Attachments: in.Attachments, Tags: in.Tags, ScheduledAt: in.ScheduledAt, TopicID: in.TopicID}
}

type checkWire struct {
	ID      string   `json:"id" doc:"The name of the check, which is the same in every response."`
	Level   string   `json:"level" enum:"pass,info,warning,problem"`
	Message string   `json:"message" doc:"A sentence that explains the result and what to do."`
	Details []string `json:"details" doc:"The findings of the check, such as links; at most 20 items."`
}

type emailChecksWire struct {
	Object  string      `json:"object"`
	EmailID *string     `json:"email_id" doc:"Null for a draft."`
	Level   string      `json:"level" enum:"pass,info,warning,problem" doc:"The most serious level of all checks."`
	Data    []checkWire `json:"data"`
}

type dryRunKey struct{}

// WithDryRun returns a context in which `POST /emails/checks` refuses every draft that `POST /emails` would refuse,
// with the same error. The caller must check that the actor may send.
func WithDryRun(ctx context.Context) context.Context {
	return context.WithValue(ctx, dryRunKey{}, true)
}

// checkEmail checks a sent email or a draft. A draft is neither sent nor stored.
func (a *API) checkEmail(ctx context.Context, c *wire.Call, in checkEmailIn) (emailChecksWire, error) {
	if in.EmailID == "" {
		if ctx.Value(dryRunKey{}) != nil {
			if err := a.Services.Emails.DryRun(ctx, c.Actor, in.draft().send()); err != nil {
				return emailChecksWire{}, err
			}
		}
		p, err := a.Services.Emails.PreviewDraft(ctx, c.TeamID, in.draft().send())
		if err != nil {
			return emailChecksWire{}, err
		}
		return a.check(ctx, c, p, "")
	}
	switch {
	case !reflect.ValueOf(*in.draft()).IsZero():
		return emailChecksWire{}, fault.Invalidf("email_id", "The `email_id` field cannot be used together with a draft.")
	case !id.Valid(in.EmailID):
		return emailChecksWire{}, fault.New(fault.BadID, "email_id", "The `email_id` must be a valid UUID.")
	}
	// An API key that may only send emails can check drafts, but must not be able to read emails that were sent with other
	// keys.
	if err := c.Require(teams.EmailsRead); err != nil {
		return emailChecksWire{}, err
	}
	return a.checkSent(ctx, c, strings.ToLower(in.EmailID))
}

// checkTemplateIn contains the values that replace the template's placeholders.
type checkTemplateIn struct {
	Variables wire.Object[scalarValue, maxVariables] `json:"variables,omitzero" doc:"Values of the variables, as in a request that sends an email."`
	Version   string                                 `json:"version,omitzero" doc:"published, draft for the newest version, or the ID or number of a version." default:"published"`
	From      string                                 `json:"from,omitzero" doc:"The sender, if it is not the sender of the template."`
}

// checkTemplate checks the email that the template and the given values would produce.
func (a *API) checkTemplate(ctx context.Context, c *wire.Call, in checkTemplateIn) (emailChecksWire, error) {
	filling := templates.RenderOptions{Version: in.Version, Variables: valuesOf(in.Variables), From: in.From,
		UnsubscribeURL: a.Services.Emails.ExampleUnsubscribeURL()}
	r, err := a.Services.Templates.Render(ctx, c.TeamID, c.Param("template"), filling)
	if err != nil {
		return emailChecksWire{}, err
	}
	defer r.Close()
	draft := emails.Send{From: r.From, Subject: r.Subject, HTML: &r.HTML, Text: &r.Text,
		ReplyTo: r.ReplyTo}
	p, err := a.Services.Emails.PreviewDraft(ctx, c.TeamID, draft)
	if err != nil {
		return emailChecksWire{}, err
	}
	return a.check(ctx, c, p, "")
}

func (a *API) getEmailChecks(ctx context.Context, c *wire.Call, _ wire.None) (emailChecksWire, error) {
	emailID, err := c.ID("email_id")
	if err != nil {
		return emailChecksWire{}, err
	}
	return a.checkSent(ctx, c, emailID)
}

func (a *API) checkSent(ctx context.Context, c *wire.Call, emailID string) (emailChecksWire, error) {
	size, err := a.Services.Emails.TextSize(ctx, c.TeamID, emailID)
	if err == nil && size > wire.LargeResponse { // the email's content stays in memory during DNS queries
		err = c.ReserveMemory(ctx, size)
	}
	if err != nil {
		return emailChecksWire{}, err
	}
	p, err := a.Services.Emails.PreviewSent(ctx, c.TeamID, emailID)
	if err != nil {
		return emailChecksWire{}, err
	}
	return a.check(ctx, c, p, emailID)
}

// CheckEmail runs all checks on a sent email, for pages that belong to no team. The result is the response of the
// operation that checks an email.
func (a *API) CheckEmail(ctx context.Context, teamID, emailID string) (any, error) {
	p, err := a.Services.Emails.PreviewSent(ctx, teamID, emailID)
	if err != nil {
		return nil, err
	}
	return a.check(ctx, &wire.Call{Actor: teams.System(teamID)}, p, emailID)
}

// check runs all checks on an email that belongs to the actor's team. For a draft, emailID is "".
func (a *API) check(ctx context.Context, c *wire.Call, p emails.Preview, emailID string) (emailChecksWire, error) {
	all, err := preflight.Checker{Domains: a.Services.Domains, DNS: a.DNS}.Check(ctx, c.Actor, p)
	if err != nil {
		return emailChecksWire{}, err
	}
	w := emailChecksWire{Object: "email_checks", EmailID: orNull(emailID), Level: string(preflight.Worst(all)),
		Data: []checkWire{}}
	for _, r := range all {
		w.Data = append(w.Data, checkWire{r.ID, string(r.Level), r.Message, orEmpty(r.Details)})
	}
	return w, nil
}
