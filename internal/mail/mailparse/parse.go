// Package mailparse reads any mail: its header fields and addresses, the text that a reader would see, and its files.
// Real mail breaks every rule, so it is read as leniently as mail readers do.
//
// # Invariants
//
//   - Any input is accepted. Reading takes time linear in the input and memory bounded by its size.
//   - What is read is valid UTF-8 without NUL, except for the contents of files. No value of a header field has a line
//     break.
//   - An address that is read, without its name, is one that message.ParseAddress accepts.
//
// # When it fails
//
// It never fails: what was wrong with a message is listed in Parsed.Defects, and what could not be interpreted is kept
// as a file, or as it stood in the header.
//
// # What it does not do
//
// The package does not verify anything: names, dates, types of files and the sender are what the message says. It does
// not open messages within messages, or archives, and it does not make HTML safe to show.
package mailparse

import (
	"bytes"
	"html"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/mail/htmltext"
	"github.com/postrider/postrider/internal/mail/message"
)

// Parsed is a message as it was read, for display and for sending again. Real mail breaks every rule: what could not
// be interpreted is kept unchanged, and Defects says what it was.
type Parsed struct {
	Header     []message.Field // all fields in order, unfolded, encoded words decoded, valid UTF-8
	MessageID  string          // with angle brackets, empty when none
	InReplyTo  []string
	References []string
	From       []message.Address // usually one; an address that cannot be parsed is left out here and stays in Header
	To         []message.Address
	Cc         []message.Address
	Bcc        []message.Address
	ReplyTo    []message.Address
	Subject    string
	Date       time.Time // zero when there is none that can be read
	HasHTML    bool      // some of it is made to be read as HTML
	HasText    bool      // some of it is made to be read as plain text
	Files      []File
	Defects    []string // what was wrong with it, for people; at most 20

	html, text []passage
}

// HTML returns the text of the message as HTML: UTF-8, lines end with LF, without NUL; empty if HasHTML is false.
// Each call builds it anew.
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

// Text returns the text of the message as plain text: UTF-8, lines end with LF, without NUL; empty if HasText is
// false. Each call builds it anew; HTML parts are converted by htmltext.FromHTML.
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

// File is a part that is not the message's text.
type File struct {
	Filename    string // as the sender wrote it, so it may look like a path; empty when it has none
	ContentType string // media type without parameters, lower case
	ContentID   string // without angle brackets
	Disposition string // inline or attachment, empty when not said
	Content     []byte // decoded; it may share the memory of the raw message
}

// Limits of Parse. A message beyond them is still read: the remainder becomes one file, or stays in the raw message
// only.
const (
	maxDepth        = 64      // multiparts within multiparts
	maxParts        = 1000    // parts that have no parts themselves
	maxHeaderFields = 2000    // of the message
	maxHeaderSize   = 1 << 20 // octets that all fields of the message take
	maxFieldSize    = 256 << 10
	maxAddresses    = 10000 // of one kind, such as To
	maxDefects      = 20
)

// Parse reads any message and never fails: raw may lack a header, be cut off, or not be mail at all. It takes time
// linear in the length of raw and memory of a small multiple of it.
//
// It chooses among texts that are alternatives and joins texts that follow each other. Everything else is in Files,
// including messages within the message (message/rfc822) and containers that few programs can read (TNEF), both
// unchanged, and files that are uuencoded in the text of a message that is not MIME.
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

// ParseHeader reads the header fields at the beginning of raw as Parse does; raw may be a fragment of a message.
func ParseHeader(raw []byte) []message.Field {
	p := &parser{raw: raw, out: &Parsed{}}
	p.header()
	return p.out.Header
}

// parser reads one message.
type parser struct {
	raw  []byte
	out  *Parsed
	mime bool // the message has a MIME-Version field
}

// defect records what is wrong, each sentence once.
func (p *parser) defect(sentence string) {
	if len(p.out.Defects) < maxDefects && !slices.Contains(p.out.Defects, sentence) {
		p.out.Defects = append(p.out.Defects, sentence)
	}
}
