package smtpclient

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// authenticate logs in if the options contain a user name (RFC 4954). The mechanism is PLAIN (RFC 4616), or LOGIN if
// the host does not offer PLAIN.
func (c *Conn) authenticate() *Error {
	if c.o.Username == "" {
		return nil
	}
	if !c.tls.On() && !isLoopback(c.raw.RemoteAddr()) {
		return &Error{Stage: StageAuth, Err: ErrAuthPlain}
	}
	var r Reply
	var err *Error
	switch {
	case slices.Contains(c.ext.Auth, "PLAIN"):
		r, err = c.authPlain()
	case slices.Contains(c.ext.Auth, "LOGIN"):
		r, err = c.authLogin()
	default:
		return &Error{Stage: StageAuth, Err: fmt.Errorf("%w: it offers %q", ErrNoAuth, c.ext.Auth)}
	}
	if err != nil {
		return err
	}
	if !r.Positive() {
		return refused(StageAuth, r)
	}
	return nil
}

func (c *Conn) authPlain() (Reply, *Error) {
	secret := encode("\x00" + c.o.Username + "\x00" + c.o.Password)
	r, err := c.secret(StageAuth, "AUTH PLAIN "+secret, "AUTH PLAIN (credentials)")
	if err == nil && r.Code == 334 { // the host ignored the initial response and asks for it again
		r, err = c.secret(StageAuth, secret, "(credentials)")
	}
	return r, err
}

func (c *Conn) authLogin() (Reply, *Error) {
	r, err := c.command(StageAuth, "AUTH LOGIN")
	if err == nil && r.Code == 334 {
		r, err = c.secret(StageAuth, encode(c.o.Username), "(user name)")
	}
	if err == nil && r.Code == 334 {
		r, err = c.secret(StageAuth, encode(c.o.Password), "(password)")
	}
	return r, err
}

func encode(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func isLoopback(a net.Addr) bool {
	addr, err := netip.ParseAddrPort(a.String())
	return err == nil && addr.Addr().Unmap().IsLoopback()
}
