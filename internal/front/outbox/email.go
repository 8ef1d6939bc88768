package outbox

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/sending/delivery/capture"
)

// maxText is how many bytes of the HTML, and of the plain text, a JSON response contains.
const maxText = 2 << 20

// emailWire is an email with its content.
type emailWire struct {
	itemWire
	ReplyTo     []string         `json:"reply_to"`
	MessageID   string           `json:"message_id"`
	Date        *wire.ISOTime    `json:"date"`
	Headers     []headerWire     `json:"headers"`
	HTML        *string          `json:"html"`
	Text        *string          `json:"text"`
	Truncated   []string         `json:"truncated"`
	Links       []linkWire       `json:"links"`
	Attachments []attachmentWire `json:"attachments"`
	Defects     []string         `json:"defects"`
}

type headerWire struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type linkWire struct {
	URL  string `json:"url"`
	Text string `json:"text"`
}

type attachmentWire struct {
	Index       int     `json:"index"`
	Filename    *string `json:"filename"`
	ContentType string  `json:"content_type"`
	ContentID   *string `json:"content_id"`
	Inline      bool    `json:"inline"`
	Size        int     `json:"size"`
	Path        string  `json:"path"`
}

// load reads and parses an email. The caller must call release when it no longer uses the parsed email.
func (s *server) load(ctx context.Context, captureID string) (p *mailparse.Parsed, release func(), err error) {
	select {
	case s.parsing <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	release = func() { <-s.parsing }
	raw, err := s.read(ctx, captureID)
	if err != nil {
		release()
		return nil, nil, err
	}
	return mailparse.Parse(raw), release, nil
}

func (s *server) read(ctx context.Context, captureID string) ([]byte, error) {
	r, err := s.Outbox.Open(ctx, captureID)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read a captured email: %w", err)
	}
	return raw, nil
}

// get answers with an email.
func (s *server) get(w http.ResponseWriter, r *http.Request) error {
	if _, err := readQuery(r); err != nil {
		return err
	}
	m, err := s.Outbox.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return s.answerEmail(w, r, m)
}

// answerEmail answers with an email and its content.
func (s *server) answerEmail(w http.ResponseWriter, r *http.Request, m capture.Message) error {
	p, release, err := s.load(r.Context(), m.ID)
	if err != nil {
		return err
	}
	defer release()
	return s.answer(w, r, http.StatusOK, newEmail(m, p))
}

func newEmail(m capture.Message, p *mailparse.Parsed) *emailWire {
	w := &emailWire{itemWire: newItem(m), MessageID: p.MessageID, Headers: make([]headerWire, len(p.Header)),
		Attachments: make([]attachmentWire, len(p.Files)), Defects: p.Defects}
	for _, a := range p.ReplyTo {
		w.ReplyTo = append(w.ReplyTo, a.String())
	}
	if !p.Date.IsZero() {
		w.Date = new(wire.ISOTime(p.Date))
	}
	for i, h := range p.Header {
		w.Headers[i] = headerWire{h.Name, h.Value}
	}
	if p.HasHTML {
		w.HTML = new(w.shorten("html", p.HTML()))
	}
	if p.HasText {
		w.Text = new(w.shorten("text", p.Text()))
	}
	for _, l := range p.Links() {
		w.Links = append(w.Links, linkWire(l))
	}
	for i, f := range p.Files {
		w.Attachments[i] = attachmentWire{Index: i, Filename: orNull(f.Filename), ContentType: f.ContentType,
			ContentID: orNull(f.ContentID), Inline: f.Disposition == "inline" || f.ContentID != "", Size: len(f.Content),
			Path: Path + "/" + m.ID + "/attachments/" + strconv.Itoa(i)}
	}
	return w
}

// shorten returns at most maxText bytes of a text, and adds the name to truncated if it leaves something out.
func (w *emailWire) shorten(name, text string) string {
	if len(text) <= maxText {
		return text
	}
	w.Truncated = append(w.Truncated, name)
	n := maxText
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// untrusted sets headers so that a browser never runs what an email contains.
func untrusted(w http.ResponseWriter, contentType string, size int) {
	policy(w, "data:")
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(size))
}

// policy sets the Content-Security-Policy of an email, which may load images from the given sources.
func policy(w http.ResponseWriter, images string) {
	w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src "+images)
}

// raw answers with the message exactly as it would have been sent.
func (s *server) raw(w http.ResponseWriter, r *http.Request) error {
	if _, err := readQuery(r); err != nil {
		return err
	}
	m, err := s.Outbox.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	content, err := s.Outbox.Open(r.Context(), m.ID)
	if err != nil {
		return err
	}
	defer content.Close()
	untrusted(w, "text/plain; charset=utf-8", m.Size)
	if _, err := io.Copy(w, content); err != nil && r.Context().Err() == nil {
		s.Log.Warn("could not show a captured message", "error", err)
	}
	return nil
}

// html answers with the HTML of an email, in which inline images are data URLs. Images of other servers are loaded only
// if the request asks for them.
func (s *server) html(w http.ResponseWriter, r *http.Request) error {
	query, err := readQuery(r, "images")
	if err != nil {
		return err
	}
	if images := query.Get("images"); images != "" && images != "1" {
		return fault.Invalidf("images", "The parameter `images` must be 1. Leave it out to load no images.")
	}
	p, release, err := s.load(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	defer release()
	if !p.HasHTML {
		return fault.NotFoundf("This email has no HTML. Its plain text is in the field `text` of %s/%s.", Path,
			r.PathValue("id"))
	}
	text := embedImages(p.HTML(), p.Files)
	untrusted(w, "text/html; charset=utf-8", len(text))
	if query.Has("images") {
		policy(w, "data: https: http:")
	}
	if _, err := io.WriteString(w, text); err != nil && r.Context().Err() == nil {
		s.Log.Debug("the HTML of a captured email was not received", "error", err)
	}
	return nil
}

// checks answers with the checks of the email that was captured.
func (s *server) checks(w http.ResponseWriter, r *http.Request) error {
	if _, err := readQuery(r); err != nil {
		return err
	}
	m, err := s.Outbox.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	all, err := s.Check(r.Context(), m.TeamID, m.EmailID)
	if err != nil {
		return err
	}
	return s.answer(w, r, http.StatusOK, all)
}

// attachment answers with a file that browsers save without interpreting it.
func (s *server) attachment(w http.ResponseWriter, r *http.Request) error {
	if _, err := readQuery(r); err != nil {
		return err
	}
	p, release, err := s.load(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	defer release()
	i, err := strconv.Atoi(r.PathValue("index"))
	if err != nil || i < 0 || i >= len(p.Files) {
		return fault.NotFoundf("This email has no attachment with the index %.20q. It has %d attachments; the first one has "+
			"the index 0.", r.PathValue("index"), len(p.Files))
	}
	f := &p.Files[i]
	untrusted(w, f.ContentType, len(f.Content))
	w.Header().Set("Content-Disposition", disposition(f.Filename))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.Content))
	return nil
}

// disposition returns a Content-Disposition for a file with a name from an email.
func disposition(name string) string {
	name = path.Base(strings.ReplaceAll(name, `\`, "/"))
	name = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || unicode.Is(unicode.Cf, c) { // Cf has characters that change the direction of text
			return -1
		}
		return c
	}, name)
	if text := mime.FormatMediaType("attachment", map[string]string{"filename": name}); name != "." && name != "/" &&
		text != "" {
		return text
	}
	return "attachment"
}

// update marks an email as read or unread.
func (s *server) update(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Read *bool `json:"read"`
	}
	if err := readBody(w, r, &in); err != nil {
		return err
	}
	if in.Read == nil {
		return fault.MissingField("read")
	}
	m, err := s.Outbox.SetRead(r.Context(), r.PathValue("id"), *in.Read)
	if err != nil {
		return err
	}
	return s.answer(w, r, http.StatusOK, newItem(m))
}

// delete deletes an email.
func (s *server) delete(w http.ResponseWriter, r *http.Request) error {
	if _, err := readQuery(r); err != nil {
		return err
	}
	if err := s.Outbox.Delete(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	return s.answer(w, r, http.StatusOK, struct {
		Object  string `json:"object"`
		ID      string `json:"id"`
		Deleted bool   `json:"deleted"`
	}{"captured_email", r.PathValue("id"), true})
}
