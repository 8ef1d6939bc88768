package smtpserver

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits from RFC 5321 section 4.5.3.1, in bytes, with some extra space for quoting.
const (
	maxPath   = 320
	maxParams = 1024
)

// mailFrom answers MAIL.
func (c *conn) mailFrom(arg string) {
	switch {
	case c.session == nil:
		c.reply(503, "5.5.1", "Say EHLO first")
		return
	case c.mail != nil:
		c.reply(503, "5.5.1", "A message is begun already")
		return
	}
	path, params, r := parsePath(arg, "FROM:")
	if r != nil {
		c.fail(r, 0, "")
		return
	}
	o, r := mailOptions(params, c.s.c.MaxSize)
	if r == nil && path != "" {
		r = checkMailbox(path, o.UTF8, "5.1.7")
	}
	if r != nil {
		c.fail(r, 0, "")
		return
	}
	if err := c.session.Mail(c.ctx, path, *o); err != nil {
		c.fail(err, 451, "4.3.0")
		return
	}
	c.mail = o
	c.reply(250, "2.1.0", "Sender taken")
}

// rcptTo answers RCPT.
func (c *conn) rcptTo(arg string) {
	if c.mail == nil {
		c.reply(503, "5.5.1", "MAIL comes before RCPT")
		return
	}
	path, params, r := parsePath(arg, "TO:")
	// The recipient "postmaster" does not need a domain (RFC 5321 section 4.5.1).
	if r == nil && !strings.EqualFold(path, "postmaster") {
		r = checkMailbox(path, c.mail.UTF8, "5.1.3")
	}
	if r == nil {
		r = rcptOptions(params)
	}
	if r == nil && c.rcpts >= c.s.c.MaxRecipients {
		r = Refuse(452, "4.5.3", "Too many recipients, send the message to the others separately")
	}
	if r != nil {
		c.fail(r, 0, "")
		return
	}
	if err := c.session.Rcpt(c.ctx, path); err != nil {
		c.fail(err, 451, "4.3.0")
		return
	}
	c.rcpts++
	c.reply(250, "2.1.5", "Recipient taken")
}

// parsePath parses the argument of a MAIL or RCPT command: a keyword, a path, and parameters. A space before the path
// and missing angle brackets are accepted, because many programs send such commands. A source route (RFC 5321 appendix
// C) is ignored.
func parsePath(arg, keyword string) (path string, params []string, r *Refusal) {
	bad := Refuse(501, "5.5.4", "Write %s<user@example.com>", keyword)
	if len(arg) < len(keyword) || !strings.EqualFold(arg[:len(keyword)], keyword) || len(arg) > maxPath+maxParams {
		return "", nil, bad
	}
	arg = strings.Trim(arg[len(keyword):], " \t")
	rest := ""
	if inner, ok := strings.CutPrefix(arg, "<"); ok {
		end := outside(inner, '>')
		if end < 0 {
			return "", nil, bad
		}
		path, rest = inner[:end], inner[end+1:]
		if rest != "" && rest[0] != ' ' {
			return "", nil, bad
		}
	} else if end := outside(arg, ' '); end >= 0 {
		path, rest = arg[:end], arg[end:]
	} else {
		path = arg
	}
	if path == "" && (!strings.HasPrefix(arg, "<") || keyword != "FROM:") {
		return "", nil, bad
	}
	if strings.HasPrefix(path, "@") {
		_, after, ok := strings.Cut(path, ":")
		if !ok {
			return "", nil, bad
		}
		path = after
	}
	return path, strings.Fields(rest), nil
}

// outside returns the index of the first c in s outside quotes, or -1 if there is none.
func outside(s string, c byte) int {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == c && !quoted:
			return i
		}
	}
	return -1
}

// checkMailbox checks the basic syntax of an address, so that handlers can rely on it.
func checkMailbox(path string, utf8Allowed bool, enhanced string) *Refusal {
	at := strings.LastIndexByte(path, '@')
	switch {
	case len(path) > maxPath:
		return Refuse(501, enhanced, "The address is too long")
	case at <= 0 || at == len(path)-1:
		return Refuse(501, enhanced, "The address needs a name, an @ and a domain")
	case outside(path, ' ') >= 0, outside(path, '\t') >= 0, outside(path, '<') >= 0, !utf8.ValidString(path):
		return Refuse(501, enhanced, "The address is not well formed")
	case !utf8Allowed && strings.ContainsFunc(path, func(r rune) bool { return r > '~' }):
		return Refuse(553, "5.6.7", "An address that is not ASCII needs SMTPUTF8")
	}
	return nil
}

// mailOptions parses the parameters of a MAIL command.
func mailOptions(params []string, maxSize int64) (*MailOptions, *Refusal) {
	o := &MailOptions{}
	for _, p := range params {
		key, value, _ := strings.Cut(p, "=")
		switch key = strings.ToUpper(key); {
		case key == "SIZE":
			n, err := strconv.ParseUint(value, 10, 62)
			if err != nil {
				return nil, Refuse(501, "5.5.4", "SIZE is a number of octets")
			}
			if o.Size = int64(n); o.Size > maxSize {
				return nil, Refuse(552, "5.3.4", "The message is too large: the limit is %d octets", maxSize)
			}
		case key == "BODY" && strings.EqualFold(value, "7BIT"):
		case key == "BODY" && strings.EqualFold(value, "8BITMIME"):
			o.EightBit = true
		case key == "SMTPUTF8" && value == "":
			o.UTF8 = true
		case key == "ENVID":
			if o.EnvID = xtext(value); o.EnvID == "" || len(o.EnvID) > 100 {
				return nil, Refuse(501, "5.5.4", "ENVID is not well formed")
			}
		case key == "RET", key == "AUTH": // Accepted and ignored.
		default:
			return nil, Refuse(555, "5.5.4", "The parameter %s is not known", key)
		}
	}
	return o, nil
}

// rcptOptions refuses unknown parameters of an RCPT command, and ignores known ones.
func rcptOptions(params []string) *Refusal {
	for _, p := range params {
		key, _, _ := strings.Cut(p, "=")
		switch key = strings.ToUpper(key); key {
		case "NOTIFY", "ORCPT":
		default:
			return Refuse(555, "5.5.4", "The parameter %s is not known", key)
		}
	}
	return nil
}

// xtext decodes a parameter value in xtext encoding (RFC 3461 section 4). The result is "" if the value is not valid
// xtext.
func xtext(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] < '!' || s[i] > '~' || s[i] == '=':
			return ""
		case s[i] != '+':
			out.WriteByte(s[i])
		case i+2 >= len(s):
			return ""
		default:
			n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
			if err != nil || n < ' ' || n > '~' {
				return ""
			}
			out.WriteByte(byte(n))
			i += 2
		}
	}
	return out.String()
}
