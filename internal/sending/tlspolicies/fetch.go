package tlspolicies

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/postrider/postrider/internal/mail/mtasts"
)

const (
	maxAddrs  = 4 // addresses of a web server that are tried
	maxHeader = 16 << 10
)

// fetched is the outcome of a fetch. If it failed, result is not "", and reason says why.
type fetched struct {
	policy mtasts.Policy
	result mtasts.Result
	reason string
}

// newClient returns the HTTP client for policies. It follows no redirects and keeps no connections, because a policy is
// fetched once a day. It does not accept compressed responses.
func (s *Service) newClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialTLSContext:         s.connect,
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxHeader,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// connect opens a TLS connection to the first address of a web server that answers. The addresses come from delivery's
// resolver. Their look-up does not count for the time limit.
func (s *Service) connect(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	addrs, err := s.p.DNS.Addrs(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", host, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.c.ConnectTimeout)
	defer cancel()
	conn, err := s.dial(ctx, network, host, addrs[:min(len(addrs), maxAddrs)])
	if err != nil {
		return nil, err
	}
	secure := tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: s.c.RootCAs, Time: s.c.Now,
		ServerName: host})
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("TLS with %s was not established in time", conn.RemoteAddr())
		}
		return nil, err
	}
	return secure, nil
}

// dial connects to the first address that answers. Each address may take an equal share of the time that is left. The
// guard checks the addresses.
func (s *Service) dial(ctx context.Context, network, host string, addrs []netip.Addr) (net.Conn, error) {
	err := fmt.Errorf("%s has no address", host)
	for i, addr := range addrs {
		end, _ := ctx.Deadline()
		within, cancel := context.WithTimeout(ctx, time.Until(end)/time.Duration(len(addrs)-i))
		var conn net.Conn
		conn, err = s.p.Guard.DialContext(within, network, net.JoinHostPort(addr.String(), strconv.Itoa(s.c.Port)))
		cancel()
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

// fetch fetches and parses the policy of a domain.
func (s *Service) fetch(ctx context.Context, domain string) fetched {
	ctx, cancel := context.WithTimeout(ctx, s.c.Timeout)
	defer cancel()
	body, err := s.get(ctx, mtasts.PolicyURL(domain))
	if err != nil {
		result := mtasts.FetchError
		if _, ok := mtasts.CertificateResult(err); ok {
			result = mtasts.WebPKIInvalid
		}
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("it was not complete within %v", s.c.Timeout)
		}
		return fetched{result: result, reason: readable("the policy cannot be fetched: " + err.Error())}
	}
	policy, err := mtasts.ParsePolicy(body)
	if err != nil {
		return fetched{result: mtasts.PolicyInvalid, reason: readable(err.Error())}
	}
	return fetched{policy: policy}
}

func (s *Service) get(ctx context.Context, address string) (body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("User-Agent", "Postrider")
	req.Header.Set("Accept", "text/plain")
	resp, err := s.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the web server answered %d instead of 200", resp.StatusCode)
	}
	if err := mtasts.CheckMediaType(resp.Header.Get("Content-Type")); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, mtasts.MaxPolicySize+1))
	if err == nil {
		// While the client closes the connection at the time limit, the web server may still end the body, so that it
		// would seem complete.
		err = ctx.Err()
	}
	if err != nil {
		return "", err
	}
	if len(text) > mtasts.MaxPolicySize {
		return "", fmt.Errorf("it has more than %d bytes", mtasts.MaxPolicySize)
	}
	return string(text), nil
}

// Probe fetches the policy of a domain over HTTPS like [Service.For], but ignores the record, the cache and the limits
// of fetches. A failed fetch has a result and a reason. The caller must limit the number of calls.
func (s *Service) Probe(ctx context.Context, domain string) (p mtasts.Policy, r mtasts.Result, reason string) {
	f := s.fetch(ctx, domain)
	return f.policy, f.result, f.reason
}
