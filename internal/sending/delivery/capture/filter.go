package capture

import (
	"strings"
	"time"

	"golang.org/x/net/idna"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
)

// maxPattern is the maximum length of a filter's text, in bytes.
const maxPattern = 1000

// Filter selects captured messages. The zero Filter selects all messages. ParseFilter returns a Filter.
type Filter struct {
	to, from, subject string // in lower case; "" selects all messages
	any               string // in lower case; a part of the subject, a recipient or the sender
	since             time.Time
	after             string // id of a message
}

// ParseFilter returns a filter from the texts of its parts, each of which may be "". Faults name the part: to, from,
// subject or since.
//
// The parts to and from are a whole address, a domain with an @ before it, or a part of an address or name, which has
// no @. The part to is compared with the recipients in the envelope and in the header. The part subject is a part of
// the subject. The letter case does not matter. The part since is a time in RFC 3339, or the id of a message: the
// filter then selects messages that were stored at this time or later, or arrived after that message.
func ParseFilter(to, from, subject, since string) (f Filter, err error) {
	if f.to, err = addressPattern("to", to); err != nil {
		return f, err
	}
	if f.from, err = addressPattern("from", from); err != nil {
		return f, err
	}
	if len(subject) > maxPattern {
		return f, fault.Invalidf("subject", "The parameter `subject` has more than %d bytes.", maxPattern)
	}
	f.subject = strings.ToLower(subject)
	switch {
	case since == "":
	case id.Valid(since):
		f.after = since
	default:
		if f.since, err = time.Parse(time.RFC3339, since); err != nil {
			return f, fault.Invalidf("since", "The parameter `since` must be a time such as 2026-01-02T15:04:05.123Z, or "+
				"the id of an email in the outbox. In a URL, write + as %%2B.")
		}
	}
	return f, nil
}

func addressPattern(field, text string) (string, error) {
	at := strings.LastIndexByte(text, '@')
	if len(text) > maxPattern || at >= 0 && (strings.ContainsAny(text, " \t<>,") || at == len(text)-1) {
		return "", fault.Invalidf(field, "The parameter `%s` must be one address such as ann@example.org, a domain such as "+
			"@example.org, or a part of an address or name. In a URL, write + as %%2B.", field)
	}
	text = strings.ToLower(text)
	if at < 0 {
		return text, nil
	}
	if domain, err := idna.Lookup.ToASCII(text[at+1:]); err == nil {
		text = text[:at+1] + domain
	}
	return text, nil
}

// Search returns a filter that selects only messages with a text in the subject, in a recipient or in the sender. The
// letter case does not matter.
func (f Filter) Search(text string) (Filter, error) {
	if len(text) > maxPattern {
		return f, fault.Invalidf("q", "The parameter `q` has more than %d bytes.", maxPattern)
	}
	f.any = strings.ToLower(strings.TrimSpace(text))
	return f, nil
}

// HasSince reports whether the filter says from when on messages are selected.
func (f *Filter) HasSince() bool { return f.after != "" || !f.since.IsZero() }

// selects reports whether the filter selects a message. The caller checks after.
func (f *Filter) selects(m *Message) bool {
	return (f.since.IsZero() || !m.At.Before(f.since)) && containsFold(m.Subject, f.subject) &&
		(f.from == "" || hasAddress(m.From, f.from)) &&
		(f.any == "" || containsFold(m.Subject, f.any) || containsAny(m, f.any)) &&
		(f.to == "" || hasAddress(m.To, f.to) || hasAddress(m.Cc, f.to) || hasRecipient(m.Recipients, f.to))
}

// containsAny reports whether an address or name of a message contains a text.
func containsAny(m *Message, text string) bool {
	for _, list := range [][]Address{m.From, m.To, m.Cc} {
		for _, a := range list {
			if containsFold(a.Display, text) {
				return true
			}
		}
	}
	for _, a := range m.Recipients {
		if containsFold(a, text) {
			return true
		}
	}
	return false
}

func containsFold(text, pattern string) bool {
	return pattern == "" || strings.Contains(strings.ToLower(text), pattern)
}

func hasAddress(list []Address, pattern string) bool {
	for _, a := range list {
		if matches(a.Email, pattern) || !strings.Contains(pattern, "@") && containsFold(a.Display, pattern) {
			return true
		}
	}
	return false
}

func hasRecipient(list []string, pattern string) bool {
	for _, a := range list {
		if matches(a, pattern) {
			return true
		}
	}
	return false
}

// matches reports whether an address is the pattern, is at the pattern's domain, or contains the pattern.
func matches(email, pattern string) bool {
	email = strings.ToLower(email)
	switch strings.LastIndexByte(pattern, '@') {
	case -1:
		return strings.Contains(email, pattern)
	case 0:
		return strings.HasSuffix(email, pattern)
	}
	return email == pattern
}
