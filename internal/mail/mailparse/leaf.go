package mailparse

import (
	"cmp"
	"strings"
	"unicode"

	"github.com/postrider/postrider/internal/mail/decode"
	"github.com/postrider/postrider/internal/mail/message"
)

// octetStream is the media type for files of unknown type.
const octetStream = "application/octet-stream"

// passage is text from one MIME part.
type passage struct {
	text string
	html bool
}

// view is the displayed content of a MIME part, both as HTML and as plain text. If the sender provided some content in
// only one form, that form is stored in both html and text.
type view struct {
	html, text       []passage
	hasHTML, hasText bool // whether the sender provided any content in this form
}

func (v *view) empty() bool { return !v.hasHTML && !v.hasText }

// follow appends the content of view o to view v.
func (v *view) follow(o view) {
	v.html = append(v.html, o.html...)
	v.text = append(v.text, o.text...)
	v.hasHTML, v.hasText = v.hasHTML || o.hasHTML, v.hasText || o.hasText
}

// choose replaces the content of the view with that of an alternative if the alternative is preferred. The preferred
// parts are the last HTML part (RFC 2046 section 5.1.4) and the first plain text part that are not blank.
func (v *view) choose(o view) {
	if o.hasHTML && (!v.hasHTML || !blank(o.html)) {
		v.html = o.html
	} else if !v.hasHTML && !o.hasHTML && v.empty() {
		v.html = o.html
	}
	if o.hasText && (!v.hasText || blank(v.text)) {
		v.text = o.text
	} else if v.empty() {
		v.text = o.text
	}
	v.hasHTML, v.hasText = v.hasHTML || o.hasHTML, v.hasText || o.hasText
}

func blank(list []passage) bool {
	for _, p := range list {
		if strings.TrimSpace(p.text) != "" {
			return false
		}
	}
	return true
}

// add adds the view of a part to the innermost open multipart.
func (w *walker) add(v view) {
	if v.empty() {
		return
	}
	if len(w.stack) == 0 {
		w.view.follow(v)
		return
	}
	f := &w.stack[len(w.stack)-1]
	if f.kind == alternative {
		f.view.choose(v)
	} else {
		f.view.follow(v)
	}
}

// leaf parses a MIME part that has no subparts.
func (w *walker) leaf(head partHead, content []byte) {
	w.parts++
	plain := len(w.stack) == 0 && !w.mime && head.mediaType == "" &&
		(head.encoding == "" || head.encoding == decode.Identity)
	decoded, around := w.decode(&head, content)
	if head.mediaType == "" || head.mediaType == "text" || !strings.Contains(head.mediaType, "/") && head.file() == "" {
		head.mediaType = "text/plain"
	}
	if !w.isText(&head) {
		w.out.IsFile = len(w.stack) == 0 && w.parts == 1 && head.encoding != decode.UUEncode
		w.file(&head, decoded)
		return
	}
	if around {
		decoded, head.encoding = content, decode.Identity
	}
	if plain || around {
		decoded = w.takeUU(decoded)
	}
	isHTML := head.mediaType == "text/html"
	text := decodeText(decoded, head.charset, isHTML)
	if len(w.stack) == 0 && head.encoding != "base64" && head.encoding != decode.UUEncode {
		text = strings.TrimSuffix(text, "\n") // The final line ending belongs to the message, not to its text.
	}
	list := []passage{{text, isHTML}}
	w.add(view{html: list, text: list, hasHTML: isHTML, hasText: !isHTML})
}

// isText reports whether a MIME part is text to display rather than a file.
func (w *walker) isText(head *partHead) bool {
	if head.mediaType != "text/plain" && head.mediaType != "text/html" {
		return false
	}
	if head.disposition != "" && head.disposition != "inline" {
		return false
	}
	if len(w.stack) == 0 {
		return true
	}
	f := &w.stack[len(w.stack)-1]
	switch {
	case f.kind == related && !f.view.empty():
		return false
	case head.file() == "" || f.kind == alternative:
		return true
	}
	// Some programs give the main text a file name in Content-Type, so such a part is treated as text if no text
	// precedes it. Any other text part with a name is a file, as is any text part with a file name in
	// Content-Disposition.
	return head.filename == "" && w.noText()
}

func (w *walker) noText() bool {
	for i := range w.stack {
		if !w.stack[i].view.empty() {
			return false
		}
	}
	return w.view.empty()
}

// decode decodes the content of a MIME part. The around result reports whether the content is a uuencoded file with
// other text before or after it. If the part header does not give the media type or the file name, decode takes them
// from the uuencoded file.
func (w *walker) decode(head *partHead, content []byte) (decoded []byte, around bool) {
	clean := true
	switch head.encoding {
	case "base64":
		content, clean = decode.Base64(content)
	case "quoted-printable":
		content, clean = decode.QuotedPrintable(content)
	case decode.UUEncode:
		content, head.uuName, around, clean = decode.UU(content)
		if head.mediaType == "" && head.uuName != "" && !around {
			head.mediaType = message.TypeByFilename(head.uuName)
		}
	case "", decode.Identity:
	default:
		w.defect("A part has a transfer encoding that is not known.")
	}
	if !clean {
		w.defect("A part is not encoded as it says; what can be read of it was kept.")
	}
	return content, around
}

func (w *walker) file(head *partHead, content []byte) {
	f := File{Filename: cmp.Or(head.file(), head.uuName), ContentType: head.mediaType, ContentID: head.contentID,
		Content: content}
	switch {
	case !strings.Contains(f.ContentType, "/") || strings.ContainsAny(f.ContentType, "()<>@,:\\[]?="):
		f.ContentType = octetStream
		w.defect("A part does not say what it is.")
	case f.Filename == "" && (f.ContentType == "message/rfc822" || f.ContentType == "message/global"):
		f.Filename = messageName(content)
	}
	if head.disposition == "inline" {
		f.Disposition = "inline"
	} else if head.disposition != "" {
		f.Disposition = "attachment" // RFC 2183 section 2.8: any other value means attachment
	}
	w.out.Files = append(w.out.Files, f)
}

// messageName returns a file name based on the subject of a message.
func messageName(content []byte) string {
	const longest = 200
	subject := ""
	readHeader(content[:min(len(content), maxPartField)], 0, nil, func(name, value []byte) {
		if subject == "" && strings.EqualFold(string(name), "subject") {
			subject = decode.Words(unfold(value))
		}
	})
	subject = strings.TrimSpace(strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:*?"<>|`, r) || unicode.IsControl(r) {
			return ' '
		}
		return r
	}, subject))
	if len(subject) > longest {
		subject = strings.ToValidUTF8(subject[:longest], "")
	}
	if subject == "" {
		subject = "message"
	}
	return subject + ".eml"
}

// join formats each passage with form and joins the results, starting each one on a new line.
func join(list []passage, form func(passage) string) string {
	if len(list) == 1 {
		return form(list[0])
	}
	var b strings.Builder
	newline := true
	for _, p := range list {
		if !newline {
			b.WriteByte('\n')
		}
		s := form(p)
		b.WriteString(s)
		newline = s == "" || strings.HasSuffix(s, "\n")
	}
	return b.String()
}
