package receiving

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/mail/milter"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/platform/db"
)

// Spam is the result of the content filter.
type Spam struct {
	Action     string              `json:"action"`               // accept or quarantine
	Quarantine string              `json:"quarantine,omitempty"` // the filter's reason
	Fields     map[string][]string `json:"fields,omitempty"`     // header fields to add, keyed by lower-case name
}

// judge refuses messages in a mail loop, checks the message's origin, and runs the content filter. Messages that go
// only to return paths are neither authenticated nor filtered: the address is signed, and a bounce may quote spam.
// Messages that go only to addresses for reports are authenticated, but not filtered.
func (s *Service) judge(ctx context.Context, m *incoming) error {
	if hops(m.parsed) > hopsMax {
		return smtpserver.Refuse(554, "5.4.6", "The message has passed through too many hosts: it goes in a circle")
	}
	some := func(is func(*target) bool) bool {
		return slices.ContainsFunc(m.to, func(p target) bool { return is(&p) })
	}
	if !some(func(p *target) bool { return p.report == nil }) {
		return nil
	}
	if s.p.Auth != nil {
		ctx, cancel := context.WithTimeout(ctx, judgeWait)
		defer cancel()
		addr, _ := netip.ParseAddr(m.origin.Addr)
		r := s.p.Auth.Check(ctx, authres.Origin{Addr: addr, Hello: m.origin.Hello, MailFrom: m.origin.MailFrom},
			bytes.NewReader(m.body()), int64(len(m.body())))
		m.auth = &r
	}
	if s.p.Milter == nil || !some((*target).isEmail) {
		return nil
	}
	return s.runContentFilter(ctx, m)
}

func hops(p *mailparse.Parsed) (n int) {
	for _, f := range p.Header {
		if strings.EqualFold(f.Name, "Received") {
			n++
		}
	}
	return n
}

// runContentFilter passes a message to the content filter and applies the filter's verdict. If the filter refuses some
// recipients, runContentFilter silently drops them, because the reply after DATA applies to all recipients. If the
// filter fails, the configured verdict applies.
func (s *Service) runContentFilter(ctx context.Context, m *incoming) error {
	asked := milter.Message{ID: m.id, Client: m.client, Hello: m.origin.Hello, MailFrom: m.origin.MailFrom,
		Raw:  bytes.NewReader(m.body()),
		Size: int64(len(m.body()))}
	for _, p := range m.to {
		asked.Recipients = append(asked.Recipients, p.address)
	}
	v, err := s.p.Milter.Consult(ctx, asked)
	if err != nil {
		s.p.Log.Warn("the content filter did not decide", "id", m.id, "error", err)
		if v.Action == milter.Accept {
			return nil
		}
	}
	switch v.Action {
	case milter.Reject:
		return refusal(v, 550, "5.7.1", "The content of the message is refused")
	case milter.TempFail:
		return refusal(v, 451, "4.7.1", "The message cannot be judged at present; try again later")
	case milter.Discard:
		s.p.Log.Info("the content filter discards a message", "id", m.id, "from", m.origin.MailFrom)
		m.to = nil
		return nil
	}
	m.to = slices.DeleteFunc(slices.Clone(m.to), func(p target) bool { return slices.Contains(v.Refused, p.address) })
	m.spam = &Spam{Action: "accept", Quarantine: db.Text(v.Quarantine, 1000), Fields: map[string][]string{}}
	if v.Quarantine != "" {
		m.spam.Action = "quarantine"
	}
	for _, f := range v.Headers[:min(len(v.Headers), 100)] {
		name := strings.ToLower(db.Text(f.Name, 100))
		m.spam.Fields[name] = append(m.spam.Fields[name], db.Text(f.Value, 4<<10))
	}
	return nil
}

// refusal returns the SMTP reply for the filter's verdict. The arguments are defaults for parts that are missing from
// the filter's reply.
func refusal(v milter.Verdict, code int, enhanced, text string) error {
	if v.Code/100 == code/100 {
		code = v.Code
	}
	if v.Text != "" {
		text = v.Text
		// An enhanced status code at the start of the filter's text replaces the default status code.
		if first, rest, _ := strings.Cut(text, " "); strings.HasPrefix(first, fmt.Sprint(code/100)+".") &&
			strings.Count(first, ".") == 2 {
			enhanced, text = first, rest
		}
	}
	return smtpserver.Refuse(code, enhanced, "%s", text)
}
