package delivery

import (
	"errors"
	"net"
	"net/netip"

	"github.com/postrider/postrider/internal/mail/dane"
	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/mail/tlsrpt"
	"github.com/postrider/postrider/internal/sending/evidence"
)

// Session is a TLS session with a mail host, or the failure of one, as TLS reports describe it (RFC 8460).
type Session struct {
	Domain  string        // of the recipient
	Policy  tlsrpt.Policy // that applied; without a Domain, it is that of the session
	Host    string        // name of the mail host; "" if the failure concerns none
	Address netip.Addr    // of this node; the zero Addr if there was no connection
	Result  tlsrpt.Result // "" if TLS was established as the policy demands
}

// countSession counts a new connection to a mail host, or one that failed. One of c and failed is nil. Connections to
// relays, connections without an attempt at TLS, and those that ended before are not counted.
func (s *Service) countSession(h hop, c *smtpclient.Conn, from *socket, failed *smtpclient.Error) {
	if h.to == nil || h.relay != nil || h.mode == smtpclient.TLSNone ||
		failed != nil && failed.Stage != smtpclient.StageTLS {
		return
	}
	x := Session{Domain: h.to.domain, Policy: h.reportedPolicy(), Host: h.name}
	if failed != nil {
		x.Result = failedResult(failed)
	} else {
		x.Result = h.result(c)
	}
	if from != nil {
		if at, ok := from.LocalAddr().(*net.TCPAddr); ok {
			x.Address = at.AddrPort().Addr()
		}
	}
	s.p.Sessions(x)
	if h.rule == evidence.DANEUnusable {
		s.p.Sessions(Session{Domain: x.Domain, Policy: tlsrpt.Policy{Type: tlsrpt.TLSA, Domain: h.name}, Host: h.name,
			Address: x.Address, Result: tlsrpt.TLSAInvalid})
	}
	s.countFetch(h.to)
}

// countFetch counts a policy that could not be had as a failure of its own, once for each session.
func (s *Service) countFetch(to *security) {
	if to.failed != "" {
		s.p.Sessions(Session{Domain: to.domain, Policy: to.reportedPolicy(tlsrpt.STS), Result: tlsrpt.Result(to.failed)})
	}
}

// countBarred counts an attempt for which policies barred all hosts. If to is nil, sessions are not counted.
func (s *Service) countBarred(to *security, hosts []candidate) {
	if to == nil {
		return
	}
	barred := false
	for _, h := range hosts {
		x := Session{Domain: to.domain, Host: h.name}
		switch {
		case h.skip == evidence.NotInPolicy:
			x.Policy, x.Result = to.reportedPolicy(tlsrpt.STS), tlsrpt.ValidationFailure
		case h.skip == evidence.TLSAUnknown && errors.Is(h.err, resolve.ErrBogus):
			x.Policy, x.Result = tlsrpt.Policy{Type: tlsrpt.TLSA, Domain: h.name}, tlsrpt.DNSSECInvalid
		default:
			continue // this node or the DNS may be to blame
		}
		s.p.Sessions(x)
		barred = true
	}
	if barred {
		s.countFetch(to)
	}
}

// countBogus counts an attempt that failed because DNSSEC proves that the answer about a domain's mail hosts is forged.
func (s *Service) countBogus(domain, tls string, err error) {
	if s.p.Sessions != nil && tls != reportTLS && errors.Is(err, resolve.ErrBogus) {
		s.p.Sessions(Session{Domain: domain, Policy: tlsrpt.Policy{Type: tlsrpt.TLSA}, Result: tlsrpt.DNSSECInvalid})
	}
}

// reportedPolicy describes the policy that applied to a hop.
func (h hop) reportedPolicy() tlsrpt.Policy {
	if h.mode == smtpclient.TLSDANE {
		p := tlsrpt.Policy{Type: tlsrpt.TLSA, Domain: h.names[0]}
		for _, r := range h.dane.Records() {
			p.Strings = append(p.Strings, r.String())
		}
		return p
	}
	return h.to.reportedPolicy(tlsrpt.NoPolicy)
}

// reportedPolicy describes the MTA-STS policy of a domain. Without a policy that demands anything, its type is
// otherwise.
func (by *security) reportedPolicy(otherwise tlsrpt.PolicyType) tlsrpt.Policy {
	if m := by.policy.Mode; m == mtasts.Enforce || m == mtasts.Testing {
		return tlsrpt.Policy{Type: tlsrpt.STS, Strings: by.policy.Lines(), MX: by.policy.MX}
	}
	return tlsrpt.Policy{Type: otherwise}
}

// result returns the result of a connection that was established. A policy that is only tested did not end it, but its
// failure counts.
func (h hop) result(c *smtpclient.Conn) tlsrpt.Result {
	state := c.TLSState()
	tested := h.to.policy.Mode == mtasts.Testing && h.mode != smtpclient.TLSDANE
	switch {
	case !state.On() && !c.Extensions().StartTLS:
		return tlsrpt.NoSTARTTLS
	case !state.On():
		return tlsrpt.ValidationFailure // the host refused STARTTLS, or the handshake failed
	case tested && !h.to.policy.Matches(h.name):
		return tlsrpt.ValidationFailure
	case tested && !state.Verified:
		return certificateResult(state.Cause)
	}
	return ""
}

// failedResult returns the result of a connection that ended while TLS was begun.
func failedResult(e *smtpclient.Error) tlsrpt.Result {
	switch {
	case errors.Is(e, smtpclient.ErrNoTLS):
		return tlsrpt.NoSTARTTLS
	case e.TLS.Cause != nil:
		return certificateResult(e.TLS.Cause)
	}
	return tlsrpt.ValidationFailure
}

// certificateResult returns the result for the reason why a certificate is not accepted.
func certificateResult(err error) tlsrpt.Result {
	switch {
	case errors.Is(err, dane.ErrExpired):
		return tlsrpt.CertificateExpired
	case errors.Is(err, dane.ErrName):
		return tlsrpt.HostMismatch
	case errors.Is(err, dane.ErrNoMatch):
		return tlsrpt.ValidationFailure
	}
	if r, ok := mtasts.CertificateResult(err); ok {
		return tlsrpt.Result(r)
	}
	return tlsrpt.ValidationFailure
}
