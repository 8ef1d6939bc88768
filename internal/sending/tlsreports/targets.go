package tlsreports

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/tlsrpt"
	"github.com/postrider/postrider/internal/sending/dailyreports"
)

const (
	maxAddrs  = 4 // addresses of a web server that are tried
	maxHeader = 16 << 10
	maxBody   = 64 << 10 // of a response, which is ignored
)

// targets returns the URIs to which a domain wants its reports. A domain without a valid record wants none.
func (s *Service) targets(ctx context.Context, x *dailyreports.Report) (all []string, err error) {
	texts, err := s.p.DNS.TXT(ctx, tlsrpt.RecordName(x.Domain))
	switch {
	case errors.Is(err, resolve.ErrTemporary) || ctx.Err() != nil:
		return nil, errors.Join(err, ctx.Err())
	case err != nil:
		return nil, nil
	}
	record, err := tlsrpt.FindRecord(texts)
	if err != nil {
		return nil, nil
	}
	for _, t := range record.Targets {
		all = append(all, t.String())
	}
	return all, nil
}

// prepare builds a report, and returns the function that sends it to a target. The function is nil if the report counts
// no sessions.
func (s *Service) prepare(ctx context.Context, x *dailyreports.Report) (func(context.Context, string) error, error) {
	r, err := s.build(ctx, x)
	if err != nil || r == nil {
		return nil, err
	}
	return func(ctx context.Context, target string) error { return s.sendTo(ctx, target, x.Domain, r) }, nil
}

// sendTo sends a report about a domain to one target.
func (s *Service) sendTo(ctx context.Context, target, domain string, r *tlsrpt.Report) error {
	address, isMail := strings.CutPrefix(target, "mailto:")
	if !isMail {
		packed, err := r.Gzip()
		if err != nil {
			return err
		}
		return s.post(ctx, target, packed)
	}
	to, err := message.ParseAddress(address)
	if err != nil {
		return fmt.Errorf("the target is not an address: %w", err)
	}
	m := tlsrpt.Mail{From: s.c.From, To: to, Domain: domain, ID: "<" + r.ID + ">", Date: s.c.Now()}
	raw, err := m.Compose(r)
	if err != nil {
		return err
	}
	return s.p.Mail(ctx, s.c.From.Addr(), to.Addr(), raw)
}

// newClient returns the HTTP client for reports. It follows no redirects and keeps no connections.
func (s *Service) newClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            s.dial,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: s.c.RootCAs},
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxHeader,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// dial connects to the first address of a web server that answers. The guard checks each address.
func (s *Service) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if s.c.Port != 0 {
		port = strconv.Itoa(s.c.Port)
	}
	if net.ParseIP(host) != nil {
		return s.p.Guard.DialContext(ctx, network, net.JoinHostPort(host, port))
	}
	addrs, err := s.p.DNS.Addrs(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", host, err)
	}
	err = fmt.Errorf("%s has no address", host)
	for _, addr := range addrs[:min(len(addrs), maxAddrs)] {
		var conn net.Conn
		if conn, err = s.p.Guard.DialContext(ctx, network, net.JoinHostPort(addr.String(), port)); err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

// post sends a compressed report over HTTPS (RFC 8460 section 5.4).
func (s *Service) post(ctx context.Context, address string, packed []byte) error {
	ctx, cancel := context.WithTimeout(ctx, postTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(packed))
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "Postrider")
	req.Header.Set("Content-Type", tlsrpt.MediaTypeGzip)
	resp, err := s.client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the URL, which the log has anyway
		}
		return err
	}
	defer resp.Body.Close()
	// The status counts even if the body is incomplete.
	io.Copy(io.Discard, io.LimitReader(resp.Body, maxBody))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("the web server answered %d", resp.StatusCode)
	}
	return nil
}
