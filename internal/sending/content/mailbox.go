package content

import (
	"strings"

	"github.com/postrider/postrider/internal/sending/render"
)

// mailbox is a template for one address with or without a display name. If the display name has placeholders, the
// filled name is quoted where necessary, so that a value such as "Doe, Jane" stays a name.
type mailbox struct {
	render.Template                 // the whole mailbox
	name, address   render.Template // its two parts, if the name has placeholders
	quotable        bool            // whether name and address are set
}

func compileMailbox(source string) mailbox {
	m := mailbox{Template: render.Compile(source)}
	open := strings.LastIndexByte(source, '<')
	// A name with encoded words (RFC 2047) stays as it is, because encoded words do not work within quotes.
	if m.Fixed() || open < 0 || strings.Contains(source[:open], "=?") {
		return m
	}
	m.name, m.address = render.Compile(unquoted(source[:open])), render.Compile(source[open:])
	// If the placeholders of the two parts are not those of the whole, the < belongs to a fallback.
	m.quotable = !m.name.Fixed() && m.name.Placeholders()+m.address.Placeholders() == m.Placeholders()
	return m
}

// fill returns the mailbox as one line, filled with an email's values.
func (m *mailbox) fill(v render.Values) string {
	if !m.quotable {
		return m.Line(v)
	}
	name, address := strings.TrimSpace(m.name.Line(v)), m.address.Line(v)
	if name == "" {
		return address
	}
	if strings.ContainsAny(name, "()<>[]:;@\\,\"") || strings.Contains(name, "=?") {
		name = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"`
	}
	return name + " " + address
}

// unquoted returns a display name without its quotes and the backslashes before quoted characters.
func unquoted(name string) string {
	var out strings.Builder
	name = strings.TrimSpace(name)
	for i := 0; i < len(name); i++ {
		if name[i] == '"' {
			continue
		}
		if name[i] == '\\' && i+1 < len(name) {
			i++
		}
		out.WriteByte(name[i])
	}
	return out.String()
}
