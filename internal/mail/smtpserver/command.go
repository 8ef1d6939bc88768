package smtpserver

import (
	"errors"
	"fmt"
	"strings"
)

// maxFailures is the number of failed passwords after which the server ends a connection.
const maxFailures = 3

// command executes one SMTP command.
func (c *conn) command(line string) {
	c.commands++
	verb, arg, _ := strings.Cut(line, " ")
	before := c.errors
	switch v := strings.ToUpper(verb); {
	case unprintable(line):
		c.reply(500, "5.5.2", "Commands have printable characters only")
	case v == "EHLO", v == "HELO":
		c.hello(v == "EHLO", arg)
	case v == "STARTTLS":
		c.startTLS(arg)
	case v == "AUTH":
		c.auth(arg)
	case v == "MAIL":
		c.mailFrom(arg)
	case v == "RCPT":
		c.rcptTo(arg)
	case v == "DATA":
		c.data(arg)
	case v == "BDAT":
		c.bdat(arg)
	case v == "RSET":
		c.reset()
		c.reply(250, "2.0.0", "Forgotten")
	case v == "NOOP":
		c.reply(250, "2.0.0", "Nothing done")
	case v == "QUIT":
		c.reply(221, "2.0.0", "Goodbye")
		c.ended = true
	case v == "VRFY":
		c.reply(252, "2.5.0", "Send a message to find out")
	case v == "HELP":
		c.reply(214, "2.0.0", "See RFC 5321")
	case v == "EXPN", v == "TURN", v == "ETRN", v == "SEND", v == "SOML", v == "SAML":
		c.reply(502, "5.5.1", "Not offered here")
	case v == "GET", v == "POST", v == "PUT", v == "HEAD", v == "OPTIONS", v == "CONNECT":
		// A web page can make a browser connect to this server. The body of the HTTP request must not be executed as
		// commands.
		c.reply(421, "4.7.0", "This is not a web server")
		c.ended = true
	default:
		c.reply(500, "5.5.1", "Unknown command")
	}
	switch {
	case c.ended:
	case c.errors > before && c.errors >= c.s.c.MaxErrors:
		c.hangUp("4.7.0", "Too many errors, closing the connection")
	case c.commands >= c.s.c.MaxCommands:
		c.hangUp("4.7.0", "Too many commands without a message, closing the connection")
	}
}

func (c *conn) hangUp(enhanced, text string) {
	c.reply(421, enhanced, text)
	c.ended = true
}

// unprintable reports whether a command contains control characters, such as a lone CR.
func unprintable(line string) bool {
	return strings.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// hello handles the EHLO and HELO commands (RFC 5321 section 4.1.1.1).
func (c *conn) hello(extended bool, arg string) {
	name := strings.TrimSpace(arg)
	if name == "" || len(name) > 255 || strings.ContainsAny(name, " \t") {
		c.reply(501, "5.5.4", "Say who you are: EHLO host.example.com")
		return
	}
	if c.session == nil {
		c.peer.Hello = name
		session, err := c.s.handler.Open(c.ctx, c.peer)
		if err != nil {
			c.fail(err, 451, "4.3.0")
			if r, ok := errors.AsType[*Refusal](err); ok && (r.Code == 421 || r.Code == 554) {
				c.ended = true
			}
			return
		}
		c.session = session
	} else {
		c.reset()
	}
	c.esmtp = extended
	if !extended {
		c.reply(250, "", c.s.c.Hostname)
		return
	}
	c.reply(250, "", c.s.c.Hostname+"\n"+strings.Join(c.extensions(), "\n"))
}

func (c *conn) extensions() []string {
	all := []string{"PIPELINING", fmt.Sprintf("SIZE %d", c.s.c.MaxSize), "8BITMIME", "SMTPUTF8", "CHUNKING",
		"ENHANCEDSTATUSCODES"}
	if c.s.c.TLS != nil && c.tls == nil {
		all = append(all, "STARTTLS")
	}
	if c.authOffered() {
		all = append(all, "AUTH PLAIN LOGIN")
	}
	return all
}

// startTLS handles the STARTTLS command (RFC 3207). The client must send EHLO again after the TLS handshake.
func (c *conn) startTLS(arg string) {
	switch {
	case c.tls != nil:
		c.reply(503, "5.5.1", "TLS is on already")
		return
	case c.s.c.TLS == nil:
		c.reply(502, "5.5.1", "TLS is not offered here")
		return
	case strings.TrimSpace(arg) != "":
		c.reply(501, "5.5.4", "STARTTLS has no parameters")
		return
	case c.in.Buffered() > 0:
		// An attacker may have inserted the buffered data in order to have it treated as sent over TLS (CVE-2011-0411).
		c.hangUp("4.7.0", "Nothing may follow STARTTLS before the handshake")
		return
	}
	c.reply(220, "2.0.0", "Begin TLS")
	if c.flush() != nil || !c.handshake() {
		c.ended = true
		return
	}
	c.closeSession()
	c.mail, c.rcpts, c.esmtp, c.authenticated, c.peer.Hello = nil, 0, false, false, ""
}

// fail replies with an error. A *Refusal is sent unchanged and its cause, if any, is logged. Any other error is logged
// and reported to the client as an internal failure.
func (c *conn) fail(err error, code int, enhanced string) {
	if r, ok := errors.AsType[*Refusal](err); ok {
		if r.Cause != nil {
			c.logFailure(r.Cause)
		}
		c.reply(r.Code, r.Enhanced, r.Text)
		if r.Code == 421 {
			c.ended = true
		}
		return
	}
	c.logFailure(err)
	c.reply(code, enhanced, "That cannot be done now, try again later")
}

// logFailure logs an internal failure. During an outage, every session fails in the same way, so log lines about
// temporary failures are rate-limited.
func (c *conn) logFailure(err error) {
	if c.ctx.Err() != nil {
		return
	}
	args := []any{"client", c.peer.Addr, "error", err}
	if passes, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err); ok && passes.Temporary() {
		logged, leftOut := c.s.away.Allow()
		if !logged {
			return
		}
		if leftOut > 0 {
			args = append(args, "more_like_it", leftOut)
		}
	}
	c.s.log.Error("an SMTP session failed", args...)
}

// reset discards the current message.
func (c *conn) reset() {
	if c.session != nil {
		c.session.Reset()
	}
	c.mail, c.rcpts = nil, 0
}
