package api

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/telemetry"
	"github.com/postrider/postrider/internal/sending/emails"
)

// headerFields holds an email's custom header fields, which are a JSON object in the request.
type headerFields []message.Field

// UnmarshalJSONFrom preserves the order of the fields in the JSON object.
func (f *headerFields) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	*f = (*f)[:0]
	if d.PeekKind() == 'n' {
		return d.SkipValue()
	}
	if d.PeekKind() != '{' {
		return fault.Invalidf("headers", "The `headers` field must be an object of strings.")
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for n := 0; d.PeekKind() != '}'; n++ {
		if n == emails.MaxHeaders {
			return wire.TooManyItems(d, n)
		}
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		key := name.String()
		if len(key) > wire.MaxNameBytes {
			return fault.Invalidf("headers", "The `headers` field has a name of %d octets, which is too long.", len(key))
		}
		switch d.PeekKind() {
		case '"', '0', 't', 'f':
			value, err := d.ReadToken()
			if err != nil {
				return err
			}
			*f = append(*f, message.Field{Name: key, Value: value.String()})
		case 'n':
			if err := d.SkipValue(); err != nil {
				return err
			}
		default:
			field := wire.FieldName(d)
			return fault.Invalidf(field, "The value of a header must be a string (`%s`).", field)
		}
	}
	_, err := d.ReadToken()
	return err
}

// Schema describes the object in the OpenAPI document.
func (headerFields) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, MaxProperties: new(emails.MaxHeaders),
		AdditionalProperties: &huma.Schema{Type: huma.TypeString}}
}

func (*headerFields) ElementTypes() []reflect.Type { return nil }

type attachmentIn struct {
	Content         wire.FileContent `json:"content,omitzero" doc:"The content of the file. Give either content or path."`
	Path            string           `json:"path,omitzero" doc:"The URL from which the file is fetched after the email is accepted."`
	Filename        string           `json:"filename,omitzero"`
	ContentType     string           `json:"content_type,omitzero" doc:"The media type. If absent, the filename decides."`
	ContentID       string           `json:"content_id,omitzero" doc:"Makes the file inline: the HTML can refer to it as cid:<content_id>." maxLength:"127"`
	InlineContentID string           `json:"inline_content_id,omitzero" doc:"Deprecated name of content_id."`
}

type tagIn struct {
	Name  string `json:"name" maxLength:"256"`
	Value string `json:"value" maxLength:"256"`
}

type templateIn struct {
	ID        string                                 `json:"id" doc:"The ID or alias of a published template."`
	Variables wire.Object[scalarValue, maxVariables] `json:"variables,omitzero" doc:"The values of the template's variables. Variables without a fallback need one. Unknown names are ignored."`
}

type sendEmailIn struct {
	From        string                                   `json:"from,omitzero" doc:"The sender at a verified domain, as email@example.com or Name <email@example.com>. Required unless the template has one."`
	To          wire.Strings[maxRecipients]              `json:"to" doc:"1 to 50 recipients."`
	Cc          wire.Strings[maxRecipients]              `json:"cc,omitzero" doc:"At most 50."`
	Bcc         wire.Strings[maxRecipients]              `json:"bcc,omitzero" doc:"At most 50. They do not appear in any header."`
	ReplyTo     wire.Strings[maxRecipients]              `json:"reply_to,omitzero"`
	ReplyToOld  wire.Strings[maxRecipients]              `json:"replyTo,omitzero" doc:"Deprecated name of reply_to."`
	Subject     string                                   `json:"subject,omitzero" doc:"Required unless the template has one." maxLength:"998"`
	HTML        *string                                  `json:"html,omitzero"`
	Text        *string                                  `json:"text,omitzero" doc:"The plain text. Generated from the HTML if absent; an empty string sends no text part."`
	Template    *templateIn                              `json:"template,omitzero" doc:"Replaces html and text. The template also provides the sender, subject and reply addresses that the request omits."`
	Headers     headerFields                             `json:"headers,omitzero" doc:"Custom header fields by name."`
	Attachments wire.Array[attachmentIn, maxAttachments] `json:"attachments,omitzero" doc:"At most 40 MB in total, encoded."`
	Tags        wire.Array[tagIn, maxTags]               `json:"tags,omitzero"`
	ScheduledAt string                                   `json:"scheduled_at,omitzero" doc:"ISO 8601, or a phrase such as \"in 2 hours\" or \"tomorrow at 9am\"; at most 30 days ahead."`
	TopicID     topicRef                                 `json:"topic_id,omitzero" doc:"Only contacts who are subscribed to the topic receive the email, each with an unsubscribe link."`
}

func (in *sendEmailIn) send() emails.Send {
	s := emails.Send{From: in.From, To: in.To, Cc: in.Cc, Bcc: in.Bcc, ReplyTo: in.ReplyTo, Subject: in.Subject,
		HTML: in.HTML,
		Text: in.Text, Headers: in.Headers, ScheduledAt: in.ScheduledAt, TopicID: string(in.TopicID)}
	if len(s.ReplyTo) == 0 {
		s.ReplyTo = in.ReplyToOld
	}
	if in.Template != nil {
		s.HasTemplate, s.TemplateID, s.Variables = true, in.Template.ID, valuesOf(in.Template.Variables)
	}
	for _, t := range in.Tags {
		s.Tags = append(s.Tags, emails.Tag(t))
	}
	for _, f := range in.Attachments {
		cid := f.ContentID
		if cid == "" {
			cid = f.InlineContentID
		}
		cid = strings.TrimSuffix(strings.TrimPrefix(cid, "<"), ">")
		s.Attachments = append(s.Attachments, emails.Upload{Filename: f.Filename, ContentType: f.ContentType, ContentID: cid,
			Content: f.Content.Bytes, HasContent: f.Content.Given, Path: f.Path})
	}
	return s
}

type emailID struct {
	ID string `json:"id"`
}

func (a *API) sendEmail(ctx context.Context, c *wire.Call, in sendEmailIn) (emailID, error) {
	email := in.send()
	key, err := idempotencyOf(c, "POST /emails", "", email)
	if err != nil {
		return emailID{}, err
	}
	id, err := a.Services.Emails.Send(ctx, c.Actor, email, key)
	if err == nil {
		c.RecordEmails([]wire.StoredEmail{{ID: id, HTML: in.HTML, Text: in.Text}})
	}
	return emailID{id}, err
}

// batchIn is the list of emails in a batch.
type batchIn struct {
	emails []sendEmailIn
	broken []error // the decoding error of each email, or nil
}

// UnmarshalJSONFrom reads the list of emails. If an email is invalid, UnmarshalJSONFrom records the error and
// continues, so that the other emails in a permissive batch can still be accepted.
func (b *batchIn) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() != '[' {
		return fault.Invalidf("", "The request body must be an array of 1 to %d emails.", emails.MaxBatch)
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for depth := d.StackDepth(); d.PeekKind() != ']'; {
		n := len(b.emails)
		if n == emails.MaxBatch {
			return b.countOn(d)
		}
		b.emails, b.broken = append(b.emails, sendEmailIn{}), append(b.broken, nil)
		err := json.UnmarshalDecode(d, &b.emails[n])
		if files := b.emails[n].Attachments; len(files) > 1 {
			b.emails[n].Attachments = slices.Clone(files[:1]) // one is enough to cause the error about attachments
		}
		if e, ok := errors.AsType[*fault.Error](err); ok {
			b.broken[n], err = e, skipTo(d, depth)
		}
		if err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

// countOn counts the remaining emails in a batch that is too large, and returns an error that states the total.
func (b *batchIn) countOn(d *jsontext.Decoder) error {
	n := len(b.emails)
	for ; d.PeekKind() != ']'; n++ {
		if err := d.SkipValue(); err != nil {
			return err
		}
	}
	return emails.BadBatchSize(n)
}

// skipTo skips input up to the end of the JSON value at the given depth.
func skipTo(d *jsontext.Decoder, depth int) error {
	for d.StackDepth() > depth {
		if _, err := d.ReadToken(); err != nil {
			return err
		}
	}
	return nil
}

// Schema describes the list in the OpenAPI document.
func (batchIn) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeArray, MinItems: new(1), MaxItems: new(emails.MaxBatch),
		Items: r.Schema(reflect.TypeFor[sendEmailIn](), true, "")}
}

func (*batchIn) ElementTypes() []reflect.Type { return []reflect.Type{reflect.TypeFor[sendEmailIn]()} }

type batchOut struct {
	Data   []emailID            `json:"data"`
	Errors *[]emails.BatchError `json:"errors,omitzero" doc:"In a permissive batch: the refused emails and the reasons."`
}

func (a *API) sendBatch(ctx context.Context, c *wire.Call, in batchIn) (batchOut, error) {
	mode := strings.ToLower(c.Request.Header.Get("X-Batch-Validation"))
	if !slices.Contains([]string{"", "strict", "permissive"}, mode) {
		return batchOut{}, invalidChoice("x-batch-validation", "strict", "permissive")
	}
	all := make([]emails.Send, len(in.emails))
	for i := range in.emails {
		if all[i] = in.emails[i].send(); in.broken[i] != nil && mode != "permissive" {
			return batchOut{}, in.broken[i]
		}
		all[i].Broken = in.broken[i]
	}
	key, err := idempotencyOf(c, "POST /emails/batch", mode, all...)
	if err != nil {
		return batchOut{}, err
	}
	b, err := a.Services.Emails.SendBatch(ctx, c.Actor, all, mode == "permissive", key)
	if err == nil {
		c.RecordEmails(storedEmails(in.emails, b))
	}
	out := batchOut{Data: []emailID{}}
	for _, id := range b.IDs {
		out.Data = append(out.Data, emailID{id})
	}
	if mode == "permissive" {
		if b.Errors == nil {
			b.Errors = []emails.BatchError{}
		}
		out.Errors = &b.Errors
	}
	return out, err
}

// storedEmails returns the stored email for each email in a batch. A refused email has a zero element.
func storedEmails(in []sendEmailIn, b emails.Batch) []wire.StoredEmail {
	all := make([]wire.StoredEmail, len(in))
	refused := make(map[int]bool, len(b.Errors))
	for _, e := range b.Errors {
		refused[e.Index] = true
	}
	next := 0
	for i := range in {
		if !refused[i] && next < len(b.IDs) {
			all[i] = wire.StoredEmail{ID: b.IDs[next], HTML: in[i].HTML, Text: in[i].Text}
			next++
		}
	}
	return all
}

// EmailItem represents an email in a list. EmailItem is exported because Huma skips the fields of unexported
// embedded types.
type EmailItem struct {
	ID          string      `json:"id"`
	MessageID   string      `json:"message_id"`
	To          []string    `json:"to"`
	From        string      `json:"from"`
	CreatedAt   wire.DBTime `json:"created_at"`
	Subject     string      `json:"subject"`
	Bcc         []string    `json:"bcc"`
	Cc          []string    `json:"cc"`
	ReplyTo     []string    `json:"reply_to"`
	LastEvent   string      `json:"last_event" enum:"bounced,canceled,clicked,complained,delivered,delivery_delayed,failed,opened,queued,scheduled,sent,suppressed"`
	ScheduledAt wire.DBTime `json:"scheduled_at" nullable:"true"`
}

type emailWire struct {
	Object string `json:"object"`
	EmailItem
	HTML    *string      `json:"html"`
	Text    *string      `json:"text"`
	Tags    []emails.Tag `json:"tags"`
	TopicID *string      `json:"topic_id"`
	// ThreadID is an extension to the API reference; official clients ignore the field.
	ThreadID string `json:"thread_id" doc:"The ID of the conversation, which all of its sent and received emails share."`
}

func emailToItem(e emails.Email) EmailItem {
	return EmailItem{e.ID, e.MessageID, orEmpty(e.To), e.From, wire.DBTime(e.CreatedAt), e.Subject, orEmpty(e.Bcc),
		orEmpty(e.Cc),
		orEmpty(e.ReplyTo), string(e.LastEvent), wire.DBTime(e.ScheduledAt)}
}

func (a *API) getEmail(ctx context.Context, c *wire.Call, _ wire.None) (emailWire, error) {
	id, err := c.ID("email_id")
	if err != nil {
		return emailWire{}, err
	}
	e, size, err := a.Services.Emails.GetWithin(ctx, c.TeamID, id, wire.LargeResponse)
	if err == nil && size > wire.LargeResponse {
		if err = c.ReserveMemory(ctx, size); err == nil {
			e, err = a.Services.Emails.Get(ctx, c.TeamID, id)
		}
	}
	if err != nil {
		return emailWire{}, err
	}
	thread, err := a.Services.Receiving.SentThread(ctx, c.TeamID, id)
	w := emailWire{"email", emailToItem(e), e.HTML, e.Text, e.Tags, orNull(e.TopicID), thread}
	if w.Tags == nil {
		w.Tags = []emails.Tag{}
	}
	return w, err
}

type updateEmailIn struct {
	ScheduledAt string `json:"scheduled_at" doc:"The new time."`
}

func (a *API) updateEmail(ctx context.Context, c *wire.Call, in updateEmailIn) (ref, error) {
	id, err := c.ID("email_id")
	if err != nil {
		return ref{}, err
	}
	return ref{"email", id}, a.Services.Emails.Reschedule(ctx, c.TeamID, id, in.ScheduledAt)
}

func (a *API) cancelEmail(ctx context.Context, c *wire.Call, _ wire.None) (ref, error) {
	id, err := c.ID("email_id")
	if err != nil {
		return ref{}, err
	}
	return ref{"email", id}, a.Services.Emails.Cancel(ctx, c.TeamID, id)
}

type shareIn struct {
	ExpiresIn string `json:"expires_in,omitzero" doc:"A duration such as 10m, 2 hours or 1 day. The default and the maximum are 48 hours."`
}

type shareOut struct {
	Object string `json:"object"`
	ID     string `json:"id"`
	URL    string `json:"url"`
}

func (a *API) shareEmail(ctx context.Context, c *wire.Call, in shareIn) (shareOut, error) {
	id, err := c.ID("email_id")
	if err != nil {
		return shareOut{}, err
	}
	link, err := a.Services.Emails.Share(ctx, c.TeamID, id, in.ExpiresIn)
	if fault.KindOf(err) == fault.NotFound {
		link, err = a.Services.Receiving.Share(ctx, c.TeamID, id, in.ExpiresIn)
	}
	return shareOut{"email", id, link}, err
}

// AttachmentItem represents an attachment in a list.
type AttachmentItem struct {
	ID                 string       `json:"id"`
	Filename           *string      `json:"filename"`
	Size               int64        `json:"size" doc:"In bytes."`
	ContentType        string       `json:"content_type"`
	ContentDisposition string       `json:"content_disposition" enum:"inline,attachment"`
	ContentID          *string      `json:"content_id"`
	DownloadURL        string       `json:"download_url" doc:"The link works without an API key until it expires."`
	ExpiresAt          wire.ISOTime `json:"expires_at"`
}

type attachmentWire struct {
	Object string `json:"object"`
	AttachmentItem
}

func (a *API) attachmentToItem(f emails.Attachment) AttachmentItem {
	disposition := "attachment"
	if f.Inline() {
		disposition = "inline"
	}
	link, expires := a.Services.Emails.DownloadURL(&f, time.Now())
	return AttachmentItem{f.ID, orNull(f.Filename), f.Size, f.ContentType, disposition, orNull(f.ContentID), link,
		wire.ISOTime(expires)}
}

func (a *API) listAttachments(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[AttachmentItem], error) {
	id, err := c.ID("email_id")
	if err != nil {
		return wire.List[AttachmentItem]{}, err
	}
	p, err := c.Page(20)
	if err != nil {
		return wire.List[AttachmentItem]{}, err
	}
	all, more, err := a.Services.Emails.Attachments(ctx, c.TeamID, id, p)
	return wire.ListOf(all, more, a.attachmentToItem), err
}

func (a *API) getAttachment(ctx context.Context, c *wire.Call, _ wire.None) (attachmentWire, error) {
	id, err := c.ID("email_id")
	if err != nil {
		return attachmentWire{}, err
	}
	file, err := c.ID("attachment_id")
	if err != nil {
		return attachmentWire{}, err
	}
	f, err := a.Services.Emails.Attachment(ctx, c.TeamID, id, file)
	return attachmentWire{"attachment", a.attachmentToItem(f)}, err
}

// invalidChoice returns the fault for a value that is not one of the allowed values.
func invalidChoice(field string, allowed ...string) error {
	return fault.Invalidf(field, "The `%s` field must be `%s`.", field, strings.Join(allowed, "` or `"))
}

// welcomeOut is the response at the root path.
type welcomeOut struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Docs    string `json:"docs"`
}

func (a *API) welcome(context.Context, *wire.Call, wire.None) (welcomeOut, error) {
	return welcomeOut{"Postrider", a.Version, "/docs"}, nil
}

type healthOut struct {
	Status string `json:"status"`
}

func (a *API) healthz(context.Context, *wire.Call, wire.None) (healthOut, error) {
	return healthOut{"ok"}, nil
}

func (a *API) readyz(ctx context.Context, c *wire.Call, _ wire.None) (telemetry.Report, error) {
	if a.Ready == nil {
		return telemetry.Report{Status: telemetry.StatusOK}, nil
	}
	r := a.Ready(ctx)
	if c.Status = r.HTTPStatus(); c.Status == http.StatusServiceUnavailable {
		c.Header.Set("Retry-After", "1")
	}
	return r, nil
}
