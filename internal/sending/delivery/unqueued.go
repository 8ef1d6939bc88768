package delivery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/mail/smtpclient"
)

// unqueuedTime is the time limit for SendUnqueued.
const unqueuedTime = 2 * time.Minute

// reportTLS takes the place of the TLS setting of the sender's domain for reports. Connections are encrypted if the
// host offers TLS, and prove nothing.
const reportTLS = "report"

// SendUnqueued sends a message to one address at once. It is for alarms while the database can store nothing, for
// example because the disk is full. SendUnqueued tries each host once, and stores nothing. It fails if the team may not
// send from the sender's domain. The limits of destinations do not apply.
func (s *Service) SendUnqueued(ctx context.Context, teamID, from, to string, message []byte) error {
	return s.sendNow(ctx, teamID, from, to, message, unqueued{})
}

// SendReport is like SendUnqueued, but for TLS reports. It disregards what the recipient's domain and the sender's
// domain demand of connections, because the domain would otherwise never learn that its policy is broken (RFC 8460
// section 5.3.1). If the host may have the message in spite of an error, the error wraps a *smtpclient.Error whose Sent
// is true, and SendReport tries no other host.
func (s *Service) SendReport(ctx context.Context, teamID, from, to string, message []byte) error {
	return s.sendNow(ctx, teamID, from, to, message, unqueued{once: true, proveNothing: true})
}

// ErrRefused means that a mail host refused a message for good. Compare with errors.Is.
var ErrRefused = errors.New("the mail host refused the message")

// SendOnce is like SendUnqueued, but never sends a message twice. If a host may have accepted the message although
// sending failed, SendOnce tries no other host. The error then wraps a *smtpclient.Error whose Sent is true. If a host
// refused the message permanently, SendOnce tries no other host either, and the error wraps ErrRefused.
func (s *Service) SendOnce(ctx context.Context, teamID, from, to string, message []byte) error {
	return s.sendNow(ctx, teamID, from, to, message, unqueued{once: true})
}

// unqueued says how a message is sent without the queue.
type unqueued struct {
	once         bool // tries no other host if a host may have the message or has refused it for good
	proveNothing bool // ignore what domains demand of connections (DANE, MTA-STS and the TLS setting)
}

func (s *Service) sendNow(ctx context.Context, teamID, from, to string, message []byte, how unqueued) error {
	if s.c.Transport == Capture {
		return errors.New("send an email without the queue: the transport is capture")
	}
	ctx, cancel := context.WithTimeout(ctx, unqueuedTime)
	defer cancel()
	message, tls, err := s.signUnqueued(ctx, teamID, from, message)
	if err != nil {
		return err
	}
	if how.proveNothing {
		tls = reportTLS
	}
	w, err := s.choose(ctx, mailDomain(to), mailDomain(from), tls, nil)
	if err != nil {
		return fmt.Errorf("find the mail hosts of %s: %w", to, err)
	}
	var failed error
	for _, h := range w.hops {
		if err = s.sendUnqueued(ctx, h, smtpclient.Envelope{From: from, To: []string{to}}, message); err == nil {
			return nil
		}
		err = fmt.Errorf("send an email without the queue through %s: %w", h, err)
		e, ok := errors.AsType[*smtpclient.Error](err)
		if how.once && (ok && e.Sent || errors.Is(err, ErrRefused)) {
			return err
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// mailDomain returns the domain of an address in lower case.
func mailDomain(address string) string {
	return strings.ToLower(address[strings.LastIndexByte(address, '@')+1:])
}

// signUnqueued signs a message. The second result is the TLS setting of the sender's domain.
func (s *Service) signUnqueued(ctx context.Context, teamID, from string, message []byte) ([]byte, string, error) {
	sender, err := s.p.Domains.Sender(ctx, teamID, mailDomain(from))
	if err != nil {
		return nil, "", fmt.Errorf("find the sender's domain: %w", err)
	}
	by, err := s.p.Domains.Signing(ctx, sender.DomainID)
	if err != nil {
		return nil, "", fmt.Errorf("find the keys of the sender's domain: %w", err)
	}
	message = s.p.Emails.WithFeedbackID(teamID, message)
	header, err := dkim.Sign(message, time.Now(), by.Signers...)
	return append(header, message...), by.TLS, err
}

func (s *Service) sendUnqueued(ctx context.Context, h hop, env smtpclient.Envelope, message []byte) error {
	o := s.optionsFor(h)
	c, err := smtpclient.Dial(ctx, h.addr, o)
	if e, ok := errors.AsType[*smtpclient.Error](err); ok && e.RetryPlain && ctx.Err() == nil {
		o.TLS = smtpclient.TLSNone
		c, err = smtpclient.Dial(ctx, h.addr, o)
	}
	if err != nil {
		return err
	}
	defer c.Close()
	r, err := c.Send(ctx, env, message)
	if err != nil {
		return err
	}
	switch reply := r.Recipient(0); {
	case reply.Permanent():
		return fmt.Errorf("%w: %s", ErrRefused, reply)
	case !reply.Positive():
		return errors.New("the host answered " + reply.String())
	}
	return nil
}
