package gather

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/front/look"
	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/node/doctor"
	"github.com/postrider/postrider/internal/platform/probe"
)

// dialer connects to any address, because the operator has chosen the settings.
var dialer net.Dialer

// listener connects to a listener of this node from this machine.
func (c *collector) listener(ctx context.Context, setting, configured string, implicit bool) doctor.Listener {
	address := configured
	if c.Port != nil {
		if open := c.Port(setting); open != "" {
			address = open
		}
	}
	l := doctor.Listener{Setting: setting, Address: address}
	host, port, err := net.SplitHostPort(address)
	ip, errIP := netip.ParseAddr(host)
	switch {
	case err != nil || port == "0":
		l.Skipped = "The port of " + setting + " is not known."
		return l
	case host == "" || errIP == nil && ip.IsUnspecified():
		ip = netip.MustParseAddr("127.0.0.1")
	case errIP != nil:
		l.Talk = probe.TalkSMTP(ctx, dialer.DialContext, address, c.mail(implicit))
		return l
	}
	if slices.ContainsFunc(c.Config.SMTPProxyFrom, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		l.Skipped = "Connections from this machine to " + setting + " must begin with a PROXY header (smtp_proxy_from)."
		return l
	}
	l.Talk = probe.TalkSMTP(ctx, dialer.DialContext, net.JoinHostPort(ip.String(), port), c.mail(implicit))
	return l
}

// mail returns the settings of a conversation with this node.
func (c *collector) mail(implicit bool) probe.Mail {
	return probe.Mail{Hello: c.Config.Hostname, Host: c.Config.Hostname, Implicit: implicit, Roots: c.roots}
}

func (c *collector) has(role string) bool { return slices.Contains(c.Config.Roles, role) }

func (c *collector) inbound(ctx context.Context) {
	if c.has("receiving") {
		l := c.listener(ctx, "smtp_in_listen", c.Config.SMTPInListen, false)
		c.f.Inbound = &l
	}
}

func (c *collector) submission(ctx context.Context) {
	if !c.has("submission") {
		return
	}
	for _, x := range []struct {
		setting, address string
		implicit         bool
	}{{"smtp_submit_listen", c.Config.SMTPSubmitListen, false},
		{"smtp_submits_listen", c.Config.SMTPSubmitsListen, true}} {
		if x.address != "" {
			c.f.Submits = append(c.f.Submits, c.listener(ctx, x.setting, x.address, x.implicit))
		}
	}
}

// mailHosts looks up the hosts to which MX records lead, and connects to them.
func (c *collector) mailHosts(ctx context.Context) {
	if c.Config.Transport == "capture" && !c.has("receiving") {
		return
	}
	var hosts []doctor.MailHost
	add := func(setting, name string) {
		i := slices.IndexFunc(hosts, func(h doctor.MailHost) bool { return h.Name == name })
		switch {
		case name == "" || len(hosts) == hostsMax:
		case i < 0:
			hosts = append(hosts, doctor.MailHost{Setting: setting, Name: name})
		case !strings.Contains(hosts[i].Setting, setting):
			hosts[i].Setting += ", " + setting
		}
	}
	add("bounce_host", c.Config.BounceHost)
	add("inbound_host", c.Config.InboundHost)
	for _, r := range c.Config.Regions {
		add("bounce_host", r.BounceHost)
		add("inbound_host", r.InboundHost)
	}
	var all sync.WaitGroup
	for i := range hosts {
		all.Go(func() { c.mailHost(ctx, &hosts[i]) })
	}
	all.Wait()
	c.f.Mail = hosts
}

func (c *collector) mailHost(ctx context.Context, h *doctor.MailHost) {
	if alias, err := c.dns().CNAME(ctx, h.Name); err == nil {
		h.Alias = alias
	}
	addrs, err := c.dns().Addrs(ctx, h.Name)
	h.Err = err
	h.Talks = make([]doctor.Talk, min(len(addrs), addrsMax))
	var all sync.WaitGroup
	for i := range h.Talks {
		all.Go(func() {
			at := netip.AddrPortFrom(addrs[i], uint16(c.Config.SMTPPort)).String()
			h.Talks[i] = doctor.Talk{Addr: addrs[i], Local: c.isLocal(addrs[i]),
				Talk: probe.TalkSMTP(ctx, dialer.DialContext, at, probe.Mail{Hello: c.Config.Hostname, Host: h.Name,
					Roots: c.roots})}
		})
	}
	all.Wait()
}

// outgoing connects to the relays, and to the mail hosts of well-known domains.
func (c *collector) outgoing(ctx context.Context) {
	if !c.has("delivery") || c.Config.Transport == "capture" {
		return
	}
	c.relays(ctx)
	if c.Config.Transport != "direct" {
		return
	}
	results, sources := make([]doctor.Outgoing, len(c.Config.DoctorMailDomains)), &sourceAddr{}
	var all sync.WaitGroup
	for i, domain := range c.Config.DoctorMailDomains {
		all.Go(func() { results[i] = c.reach(ctx, domain, sources.dial) })
	}
	all.Wait()
	c.f.Outgoing = results
	local := sources.get()
	c.f.Source = &doctor.Source{Local: local, Public: local.IsValid() && c.Allowed(local)}
}

// relays tries to use all relays.
func (c *collector) relays(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, relayTime)
	defer cancel()
	all := c.Config.AllRelays()
	results := make([]doctor.Relay, len(all))
	var wait sync.WaitGroup
	for i, r := range all {
		wait.Go(func() {
			results[i] = doctor.Relay{Name: r.Name + " " + r.Address, Login: r.Username != ""}
			if err := c.Relay(ctx, r); err != nil {
				results[i].Problem = probe.Printable(err.Error())
			}
		})
	}
	wait.Wait()
	c.f.Relays = results
}

// sourceAddr remembers the address of this machine in connections to other machines.
type sourceAddr struct {
	mu   sync.Mutex
	addr netip.Addr
}

func (s *sourceAddr) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := dialer.DialContext(ctx, network, address)
	if err == nil {
		if at, ok := conn.LocalAddr().(*net.TCPAddr); ok {
			s.mu.Lock()
			defer s.mu.Unlock()
			if a := at.AddrPort().Addr().Unmap(); !s.addr.IsValid() || a.Is4() {
				s.addr = a
			}
		}
	}
	return conn, err
}

func (s *sourceAddr) get() netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// reach tries the mail hosts of a domain until one answers.
func (c *collector) reach(ctx context.Context, domain string, dial probe.Dial) doctor.Outgoing {
	o := doctor.Outgoing{Name: domain}
	hosts, err := resolve.Hosts(ctx, c.dns(), domain)
	if err != nil {
		o.Err = err
		return o
	}
	for _, h := range hosts[:min(len(hosts), 2)] {
		addrs, err := c.dns().Addrs(ctx, h.Name)
		if err != nil {
			o.Err = err
			continue
		}
		for _, a := range addrs[:min(len(addrs), 2)] {
			at := netip.AddrPortFrom(a, uint16(c.Config.SMTPPort)).String()
			t := probe.TalkSMTP(ctx, dial, at, probe.Mail{Hello: c.Config.Hostname, Host: h.Name, Roots: c.roots})
			o.Talks = append(o.Talks, t)
			if t.Reached && t.Greeting != "" {
				o.Err = nil
				return o
			}
		}
	}
	if len(o.Talks) > 0 {
		o.Err = nil
	}
	return o
}

// web requests the proof of this installation at public_url.
func (c *collector) web(ctx context.Context) {
	u, err := url.Parse(c.Config.PublicURL)
	if err != nil || !c.has("api") {
		return
	}
	w := &doctor.Web{}
	w.Addrs, w.Err = c.dns().Addrs(ctx, u.Hostname())
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		w.Addrs, w.Err = []netip.Addr{a}, nil
	}
	page, expect := c.proofPage()
	w.Answer = probe.Request(ctx, c.dialName, probe.Page{URL: page, Expect: expect, Roots: c.roots})
	c.f.Web = w
}

// proofPage returns the URL of a page that only this installation can answer, and the possible answers.
func (c *collector) proofPage() (page string, expect []string) {
	nonce := rand.Text()
	if c.Keys != nil {
		expect = Proof(c.Keys, nonce)
	}
	return c.Config.PublicURL + ProofPath + "?nonce=" + nonce, expect
}

// dialName connects to a host whose name the node's own resolver looks up.
func (c *collector) dialName(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if _, errIP := netip.ParseAddr(host); err != nil || errIP == nil || host == "localhost" {
		return dialer.DialContext(ctx, network, address)
	}
	addrs, err := c.dns().Addrs(ctx, host)
	if err != nil {
		return nil, &net.DNSError{Err: "no address", Name: host}
	}
	var last error
	for _, a := range addrs[:min(len(addrs), addrsMax)] {
		conn, err := dialer.DialContext(ctx, network, net.JoinHostPort(a.String(), port))
		if err == nil {
			return conn, nil
		}
		last = err
	}
	return nil, last
}

// requests lists the certificates of this installation.
func (c *collector) requests(ctx context.Context) {
	if c.Certificates == nil {
		return
	}
	all, err := c.Certificates(ctx)
	if err != nil {
		c.f.Requests = []doctor.CertificateRequest{{Names: []string{"settings"}, LastError: err.Error()}}
		return
	}
	for _, s := range all {
		if s.Own {
			c.f.Requests = append(c.f.Requests, doctor.CertificateRequest{Names: s.Names, LastError: s.LastError,
				Source: s.Source})
		}
	}
}

// clock compares the clock of this machine with those of the database and of a web server.
func (c *collector) clock(ctx context.Context) {
	k := &c.f.Clock
	if c.DB != nil {
		if offset, ok := c.DB.ClockOffset(); ok {
			k.Database = &offset
		}
	}
	k.URL = config.MaskURLs(c.Config.DoctorClockURL) // reports are printed, logged and sent to others
	// The certificate does not matter: with a wrong clock, it might seem to have expired.
	began := time.Now()
	w := probe.Request(ctx, c.dialName, probe.Page{URL: c.Config.DoctorClockURL, Method: http.MethodHead})
	half := time.Since(began) / 2
	switch {
	case !w.Reached:
		k.Problem = config.MaskURLs(w.Problem)
	case w.Date.IsZero():
		k.Problem = "its answer has no Date"
	default:
		// The header has whole seconds, which are cut off.
		offset := w.Date.Add(500 * time.Millisecond).Sub(began.Add(half))
		k.World = &offset
	}
}

// outside asks another installation to look.
func (c *collector) outside(ctx context.Context) {
	if c.From == nil {
		return
	}
	o := &doctor.Outside{From: c.From.URL}
	c.f.Outside = o
	answer, err := c.ask(ctx)
	if err != nil {
		o.Problem = err.Error()
		return
	}
	o.Client, _ = netip.ParseAddr(answer.Client)
	o.Mail, o.Addrs, o.Names = map[string][]probe.SMTP{}, map[string][]netip.Addr{}, map[netip.Addr][]string{}
	o.Silent = map[string]bool{}
	for _, n := range answer.Names {
		o.Silent[n.Name] = n.Failed
		for _, text := range n.Addresses {
			if a, err := netip.ParseAddr(text); err == nil {
				o.Addrs[n.Name] = append(o.Addrs[n.Name], a)
				o.Names[a] = n.Reverse[text]
			}
		}
	}
	for _, m := range answer.Mail {
		o.Mail[m.Name] = m.Talks
		o.Silent[m.Name] = o.Silent[m.Name] || m.Failed
	}
	o.Web = answer.Web
}

// ask sends the request to the other installation.
func (c *collector) ask(ctx context.Context) (a look.Answer, err error) {
	conf := c.Config
	in := look.Request{Names: []string{conf.Hostname}, Port: uint16(conf.SMTPPort)}
	if c.has("receiving") {
		in.Mail = slices.Compact(slices.Sorted(slices.Values([]string{conf.BounceHost, conf.InboundHost})))
	}
	if c.has("api") {
		in.URL, in.Expect = c.proofPage()
	}
	body, err := json.Marshal(in)
	if err != nil {
		return a, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(c.From.URL, "/")+look.Path,
		bytes.NewReader(body))
	if err != nil {
		return a, errors.New("the address is not a URL")
	}
	r.Header.Set("Authorization", "Bearer "+c.From.Key)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "Postrider-Doctor")
	client := http.Client{Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // the key is for this address only
	}, Transport: &http.Transport{DialContext: c.dialName, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: c.roots}}}
	answer, err := client.Do(r)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err
		}
		return a, fmt.Errorf("it cannot be reached: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return a, fmt.Errorf("its answer ended early: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		var e struct{ Message string }
		json.Unmarshal(text, &e)
		return a, errors.New("it answers " + strconv.Itoa(answer.StatusCode) + " " + probe.Printable(strings.TrimSuffix(
			e.Message, ".")))
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, errors.New("its answer is not that of this version of Postrider")
	}
	return a, nil
}

// dmarcSending reads what was counted today for DMARC reports.
func (c *collector) dmarcSending(ctx context.Context) {
	if c.DMARCSending != nil && c.DB != nil && c.DB.CheckProgram(ctx) == nil {
		c.f.DMARCSending = new(c.DMARCSending(ctx, c.DB.Reader))
	}
}

// tlsa compares TLSA records with certificates. It ignores errors, because other findings report their causes.
func (c *collector) tlsa(ctx context.Context) {
	if c.TLSA != nil {
		c.f.TLSA, _ = c.TLSA(ctx)
	}
}
