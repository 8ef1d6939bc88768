package message

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
)

// Compose returns the message in the form that is signed and sent. Compose returns errors of type *FieldError and
// *AttachmentError. A zero Date or an invalid ID is a bug in the caller and causes a different error.
//
// Parts are nested as mail clients expect: mixed(alternative(text, related(html, inline parts)), attachments). A
// multipart that would contain only one part is omitted. If the message has no HTML, inline parts become attachments.
func (m *Message) Compose() ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	c := composer{html: planBody(m.HTML, true), text: planBody(m.Text, false), seed: m.boundarySeed()}
	size := 1024 + c.html.size + c.text.size
	c.hasHTML, c.reportType = m.HTML != "", m.ReportType
	c.hasText = m.Text != "" || !c.hasHTML
	for i := range m.Attachments {
		a := &m.Attachments[i]
		if c.hasHTML && a.ContentID != "" {
			c.inline = append(c.inline, a)
		} else {
			c.files = append(c.files, a)
		}
		size += 512 + base64Size(len(a.Content))
	}
	for i := range m.Headers {
		size += len(m.Headers[i].Name) + 2*len(m.Headers[i].Value)
	}
	size += 80 * (len(m.To) + len(m.Cc) + len(m.ReplyTo))
	c.out = make([]byte, 0, size)
	c.header(m)
	c.mixed()
	return append(c.out, "\r\n"...), nil
}

// check returns an error if any value is not safe to write to a header. All values are checked, even if the caller has
// already checked them.
func (m *Message) check() error {
	if m.Date.IsZero() {
		return errors.New("message: the date is not set")
	}
	if !isMessageID(m.ID) {
		return errors.New("message: the id is not a Message-ID")
	}
	if err := m.From.check("From"); err != nil {
		return err
	}
	for _, list := range [...]struct {
		name      string
		addresses []Address
	}{{"To", m.To}, {"Cc", m.Cc}, {"Reply-To", m.ReplyTo}} {
		for _, a := range list.addresses {
			if err := a.check(list.name); err != nil {
				return err
			}
		}
	}
	if strings.ContainsAny(m.Subject, "\r\n\x00") {
		return &FieldError{Name: "Subject", Reason: "The subject has a line break or a NUL; remove it."}
	}
	if m.ReportType != "" && !isDotAtom(m.ReportType) {
		return errors.New("message: the report type is not a token")
	}
	for _, f := range m.Headers {
		if err := CheckField(f.Name, f.Value); err != nil {
			return err
		}
	}
	for i := range m.Attachments {
		if err := m.Attachments[i].Check(); err != nil {
			return err
		}
	}
	return nil
}

// isMessageID reports whether s has the form <x@y> (RFC 5322 section 3.6.4), is visible ASCII, and fits on a line.
func isMessageID(s string) bool {
	if len(s) < len("<x@y>") || len(s) > maxLine-len("Message-ID: ") || s[0] != '<' || s[len(s)-1] != '>' {
		return false
	}
	inner := s[1 : len(s)-1]
	return printableASCII(inner) && !strings.ContainsAny(inner, " <>") && strings.Contains(inner, "@")
}

func (m *Message) boundarySeed() string {
	seed := m.Seed
	if seed == "" {
		seed = m.ID
	}
	sum := sha256.Sum256([]byte(seed))
	return hex.EncodeToString(sum[:12])
}

// composer writes one message to one buffer.
type composer struct {
	out              []byte
	html, text       body
	hasHTML, hasText bool
	inline, files    []*Attachment
	reportType       string
	seed             string
}

func (c *composer) header(m *Message) {
	c.out = append(c.out, "Date: "...)
	c.out = m.Date.UTC().AppendFormat(c.out, "Mon, 02 Jan 2006 15:04:05 -0700")
	c.out = append(c.out, "\r\n"...)
	// Each address list is first written unfolded to a buffer on the stack, which is large enough for typical lists.
	var room [512]byte
	scratch := appendAddresses(room[:0], []Address{m.From})
	c.out = appendField(c.out, "From", string(scratch))
	if len(m.ReplyTo) > 0 {
		c.out = appendField(c.out, "Reply-To", string(appendAddresses(scratch[:0], m.ReplyTo)))
	}
	if len(m.To) > 0 {
		c.out = appendField(c.out, "To", string(appendAddresses(scratch[:0], m.To)))
	} else if len(m.Cc) == 0 {
		c.out = append(c.out, "To: undisclosed-recipients:;\r\n"...)
	}
	if len(m.Cc) > 0 {
		c.out = appendField(c.out, "Cc", string(appendAddresses(scratch[:0], m.Cc)))
	}
	if m.Subject != "" {
		c.out = appendText(c.out, "Subject", m.Subject)
	}
	c.out = append(c.out, "Message-ID: "...)
	c.out = append(append(c.out, m.ID...), "\r\n"...)
	for _, f := range m.Headers {
		switch {
		case strings.EqualFold(f.Name, "Message-ID"):
		case isASCII(f.Value):
			c.out = appendField(c.out, f.Name, f.Value)
		default:
			c.out = appendField(c.out, f.Name, string(appendEncodedWords(nil, f.Value, false, len(f.Name)+len(": "))))
		}
	}
	c.out = append(c.out, "MIME-Version: 1.0\r\n"...)
}

func appendAddresses(dst []byte, list []Address) []byte {
	for i, a := range list {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = a.appendTo(dst)
	}
	return dst
}

// appendText writes a free-text field in such a way that mail clients decode exactly the given value. The value is
// encoded if clients might mistake it for an encoded word or trim it, or if a line would be too long.
func appendText(dst []byte, name, value string) []byte {
	plain := printableASCII(value) && !strings.Contains(value, "=?") &&
		value[0] != ' ' && value[len(value)-1] != ' ' && len(name)+len(": ")+longestPiece(value) <= maxLine
	if !plain {
		value = string(appendEncodedWords(nil, value, false, len(name)+len(": ")))
	}
	return appendField(dst, name, value)
}

// mixed writes the whole body, starting with its Content-Type.
func (c *composer) mixed() {
	if len(c.files) == 0 {
		c.alternative()
		return
	}
	if c.reportType != "" {
		c.open("report", "; report-type="+c.reportType, 'm')
	} else {
		c.open("mixed", "", 'm')
	}
	c.part('m', true)
	c.alternative()
	for _, a := range c.files {
		c.part('m', false)
		c.attachment(a, "attachment")
	}
	c.end('m')
}

func (c *composer) alternative() {
	switch {
	case !c.hasHTML:
		c.leaf("text/plain", c.text)
	case !c.hasText:
		c.related()
	default:
		c.open("alternative", "", 'a')
		c.part('a', true)
		c.leaf("text/plain", c.text)
		c.part('a', false)
		c.related()
		c.end('a')
	}
}

func (c *composer) related() {
	if len(c.inline) == 0 {
		c.leaf("text/html", c.html)
		return
	}
	c.open("related", "; type=\"text/html\"", 'r')
	c.part('r', true)
	c.leaf("text/html", c.html)
	for _, a := range c.inline {
		c.part('r', false)
		c.attachment(a, "inline")
	}
	c.end('r')
}

func (c *composer) leaf(mediaType string, b body) {
	c.out = append(c.out, "Content-Type: "...)
	c.out = append(c.out, mediaType...)
	c.out = append(c.out, "; charset=utf-8\r\nContent-Transfer-Encoding: "...)
	c.out = append(c.out, b.encoding.String()...)
	c.out = append(c.out, "\r\n\r\n"...)
	c.out = b.appendTo(c.out)
}

// open begins a multipart entity. The parameter level is a letter that distinguishes the boundary from those of the
// enclosing parts.
func (c *composer) open(subtype, parameters string, level byte) {
	c.out = append(c.out, "Content-Type: multipart/"...)
	c.out = append(append(c.out, subtype...), parameters...)
	c.out = append(c.out, ";\r\n boundary=\""...)
	c.boundary(level)
	c.out = append(c.out, "\"\r\n\r\n"...)
}

// part begins the next part. The line break before a boundary belongs to the boundary, so the content keeps its own
// line endings (RFC 2046 section 5.1.1). The first boundary needs no extra line break, because it follows the empty
// line after the header.
func (c *composer) part(level byte, first bool) {
	if !first {
		c.out = append(c.out, "\r\n"...)
	}
	c.out = append(c.out, "--"...)
	c.boundary(level)
	c.out = append(c.out, "\r\n"...)
}

func (c *composer) end(level byte) {
	c.out = append(c.out, "\r\n--"...)
	c.boundary(level)
	c.out = append(c.out, "--"...)
}

func (c *composer) boundary(level byte) {
	c.out = append(append(c.out, boundaryMark...), level)
	c.out = append(c.out, c.seed...)
}
