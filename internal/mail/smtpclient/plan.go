package smtpclient

import (
	"fmt"
	"slices"
	"strings"
)

// maxPath is the maximum length of an address that fits in a 512-byte command line (RFC 5321 section 4.5.3.1.4).
const maxPath = 500

// plan decides, based on the envelope and the extensions that the host offers, which commands are not worth sending.
// For omitted commands, plan stores the replies that the host would send, marked as Local. The result is false if no
// command needs to be sent.
func (t *transaction) plan() bool {
	if r := t.refuseMessage(); r.Code != 0 {
		t.res.Mail = r
		t.c.log.note("not sent: " + r.String())
		return false
	}
	t.utf8 = t.env.UTF8 || !isASCII(t.env.From)
	beyond := 0
	for i, to := range t.env.To {
		international := !isASCII(to)
		switch {
		case to == "" || !validPath(to):
			t.res.Rcpt[i] = local(553, "5.1.3", fmt.Sprintf("%q is not an address", to))
		case international && !t.c.ext.SMTPUTF8:
			t.res.Rcpt[i] = local(550, "5.6.7", "the host does not accept international addresses (SMTPUTF8)")
		case t.exceedsLimits(to):
			t.res.Rcpt[i] = local(452, beyondLimits, "the host accepts fewer recipients in one message (LIMITS); these are "+
				"sent the message separately")
			beyond++
			continue // the transcript names their number, because there may be many
		default:
			t.utf8 = t.utf8 || international
			t.unsettled++
			continue
		}
		t.c.log.note("not sent: " + t.res.Rcpt[i].String())
	}
	if beyond > 0 {
		t.c.log.note(fmt.Sprintf("not sent to %d of %d recipients: the host accepts fewer in one message (LIMITS)", beyond,
			len(t.env.To)))
	}
	if t.unsettled == 0 {
		t.res.Mail = local(250, "", "not asked: no recipient can be")
		return false
	}
	return true
}

// beyondLimits is the enhanced status code of the local reply for a recipient beyond the host's LIMITS.
const beyondLimits = "4.5.3"

// exceedsLimits reports whether the host accepts no further recipient in this transaction because of its LIMITS. If the
// host limits the domains of recipients, exceedsLimits counts the domain of the given recipient.
func (t *transaction) exceedsLimits(to string) bool {
	l := &t.c.ext.Limits
	if l.Recipients > 0 && t.unsettled >= l.Recipients {
		return true
	}
	if l.Domains == 0 {
		return false
	}
	domain := strings.ToLower(to[strings.LastIndexByte(to, '@')+1:])
	if slices.Contains(t.domains, domain) {
		return false
	}
	if len(t.domains) >= l.Domains {
		return true
	}
	t.domains = append(t.domains, domain)
	return false
}

// refuseMessage returns the reply that refuses the message for every recipient, or a zero Reply.
func (t *transaction) refuseMessage() Reply {
	ext, env := &t.c.ext, &t.env
	switch {
	case !validPath(env.From):
		return local(553, "5.1.7", fmt.Sprintf("%q is not an address", env.From))
	case (env.UTF8 || !isASCII(env.From)) && !ext.SMTPUTF8:
		return local(550, "5.6.7", "the host does not accept international addresses and headers (SMTPUTF8)")
	case ext.Size > 0 && t.traits.size > ext.Size:
		return local(552, "5.3.4", fmt.Sprintf("the message has %d bytes, the host accepts %d", t.traits.size, ext.Size))
	case env.Require8Bit && t.traits.eightBit && !ext.EightBitMIME:
		return local(554, "5.6.3", "the host does not accept 8-bit text (8BITMIME)")
	}
	return Reply{}
}

func local(code int, enhanced, text string) Reply {
	return Reply{Code: code, Enhanced: enhanced, Text: cleanText([]byte(text), maxReplyText), Local: true}
}

// validPath reports whether address can be sent between angle brackets without closing the brackets or ending the line
// early. A valid address has no control characters, and no space or bracket outside a quoted local part.
func validPath(address string) bool {
	if len(address) > maxPath {
		return false
	}
	quoted := false
	for i := 0; i < len(address); i++ {
		switch c := address[i]; {
		case c < ' ' || c == 0x7f:
			return false
		case quoted && c == '\\':
			i++
			if i == len(address) || address[i] < ' ' || address[i] == 0x7f {
				return false
			}
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ' ' || c == '<' || c == '>'):
			return false
		}
	}
	return !quoted
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
