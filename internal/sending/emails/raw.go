package emails

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/blob"
)

// A raw message is stored in a row. For a large message, the row contains only the prepended header fields and a blob
// key, submitted/<blob id>. The blob contains the rest of the message. Attachments to a raw message are not stored
// separately. The blob key of an attachment to a raw message is fileMark followed by the number of the file in the
// message.
//
// A large message stored before schema version 21 has no row. If a message has no row, the blob submitted/<email id>
// contains the whole message. If a message has no row, the blob key of an attachment begins with the key of the
// message, followed by fileMark.
const (
	rawPrefix = "submitted/"
	fileMark  = "#"
	rawInRow  = 64 << 10 // maximum size, in bytes, of a message that is stored in a row
	// noID is a placeholder for the email's id in a message until the id is known; it has the length of an id.
	noID = "00000000-0000-0000-0000-000000000000"
)

// Raw is a raw message, that is, one composed by its sender. A raw message is sent unchanged.
type Raw struct {
	// Send describes the message, so that the message can be checked and displayed like other emails. To, Cc and
	// Attachments are taken from the message. Bcc and the fields for templates and schedules are not used. Header fields
	// that the API refuses are left out.
	Send
	// Recipients lists the recipients in the envelope. Only the recipients in the envelope receive the message. Recipients
	// that appear in neither To nor Cc are displayed as Bcc.
	Recipients []message.Address
	// Header is the header section without fields that must not be sent, such as Bcc. Each line ends in CRLF.
	Header []byte
	// Body is the empty line after the header and the rest of the message.
	Body []byte
	// MessageID is the Message-ID of the message, with angle brackets. If MessageID is "", a Message-ID is added.
	MessageID string
	// HasDate is true if the message has a Date field. If the message has no Date field, a Date field is added.
	HasDate bool
	// Trace is the part of the Received header field that describes the submission (RFC 5321 section 4.4), such as "by
	// mx.example.com with ESMTPSA".
	Trace string
	// UTF8 is true if the header contains UTF-8 (RFC 6532). Only hosts that support SMTPUTF8 accept a message with a UTF-8
	// header.
	UTF8 bool

	forwarded string    // the fields to prepend to a forwarded message, which gets no others
	at        time.Time // time when the message was accepted
	content   []byte    // content of the row: the whole message, or only the prepended fields
	blobKey   string    // key of the blob with the rest of the message, if the message is large
}

// SendRaw accepts a raw message and returns the email's id. When SendRaw returns, the message is on disk.
func (s *Service) SendRaw(ctx context.Context, by teams.Actor, in Raw, key Idempotency) (string, error) {
	r, err := s.once(ctx, by, key, func(a *answer) error {
		d, err := s.checkRaw(in)
		if err != nil {
			return err
		}
		return s.accept(ctx, by, []*draft{d}, a)
	})
	if err != nil {
		return "", err
	}
	return r.IDs[0], nil
}

// checkRaw checks a raw message against the rules for emails. The subject, the text and the recipients in the header
// may be missing.
func (s *Service) checkRaw(in Raw) (*draft, error) {
	d := &draft{Send: in.Send, raw: &in}
	d.HTML, d.Text = stripNUL(d.HTML), stripNUL(d.Text)
	d.Bcc, d.HasTemplate, d.ScheduledAt = nil, false, ""
	if d.From == "" {
		return nil, fault.MissingField("from")
	}
	if err := d.checkAddresses(nil); err != nil {
		return nil, err
	}
	if err := d.checkEnvelope(in.Recipients, s.c.TestDomainsRefused); err != nil {
		return nil, err
	}
	if err := d.checkContent(); err != nil {
		return nil, err
	}
	d.keepHeaders()
	if err := checkTags(in.Tags); err != nil {
		return nil, err
	}
	if err := checkFiles(len(d.Attachments)); err != nil {
		return nil, err
	}
	for i, a := range d.Attachments {
		if message.RefusedExtension(a.Filename) {
			return nil, fault.New(fault.BadAttachment, fmt.Sprintf("attachments[%d].filename", i),
				"Files such as `%s` can run as programs "+
					"and are refused by mail hosts. Send an archive or a link.", a.Filename)
		}
		d.Attachments[i].Filename = strings.ToValidUTF8(a.Filename[:min(len(a.Filename), maxFilename)], "")
	}
	if size := int64(len(in.Header) + len(in.Body)); size > s.c.MaxSize {
		return nil, fault.Invalidf("attachments",
			"The message has %d bytes; the limit is %d bytes in all. Link to large files instead.",
			size, s.c.MaxSize)
	}
	return d, nil
}

// stripNUL removes NUL characters from a string, because they cannot be stored.
func stripNUL(text *string) *string {
	if text == nil || strings.IndexByte(*text, 0) < 0 {
		return text
	}
	clean := strings.ReplaceAll(*text, "\x00", "")
	return &clean
}

// checkEnvelope replaces the draft's recipients with the recipients in the envelope. A recipient that appears in To or
// Cc has the kind to or cc, accordingly. All other recipients have the kind bcc.
func (d *draft) checkEnvelope(to []message.Address, refused []string) error {
	named := map[string]string{}
	for _, r := range d.recipients {
		named[r.Key()] = r.kind
	}
	d.recipients = nil
	seen, counts := map[string]bool{}, map[string]int{}
	for _, a := range to {
		kind := named[a.Key()]
		if kind == "" {
			kind = "bcc"
		}
		for _, domain := range refused {
			if a.Domain == domain {
				return testDomain(kind, domain)
			}
		}
		if seen[a.Key()] {
			continue
		}
		seen[a.Key()] = true
		if counts[kind]++; counts[kind] > MaxRecipients {
			return fault.Invalidf(kind, "The message has more than %d recipients of the kind `%s`.", MaxRecipients, kind)
		}
		if kind == "bcc" {
			d.Bcc = append(d.Bcc, a.Addr())
		}
		d.recipients = append(d.recipients, recipient{kind: kind, Address: a})
	}
	if len(d.recipients) == 0 {
		return fault.MissingField("to")
	}
	return nil
}

// keepHeaders removes the header fields that the API refuses, so that the other fields can be displayed like those from
// an API request.
func (d *draft) keepHeaders() {
	var kept []message.Field
	size := 0
	for _, f := range d.Headers {
		size += len(f.Name) + len(f.Value)
		if len(kept) < MaxHeaders && size <= maxHeaderSize && message.CheckField(f.Name, f.Value) == nil &&
			!strings.EqualFold(f.Name, "Message-ID") {
			kept = append(kept, f)
		}
	}
	d.Headers = kept
}

// storeRaw stores a large message durably before the email is accepted, adds missing header fields, and returns the
// attachments. Later, the method draft.name writes the email's id into the added fields.
func (s *Service) storeRaw(ctx context.Context, teamID string, d *draft) ([]Attachment, error) {
	d.raw.at = s.DB.Now().UTC()
	added := d.added(noID)
	if len(added)+len(d.raw.Header)+len(d.raw.Body) <= rawInRow {
		d.raw.content = slices.Concat([]byte(added), d.raw.Header, d.raw.Body)
	} else {
		d.raw.content, d.raw.blobKey = []byte(added), rawPrefix+id.New()
		r := io.MultiReader(bytes.NewReader(d.raw.Header), bytes.NewReader(d.raw.Body))
		if _, err := s.Blobs.Put(ctx, d.raw.blobKey, r); err != nil {
			return nil, fault.New(fault.Unavailable, "", "The message cannot be stored at present. Try again in a moment.").
				Because(fmt.Errorf("store message: %w", err))
		}
	}
	var files []Attachment
	for i, u := range d.Attachments {
		files = append(files, Attachment{ID: id.New(), TeamID: teamID, Filename: u.Filename, ContentType: u.ContentType,
			ContentID: u.ContentID, Size: int64(len(u.Content)), blobKey: fileMark + strconv.Itoa(i)})
	}
	return files, nil
}

// added returns the header fields to prepend to a raw message: the Received field and any missing fields.
func (d *draft) added(emailID string) string {
	if d.raw.forwarded != "" {
		return d.raw.forwarded
	}
	date := d.raw.at.Format(time.RFC1123Z)
	added := "Received: " + d.raw.Trace + " id " + emailID + ";\r\n " + date + "\r\n"
	if !d.raw.HasDate {
		added += "Date: " + date + "\r\n"
	}
	if d.raw.MessageID == "" {
		added += "Message-ID: " + d.messageID(emailID) + "\r\n"
	}
	return added
}

// name writes the email's id into the prepended fields, replacing noID or an earlier id.
func (d *draft) name(emailID string) { copy(d.raw.content, d.added(emailID)) }

// messageID returns the draft's Message-ID for the given email id.
func (d *draft) messageID(emailID string) string {
	if d.raw != nil && d.raw.MessageID != "" {
		return d.raw.MessageID
	}
	return "<" + emailID + "@" + d.from.Domain + ">"
}

// raw reads a raw message: the part in its row, followed by the content of its blob if there is one.
func (s *Service) raw(ctx context.Context, teamID, emailID string) ([]byte, error) {
	text, key, err := messageInRow(ctx, s.DB.Reader, teamID, emailID)
	if err != nil || key == "" {
		return text, err
	}
	r, err := s.Blobs.Get(ctx, key)
	if err != nil {
		return nil, fileError(ctx, "", fmt.Errorf("open message: %w", err))
	}
	defer r.Close()
	whole := bytes.NewBuffer(text)
	if _, err := whole.ReadFrom(r); err != nil {
		return nil, fileError(ctx, "", fmt.Errorf("read message %s: %w", key, err))
	}
	return whole.Bytes(), nil
}

// open opens an attachment's content for reading.
func (s *Service) open(ctx context.Context, a *Attachment) (io.ReadCloser, error) {
	_, number, inMessage := strings.Cut(a.blobKey, fileMark)
	if !inMessage {
		return s.Blobs.Get(ctx, a.blobKey)
	}
	text, err := s.raw(ctx, a.TeamID, a.EmailID)
	if err != nil {
		return nil, err
	}
	files := mailparse.Parse(text).Files
	n, err := strconv.Atoi(number)
	if err != nil || n >= len(files) {
		return nil, fmt.Errorf("the message of email %s has no file %q: %w", a.EmailID, number, blob.ErrNotFound)
	}
	return io.NopCloser(bytes.NewReader(files[n].Content)), nil
}
