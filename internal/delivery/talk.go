package delivery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/domains"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpclient"
)

// answer is what came of talking to a destination's hosts.
type answer struct {
	host         string // name and address
	tls          string
	conversation string
	final        *smtpclient.Result // nil when no host came to hear the message
	unknown      bool               // a host may have taken the message, and did not say
	err          error              // why there is no result
	permanent    bool               // of err: waiting will not mend it
}

// hop is one address to try.
type hop struct {
	name string // of the host, for TLS
	addr string // with port
}

// errOurselves says that a destination's host is this one.
var errOurselves = errors.New("the host is this one: mail would loop")

// errPrivate says that a destination on the public network leads to a private one.
var errPrivate = errors.New("the domain's hosts have only private addresses")

// plan returns the addresses to try for a domain, best first.
func (s *Service) plan(ctx context.Context, domain string) ([]hop, error) {
	if s.Transport == Relay {
		return []hop{{hostOf(s.RelayAddr), s.RelayAddr}}, nil
	}
	hosts, err := resolve.Hosts(ctx, s.DNS, domain)
	if err != nil {
		return nil, err
	}
	var hops []hop
	var last error
	private := false
	for _, h := range hosts {
		if strings.EqualFold(h.Name, s.Hostname) {
			// Hosts that are preferred less than ourselves would send it back to us (RFC 5321 section 5.1).
			if last = errOurselves; len(hops) == 0 {
				return nil, last
			}
			break
		}
		addrs, err := s.DNS.Addrs(ctx, h.Name)
		if err != nil {
			last = fmt.Errorf("look up addresses of %s: %w", h.Name, err)
			continue
		}
		for _, a := range s.usable(addrs, &private) {
			hops = append(hops, hop{h.Name, netip.AddrPortFrom(a, uint16(s.SMTPPort)).String()})
		}
	}
	switch {
	case len(hops) > 0:
		return hops[:min(len(hops), maxHops)], nil
	case private:
		return nil, errPrivate
	}
	return nil, last
}

// maxHops bounds how many addresses one attempt tries.
const maxHops = 8

// usable are a host's addresses in the order in which to try them: IPv6 first where this host has it.
func (s *Service) usable(addrs []netip.Addr, private *bool) (all []netip.Addr) {
	for _, a := range addrs {
		a = a.Unmap()
		if !s.AllowPrivate && (!a.IsGlobalUnicast() || a.IsPrivate()) {
			*private = true
			continue
		}
		all = append(all, a)
	}
	v6 := hasIPv6()
	slices.SortStableFunc(all, func(a, b netip.Addr) int {
		if a.Is4() == b.Is4() {
			return 0
		}
		if a.Is4() == v6 {
			return 1
		}
		return -1
	})
	return all
}

// hasIPv6 reports whether this host has a route to IPv6 addresses. Connecting a UDP socket asks the kernel and sends nothing.
func hasIPv6() bool {
	c, err := net.Dial("udp6", "[2000::1]:25")
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// talk tries the hosts of a domain until one has heard the message.
func (s *Service) talk(ctx context.Context, domain string, env smtpclient.Envelope, tls string, msg [][]byte) answer {
	hops, err := s.plan(ctx, domain)
	if err != nil {
		definite := errors.Is(err, resolve.ErrNoDomain) || errors.Is(err, resolve.ErrNoHost) || errors.Is(err, resolve.ErrNullMX) ||
			errors.Is(err, errOurselves) || errors.Is(err, errPrivate)
		return answer{err: err, permanent: definite}
	}
	var a answer
	var told strings.Builder
	for _, h := range hops {
		a = s.say(ctx, h, env, s.mode(tls), msg)
		told.WriteString(a.conversation)
		if a.final != nil || a.unknown || ctx.Err() != nil {
			break
		}
	}
	a.conversation = told.String()
	return a
}

// mode is how a connection is to be secured.
func (s *Service) mode(tls string) smtpclient.TLSMode {
	switch {
	case s.Transport == Relay:
		return s.RelayTLS
	case tls == domains.Enforced:
		return smtpclient.TLSRequired
	}
	return smtpclient.TLSOpportunistic
}

// say sends the message over a kept connection to one address, or over a new one.
func (s *Service) say(ctx context.Context, h hop, env smtpclient.Envelope, mode smtpclient.TLSMode, msg [][]byte) answer {
	key := h.addr + "/" + strconv.Itoa(int(mode))
	a := answer{host: h.name + " [" + hostOf(h.addr) + "]"}
	for {
		c, kept, err := s.pool.get(ctx, key, func() (*smtpclient.Conn, error) { return s.dial(ctx, h, mode) })
		if err != nil {
			return a.broken(err)
		}
		result, err := c.Send(ctx, env, msg...)
		a.conversation, a.tls = c.Transcript(), describeTLS(c.TLSState())
		s.pool.put(key, c)
		if err == nil {
			a.final = &result
			return a
		}
		if e, ok := errors.AsType[*smtpclient.Error](err); ok && e.Stale && kept && ctx.Err() == nil {
			continue // the host had closed the kept connection; it heard nothing of this message
		}
		return a.broken(err)
	}
}

// broken is the answer when a conversation broke off.
func (a answer) broken(err error) answer {
	a.err = err
	if e, ok := errors.AsType[*smtpclient.Error](err); ok {
		a.unknown = e.Sent
		a.permanent = !e.Temporary && e.Reply != nil && e.Reply.Permanent()
		if e.Transcript != "" {
			a.conversation = e.Transcript
		}
	}
	if a.conversation == "" {
		a.conversation = err.Error() + "\n"
	}
	return a
}

// dial opens a connection. Where encryption is only a bonus and the handshake fails, a plain one must do.
func (s *Service) dial(ctx context.Context, h hop, mode smtpclient.TLSMode) (*smtpclient.Conn, error) {
	o := smtpclient.Options{Hello: s.Hostname, TLS: mode, ServerName: h.name, RootCAs: s.RootCAs, Timeouts: s.Timeouts}
	if s.Transport == Relay {
		o.Username, o.Password = s.RelayUsername, s.RelayPassword
	}
	if mode == smtpclient.TLSOpportunistic && s.pool.plainOnly(h.addr, time.Now()) {
		o.TLS = smtpclient.TLSNone
	}
	c, err := smtpclient.Dial(ctx, h.addr, o)
	if e, ok := errors.AsType[*smtpclient.Error](err); ok && e.RetryPlain && ctx.Err() == nil {
		s.pool.rememberPlain(h.addr, time.Now())
		o.TLS = smtpclient.TLSNone
		return smtpclient.Dial(ctx, h.addr, o)
	}
	return c, err
}

func describeTLS(t smtpclient.TLSState) string {
	if !t.On() {
		return ""
	}
	text := t.Version + " " + t.Cipher
	if t.Verified {
		return text + ", certificate verified"
	}
	return text + ", certificate not verified"
}
