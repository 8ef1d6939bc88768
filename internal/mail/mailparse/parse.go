// Package mailparse parses any email message: its header fields and addresses, the text that a mail reader would
// display, and its files. Real mail violates every rule of the standards, so the package is as lenient as mail readers
// are.
//
// # Invariants
//
//   - Parse accepts any input. Parsing takes time linear in the input size, and memory proportional to it.
//   - The results are valid UTF-8 without NUL, except for the contents of files. No header field value contains a line
//     break.
//   - message.ParseAddress accepts every parsed address once the display name is removed.
//
// # Failures
//
// Parsing never fails. Parsed.Defects lists the errors in a message. Content that cannot be interpreted becomes a file
// or, in a header field, is kept unchanged.
//
// # Out of scope
//
// The package verifies nothing: names, dates, file types and the sender are copied from the message. The package does
// not open embedded messages or archives, and does not sanitize HTML for display.
package mailparse

import (
	"bytes"
	"html"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/mail/htmltext"
	"github.com/postrider/postrider/internal/mail/message"
)

// Parsed is a parsed message, for display and for resending. Content that cannot be interpreted is kept unchanged and
// described in Defects.
type Parsed struct {
	Header     []message.Field // all header fields in order, unfolded and with encoded words decoded, as valid UTF-8
	MessageID  string          // the Message-ID with angle brackets; empty if there is none
	InReplyTo  []string
	References []string
	From       []message.Address // usually one address; unparsable addresses appear only in Header
	To         []message.Address
	Cc         []message.Address
	Bcc        []message.Address
	ReplyTo    []message.Address
	Subject    string
	Date       time.Time // zero if the message has no valid date
	HasHTML    bool      // whether any of the text was sent as HTML
	HasText    bool      // whether any of the text was sent as plain text
	Files      []File
	// IsFile is whether the body as a whole is the only file. OpensWithPart is whether the message is a multipart whose
	// first line that is not empty is the boundary that its header names. No other Content-Type field makes parts of the
	// same body then.
	IsFile, OpensWithPart bool

	Defects []string // human-readable errors in the message; at most 20

	html, text []passage
}

// HTML returns the text of the message as HTML in UTF-8, with LF line endings and without NUL. HTML returns "" if
// HasHTML is false. Each call to HTML builds the result again.
func (p *Parsed) HTML() string {
	if !p.HasHTML {
		return ""
	}
	return join(p.html, func(p passage) string {
		if p.html {
			return p.text
		}
		return `<div style="white-space:pre-wrap">` + html.EscapeString(p.text) + "</div>"
	})
}

// Text returns the text of the message as plain text in UTF-8, with LF line endings and without NUL. Text returns "" if
// HasText is false. Each call to Text builds the result again, and converts HTML parts with htmltext.FromHTML.
func (p *Parsed) Text() string {
	if !p.HasText {
		return ""
	}
	return join(p.text, func(p passage) string {
		if p.html {
			return htmltext.FromHTML(p.text)
		}
		return p.text
	})
}

// File is a part of a message that does not belong to the text of the message.
type File struct {
	Filename    string // the sender's file name, which may look like a path; empty if the file has no name
	ContentType string // media type without parameters, in lower case
	ContentID   string // without angle brackets
	Disposition string // inline or attachment; empty if the part has no Content-Disposition
	Content     []byte // decoded content, which may share the memory of the raw message
}

// These limits apply to each message. Content beyond a limit becomes a single file, or is available only in the raw
// message.
const (
	maxDepth        = 64      // multiparts within multiparts
	maxParts        = 1000    // parts, except multiparts
	maxHeaderFields = 2000    // number of header fields
	maxHeaderSize   = 1 << 20 // total size of all header fields, in bytes
	maxFieldSize    = 256 << 10
	maxAddresses    = 10000 // number of addresses of one kind, such as To
	maxDefects      = 20
)

// Parse parses any message and never fails: raw may lack a header, be cut off, or not be mail at all. Parse takes time
// linear in the length of raw, and its memory use is at most a small multiple of that length.
//
// Parse chooses among alternative versions of a text, and joins consecutive text parts. Parsed.Files contains all parts
// that do not belong to the text. Embedded messages (message/rfc822) and TNEF containers, which few programs can read,
// are also stored in Parsed.Files, unchanged. If the message does not use MIME, Parsed.Files contains any uuencoded
// files from its text.
func Parse(raw []byte) *Parsed {
	p := &parser{raw: raw, out: &Parsed{}}
	if bytes.IndexByte(raw, '\n') < 0 && bytes.IndexByte(raw, '\r') >= 0 {
		p.raw = bytes.ReplaceAll(raw, []byte("\r"), []byte("\n"))
		p.defect("The lines end with CR alone.")
	}
	head, body := p.header()
	w := walker{parser: p, at: body, innermost: map[string]int{}}
	w.walk(head)
	p.out.HasHTML, p.out.HasText, p.out.html, p.out.text = w.view.hasHTML, w.view.hasText, w.view.html, w.view.text
	return p.out
}

// ParseHeader parses the header fields at the beginning of raw in the same way as Parse. The input may be a fragment of
// a message.
func ParseHeader(raw []byte) []message.Field {
	p := &parser{raw: raw, out: &Parsed{}}
	p.header()
	return p.out.Header
}

// parser holds the state of parsing one message.
type parser struct {
	raw  []byte
	out  *Parsed
	mime bool // whether the message has a MIME-Version field
}

// defect records a defect in the message, unless the same defect has already been recorded.
func (p *parser) defect(sentence string) {
	if len(p.out.Defects) < maxDefects && !slices.Contains(p.out.Defects, sentence) {
		p.out.Defects = append(p.out.Defects, sentence)
	}
}
