package emails

import (
	"bytes"
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/sending/render"
)

// unsubscribePlaceholder matches the placeholder for the unsubscribe link, with three braces or two, in a body that is
// not a template. The placeholder may have a fallback, which is never used.
var unsubscribePlaceholder = regexp.MustCompile(
	`\{\{\{\s*(?:escape\s+)?(?:POSTRIDER_|RESEND_)?UNSUBSCRIBE_URL\s*(?:\|[^{}]*)?\}\}\}` +
		`|\{\{\s*(?:POSTRIDER_|RESEND_)?UNSUBSCRIBE_URL\s*\}\}`)

// unsubscribeInfo holds the unsubscribe link for a message with one recipient. The link applies to the email's topic
// or, if it has no topic, to all of the team's broadcasts and automations. The zero value is used for messages without
// unsubscribe links and for messages with several recipients.
type unsubscribeInfo struct {
	url string // URL of the recipient's subscription page; also accepts POST requests as defined in RFC 8058
	id  string // value of List-Id (RFC 2919); "" for none
}

// unsubscribeInfo returns the unsubscribe information for the message to o.To. Repeated calls return the same
// information.
func (s *Service) unsubscribeInfo(o *Outgoing) (l unsubscribeInfo) {
	e := &o.row.Email
	if !e.canUnsubscribe() || len(o.To) != 1 || s.c.PublicURL == "" {
		return l
	}
	to, err := message.ParseAddress(o.To[0])
	if err != nil {
		return l // the error is reported by Compose
	}
	l.url = s.c.PublicURL + "/unsubscribe/" + s.Contacts.Token(contacts.Link{TeamID: e.TeamID, EmailID: e.ID,
		TopicID: e.TopicID, ContactID: e.ContactID, Address: to.Key()})
	l.id = e.listID()
	return l
}

// listID returns the value of List-Id: the name of the sender, and the list identifier of the email's topic or, for a
// broadcast without one, of its team. For other emails, and if the identifier would be too long, listID returns "".
func (e *Email) listID() string {
	if e.TopicID == "" && e.BroadcastID == "" {
		return ""
	}
	_, domain, _ := strings.Cut(strings.TrimSuffix(e.MessageID, ">"), "@")
	id := cmp.Or(e.TopicID, e.TeamID) + "." + domain
	if len(id) > maxListID {
		return ""
	}
	name := e.listName()
	if name == "" {
		return "<" + id + ">"
	}
	return `"` + name + `" <` + id + ">"
}

// maxListName is the maximum length of the name in a List-Id, in bytes.
const maxListName = 100

// listName returns the sender's name for a quoted string, or "" if it needs an encoding.
func (e *Email) listName() string {
	at := strings.LastIndexByte(e.From, '<')
	if at <= 0 {
		return ""
	}
	name := strings.TrimSpace(e.From[:at])
	if len(name) >= 2 && name[0] == '"' && name[len(name)-1] == '"' {
		name = name[1 : len(name)-1]
	}
	for i := range len(name) {
		if c := name[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return ""
		}
	}
	if len(name) > maxListName {
		return ""
	}
	return name
}

// maxListID is the maximum length of a List-Id, in bytes (RFC 2919 section 2).
const maxListID = 255

// fields returns the header fields to add so that recipients can unsubscribe. Fields specified by the sender are not
// replaced. List-Unsubscribe-Post describes the link in List-Unsubscribe, so it is added only if our List-Unsubscribe
// field is added too. If the sender specified only List-Unsubscribe-Post, our link also supports it.
func (l unsubscribeInfo) fields(has func(name string) bool) (all []message.Field) {
	if l.url == "" {
		return nil
	}
	if l.id != "" && !has("List-Id") {
		all = append(all, message.Field{Name: "List-Id", Value: l.id})
	}
	if !has("List-Unsubscribe") {
		all = append(all, message.Field{Name: "List-Unsubscribe", Value: "<" + l.url + ">"})
		if !has("List-Unsubscribe-Post") {
			all = append(all, message.Field{Name: "List-Unsubscribe-Post", Value: "List-Unsubscribe=One-Click"})
		}
	}
	return all
}

// add returns the given header fields, followed by the unsubscribe fields.
func (l unsubscribeInfo) add(given []message.Field) []message.Field {
	return appendFields(given, l.fields)
}

// before returns a raw message with the unsubscribe fields prepended; it does not change the slice text.
func (l unsubscribeInfo) before(text []byte) []byte { return prependFields(text, l.fields) }

// appendFields returns the given header fields, followed by those that a function returns. The function gets another
// one that reports whether a field is given.
func appendFields(given []message.Field, fields func(has func(name string) bool) []message.Field) []message.Field {
	added := fields(func(name string) bool {
		return slices.ContainsFunc(given, func(f message.Field) bool { return strings.EqualFold(f.Name, name) })
	})
	return append(slices.Clip(given), added...)
}

// prependFields is like appendFields, for a raw message, to which it prepends the fields. The slice text does not
// change.
func prependFields(text []byte, fields func(has func(name string) bool) []message.Field) []byte {
	added := fields(func(name string) bool { return hasField(text, name) })
	if len(added) == 0 {
		return text
	}
	size := len(text)
	for _, f := range added {
		size += len(f.Name) + len(f.Value) + len(": \r\n")
	}
	out := make([]byte, 0, size)
	for _, f := range added {
		out = append(append(append(append(out, f.Name...), ": "...), f.Value...), "\r\n"...)
	}
	return append(out, text...)
}

// hasField reports whether a message's header contains the given field.
func hasField(text []byte, name string) bool {
	for len(text) > 0 && text[0] != '\r' && text[0] != '\n' {
		if len(text) > len(name) && text[len(name)] == ':' && strings.EqualFold(string(text[:len(name)]), name) {
			return true
		}
		end := bytes.IndexByte(text, '\n')
		if end < 0 {
			return false
		}
		text = text[end+1:]
	}
	return false
}

// fill puts the recipient's link in place of the unsubscribe placeholders in a body that is not a template.
func (l unsubscribeInfo) fill(text string) string {
	if l.url == "" || !strings.Contains(text, "UNSUBSCRIBE_URL") {
		return text
	}
	return unsubscribePlaceholder.ReplaceAllLiteralString(text, l.url)
}

// values returns a copy of the values for a template's placeholders, with the recipient's unsubscribe link added.
func (l unsubscribeInfo) values(v render.Values) render.Values {
	if l.url == "" {
		return v
	}
	filled := render.Values{}
	maps.Copy(filled, v)
	filled[render.UnsubscribeURL] = l.url // package render maps all other names of this placeholder to this one
	return filled
}
