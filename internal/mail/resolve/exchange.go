package resolve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// ask sends one question to each server in turn until a server gives a definite answer. A definite answer consists of
// records, is empty (in which case ask returns no error), or is ErrNoName.
func (d *DNS) ask(ctx context.Context, name string, qtype uint16) (answer, error) {
	if err := checkName(name); err != nil {
		return answer{}, err
	}
	var last error
	q, since, silent := question{name, qtype}, time.Now(), true
	for range rounds {
		for _, server := range d.servers {
			if err := ctx.Err(); err != nil {
				return answer{}, fmt.Errorf("%w: %w", ErrTemporary, err)
			}
			m, err := try(ctx, server, name, qtype)
			switch {
			case err != nil:
				last = err
			case m.Rcode == dns.RcodeSuccess:
				d.remember(q, m)
				return newAnswer(m), nil
			case m.Rcode == dns.RcodeNameError:
				d.remember(q, m)
				return newAnswer(m), fmt.Errorf("%w: %s", ErrNoName, name)
			default:
				silent = false
				last = fmt.Errorf("server %s answers %d %s", server, m.Rcode, dns.RcodeToString[m.Rcode])
			}
		}
	}
	return answer{}, d.failure(ctx, q, since, silent, last)
}

// try queries one server over UDP. If the server does not support EDNS0, try repeats the query without it; if the
// response is truncated, try repeats the query over TCP.
func try(ctx context.Context, server, name string, qtype uint16) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	query := new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype)
	query.SetEdns0(ednsSize, false)
	m, err := exchange(ctx, "udp", server, query)
	if err == nil && (m.Rcode == dns.RcodeFormatError || m.Rcode == dns.RcodeNotImplemented) {
		query.Id = dns.Id()
		query.Extra = nil
		m, err = exchange(ctx, "udp", server, query)
	}
	if err == nil && m.Truncated {
		query.Id = dns.Id()
		m, err = exchange(ctx, "tcp", server, query)
	}
	return m, err
}

// exchange sends a query and returns the response. Over UDP, exchange skips datagrams that do not answer this query,
// such as late responses, forgeries and malformed datagrams. Forged datagrams therefore cannot make a look-up fail.
func exchange(ctx context.Context, network, server string, query *dns.Msg) (*dns.Msg, error) {
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
