package smtpserver

import (
	"encoding/base64"
	"errors"
	"strings"
)

func (c *conn) authOffered() bool {
	return c.s.c.Auth == AuthInClear || c.s.c.Auth == AuthOverTLS && c.tls != nil
}

// errCanceled means that the client canceled the AUTH command.
var errCanceled = errors.New("canceled by the client")

// auth handles the AUTH command (RFC 4954).
func (c *conn) auth(arg string) {
	mechanism, initial, given := strings.Cut(strings.TrimSpace(arg), " ")
	mechanism = strings.ToUpper(mechanism)
	switch {
	case c.s.c.Auth == NoAuth:
		c.reply(502, "5.5.1", "AUTH is not offered here")
	case !c.authOffered():
		c.reply(538, "5.7.11", "AUTH needs TLS: begin with STARTTLS")
	case c.session == nil:
		c.reply(503, "5.5.1", "Say EHLO first")
	case c.authenticated, c.mail != nil:
		c.reply(503, "5.5.1", "AUTH comes once, before MAIL")
	case mechanism != "PLAIN" && mechanism != "LOGIN":
		c.reply(504, "5.5.4", "Use AUTH PLAIN or AUTH LOGIN")
	default:
		c.authenticate(mechanism, strings.TrimSpace(initial), given)
	}
}

func (c *conn) authenticate(mechanism, initial string, given bool) {
	var user, password string
	var err error
	if mechanism == "PLAIN" {
		user, password, err = c.plain(initial, given)
	} else {
		user, password, err = c.login(initial, given)
	}
	var bad base64.CorruptInputError
	switch {
	case errors.Is(err, errCanceled):
		c.reply(501, "5.7.0", "Canceled")
		return
	case errors.As(err, &bad):
		c.reply(501, "5.5.2", "That is not base64")
		return
	case err != nil:
		c.broken(err)
		return
	}
	if err := c.session.Auth(c.ctx, user, password); err != nil {
		if c.fail(err, 454, "4.7.0"); c.ended {
			return
		}
		if c.failures++; c.failures >= maxFailures {
			c.hangUp("4.7.0", "Too many failed passwords, closing the connection")
		}
		return
	}
	c.authenticated = true
	c.reply(235, "2.7.0", "Welcome")
}

// plain returns the user name and the password from AUTH PLAIN (RFC 4616).
func (c *conn) plain(initial string, given bool) (user, password string, err error) {
	if !given {
		if initial, err = c.challenge(""); err != nil {
			return "", "", err
		}
	}
	text, err := decode(initial)
	parts := strings.Split(text, "\x00")
	if err == nil && len(parts) != 3 {
		err = base64.CorruptInputError(0)
	}
	if err != nil {
		return "", "", err
	}
	return parts[1], parts[2], nil
}

// login returns the user name and the password from AUTH LOGIN, which asks for them in two steps.
func (c *conn) login(initial string, given bool) (user, password string, err error) {
	if !given {
		if initial, err = c.challenge("Username:"); err != nil {
			return "", "", err
		}
	}
	if user, err = decode(initial); err != nil {
		return "", "", err
	}
	answer, err := c.challenge("Password:")
	if err != nil {
		return "", "", err
	}
	password, err = decode(answer)
	return user, password, err
}

// challenge sends an AUTH challenge and returns the client's response line.
func (c *conn) challenge(text string) (string, error) {
	c.reply(334, "", base64.StdEncoding.EncodeToString([]byte(text)))
	line, err := c.readCommand()
	if err == nil && line == "*" {
		err = errCanceled
	}
	return line, err
}

// decode decodes base64; "=" stands for the empty string (RFC 4954 section 4).
func decode(text string) (string, error) {
	if text == "=" {
		return "", nil
	}
	b, err := base64.StdEncoding.DecodeString(text)
	return string(b), err
}
