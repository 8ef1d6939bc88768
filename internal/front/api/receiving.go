package api

import (
	"cmp"
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/sending/search"
)

// ReceivedItem represents a received email in a list.
type ReceivedItem struct {
	ID          string         `json:"id"`
	To          []string       `json:"to"`
	From        string         `json:"from" doc:"The address without the display name, which is in the headers."`
	CreatedAt   wire.ISOTime   `json:"created_at"`
	Subject     *string        `json:"subject"`
	MessageID   string         `json:"message_id"`
	Bcc         []string       `json:"bcc"`
	Cc          []string       `json:"cc"`
	ReplyTo     []string       `json:"reply_to"`
	ReceivedFor []string       `json:"received_for" doc:"The addresses that the message was delivered to, which the header may not contain."`
	ThreadID    string         `json:"thread_id" doc:"The ID of the conversation, which all of its emails share."`
	Attachments []receivedFile `json:"attachments"`
}

type receivedFile struct {
	ID                 string  `json:"id"`
	Filename           *string `json:"filename"`
	Size               int64   `json:"size" doc:"In bytes."`
	ContentType        string  `json:"content_type"`
	ContentID          *string `json:"content_id"`
	ContentDisposition *string `json:"content_disposition"`
}

type receivedWire struct {
	Object string `json:"object"`
	ReceivedItem
	HTML           *string            `json:"html"`
	Text           *string            `json:"text"`
	HTMLFormat     string             `json:"html_format" enum:"data_uri,cid"`
	Headers        map[string]string  `json:"headers" doc:"Header fields by lower-case name. The values of repeated fields are joined by line feeds."`
	Raw            rawLink            `json:"raw" doc:"The complete message as it was received."`
	Authentication *authenticationOut `json:"authentication" doc:"The SPF, DKIM, DMARC and ARC results; null if they were not evaluated."`
	Spam           *spamOut           `json:"spam" doc:"The result of the content filter; null if no filter is configured."`
}

type rawLink struct {
	DownloadURL string       `json:"download_url" doc:"The link works without an API key until it expires."`
	ExpiresAt   wire.ISOTime `json:"expires_at"`
}

type verdictOut struct {
	Result string `json:"result"`
	Domain string `json:"domain"`
	Detail string `json:"detail"`
}

type authenticationOut struct {
	SPF    verdictOut   `json:"spf"`
	DKIM   []verdictOut `json:"dkim"`
	DMARC  verdictOut   `json:"dmarc"`
	Policy string       `json:"dmarc_policy"`
	ARC    verdictOut   `json:"arc"`
}

type spamOut struct {
	Action string              `json:"action"`
	Fields map[string][]string `json:"headers"`
}

func receivedFileOf(f receiving.File) receivedFile {
	return receivedFile{f.ID, orNull(f.Filename), f.Size, f.ContentType, orNull(f.ContentID), orNull(f.Disposition)}
}

func receivedToItem(e receiving.Email) ReceivedItem {
	files := make([]receivedFile, len(e.Files))
	for i, f := range e.Files {
		files[i] = receivedFileOf(f)
	}
	return ReceivedItem{e.ID, orEmpty(e.To), e.From, wire.ISOTime(e.CreatedAt), orNull(e.Subject), e.MessageID,
		orEmpty(e.Bcc), orEmpty(e.Cc), orEmpty(e.ReplyTo), orEmpty(e.ReceivedFor), e.ThreadID, files}
}

// receivedQuery lists the query parameters that filter received emails. The public API does not have these parameters.
var receivedQuery = []string{"thread_id", "q", "to", "from", "subject", "created_after", "created_before"}

func (a *API) listReceived(ctx context.Context, c *wire.Call, _ wire.None) (searchedList[ReceivedItem], error) {
	p, err := c.Page(20)
	if err != nil {
		return searchedList[ReceivedItem]{}, err
	}
	f, err := receivedFilter(c.Query())
	if err != nil {
		return searchedList[ReceivedItem]{}, err
	}
	var found receiving.Found
	if f.Query == (search.Query{}) {
		found.Items, found.HasMore, err = a.Services.Receiving.List(ctx, c.TeamID, f.ThreadID, p)
	} else {
		found, err = a.Services.Receiving.Search(ctx, c.TeamID, f, p)
	}
	return searchedListOf(found, receivedToItem), err
}

// receivedFilter reads the query parameters that filter received emails.
func receivedFilter(q url.Values) (f receiving.Filter, err error) {
	f.ThreadID = strings.ToLower(q.Get("thread_id"))
	if q.Has("thread_id") && !id.Valid(f.ThreadID) {
		return f, fault.Invalidf("thread_id", "The `thread_id` parameter must be the `thread_id` of an email.")
	}
	if err := checkFilled(q, receivedQuery); err != nil {
		return f, err
	}
	f.Query = search.Query{Text: q.Get("q"), To: q.Get("to"), From: q.Get("from"), Subject: q.Get("subject")}
	return f, readCreated(q, &f.CreatedAfter, &f.CreatedBefore)
}

func (a *API) getReceived(ctx context.Context, c *wire.Call, _ wire.None) (receivedWire, error) {
	emailID, err := c.ID("email_id")
	if err != nil {
		return receivedWire{}, err
	}
	format := cmp.Or(c.Query().Get("html_format"), receiving.DataURI)
	e, content, err := a.Services.Receiving.Get(ctx, c.TeamID, emailID, format)
	if err != nil {
		return receivedWire{}, err
	}
	c.ReleaseSource(content.Close)
	link, expires := a.Services.Receiving.RawURL(e.TeamID, e.ID, time.Now())
	w := receivedWire{Object: "email", ReceivedItem: receivedToItem(e), HTML: content.HTML, Text: content.Text,
		HTMLFormat: format,
		Headers:    joinHeader(content.Header), Raw: rawLink{link, wire.ISOTime(expires)},
		Authentication: authenticationOf(e.Authentication)}
	if e.Spam != nil {
		w.Spam = &spamOut{e.Spam.Action, e.Spam.Fields}
	}
	return w, nil
}

// joinHeader returns a map from lower-case header field names to values. The values of a repeated field are joined in
// the order in which they occur in the message.
func joinHeader(header []message.Field) map[string]string {
	values := map[string][]string{}
	for _, f := range header {
		name := strings.ToLower(f.Name)
		values[name] = append(values[name], f.Value)
	}
	all := make(map[string]string, len(values))
	for name, list := range values {
		all[name] = strings.Join(list, "\n")
	}
	return all
}

func authenticationOf(r *authres.Results) *authenticationOut {
	if r == nil {
		return nil
	}
	out := &authenticationOut{SPF: verdictOut(r.SPF), DKIM: []verdictOut{}, DMARC: verdictOut(r.DMARC), Policy: r.Policy,
		ARC: verdictOut(r.ARC)}
	for _, v := range r.DKIM {
		out.DKIM = append(out.DKIM, verdictOut(v))
	}
	return out
}

// ReceivedAttachmentItem is an attachment of a received email, with a download link.
type ReceivedAttachmentItem struct {
	ID                 string       `json:"id"`
	Filename           *string      `json:"filename"`
	Size               int64        `json:"size" doc:"In bytes."`
	ContentType        string       `json:"content_type"`
	ContentDisposition *string      `json:"content_disposition"`
	ContentID          *string      `json:"content_id"`
	DownloadURL        string       `json:"download_url" doc:"The link works without an API key until it expires."`
	ExpiresAt          wire.ISOTime `json:"expires_at"`
}

type receivedAttachmentWire struct {
	Object string `json:"object"`
	ReceivedAttachmentItem
}

func (a *API) receivedAttachment(teamID, emailID string, f receiving.File) ReceivedAttachmentItem {
	link, expires := a.Services.Receiving.FileURL(teamID, emailID, f.ID, time.Now())
	return ReceivedAttachmentItem{f.ID, orNull(f.Filename), f.Size, f.ContentType, orNull(f.Disposition),
		orNull(f.ContentID), link,
		wire.ISOTime(expires)}
}

func (a *API) listReceivedFiles(ctx context.Context, c *wire.Call, _ wire.None) (
	wire.List[ReceivedAttachmentItem], error) {
	emailID, err := c.ID("email_id")
	if err != nil {
		return wire.List[ReceivedAttachmentItem]{}, err
	}
	p, err := c.Page(20)
	if err != nil {
		return wire.List[ReceivedAttachmentItem]{}, err
	}
	all, more, err := a.Services.Receiving.Files(ctx, c.TeamID, emailID, p)
	return wire.ListOf(all, more, func(f receiving.File) ReceivedAttachmentItem {
		return a.receivedAttachment(c.TeamID, emailID,
			f)
	}), err
}

func (a *API) getReceivedFile(ctx context.Context, c *wire.Call, _ wire.None) (receivedAttachmentWire, error) {
	emailID, err := c.ID("email_id")
	if err != nil {
		return receivedAttachmentWire{}, err
	}
	fileID, err := c.ID("attachment_id")
	if err != nil {
		return receivedAttachmentWire{}, err
	}
	f, err := a.Services.Receiving.File(ctx, c.TeamID, emailID, fileID)
	return receivedAttachmentWire{"attachment", a.receivedAttachment(c.TeamID, emailID, f)}, err
}
