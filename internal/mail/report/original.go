package report

import (
	"iter"
	"strings"

	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/mail/message"
)

// isMessage reports whether a MIME part contains the reported message or its header (RFC 6522 section 3, RFC 6533
// section 6).
func isMessage(contentType string) bool {
	switch contentType {
	case "message/rfc822", "text/rfc822-headers", "message/rfc822-headers", "text/rfc822", "message/global",
		"message/global-headers",
		"text/rfc822-header":
		return true
	}
	return false
}

// readOriginal finds the header of the reported message in a MIME part or in the text of the report. Missing fields are
// taken from the report's own header.
func (m *mail) readOriginal(r *Report) {
	for _, f := range m.Files {
		if isMessage(f.ContentType) || strings.HasSuffix(strings.ToLower(f.Filename), ".eml") {
			r.Original = mailparse.ParseHeader(f.Content[:min(len(f.Content), maxText)])
			break
		}
	}
	if r.Original == nil {
		for block := range blocks(m.text) {
			if copied := copiedHeader(block); copied != nil {
				r.Original = copied
				break
			}
		}
	}
	if id := identifier(fieldOf(r.Original, "Message-ID")); id != "" {
		r.MessageID = id
	}
	if n := len(m.References); r.MessageID == "" && len(m.InReplyTo) > 0 {
		r.MessageID = m.InReplyTo[0]
	} else if r.MessageID == "" && n > 0 {
		r.MessageID = m.References[n-1]
	}
	if path := bareAddress(fieldOf(r.Original, "Return-Path")); path != "" && r.MailFrom == "" {
		r.MailFrom = path
	}
	for _, f := range r.Original {
		if strings.EqualFold(f.Name, "To") {
			for part := range strings.SplitSeq(f.Value, ",") {
				if a := bareAddress(part); a != "" && len(r.To) < maxRecipients {
					r.To = append(r.To, a)
				}
			}
		}
	}
}

// identifier returns the first <id> in s, or "" if there is none.
func identifier(s string) string {
	_, after, _ := strings.Cut(s, "<")
	id, _, closed := strings.Cut(after, ">")
	if !closed || id == "" {
		return ""
	}
	return "<" + id + ">"
}

// copiedHeader returns the fields in a paragraph if the paragraph is a message header; otherwise, it returns nil.
func copiedHeader(block string) []message.Field {
	lower := strings.ToLower(block)
	if !strings.Contains(lower, "message-id:") || !strings.Contains(lower, "from:") &&
		!strings.Contains(lower, "subject:") {
		return nil
	}
	if fields := fieldsIn(block); fieldOf(fields, "Message-ID") != "" {
		return fields
	}
	return nil
}

// fieldsIn returns the header fields in a paragraph. The paragraph may begin with other lines, and all of its lines may
// be indented.
func fieldsIn(block string) []message.Field {
	for rest := block; rest != ""; {
		line, after, _ := strings.Cut(rest, "\n")
		content := strings.TrimLeft(line, " \t")
		if name, _, found := strings.Cut(content, ":"); found && name != "" && !strings.ContainsAny(name, " <>\t@") {
			indent := line[:len(line)-len(content)]
			if indent == "" {
				return mailparse.ParseHeader([]byte(rest))
			}
			var b strings.Builder
			for line := range strings.Lines(rest) {
				b.WriteString(strings.TrimPrefix(line, indent))
			}
			return mailparse.ParseHeader([]byte(b.String()))
		}
		rest = after
	}
	return nil
}

// blocks yields the paragraphs in s, which are separated by empty lines, with LF line endings.
func blocks(s string) iter.Seq[string] {
	return func(yield func(string) bool) {
		s = strings.ReplaceAll(s, "\r\n", "\n")
		start := 0
		for at := 0; at < len(s); {
			end := strings.IndexByte(s[at:], '\n')
			if end < 0 {
				end = len(s) - at
			}
			line := s[at : at+end]
			next := min(at+end+1, len(s))
			if strings.TrimSpace(line) == "" {
				if start < at && !yield(s[start:at]) {
					return
				}
				start = next
			}
			at = next
		}
		if start < len(s) {
			yield(s[start:])
		}
	}
}
