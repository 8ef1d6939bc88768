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
	id  string // list identifier for List-Id (RFC 2919)
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

// listID returns the list identifier of the email's topic or, without one, of its team. If the identifier would be too
// long, listID returns "".
func (e *Email) listID() string {
	_, domain, _ := strings.Cut(strings.TrimSuffix(e.MessageID, ">"), "@")
	id := cmp.Or(e.TopicID, e.TeamID) + "." + domain
	if len(id) > maxListID {
		return ""
	}
	return id
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
		all = append(all, message.Field{Name: "List-Id", Value: "<" + l.id + ">"})
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
	added := l.fields(func(name string) bool {
		return slices.ContainsFunc(given, func(f message.Field) bool { return strings.EqualFold(f.Name, name) })
	})
	return append(slices.Clip(given), added...)
}

// before returns a raw message with the unsubscribe fields prepended; it does not change the slice text.
func (l unsubscribeInfo) before(text []byte) []byte {
	var added bytes.Buffer
	for _, f := range l.fields(func(name string) bool { return hasField(text, name) }) {
		added.WriteString(f.Name + ": " + f.Value + "\r\n")
	}
	if added.Len() == 0 {
		return text
	}
	return append(added.Bytes(), text...)
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
