// Package look serves POST /doctor/look, with which another installation of Postrider asks how this one sees it: its
// addresses in the DNS, its mail hosts, and its public URL. The path is not part of the public API.
//
// # Invariants
//
// Only API keys with full access may ask; keys that may only send, users and connected apps may not. Connections lead
// only to public addresses (package netguard), to mail hosts at the ports in [MailPorts], and to web servers at those
// in [WebPorts]: a mail host that gets HTTP requests from a node may refuse its email afterwards. The conversations are
// fixed (package probe). Nothing that a server sends is returned, except for a greeting of a few printable words, names
// in certificates and PTR records, all shortened. Addresses of the node's own network, which its resolver may know, are
// not returned. Each request is recorded in the team's audit log before the first connection is made.
//
// The number of hosts in a request, the requests of a team per minute and the requests at a time are limited. A team has
// one request at a time, so it cannot keep others from asking.
//
// # Failures
//
// A refused request gets an error of the API. The answer names the hosts that could not be reached.
//
// # Out of scope
//
// The package does not judge what it sees; the command doctor of the asking installation does.
package look

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/platform/probe"
)

// Path is the path of the operation.
const Path = "/doctor/look"

// MailPorts are the ports at which the operation talks to mail hosts, and WebPorts those at which it requests pages.
var (
	MailPorts = []uint16{25, 465, 587}
	WebPorts  = []uint16{80, 443}
)

// Limits of requests.
const (
	HostsMax   = 10 // names, and mail hosts, of a request
	bodyMax    = 8 << 10
	addrsMax   = 4 // addresses of a host to which the operation connects
	recordsMax = 20
	perMinute  = 6 // requests of a team
	atOnce     = 4 // requests of all teams
	timeMax    = 45 * time.Second
)

// Request says what the operation looks at.
type Request struct {
	Names []string `json:"names"` // names whose addresses are looked up
	Mail  []string `json:"mail"`  // names of mail hosts
	Port  uint16   `json:"port"`  // of the mail hosts; 0 means 25
	URL   string   `json:"url"`   // "" for none
	// Expect lists the bodies of which the page at URL should have one.
	Expect []string `json:"expect"`
}

// Answer is what the operation saw.
type Answer struct {
	Client string     `json:"client"` // address from which the request came
	Names  []Name     `json:"names"`
	Mail   []MailHost `json:"mail"`
	Web    *probe.Web `json:"web,omitempty"`
}

// Name is what the DNS says of a name.
type Name struct {
	Name      string              `json:"name"`
	Addresses []string            `json:"addresses"`
	Reverse   map[string][]string `json:"reverse"`          // names in the PTR records of the addresses
	Failed    bool                `json:"failed,omitempty"` // a question got no answer
}

// MailHost is what a mail host says at each of its addresses.
type MailHost struct {
	Name   string       `json:"name"`
	Talks  []probe.SMTP `json:"talks"`
	Failed bool         `json:"failed,omitempty"` // the question about its addresses got no answer
}

// Options are the dependencies of the operation.
type Options struct {
	// Authenticate returns the actor of a request, or sends an error response and returns false.
	Authenticate func(w http.ResponseWriter, r *http.Request, path string) (context.Context, teams.Actor, bool)
	Audit        *audit.Log
	Guard        *netguard.Guard
	DNS          resolve.Resolver
	Hostname     string         // name in EHLO
	Roots        *x509.CertPool // nil means those of the system
	// AnyLoopbackPort allows all ports of loopback addresses, if the guard allows these addresses. It is for tests.
	AnyLoopbackPort bool
	Log             *slog.Logger
	Now             func() time.Time // nil means time.Now
}

// Handler serves the operation.
type Handler struct {
	o     Options
	slots chan struct{}

	mu    sync.Mutex
	asked map[string][]time.Time // times of each team's requests in the last minute
	busy  map[string]bool        // teams with a request in progress
}

// New returns the handler.
func New(o Options) *Handler {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Handler{o: o, slots: make(chan struct{}, atOnce), asked: map[string][]time.Time{},
		busy: map[string]bool{}}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		wire.WriteError(w, fault.NotFoundf("Send a POST request to this path."))
		return
	}
	ctx, by, ok := h.o.Authenticate(w, r, Path)
	if !ok {
		return
	}
	answer, err := h.look(ctx, w, r, &by)
	if err != nil {
		e, known := errors.AsType[*fault.Error](err)
		if !known {
			h.o.Log.Error("a request to look at another installation failed", "error", err)
			e = fault.New(fault.Internal, "", "")
		}
		wire.WriteError(w, e)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	json.NewEncoder(w).Encode(answer)
}

func (h *Handler) look(ctx context.Context, w http.ResponseWriter, r *http.Request, by *teams.Actor) (*Answer, error) {
	if by.Kind != teams.KeyActor || !by.Scopes.Has(teams.KeysWrite) {
		return nil, fault.New(fault.Restricted, "", "This needs an API key with full access.")
	}
	in, err := h.read(w, r)
	if err != nil {
		return nil, err
	}
	if err := h.admit(by.TeamID); err != nil {
		return nil, err
	}
	defer h.done(by.TeamID)
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		return nil, fault.New(fault.Unavailable, "", "Too many others are asking at the moment. Try again in a minute.")
	}
	client := clientOf(r)
	if err := h.o.Audit.Write(ctx, audit.Entry{TeamID: by.TeamID, ActorKind: string(by.Kind), ActorID: by.ID,
		ActorName: by.Name, Action: audit.DoctorLooked, Detail: in.describe(), Address: client,
		UserAgent: r.UserAgent()}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeMax)
	defer cancel()
	return h.see(ctx, in, client), nil
}

// read reads and checks the request.
func (h *Handler) read(w http.ResponseWriter, r *http.Request) (in Request, err error) {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, bodyMax))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return in, fault.New(fault.Malformed, "", "The body must be JSON with names, mail, port, url and expect.")
	}
	in.Port = cmp.Or(in.Port, 25)
	if len(in.Names) > HostsMax || len(in.Mail) > HostsMax || len(in.Expect) > HostsMax {
		return in, fault.Invalidf("names", "The lists may have at most %d members.", HostsMax)
	}
	for _, name := range slices.Concat(in.Names, in.Mail) {
		if _, err := netip.ParseAddr(name); err == nil || !strings.Contains(name, ".") || len(name) > 253 {
			return in, fault.Invalidf("names", "The name %q must be a full host name.", probe.Printable(name))
		}
	}
	if !h.o.AnyLoopbackPort && !slices.Contains(MailPorts, in.Port) {
		return in, fault.Invalidf("port", "The port must be one of %s.", portList(MailPorts))
	}
	if in.URL == "" {
		return in, nil
	}
	u, err := h.o.Guard.CheckURL(in.URL)
	if err != nil {
		return in, fault.Invalidf("url", "The `url` field %s.", err)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	if n, _ := strconv.ParseUint(port, 10, 16); !h.o.AnyLoopbackPort && !slices.Contains(WebPorts, uint16(n)) {
		return in, fault.Invalidf("url", "The port in `url` must be one of %s.", portList(WebPorts))
	}
	return in, nil
}

func portList(ports []uint16) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ports)), ", "), "[]")
}

// describe returns the request for the audit log.
func (r *Request) describe() string {
	return fmt.Sprintf("names %s; mail hosts %s at port %d; %s", strings.Join(r.Names, " "), strings.Join(r.Mail, " "),
		r.Port, r.URL)
}

// admit counts a request of a team, and returns an error if the team may not make it now. Without an error, the caller
// must call done.
func (h *Handler) admit(teamID string) error {
	now := h.o.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, all := range h.asked {
		all = slices.DeleteFunc(all, func(t time.Time) bool { return now.Sub(t) >= time.Minute })
		if h.asked[id] = all; len(all) == 0 {
			delete(h.asked, id)
		}
	}
	switch {
	case h.busy[teamID]:
		return fault.New(fault.TooFast, "", "Your team has a request in progress. Wait for its answer.")
	case len(h.asked[teamID]) >= perMinute:
		return fault.New(fault.TooFast, "", "Your team may ask %d times a minute. Wait a minute.", perMinute)
	}
	h.asked[teamID], h.busy[teamID] = append(h.asked[teamID], now), true
	return nil
}

// done ends a request that was admitted.
func (h *Handler) done(teamID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.busy, teamID)
}

func clientOf(r *http.Request) string {
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return at.Addr().Unmap().WithZone("").String()
	}
	return ""
}

// see looks at everything at the same time.
func (h *Handler) see(ctx context.Context, in Request, client string) *Answer {
	a := &Answer{Client: client, Names: make([]Name, len(in.Names)), Mail: make([]MailHost, len(in.Mail))}
	var all sync.WaitGroup
	for i, name := range in.Names {
		all.Go(func() { a.Names[i] = h.lookUp(ctx, name) })
	}
	for i, name := range in.Mail {
		all.Go(func() { a.Mail[i] = h.talk(ctx, name, in.Port) })
	}
	if in.URL != "" {
		all.Go(func() {
			w := probe.Request(ctx, h.dialWeb, probe.Page{URL: in.URL, Expect: in.Expect, Roots: h.o.Roots})
			a.Web = &w
		})
	}
	all.Wait()
	return a
}

// errNotPublic hides the address, because the node's resolver may know addresses that are not in the public DNS.
var errNotPublic = errors.New("the address is not public")

// dialMail connects to the address of a mail host.
func (h *Handler) dialMail(ctx context.Context, network, address string) (net.Conn, error) {
	return h.dial(ctx, network, address, MailPorts)
}

// dial connects to an address if it is public and the port is one of ports.
func (h *Handler) dial(ctx context.Context, network, address string, ports []uint16) (net.Conn, error) {
	if to, err := netip.ParseAddrPort(address); err == nil && !h.o.Guard.Allowed(to.Addr()) {
		return nil, errNotPublic
	}
	return h.o.Guard.DialAdmitted(ctx, network, address, func(to netip.AddrPort) error {
		if slices.Contains(ports, to.Port()) || h.o.AnyLoopbackPort && to.Addr().Unmap().IsLoopback() {
			return nil
		}
		return fmt.Errorf("%w: port %d is not one of %s", netguard.ErrRefused, to.Port(), portList(ports))
	})
}

// dialWeb connects to a web server, whose name the node's own resolver looks up.
func (h *Handler) dialWeb(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return h.dial(ctx, network, address, WebPorts)
	}
	addrs, err := h.o.DNS.Addrs(ctx, host)
	if err != nil {
		return nil, &net.DNSError{Err: "no address", Name: host}
	}
	var last error
	for _, a := range addrs[:min(len(addrs), addrsMax)] {
		c, err := h.dial(ctx, network, net.JoinHostPort(a.String(), port), WebPorts)
		if err == nil {
			return c, nil
		}
		last = err
	}
	return nil, last
}

// talk talks to a mail host at each of its first addresses.
func (h *Handler) talk(ctx context.Context, name string, port uint16) MailHost {
	m := MailHost{Name: name, Talks: []probe.SMTP{}}
	addrs, err := h.o.DNS.Addrs(ctx, name)
	if err != nil {
		m.Failed = fault.IsOutage(err)
		return m
	}
	m.Talks = make([]probe.SMTP, min(len(addrs), addrsMax))
	var all sync.WaitGroup
	for i := range m.Talks {
		all.Go(func() {
			at := netip.AddrPortFrom(addrs[i], port).String()
			m.Talks[i] = probe.TalkSMTP(ctx, h.dialMail, at, probe.Mail{Hello: h.o.Hostname, Host: name,
				Implicit: port == 465, Roots: h.o.Roots})
			if !h.o.Guard.Allowed(addrs[i]) {
				m.Talks[i].Address = ""
			}
		})
	}
	all.Wait()
	return m
}

// lookUp asks the DNS for the public addresses of a name, and for their names. Other records are not looked up: the
// node's resolver may know records that are not in the public DNS.
func (h *Handler) lookUp(ctx context.Context, name string) Name {
	n := Name{Name: name, Addresses: []string{}, Reverse: map[string][]string{}}
	note := func(err error) { n.Failed = n.Failed || err != nil && fault.IsOutage(err) }
	addrs, err := h.o.DNS.Addrs(ctx, name)
	note(err)
	for _, a := range addrs[:min(len(addrs), recordsMax)] {
		if !h.o.Guard.Allowed(a) {
			continue
		}
		n.Addresses = append(n.Addresses, a.String())
		names, err := h.o.DNS.PTR(ctx, a)
		note(err)
		for _, x := range names[:min(len(names), recordsMax)] {
			n.Reverse[a.String()] = append(n.Reverse[a.String()], probe.Printable(x))
		}
	}
	return n
}
