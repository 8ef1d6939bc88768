package resolve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// ask sends one question to each server in turn until a server gives a definite answer. A definite answer consists of
// records, is empty (in which case ask returns no error), or is ErrNoName. The server that gives the answer decides
// whether it is secure.
//
// If secure is set, ask queries the servers for secure look-ups. If a server that may be believed finds wrong
// signatures, ask fails at once: a server that does not validate might answer the question. The error is ErrBogus, or
// ErrNoServer if the server finds wrong signatures in another zone too.
func (d *DNS) ask(ctx context.Context, q question, secure bool) (answer, error) {
	if err := checkName(q.name); err != nil {
		return answer{}, err
	}
	var last error
	if secure {
		d.firstCheck(ctx)
	}
	servers, since, silent := d.serversFor(secure), time.Now(), true
	for range rounds {
		for _, s := range servers {
			if err := ctx.Err(); err != nil {
				return answer{}, fmt.Errorf("%w: %w", ErrTemporary, err)
			}
			m, err := try(ctx, s.addr, q, false)
			switch {
			case err != nil:
				last = err
			case definite(m):
				d.remember(s, q, m)
				a := newAnswer(m)
				if secure {
					if a.secure, err = d.authentic(ctx, s, q, m); err != nil {
						silent, last = false, err
						continue
					}
				}
				if m.Rcode == dns.RcodeNameError {
					return a, fmt.Errorf("%w: %s", ErrNoName, q.name)
				}
				return a, nil
			default:
				silent = false
				last = fmt.Errorf("server %s answers %d %s", s.addr, m.Rcode, dns.RcodeToString[m.Rcode])
				if secure && d.judges(s) && wrongSignatures(ctx, s.addr, q, m) {
					return answer{}, d.bogus(ctx, s, q, last)
				}
			}
		}
	}
	return answer{}, d.failure(ctx, q, secure, since, silent, last)
}

// judges reports whether the failures of a server may mean wrong signatures: it has passed the self-check, or is one
// that was named and of which nothing is known yet.
func (d *DNS) judges(s *server) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return s.believed && s.standing != ignoresSignatures
}

// serversFor returns the servers that secure or other look-ups query. If a server has passed the self-check, secure
// look-ups query only such servers, because the answers of others are insecure.
//
// If no server can give a secure answer, secure look-ups query the same servers as others. This is so if all servers
// that were named as validating ones have failed the self-check, or if none was named and none has passed it. A named
// server that does not answer is not replaced: otherwise, somebody who silences it could turn DANE off.
func (d *DNS) serversFor(secure bool) []*server {
	if !secure {
		return d.servers
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	good := slices.DeleteFunc(slices.Clone(d.secure), func(s *server) bool { return s.standing != validates })
	fails := func(s *server) bool { return s.standing == ignoresSignatures }
	switch {
	case len(good) > 0:
		return good
	case !d.named, !slices.ContainsFunc(d.secure, func(s *server) bool { return !fails(s) }):
		return d.servers
	}
	return d.secure
}

// wrongSignatures reports whether a server failed because the signatures of the answer are wrong. The server says so
// with an extended error (RFC 8914), or it answers the question if it need not check the signatures (the CD bit), and
// fails again otherwise. The second failure is needed, because a slow name server may have caused the first one, and
// its late answer is then in the cache.
func wrongSignatures(ctx context.Context, server string, q question, m *dns.Msg) bool {
	if m.Rcode != dns.RcodeServerFailure {
		return false
	}
	if opt := m.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if e, ok := o.(*dns.EDNS0_EDE); ok && e.InfoCode >= dns.ExtendedErrorCodeDNSBogus &&
				e.InfoCode <= dns.ExtendedErrorCodeNSECMissing {
				return true
			}
		}
	}
	if unchecked, err := try(ctx, server, q, true); err != nil || !definite(unchecked) {
		return false
	}
	again, err := try(ctx, server, q, false)
	return err == nil && again.Rcode == dns.RcodeServerFailure
}

// try queries one server over UDP. If the server does not support EDNS0, try repeats the query without it; if the
// response is truncated, try repeats the query over TCP. The query asks whether the answer was authenticated. If
// unchecked is set, the server need not check signatures (the CD bit, RFC 4035 section 3.2.2).
func try(ctx context.Context, server string, q question, unchecked bool) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	query := new(dns.Msg).SetQuestion(dns.Fqdn(q.name), q.qtype)
	query.AuthenticatedData, query.CheckingDisabled = true, unchecked
	query.SetEdns0(ednsSize, false)
	m, err := Exchange(ctx, "udp", server, query)
	if err == nil && (m.Rcode == dns.RcodeFormatError || m.Rcode == dns.RcodeNotImplemented) {
		query.Id = dns.Id()
		query.Extra = nil
		query.AuthenticatedData = false // such a server may not know this bit either
		m, err = Exchange(ctx, "udp", server, query)
	}
	if err == nil && m.Truncated {
		query.Id = dns.Id()
		m, err = Exchange(ctx, "tcp", server, query)
	}
	return m, err
}

// Exchange sends a query to one server over "udp" or "tcp" and returns the response. Over UDP, Exchange skips datagrams
// that do not answer this query, such as late responses, forgeries and malformed datagrams. Forged datagrams therefore
// cannot make a look-up fail.
func Exchange(ctx context.Context, network, server string, query *dns.Msg) (*dns.Msg, error) {
	nc, err := new(net.Dialer).DialContext(ctx, network, server)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	conn := &dns.Conn{Conn: nc, UDPSize: readSize}
	if err := conn.WriteMsg(query); err != nil {
		return nil, fmt.Errorf("ask %s: %w", server, err)
	}
	for {
		m, err := conn.ReadMsg()
		if err == nil && answers(m, query) {
			return m, nil
		}
		if _, fatal := errors.AsType[net.Error](err); fatal || network == "tcp" {
			if err == nil {
				err = errors.New("an answer to another question")
			}
			return nil, fmt.Errorf("answer of %s: %w", server, err)
		}
	}
}

// answers reports whether m is a response to the query.
func answers(m, query *dns.Msg) bool {
	if !m.Response || m.Id != query.Id || len(m.Question) != 1 {
		return false
	}
	q, want := m.Question[0], query.Question[0]
	return q.Qtype == want.Qtype && q.Qclass == want.Qclass && strings.EqualFold(q.Name, want.Name)
}
