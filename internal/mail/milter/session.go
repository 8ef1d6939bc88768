package milter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"unicode"

	"github.com/emersion/go-milter"
)

const (
	// actions are the changes that a filter may request in addition to its decision. OptAddHeader also allows a filter
	// to insert a field at a given position.
	actions = milter.OptAddHeader | milter.OptQuarantine
	// oldSteps are the protocol steps that a filter may skip in milter version 2, and newSteps are those for version 6.
	// If a filter wants to skip a step but is not allowed to, the filter ends the session.
	oldSteps = milter.OptNoConnect | milter.OptNoHelo | milter.OptNoMailFrom | milter.OptNoRcptTo | milter.OptNoBody |
		milter.OptNoHeaders | milter.OptNoEOH
	newSteps = oldSteps | milter.OptNoUnknown | milter.OptNoData | milter.OptNoHeaderReply | milter.OptNoConnReply |
		milter.OptNoHeloReply | milter.OptNoMailReply | milter.OptNoRcptReply | milter.OptNoDataReply |
		milter.OptNoUnknownReply | milter.OptNoEOHReply | milter.OptNoBodyReply

	maxFields = 100  // maximum number of fields that a filter may add; any more are dropped
	maxText   = 4096 // maximum length of each string sent to or received from a filter, in bytes
)

// consult tries the newest milter version first. The library itself falls back to an older version only if the same
// protocol mask is valid in that version.
func (c *Client) consult(ctx context.Context, m Message) (Verdict, error) {
	v, err := c.converse(ctx, m, newSteps)
	if errors.Is(err, milter.ErrUnsupportedMilterVersion) {
		return c.converse(ctx, m, oldSteps)
	}
	return v, err
}

func (c *Client) converse(ctx context.Context, m Message, steps milter.OptProtocol) (Verdict, error) {
	d := &dialer{ctx: ctx}
	defer d.close()
	s, err := milter.NewClientWithOptions(c.network, c.address, milter.ClientOptions{
		Dialer: d, ActionMask: actions, ProtocolMask: steps,
	}).Session()
	if err != nil {
		return Verdict{}, err
	}
	v, err := c.run(s, m)
	if err != nil {
		return Verdict{}, err
	}
	s.Close() // tells the filter that the session has ended; an error cannot change the verdict
	return v, nil
}

// dialer opens the only connection of a milter session, and closes it when the context is done.
type dialer struct {
	ctx  context.Context
	conn net.Conn
	stop func() bool
}

func (d *dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(d.ctx, network, address)
	if err != nil {
		return nil, err
	}
	// A deadline on the connection would not work, because the library sets and removes deadlines.
	d.conn, d.stop = conn, context.AfterFunc(d.ctx, func() { conn.Close() })
	return conn, nil
}

func (d *dialer) close() {
	if d.conn != nil {
		d.stop()
		d.conn.Close()
	}
}

// run sends the steps of the SMTP session to the filter until the filter makes a decision.
func (c *Client) run(s *milter.ClientSession, m Message) (Verdict, error) {
	var refused []string
	for _, step := range []func() (*milter.Action, error){
		func() (*milter.Action, error) { return c.connection(s, m) },
		func() (*milter.Action, error) { return s.Helo(clean(m.Hello)) },
		func() (*milter.Action, error) { return mailFrom(s, m) },
		func() (act *milter.Action, err error) {
			refused, act, err = recipients(s, m.Recipients)
			return act, err
		},
	} {
		act, err := step()
		if err != nil {
			return Verdict{}, err
		}
		if act.Code != milter.ActContinue {
			return decision(act), nil
		}
	}
	mods, act, err := content(s, m)
	if err != nil {
		return Verdict{}, err
	}
	v := decision(act)
	v.Refused = refused
	for _, mod := range mods {
		switch mod.Code {
		case milter.ActAddHeader, milter.ActInsertHeader:
			if name := fieldName(mod.HeaderName); name != "" && len(v.Headers) < maxFields {
				v.Headers = append(v.Headers, Field{Name: name, Value: clean(mod.HeaderValue)})
			}
		case milter.ActQuarantine:
			v.Quarantine = clean(mod.Reason)
		}
	}
	return v, nil
}

func (c *Client) connection(s *milter.ClientSession, m Message) (*milter.Action, error) {
	if err := s.Macros(milter.CodeConn, "j", c.config.Hostname, "{daemon_name}", c.config.Hostname, "v",
		"Postrider"); err != nil {
		return nil, err
	}
	addr := m.Client.Addr().Unmap().WithZone("")
	family := milter.FamilyUnknown
	switch {
	case addr.Is4():
		family = milter.FamilyInet
	case addr.Is6():
		family = milter.FamilyInet6
	}
	name := clean(m.ClientName)
	if name == "" {
		name = "unknown"
		if addr.IsValid() {
			name = "[" + addr.String() + "]"
		}
	}
	return s.Conn(name, family, m.Client.Port(), addr.String())
}

func mailFrom(s *milter.ClientSession, m Message) (*milter.Action, error) {
	if err := s.Macros(milter.CodeMail, "i", clean(m.ID), "{mail_addr}", clean(m.MailFrom)); err != nil {
		return nil, err
	}
	return s.Mail(clean(m.MailFrom), nil)
}

// recipients sends all recipients to the filter. Refused recipients cause the whole message to be refused only if the
// filter refuses every recipient.
func recipients(s *milter.ClientSession, rcpts []string) (refused []string, last *milter.Action, err error) {
	last = &milter.Action{Code: milter.ActContinue}
	for _, rcpt := range rcpts {
		if err := s.Macros(milter.CodeRcpt, "{rcpt_addr}", clean(rcpt)); err != nil {
			return nil, nil, err
		}
		act, err := s.Rcpt(clean(rcpt), nil)
		if err != nil {
			return nil, nil, err
		}
		switch decision(act).Action {
		case Reject, TempFail:
			refused = append(refused, rcpt)
			last = act
		default:
			if act.Code != milter.ActContinue {
				return refused, act, nil
			}
		}
	}
	if len(refused) < len(rcpts) {
		last = &milter.Action{Code: milter.ActContinue}
	}
	return refused, last, nil
}

// content sends the header, the body and the end of the message to the filter. Filters usually make their decision at
// the end.
func content(s *milter.ClientSession, m Message) ([]milter.ModifyAction, *milter.Action, error) {
	body, act, err := header(s, m)
	if err != nil || act.Code != milter.ActContinue {
		return nil, act, err
	}
	chunk := make([]byte, min(m.Size-body, milter.MaxBodyChunk))
	for at := body; at < m.Size; {
		n, err := m.Raw.ReadAt(chunk[:min(m.Size-at, int64(len(chunk)))], at)
		if n == 0 {
			return nil, nil, fmt.Errorf("%w: %w", errRead, err)
		}
		at += int64(n)
		act, err := s.BodyChunk(chunk[:n])
		if err != nil || act.Code != milter.ActContinue {
			return nil, act, err
		}
	}
	return s.End()
}

// header sends the header fields and returns the offset of the body.
func header(s *milter.ClientSession, m Message) (int64, *milter.Action, error) {
	r := newFieldReader(m.Raw, m.Size)
	for {
		name, value, err := r.next()
		if errors.Is(err, io.EOF) {
			act, err := s.HeaderEnd()
			return r.offset, act, err
		}
		if err != nil {
			return 0, nil, fmt.Errorf("%w: %w", errRead, err)
		}
		act, err := s.HeaderField(name, value)
		if err != nil || act.Code != milter.ActContinue {
			return 0, act, err
		}
	}
}

// decision converts a filter's final action into a verdict.
func decision(act *milter.Action) Verdict {
	switch act.Code {
	case milter.ActReject:
		return Verdict{Action: Reject}
	case milter.ActTempFail:
		return Verdict{Action: TempFail}
	case milter.ActDiscard:
		return Verdict{Action: Discard}
	case milter.ActReplyCode:
		v := Verdict{Code: act.SMTPCode, Text: clean(act.SMTPText)}
		switch act.SMTPCode / 100 {
		case 4:
			v.Action = TempFail
		case 5:
			v.Action = Reject
		default:
			return Verdict{} // not a refusal
		}
		return v
	}
	return Verdict{}
}

// clean turns a string into a single line: it truncates the string, removes control characters, and replaces each run
// of white space with one space. The result contains no NUL, which would end a string in the protocol.
func clean(s string) string {
	s = strings.ToValidUTF8(s[:min(len(s), maxText)], "?")
	return strings.Join(strings.FieldsFunc(s, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }),
		" ")
}

// fieldName returns name if it is a valid field name (RFC 5322 section 3.6.8), and "" otherwise.
func fieldName(name string) string {
	if len(name) > 76 || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' || c == ':' }) {
		return ""
	}
	return name
}
