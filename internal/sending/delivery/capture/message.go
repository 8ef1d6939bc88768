package capture

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/mail/mailparse"
)

const (
	maxAddresses = 100  // number of addresses of the field To, and of the field Cc, in a description
	maxSubject   = 1000 // length of the subject in a description, in bytes
)

// Message describes a message that was stored instead of being sent.
type Message struct {
	ID      string `json:"id"`
	EmailID string `json:"email_id"`
	TeamID  string `json:"team_id"`

	ReturnPath string   `json:"from"`          // envelope
	Recipients []string `json:"to"`            // envelope
	UTF8       bool     `json:"utf8,omitzero"` // whether an address or the message requires SMTPUTF8

	Size int       `json:"size"` // in bytes
	At   time.Time `json:"at"`   // when the message was stored

	From        []Address `json:"header_from,omitempty"`
	To          []Address `json:"header_to,omitempty"` // at most maxAddresses
	Cc          []Address `json:"header_cc,omitempty"` // at most maxAddresses
	Subject     string    `json:"subject"`             // at most maxSubject
	Attachments int       `json:"attachments"`         // number of files

	Read       bool      `json:"read"`
	ReleasedAt time.Time `json:"released_at,omitzero"` // when the message was last released; zero if never
}

// Address is an address from a header field.
type Address struct {
	Email   string `json:"email"`
	Display string `json:"display"` // with the name
}

// describe sets the fields that the message itself contains.
func (m *Message) describe(raw []byte) {
	p := mailparse.Parse(raw)
	for _, a := range p.From {
		m.From = addAddress(m.From, a.Addr(), a.Name)
	}
	for _, a := range p.To {
		m.To = addAddress(m.To, a.Addr(), a.Name)
	}
	for _, a := range p.Cc {
		m.Cc = addAddress(m.Cc, a.Addr(), a.Name)
	}
	m.Subject = shorten(p.Subject, maxSubject)
	m.Attachments = len(p.Files)
}

func addAddress(list []Address, email, name string) []Address {
	if len(list) == maxAddresses {
		return list
	}
	a := Address{Email: email, Display: email}
	if name != "" {
		a.Display = shorten(name, maxSubject) + " <" + email + ">"
	}
	return append(list, a)
}

// shorten returns at most n bytes of a text.
func shorten(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return strings.TrimRight(text[:n], " ")
}
