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

// unsubscribePlaceholder is the placeholder in a text that is no template: with three braces or two, and with a
// fallback that is never needed.
var unsubscribePlaceholder = regexp.MustCompile(
	`\{\{\{\s*(?:escape\s+)?(?:POSTRIDER_|RESEND_)?UNSUBSCRIBE_URL\s*(?:\|[^{}]*)?\}\}\}` +
		`|\{\{\s*(?:POSTRIDER_|RESEND_)?UNSUBSCRIBE_URL\s*\}\}`)

// unsubscribeInfo is what a message says to its one recipient of how to leave the topic of its email, or all broadcasts and
// automations of the team if it is of one that has no topic. It is the zero listing, which says nothing, for other
// emails without a topic and for a message to several.
type unsubscribeInfo struct {
	url string // of the page of the recipient's subscriptions, which also takes the POST of RFC 8058
	id  string // of the list, by RFC 2919
}

// unsubscribeInfo returns what the message to o.To says of how to leave. It is the same each time.
func (s *Service) unsubscribeInfo(o *Outgoing) (l unsubscribeInfo) {
	e := &o.row.Email
	if !e.canUnsubscribe() || len(o.To) != 1 || s.c.PublicURL == "" {
		return l
	}
	to, err := message.ParseAddress(o.To[0])
	if err != nil {
		return l // Composing reports it.
	}
	l.url = s.c.PublicURL + "/unsubscribe/" + s.contacts.Token(contacts.Link{TeamID: e.TeamID, EmailID: e.ID,
		TopicID: e.TopicID, ContactID: e.ContactID, Address: to.Key()})
	_, domain, _ := strings.Cut(strings.TrimSuffix(e.MessageID, ">"), "@")
	if id := cmp.Or(e.TopicID, e.TeamID) + "." + domain; len(id) <= maxListID {
		l.id = id
	}
	return l
}

// maxListID is the longest id of a list, in octets (RFC 2919 section 2).
const maxListID = 255

// fields are the fields that are added: what the sender gave itself stays. The post field says what the link of the
// other does, so it is added only together with that; our link also does what a sender's own post field says.
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

// add returns the header fields of a message with those of the listing.
func (l unsubscribeInfo) add(given []message.Field) []message.Field {
	added := l.fields(func(name string) bool {
		return slices.ContainsFunc(given, func(f message.Field) bool { return strings.EqualFold(f.Name, name) })
	})
	return append(slices.Clip(given), added...)
}

// before returns a message that its caller composed, with the fields of the listing before its own. Its text is not
// changed.
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

// hasField reports whether the header of a message has a field.
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

// fill returns a text that is no template with the recipient's link in its places.
func (l unsubscribeInfo) fill(text string) string {
	if l.url == "" || !strings.Contains(text, "UNSUBSCRIBE_URL") {
		return text
	}
	return unsubscribePlaceholder.ReplaceAllLiteralString(text, l.url)
}

// values returns the values of a template's placeholders with the recipient's link among them.
func (l unsubscribeInfo) values(v render.Values) render.Values {
	if l.url == "" {
		return v
	}
	filled := render.Values{}
	maps.Copy(filled, v)
	filled[render.UnsubscribeURL] = l.url // also where it has another of its names
	return filled
}
