package mailparse

import (
	"bytes"
	"net/mail"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/mail/decode"
	"github.com/postrider/postrider/internal/mail/message"
)

// maxLine is the maximum line length of a message, in bytes (RFC 5322 section 2.1.1). maxLine also limits values that
// must fit on one line, such as Message-IDs.
const maxLine = 998

// header parses the header fields of the message, and returns the fields that describe the body and the index at which
// the body begins.
func (p *parser) header() (head partHead, body int) {
	size := 0
	seen := map[string]bool{}
	body, stray := readHeader(p.raw, 0, nil, func(name, value []byte) {
		head.take(name, value)
		size += len(name) + len(value)
		if len(p.out.Header) == maxHeaderFields || size > maxHeaderSize {
			p.defect("The header is very long; what comes after 2,000 fields or 1 MiB was left out.")
			return
		}
		if len(value) > maxFieldSize {
			p.defect("A header field is longer than 256 KiB and was cut.")
			value = value[:maxFieldSize]
		}
		if bytes.IndexByte(value, 0) >= 0 {
			p.defect("The header has NUL characters.")
		}
		unfolded := unfold(value)
		p.field(strings.ToLower(string(name)), unfolded, seen)
		p.out.Header = append(p.out.Header, message.Field{Name: string(name), Value: decode.Words(unfolded)})
	})
	if stray {
		p.defect("The header has a line that is no field.")
	}
	switch {
	case len(p.out.Header) == 0:
		p.defect("The message has no header.")
	case !seen["from"]:
		p.defect("The message has no From field.")
	}
	return head, body
}

// field stores the parsed value of a header field. The value must be unfolded but not decoded. If a field that may
// occur only once is repeated, the first one is used. The recipients in repeated To, Cc or Bcc fields are combined.
func (p *parser) field(name, value string, seen map[string]bool) {
	out := p.out
	switch name {
	case "to":
		p.addresses(&out.To, value)
		return
	case "cc":
		p.addresses(&out.Cc, value)
		return
	case "bcc":
		p.addresses(&out.Bcc, value)
		return
	case "mime-version":
		p.mime = true
		return
	case "from", "reply-to", "subject", "date", "message-id", "in-reply-to", "references", "content-type":
	default:
		return
	}
	if seen[name] {
		p.defect("The field " + name + " stands more than once; the first counts.")
		return
	}
	seen[name] = true
	switch name {
	case "from":
		p.addresses(&out.From, value)
	case "reply-to":
		p.addresses(&out.ReplyTo, value)
	case "subject":
		out.Subject = decode.Words(value)
	case "date":
		if out.Date = parseDate(value); out.Date.IsZero() {
			p.defect("The date cannot be read.")
		}
	case "message-id":
		if ids := messageIDs(decode.Words(value)); len(ids) > 0 {
			out.MessageID = ids[0]
		} else {
			p.defect("The Message-ID cannot be read.")
		}
	case "in-reply-to":
		out.InReplyTo = messageIDs(decode.Words(value))
	case "references":
		out.References = messageIDs(decode.Words(value))
	}
}

func (p *parser) addresses(list *[]message.Address, value string) {
	read, bad := parseAddressList(value, maxAddresses-len(*list))
	*list = append(*list, read...)
	if bad {
		p.defect("A list of addresses has something that is no address.")
	}
}

// readHeader calls each(name, value) for every header field in raw[at:], with the value still folded, and returns the
// index at which the body begins. The header ends at an empty line, at a line for which stop returns true (unless stop
// is nil), or at a line that is not a field. If a header field follows, readHeader skips a single line that is not a
// field, and folded lines at the beginning.
func readHeader(raw []byte, at int, stop func(line []byte) bool, each func(name, value []byte)) (body int, stray bool) {
	seen := false
	for at < len(raw) {
		end, next := decode.LineEnd(raw, at)
		line := raw[at:end]
		if len(line) == 0 {
			return next, stray
		}
		if stop != nil && bytes.HasPrefix(line, []byte("--")) && stop(line) {
			return at, stray
		}
		colon := fieldColon(line)
		if colon < 0 {
			mbox := !seen && (bytes.HasPrefix(line, []byte("From ")) || bytes.HasPrefix(line, []byte(">From ")))
			if mbox || seen && startsField(raw, next) {
				stray = stray || !mbox
				at = next
				continue
			}
			if !seen && isWSP(line[0]) {
				if next = skipFolds(raw, next); startsField(raw, next) {
					stray, at = true, next
					continue
				}
			}
			return at, true
		}
		value := at + colon + 1
		for next < len(raw) && isWSP(raw[next]) {
			end, next = decode.LineEnd(raw, next)
		}
		seen = true
		each(bytes.TrimRight(line[:colon], " \t"), raw[value:end])
		at = next
	}
	return len(raw), stray
}

// skipFolds returns the index of the first line in raw[at:] that does not start with white space.
func skipFolds(raw []byte, at int) int {
	for at < len(raw) && isWSP(raw[at]) {
		_, at = decode.LineEnd(raw, at)
	}
	return at
}

// fieldColon returns the index of the colon after the field name, or -1 if the line does not begin a field. White space
// before the colon is obsolete syntax, but it still occurs.
func fieldColon(line []byte) int {
	for i, c := range line {
		switch {
		case c == ':':
			if i == 0 {
				return -1
			}
			return i
		case isWSP(c):
			rest := bytes.TrimLeft(line[i:], " \t")
			if i == 0 || len(rest) == 0 || rest[0] != ':' {
				return -1
			}
			return len(line) - len(rest)
		case c <= ' ' || c > '~' || i > 256:
			return -1
		}
	}
	return -1
}

func startsField(raw []byte, at int) bool {
	if at >= len(raw) {
		return false
	}
	end, _ := decode.LineEnd(raw, at)
	return fieldColon(raw[at:min(end, at+300)]) >= 0
}

// unfold returns a field value as one line, without control characters. The result may be invalid UTF-8, because
// non-ASCII bytes are decoded later, by decode.Words and parseParameters, depending on where they occur.
func unfold(value []byte) string {
	value = bytes.Trim(value, " \t\r\n")
	clean := true
	for _, c := range value {
		clean = clean && c >= ' ' && c != 0x7f
	}
	if !clean {
		plain := make([]byte, 0, len(value))
		for i, c := range value {
			switch {
			case c == '\t', c == '\r' && value[i+1] != '\n':
				plain = append(plain, ' ')
			case c >= ' ' && c != 0x7f:
				plain = append(plain, c)
			}
		}
		value = plain
	}
	return string(value)
}

// messageIDs returns the Message-IDs in s, with their angle brackets. If s has no angle brackets, messageIDs returns
// the first bare word with an @.
func messageIDs(s string) []string {
	var ids []string
	for rest := s; ; {
		_, after, found := strings.Cut(rest, "<")
		if !found {
			break
		}
		id, tail, found := strings.Cut(after, ">")
		if !found {
			break
		}
		id = id[strings.LastIndexByte(id, '<')+1:]
		id = strings.Join(strings.Fields(id), "")
		if id != "" && len(id) <= maxLine {
			ids = append(ids, "<"+id+">")
		}
		rest = tail
	}
	if ids == nil {
		for _, word := range strings.Fields(s) {
			if word = strings.Trim(word, "<>,;\""); strings.Contains(word, "@") && len(word) <= maxLine {
				return []string{"<" + word + ">"}
			}
		}
	}
	return ids
}

// dateLayouts are date formats that occur in mail but do not conform to RFC 5322.
var dateLayouts = [...]string{
	"Mon, 2 Jan 2006 15:04:05 MST", "Mon, 2 Jan 2006 15:04:05", "2 Jan 2006 15:04:05", "Mon, 2 Jan 2006 15:04:05 GMT-0700",
	"Mon, 2 Jan 2006 15:04:05 -07:00", "Mon, 2 January 2006 15:04:05 -0700", "Monday, 2 January 2006 15:04:05 -0700",
	"Monday, 2 Jan 2006 15:04:05 -0700", "Mon 2 Jan 2006 15:04:05 -0700", "Mon Jan 2 15:04:05 2006",
	"Mon Jan 2 15:04:05 2006 -0700",
	"Mon Jan 2 15:04:05 MST 2006", "Mon, Jan 2 2006 15:04:05 -0700", "2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05",
	time.RFC3339,
}

// parseDate parses a date in the format defined in RFC 5322 section 3.3 or in one that old programs write. If parseDate
// cannot parse the date, it returns the zero time.
func parseDate(s string) time.Time {
	s, _, _ = strings.Cut(s, "(")
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 100 {
		return time.Time{}
	}
	t, err := mail.ParseDate(s)
	for i := 0; err != nil && i < len(dateLayouts); i++ {
		t, err = time.Parse(dateLayouts[i], s)
	}
	if err != nil || t.Year() < 1970 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

func isWSP(c byte) bool { return c == ' ' || c == '\t' }
