package submission

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/sending/emails"
)

const (
	scope            = "SMTP" // scope of idempotency keys, separate from the API's scope
	largeMessageWait = time.Minute
	maxMessageID     = 900 // bytes
)

// Data converts the message to an email and returns after the email has been stored.
func (c *session) Data(ctx context.Context, r io.Reader) (string, error) {
	raw, done, err := c.read(ctx, r)
	defer done()
	if err != nil {
		return "", err
	}
	// The API key is checked again, because it may have been deleted while the message was arriving, which can take
	// minutes.
	if err := c.checkKey(ctx); err != nil {
		return "", err
	}
	in, key, err := c.email(raw)
	if err != nil {
		return "", err
	}
	id, err := c.s.p.Emails.SendRaw(ctx, c.actor, in, key)
	if err != nil {
		return "", refusal(err)
	}
	return id, nil
}

// read reads the message. A large message is written to a file as it arrives, so that slow clients do not use memory.
// After the message has arrived, read waits for one of the slots that all teams share. The slots limit how many large
// messages are in memory. The returned function done releases the slot.
func (c *session) read(ctx context.Context, r io.Reader) (raw []byte, done func(), err error) {
	done = func() {}
	var text bytes.Buffer
	if c.options.Size <= smallMessage {
		text.Grow(int(c.options.Size) + bytes.MinRead)
	}
	if _, err := text.ReadFrom(io.LimitReader(r, smallMessage)); err != nil || text.Len() < smallMessage {
		return text.Bytes(), done, err
	}
	spool, err := c.s.spool.file()
	if err != nil {
		return nil, done, fmt.Errorf("create a file for a large message: %w", err)
	}
	defer spool.Close()
	size, err := io.Copy(spool, io.MultiReader(&text, r))
	if err != nil {
		return nil, done, fmt.Errorf("receive a large message: %w", err)
	}
	team := c.actor.TeamID
	wait, cancel := context.WithTimeout(ctx, largeMessageWait)
	defer cancel()
	if err := c.s.largeSlots.Acquire(wait, team, 1); err != nil {
		if ctx.Err() != nil {
			return nil, done, err
		}
		return nil, done, smtpserver.Refuse(451, "4.3.2", "Too many large messages at the same time, try again later")
	}
	done = func() { c.s.largeSlots.Release(team, 1) }
	raw = make([]byte, size)
	if _, err := spool.ReadAt(raw, 0); err != nil {
		return nil, done, fmt.Errorf("read a large message from its file: %w", err)
	}
	return raw, done, nil
}

// email converts the message to an email.
func (c *session) email(raw []byte) (emails.Raw, emails.Idempotency, error) {
	h, r := split(raw)
	if r == nil && bytes.Contains(raw, []byte{0}) {
		r = smtpserver.Refuse(554, "5.6.0", "The message has a NUL, which mail hosts do not take")
	}
	if r != nil {
		return emails.Raw{}, emails.Idempotency{}, r
	}
	from, r := h.from(c.options.UTF8)
	if r != nil {
		return emails.Raw{}, emails.Idempotency{}, r
	}
	p := mailparse.Parse(raw)
	in := emails.Raw{Recipients: c.to, Header: h.kept, Body: h.body, HasDate: h.has["date"], Trace: c.trace(),
		UTF8: c.options.UTF8 && h.eightBit}
	in.From, in.ReplyTo = formatAddress(from), formatAddresses(p.ReplyTo)
	in.To, in.Cc = formatAddresses(p.To), formatAddresses(p.Cc)
	in.Subject = oneLine(p.Subject)
	if p.HasHTML {
		in.HTML = new(p.HTML())
	}
	if p.HasText {
		in.Text = new(p.Text())
	}
	for _, f := range p.Files {
		in.Attachments = append(in.Attachments, emails.Upload{Filename: f.Filename, ContentType: f.ContentType,
			ContentID: f.ContentID,
			Content:   f.Content, HasContent: true})
	}
	if h.has["message-id"] {
		// The Message-ID must occur unchanged in the message, because other hosts would not report an id that the parser has
		// decoded or repaired.
		in.MessageID = p.MessageID
		if in.MessageID == "" || len(in.MessageID) > maxMessageID || !bytes.Contains(h.kept, []byte(in.MessageID)) {
			return in, emails.Idempotency{}, smtpserver.Refuse(554, "5.6.0",
				"The Message-ID field cannot be read; leave it out, and one is made")
		}
	}
	key, err := options(&in, p)
	return in, key, err
}

// trace returns the trace information for the Received field (RFC 5321 section 4.4, RFC 3848). The client is not named
// in the trace information, because recipients can read it.
func (c *session) trace() string {
	with := "ESMTPA"
	if c.peer.TLS != nil {
		with = "ESMTPSA"
	}
	return "by " + c.s.c.Hostname + " with " + with
}

// options reads the header fields that set options for the submission service, and copies the other fields to in.
func options(in *emails.Raw, p *mailparse.Parsed) (emails.Idempotency, error) {
	var key emails.Idempotency
	for _, f := range p.Header {
		value := strings.TrimSpace(f.Value)
		switch strings.ToLower(f.Name) {
		case "resend-idempotency-key", "postrider-idempotency-key":
			// An empty or ambiguous idempotency key is refused, because a retry of the message could result in a second email.
			if value == "" || key.Key != "" && key.Key != value {
				return key, smtpserver.Refuse(554, "5.6.0", "The field %s is empty, or differs from another one; give one key",
					f.Name)
			}
			key = emails.Idempotency{Scope: scope, Key: value}
		case "x-postrider-tag":
			name, text, ok := strings.Cut(value, "=")
			if !ok {
				return key, smtpserver.Refuse(554, "5.6.0", "Write the field X-Postrider-Tag as name=value")
			}
			in.Tags = append(in.Tags, emails.Tag{Name: strings.TrimSpace(name), Value: strings.TrimSpace(text)})
		case "x-postrider-topic", "x-postrider-topic-id":
			// An empty topic field is refused. If an empty topic field meant "no topic", the email would also go to
			// contacts who unsubscribed from the intended topic.
			if value == "" {
				return key, smtpserver.Refuse(554, "5.6.0", "The field %s is empty; give the id of a topic, or leave it out",
					f.Name)
			}
			if in.TopicID != "" {
				return key, smtpserver.Refuse(554, "5.6.0", "The header names a topic more than once")
			}
			in.TopicID = value
		default:
			in.Headers = append(in.Headers, f)
		}
	}
	if key.Key != "" {
		key.Hash = hash(in)
	}
	return key, nil
}

// hash returns a hash of a message's content. Date, Message-ID and MIME boundaries are not included, because programs
// choose new values for them when they retry a message.
func hash(in *emails.Raw) string {
	h := sha256.New()
	add := func(kind string, texts ...string) {
		for _, t := range texts {
			fmt.Fprintf(h, "%s %d %s\n", kind, len(t), t)
		}
	}
	var to []string
	for _, a := range in.Recipients {
		to = append(to, a.Key())
	}
	slices.Sort(to)
	add("rcpt", slices.Compact(to)...)
	add("from", in.From)
	add("to", in.To...)
	add("cc", in.Cc...)
	add("reply-to", in.ReplyTo...)
	add("subject", in.Subject)
	if in.HTML != nil {
		add("html", *in.HTML)
	}
	if in.Text != nil {
		add("text", *in.Text)
	}
	for _, t := range in.Tags {
		add("tag", t.Name, t.Value)
	}
	add("topic", in.TopicID)
	for _, a := range in.Attachments {
		add("file", a.Filename, a.ContentType, string(a.Content))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// formatAddress returns an address with its display name in UTF-8.
func formatAddress(a message.Address) string {
	name := oneLine(a.Name)
	switch {
	case name == "":
		return a.Addr()
	case strings.ContainsAny(name, `"(),:;<>@[]\`):
		name = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"`
	}
	return name + " <" + a.Addr() + ">"
}

// formatAddresses formats addresses, and skips undeliverable ones such as root@localhost, which remain in the message's
// header.
func formatAddresses(list []message.Address) (all []string) {
	for _, a := range list {
		text := formatAddress(a)
		if _, err := message.ParseAddress(text); err == nil {
			all = append(all, text)
		}
	}
	return all
}

// oneLine replaces control characters in text with spaces, because encoded words may contain control characters.
func oneLine(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text))
}
