package receiving

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/page"
)

// Purposes of the signed tokens in links. A token for one purpose is not valid for another.
const (
	filePurpose = "received-file"
	rawPurpose  = "received-raw"
	// sharePurpose differs from the purpose for sent emails, because the links look the same.
	sharePurpose = "share-received"
)

// rawPrefix is the key prefix of large raw messages in the blob store.
const rawPrefix = "received/"

// Formats of the inline images in a received email's HTML.
const (
	DataURI = "data_uri" // inline images are embedded as data URIs
	CID     = "cid"      // inline images keep their original cid: URLs
)

// List returns a page of a team's received emails, newest first. An empty threadID means all conversations.
func (s *Service) List(ctx context.Context, teamID, threadID string, p page.Page) ([]Email, bool, error) {
	return listEmails(ctx, s.p.DB.Reader, teamID, threadID, p)
}

// Exists returns a NotFound fault if the team has not received the email.
func (s *Service) Exists(ctx context.Context, teamID, emailID string) error {
	_, err := getEmail(ctx, s.p.DB.Reader, teamID, emailID)
	return err
}

// Get returns a received email with its content, which the caller must close. The parameter format specifies how the
// HTML refers to inline images: DataURI or CID.
func (s *Service) Get(ctx context.Context, teamID, emailID, format string) (Email, Content, error) {
	if format != DataURI && format != CID {
		return Email{}, Content{}, fault.Invalidf("html_format", "The `html_format` parameter must be `data_uri` or `cid`.")
	}
	e, err := getEmail(ctx, s.p.DB.Reader, teamID, emailID)
	if err != nil {
		return e, Content{}, err
	}
	raw, memory, err := s.raw(ctx, &e)
	if err != nil {
		return e, Content{}, err
	}
	content := s.content(e.ID, s.parseStored(e.ID, raw), format)
	content.memory = memory
	return e, content, nil
}

// content returns the content of a parsed message; id identifies the message in the log.
func (s *Service) content(id string, p *mailparse.Parsed, format string) Content {
	c := Content{Header: p.Header, Defects: p.Defects, s: s, id: id, files: p.Files}
	if !s.catchPanic(id, func() { c.HTML, c.Text = texts(p, format) }) {
		c.Defects = append(c.Defects, unreadable)
	}
	return c
}

// texts returns the HTML and plain text of a message; each is nil if the message does not contain it.
func texts(p *mailparse.Parsed, format string) (html, text *string) {
	if p.HasText {
		text = new(p.Text())
	}
	if p.HasHTML {
		html = new(p.HTML())
		if format == DataURI {
			var b strings.Builder
			mailparse.WriteWithImages(&b, *html, p.Files, inlineMax) // writing to a Builder never fails
			*html = b.String()
		}
	}
	return html, text
}

// raw reads the complete raw message of an email. The caller must release the memory of the raw message.
func (s *Service) raw(ctx context.Context, e *Email) (raw []byte, memory *reservation, err error) {
	if e.blobKey == "" {
		raw, err = rawInRow(ctx, s.p.DB.Reader, e.TeamID, e.ID)
	} else {
		raw, memory, err = s.load(ctx, e.blobKey, e.Size, "team "+e.TeamID, s.c.ReadWait)
	}
	return raw, memory, s.readError(ctx, e, err)
}

// readError classifies an error from reading a raw message. If a retry may succeed, readError returns an Unavailable
// fault. If the email has been deleted, readError returns a NotFound fault. If the email still exists but its raw
// message is missing, readError returns an internal error.
func (s *Service) readError(ctx context.Context, e *Email, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNoMemory):
		return fault.New(fault.Unavailable, "", "Too many large emails are being read. Try again in a moment.").Because(err)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, blob.ErrNotFound), errors.Is(err, db.ErrNoRows), errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF):
		if _, gone := getEmail(ctx, s.p.DB.Reader, e.TeamID, e.ID); gone != nil {
			return gone
		}
		return fmt.Errorf("the raw message of received email %s is lost: %w", e.ID, err)
	case e.blobKey == "":
		return err
	}
	return fault.New(fault.Unavailable, "", "The stored email cannot be read at present. Try again in a moment.").Because(
		err)
}

// Files returns a page of an email's attachments in message order, which is also the order of their ids.
func (s *Service) Files(ctx context.Context, teamID, emailID string, p page.Page) ([]File, bool, error) {
	e, err := getEmail(ctx, s.p.DB.Reader, teamID, emailID)
	if err != nil {
		return nil, false, err
	}
	all := e.Files
	if p.After != "" {
		all = slices.DeleteFunc(all, func(f File) bool { return f.ID <= p.After })
	}
	if p.Before != "" {
		all = slices.DeleteFunc(all, func(f File) bool { return f.ID >= p.Before })
	}
	more := p.Limit > 0 && len(all) > p.Limit
	switch {
	case more && p.Before != "":
		all = all[len(all)-p.Limit:]
	case more:
		all = all[:p.Limit]
	}
	return all, more, nil
}

// File returns one attachment of an email.
func (s *Service) File(ctx context.Context, teamID, emailID, fileID string) (File, error) {
	e, err := getEmail(ctx, s.p.DB.Reader, teamID, emailID)
	if err != nil {
		return File{}, err
	}
	i := slices.IndexFunc(e.Files, func(f File) bool { return f.ID == fileID })
	if i < 0 {
		return File{}, fault.NotFoundf("Attachment not found")
	}
	return e.Files[i], nil
}

// FileURL returns a temporary URL from which an attachment can be downloaded without an API key.
func (s *Service) FileURL(teamID, emailID, fileID string, now time.Time) (link string, expires time.Time) {
	expires = keyring.LinkExpiry(now)
	return s.c.PublicURL + "/download/received/" + s.p.Keys.Sign(filePurpose, expires, teamID, emailID, fileID), expires
}

// RawURL returns a temporary URL from which the raw message can be downloaded without an API key.
func (s *Service) RawURL(teamID, emailID string, now time.Time) (link string, expires time.Time) {
	expires = keyring.LinkExpiry(now)
	return s.c.PublicURL + "/download/raw/" + s.p.Keys.Sign(rawPurpose, expires, teamID, emailID), expires
}

// Download is a file for a client to download. The caller must close Body.
type Download struct {
	Filename    string
	ContentType string
	Size        int64
	Body        io.ReadCloser
}

// OpenFile opens the attachment that a token from FileURL identifies.
func (s *Service) OpenFile(ctx context.Context, token string) (Download, error) {
	values, err := s.verify(ctx, filePurpose, token, 3)
	if err != nil {
		return Download{}, err
	}
	e, err := getEmail(ctx, s.p.DB.Reader, values[0], values[1])
	if err != nil {
		return Download{}, err
	}
	i := slices.IndexFunc(e.Files, func(f File) bool { return f.ID == values[2] })
	if i < 0 {
		return Download{}, fault.NotFoundf("Attachment not found")
	}
	raw, memory, err := s.raw(ctx, &e)
	if err != nil {
		return Download{}, err
	}
	files := s.parseStored(e.ID, raw).Files
	if i >= len(files) {
		memory.shrink(0)
		return Download{}, fmt.Errorf("attachment %d of received email %s is not in its raw message", i, e.ID)
	}
	f := e.Files[i]
	content := files[i].Content
	// The content needs at most e.Size bytes, or is a slice of the message. The client may read slowly, so memory
	// beyond e.Size is released before the download.
	memory.shrink(e.Size)
	return Download{f.Filename, f.ContentType, int64(len(content)), downloadBody{bytes.NewReader(content), memory}}, nil
}

// OpenRaw opens the raw message that a token from RawURL identifies.
func (s *Service) OpenRaw(ctx context.Context, token string) (Download, error) {
	values, err := s.verify(ctx, rawPurpose, token, 2)
	if err != nil {
		return Download{}, err
	}
	e, err := getEmail(ctx, s.p.DB.Reader, values[0], values[1])
	if err != nil {
		return Download{}, err
	}
	d := Download{e.ID + ".eml", "message/rfc822", e.Size, nil}
	if e.blobKey != "" {
		d.Body, err = s.p.Blobs.Get(ctx, e.blobKey)
		return d, s.readError(ctx, &e, err)
	}
	raw, err := rawInRow(ctx, s.p.DB.Reader, e.TeamID, e.ID)
	d.Body = io.NopCloser(bytes.NewReader(raw))
	return d, s.readError(ctx, &e, err)
}

func (s *Service) verify(ctx context.Context, purpose, token string, n int) ([]string, error) {
	values, err := s.p.Keys.Verify(purpose, token, time.Now())
	if errors.Is(err, keyring.ErrExpired) {
		return nil, fault.Forbiddenf("", "This link has expired. Ask the API for a new one.")
	}
	if err != nil || len(values) != n {
		return nil, fault.NotFoundf("There is nothing at this address.")
	}
	return values, s.p.Teams.CheckActive(ctx, values[0])
}

// Sweep deletes blobs that are older than a day and to which no row refers, because their messages were refused or
// deleted. Sweep must be called periodically.
func (s *Service) Sweep(ctx context.Context) error {
	return s.p.Blobs.Sweep(ctx, rawPrefix, s.p.DB.Now().Add(-24*time.Hour), func(ctx context.Context,
		keys []string) ([]string, error) {
		return usedBlobs(ctx, s.p.DB.Reader, keys)
	})
}
