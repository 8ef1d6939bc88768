package mailparse

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/postrider/postrider/internal/mail/decode"
)

// partHead holds the header fields of a MIME part that describe its content.
type partHead struct {
	mediaType   string // lower case; empty if the field is missing
	charset     string
	boundary    string
	name        string // parameter of Content-Type
	filename    string // parameter of Content-Disposition
	disposition string // lower case
	contentID   string
	location    bool   // whether the part has a Content-Location field
	encoding    string // as returned by decode.TransferName
	uuName      string // the name of a uuencoded file in the content
}

// maxParameters is the maximum number of parameters read from a field, and maxPartField is the maximum number of bytes
// read from a field.
const (
	maxParameters = 100
	maxPartField  = 16 << 10
)

// take stores a Content- field. If a Content- field is repeated, take uses the first one.
func (h *partHead) take(name, value []byte) {
	if len(name) < len("content-") || !bytes.EqualFold(name[:len("content-")], []byte("content-")) {
		return
	}
	value = value[:min(len(value), maxPartField)]
	switch strings.ToLower(string(name[len("content-"):])) {
	case "type":
		if h.mediaType != "" {
			return
		}
		mediaType, parameters := parseParameters(unfold(value))
		h.mediaType = mediaType
		h.charset, h.boundary, h.name = parameters["charset"], strings.TrimRight(parameters["boundary"], " "),
			parameters["name"]
	case "disposition":
		if h.disposition != "" {
			return
		}
		disposition, parameters := parseParameters(unfold(value))
		h.disposition, h.filename = disposition, parameters["filename"]
	case "transfer-encoding":
		if h.encoding == "" {
			h.encoding = decode.TransferName(unfold(value))
		}
	case "id":
		if h.contentID == "" {
			id := strings.Trim(decode.Words(unfold(value)), " ")
			h.contentID = strings.TrimSuffix(strings.TrimPrefix(id, "<"), ">")
		}
	case "location":
		h.location = true
	}
}

// file returns the file name in Content-Disposition or, if there is none, the name in Content-Type.
func (h *partHead) file() string {
	if h.filename != "" {
		return h.filename
	}
	return h.name
}

// parseParameters parses a field value of the form `value; name=value`, in all variants that mail programs write.
// Parameters may use encoded words or the continuations and charsets defined in RFC 2231, and may lack quotes, a
// semicolon or the closing quote. If a parameter name is repeated, the first parameter with a charset is used or, if
// none has a charset, the first one.
func parseParameters(s string) (value string, parameters map[string]string) {
	end := strings.IndexAny(s, "; \"")
	if end < 0 {
		end = len(s)
	}
	value = strings.ToLower(decode.MixedUTF8(strings.Trim(s[:end], " ")))
	pieces := map[string][]piece{}
	for rest, n := s[end:], 0; n < maxParameters; n++ {
		var name, content string
		var ok bool
		if name, content, rest, ok = nextParameter(rest); !ok {
			break
		}
		base, p := readPiece(strings.ToLower(name), content)
		pieces[base] = append(pieces[base], p)
	}
	parameters = make(map[string]string, len(pieces))
	for name, list := range pieces {
		joined, charset, encoded := joinPieces(list)
		switch {
		case name == "boundary":
			parameters[name] = string(joined) // not decoded, because it is compared with bytes in the body
		case encoded:
			parameters[name] = decode.WithoutControls(decode.Charset(charset, joined))
		default:
			parameters[name] = decode.WithoutControls(decode.Words(string(joined)))
		}
	}
	return value, parameters
}

// nextParameter splits off the next name=value pair from s.
func nextParameter(s string) (name, value, rest string, ok bool) {
	for {
		s = strings.TrimLeft(s, "; ")
		if s == "" {
			return "", "", "", false
		}
		if s[0] == '(' {
			_, after, found := strings.Cut(s, ")")
			if !found {
				return "", "", "", false
			}
			s = after
			continue
		}
		end := strings.IndexAny(s, "=;")
		if end < 0 {
			return "", "", "", false
		}
		name = strings.Trim(s[:end], " \"")
		if s[end] == '=' && name != "" {
			value, rest = parameterValue(strings.TrimLeft(s[end+1:], " "))
			return name, value, rest, true
		}
		s = s[end+1:]
	}
}

func parameterValue(s string) (value, rest string) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexByte(s, ';')
		if end < 0 {
			end = len(s)
		}
		value = strings.TrimRight(s[:end], " ")
		// A semicolon may be missing, as in `charset=utf-8 name=x`.
		if space := strings.IndexByte(value, ' '); space > 0 {
			if next := strings.TrimLeft(value[space:], " "); strings.HasPrefix(next, "(") || looksLikeParameter(next) {
				return value[:space], s[space:]
			}
		}
		return value, s[end:]
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return b.String(), s[i+1:]
		case s[i] == '\\' && i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\\'):
			i++ // Windows paths often have single backslashes, so all other backslashes are kept.
		}
		b.WriteByte(s[i])
	}
	return b.String(), ""
}

func looksLikeParameter(s string) bool {
	name, _, found := strings.Cut(s, "=")
	switch strings.ToLower(strings.TrimRight(name, "*0")) {
	case "name", "filename", "charset", "boundary", "format", "type", "delsp", "size":
		return found
	}
	return false
}

// piece is one section of a parameter's value (RFC 2231 section 3).
type piece struct {
	section int  // -1 if the value has only one section
	percent bool // the text is percent-encoded, and the first piece begins with the charset
	text    string
}

// readPiece parses a parameter name of the form `name`, `name*`, `name*0` or `name*0*`.
func readPiece(name, text string) (base string, p piece) {
	base, sections, found := strings.Cut(name, "*")
	p = piece{section: -1, text: text}
	if !found {
		return base, p
	}
	digits, percent := strings.CutSuffix(sections, "*")
	p.percent = percent || sections == ""
	if n, err := strconv.Atoi(digits); err == nil && n >= 0 {
		p.section = n
	}
	return base, p
}

// joinPieces joins the sections of a parameter value. The result is a byte slice, because a character may be split
// between two sections. The encoded result reports whether the value was encoded as defined in RFC 2231, in the
// returned charset.
func joinPieces(list []piece) (joined []byte, charset string, encoded bool) {
	for _, p := range list {
		if p.section < 0 && p.percent {
			return joinSections([]piece{p})
		}
	}
	if slices.ContainsFunc(list, func(p piece) bool { return p.section >= 0 }) {
		list = slices.DeleteFunc(list, func(p piece) bool { return p.section < 0 })
		slices.SortStableFunc(list, func(a, b piece) int { return a.section - b.section })
		return joinSections(list)
	}
	return []byte(list[0].text), "", false
}

func joinSections(list []piece) (joined []byte, charset string, encoded bool) {
	for i, p := range list {
		if i > 0 && p.section == list[i-1].section {
			continue
		}
		text := p.text
		if !p.percent {
			joined = append(joined, text...)
			continue
		}
		if first, after, found := strings.Cut(text, "'"); i == 0 && found {
			if _, tail, found := strings.Cut(after, "'"); found {
				charset, text = first, tail
			}
		}
		encoded = true
		joined = decode.Percent(joined, text)
	}
	return joined, charset, encoded
}
