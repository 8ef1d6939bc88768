package domainreports

import (
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/platform/db"
)

// sender says for which domain a message is authenticated.
type sender struct {
	domain   string   // in From
	byKey    bool     // an aligned signature is valid
	byPolicy bool     // DMARC passes
	byPath   bool     // DMARC passes by SPF, so a host of the domain sent the message as it is
	signed   []string // fields that aligned signatures cover, in lower case
}

// senderOf returns the domain in From. A message with several From fields is not authenticated: a signature covers the
// last one, and the first one is read.
//
// The signature for a well-known reporter must have its domain or a name below it, because others have mailboxes in the
// same organization. With a signature of the organization, the organization is the sender.
func senderOf(m *Message) (by sender) {
	if len(m.Parsed.From) != 1 {
		return by
	}
	by.domain = db.Text(strings.ToLower(m.Parsed.From[0].Domain), nameMax)
	if m.Results == nil || by.domain == "" || fieldsOf(m, "From") != 1 || m.Results.DMARC.Result == "permerror" ||
		m.Results.DMARC.Domain != "" && m.Results.DMARC.Domain != by.domain {
		return by
	}
	exact := false
	for _, v := range m.Results.DKIM {
		if v.Result == "pass" {
			by.byKey = by.byKey || related(v.Domain, by.domain)
			exact = exact || isWithin(strings.ToLower(v.Domain), by.domain)
		}
	}
	for i, v := range m.Results.DKIM {
		if name := strings.ToLower(v.Domain); v.Result == "pass" && related(name, by.domain) &&
			(!exact || isWithin(name, by.domain)) && i < len(m.Results.Signed) {
			by.signed = append(by.signed, m.Results.Signed[i]...)
		}
	}
	by.byPolicy = m.Results.DMARC.Result == "pass"
	by.byPath = by.byPolicy && m.Results.SPF.Result == "pass" && related(m.Results.SPF.Domain, by.domain)
	if isWellKnown(by.domain) && !exact {
		by.byPolicy = false
		if org := organization(by.domain); by.byKey && !isWellKnown(org) {
			by.domain = org
		} else {
			by.byKey = false
		}
	}
	return by
}

// proves reports whether the sender of a report of a kind is authenticated.
func (by *sender) proves(kind Kind) bool { return by.byKey || by.byPolicy && kind == DMARC }

// fieldsOf returns how often a field occurs in the header.
func fieldsOf(m *Message, name string) (n int) {
	for _, f := range m.Parsed.Header {
		if strings.EqualFold(strings.TrimSpace(f.Name), name) {
			n++
		}
	}
	return n
}

// covers reports whether a field occurs once, and the authentication of the message covers it.
func (by *sender) covers(m *Message, name string, kind Kind) bool {
	return fieldsOf(m, name) == 1 && (by.byPath && kind == DMARC || slices.Contains(by.signed, strings.ToLower(name)))
}

// retyped returns why a file may not be what the sender signed, or "". Many reporters do not sign the Content-Type field.
// Anybody can then write another one above their other mail, which makes a part of a text a file.
func (by *sender) retyped(m *Message, f *file) string {
	switch {
	case by.covers(m, "Content-Type", f.kind):
		return ""
	case fieldsOf(m, "Content-Type") > 1:
		return "The message has several Content-Type fields."
	case f.isText || !m.Parsed.IsFile && !m.Parsed.OpensWithPart:
		return "The Content-Type field is not signed, and the body does not begin with the report or with the boundary " +
			"of a part."
	}
	return ""
}
