package delivery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/mail"
	"strconv"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/delivery/capture"
)

const (
	releaseTime       = time.Minute // time limit for a release
	releaseRecipients = 50          // maximum number of recipients that a caller may give
)

var errNoRelay = fault.Invalidf("relay", "No relay is configured, so nothing was sent. Set `relay_addr` to the "+
	"relay's host:port and restart `postrider dev`, or give the address of a mail server in the field `relay`.")

// Release sends a captured message through the operator's relay, or through another mail server. The message and its
// return path are the captured ones. The outcome changes nothing but the time of the last release: the email keeps its
// state, and no event is recorded. If no recipient is accepted, the error is a *capture.ReleaseError. Without a relay,
// and for wrong addresses, it is a fault.
func (s *Service) Release(ctx context.Context, captureID string, r capture.Release) (out capture.Released, err error) {
	if out.Message, err = s.p.Outbox.Get(ctx, captureID); err != nil {
		return out, err
	}
	o, err := s.releaseOptions(&r)
	if err != nil {
		return out, err
	}
	env := smtpclient.Envelope{From: out.ReturnPath, To: out.Recipients, UTF8: out.UTF8}
	if len(r.To) > 0 {
		if env.To, err = releaseAddresses(r.To); err != nil {
			return out, err
		}
	}
	content, err := s.p.Outbox.Open(ctx, captureID)
	if err != nil {
		return out, err
	}
	defer content.Close()
	raw, err := io.ReadAll(content)
	if err != nil {
		return out, fmt.Errorf("read a captured message: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	if out.Answers, err = release(ctx, r.Relay, o, env, raw); err != nil {
		return out, err
	}
	out.Relay = r.Relay
	m, err := s.p.Outbox.SetReleased(context.WithoutCancel(ctx), captureID)
	if err != nil { // the message has been sent, so the caller must not repeat the release
		s.p.Log.Warn("a captured email was released, but its release could not be stored", "id", captureID, "error", err)
		return out, nil
	}
	out.Message = m
	return out, nil
}

// releaseOptions returns how to connect to the mail server of a release, and sets its address. The operator's relay may
// be at any address. Other servers are reached only through netguard, and get no password.
func (s *Service) releaseOptions(r *capture.Release) (o smtpclient.Options, err error) {
	o = smtpclient.Options{Hello: s.c.Hostname, RootCAs: s.c.RootCAs, Timeouts: s.c.Timeouts}
	own := s.routes.Load().Default()
	if r.Relay == "" && own == nil {
		return o, errNoRelay
	}
	if own != nil && (r.Relay == "" || r.Relay == own.Address) {
		r.Relay = own.Address
		o.TLS, o.Username, o.Password, o.Dial = relayMode(own, false), own.Username, own.Password, s.c.Dial
		return o, nil
	}
	host, port, err := net.SplitHostPort(r.Relay)
	if n, errPort := strconv.ParseUint(port, 10, 16); err != nil || errPort != nil || n == 0 || host == "" ||
		len(r.Relay) > 300 {
		return o, fault.Invalidf("relay", "The field `relay` must be the host and the port of a mail server, such as "+
			"smtp.example.com:25.")
	}
	o.Dial = s.p.Guard.DialContext
	return o, nil
}

func releaseAddresses(list []string) ([]string, error) {
	if len(list) > releaseRecipients {
		return nil, fault.Invalidf("to", "The field `to` may have at most %d addresses.", releaseRecipients)
	}
	all := make([]string, len(list))
	for i, text := range list {
		a, err := mail.ParseAddress(text)
		if err != nil {
			return nil, fault.Invalidf("to", "The field `to` has %.300q, which is not an address such as ann@example.org.",
				text)
		}
		all[i] = a.Address
	}
	return all, nil
}

// release sends a message in one conversation and returns the answers for the recipients.
func release(ctx context.Context, relay string, o smtpclient.Options, env smtpclient.Envelope, raw []byte) (
	[]capture.Answer, error) {
	c, err := smtpclient.Dial(ctx, relay, o)
	if e, ok := errors.AsType[*smtpclient.Error](err); ok && e.RetryPlain && ctx.Err() == nil {
		o.TLS = smtpclient.TLSNone
		c, err = smtpclient.Dial(ctx, relay, o)
	}
	if err != nil {
		return nil, releaseError(relay, err)
	}
	defer c.Close()
	result, err := c.Send(ctx, env, raw)
	if err != nil {
		return nil, releaseError(relay, err)
	}
	answers, accepted := make([]capture.Answer, len(env.To)), false
	for i, to := range env.To {
		reply := result.Recipient(i)
		answers[i] = capture.Answer{Recipient: to, Accepted: reply.Positive(), Reply: reply.String()}
		accepted = accepted || reply.Positive()
	}
	if !accepted {
		return nil, &capture.ReleaseError{Transcript: c.Transcript(),
			Message: fmt.Sprintf("The mail server %s refused the email: %s.", relay, answers[0].Reply)}
	}
	return answers, nil
}

func releaseError(relay string, err error) error {
	e, ok := errors.AsType[*smtpclient.Error](err)
	switch {
	case errors.Is(err, netguard.ErrRefused):
		return fault.Invalidf("relay", "The mail server %s was not contacted, because its address is not public. To use a "+
			"server in a private network, set `relay_addr` and restart `postrider dev`.", relay)
	case !ok:
		return &capture.ReleaseError{Message: fmt.Sprintf("The mail server %s cannot be used: %v.", relay, err)}
	case e.Sent:
		return &capture.ReleaseError{Transcript: e.Transcript, Message: fmt.Sprintf("The mail server %s did not say "+
			"whether it accepted the email. It may have the email. The error is: %v.", relay, e)}
	}
	return &capture.ReleaseError{Transcript: e.Transcript,
		Message: fmt.Sprintf("The mail server %s cannot be used: %v.", relay, e)}
}
