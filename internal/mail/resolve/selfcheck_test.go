package resolve_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/resolve"
)

type handler = func(*nameserver, dns.ResponseWriter, *dns.Msg)

// switched returns a handler that a test can replace.
func switched(first handler) (answer handler, change func(handler)) {
	var now atomic.Pointer[handler]
	now.Store(&first)
	return func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) { (*now.Load())(n, w, q) },
		func(next handler) { now.Store(&next) }
}

func TestBelieves(t *testing.T) {
	t.Parallel()
	validating, plain, missing := serve(t, signed(zone())), serve(t, rootZone), serve(t, zone())
	failing, dead := serve(t, rcode(dns.RcodeServerFailure)), serve(t, silence)
	believed := resolve.Belief{Server: validating.addr, MayBelieve: true, Authentic: true, Believed: true}
	for _, c := range []struct {
		servers []string
		works   bool
		want    []resolve.Belief
	}{
		{[]string{validating.addr}, true, []resolve.Belief{believed}},
		{[]string{plain.addr}, false, []resolve.Belief{{Server: plain.addr, MayBelieve: true}}},
		{[]string{missing.addr}, false, []resolve.Belief{{Server: missing.addr, MayBelieve: true}}},
		{[]string{elsewhere(validating)}, false, []resolve.Belief{{Server: elsewhere(validating), Authentic: true}}},
		{[]string{failing.addr, validating.addr}, true, []resolve.Belief{{Server: failing.addr, MayBelieve: true,
			Err: cmpopts.AnyError}, believed}},
	} {
		r, err := resolve.NewDNS(c.servers)
		if err != nil {
			t.Fatal(err)
		}
		works, got := r.Believes(t.Context())
		if diff := cmp.Diff(c.want, got, cmpopts.EquateErrors()); works != c.works || diff != "" {
			t.Errorf("%v: works: %v (-want +got):\n%s", c.servers, works, diff)
		}
	}
	if works, got := resolver(t, dead).Believes(t.Context()); works || got[0].Err == nil {
		t.Errorf("%v, %+v", works, got)
	}
}

// The self-check asks for the zone that is named in place of the root zone.
func TestBelievesByAnotherZone(t *testing.T) {
	t.Parallel()
	answer := zone(`lab.test. 300 IN SOA a.lab.test. b.lab.test. 1 2 3 4 5`, `lab.test. 300 IN MX 1 mx.lab.test.`)
	r := resolver(t, serve(t, func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) { answer(n, marking{w, q, nil}, q) }))
	r.SignedZone = "Lab.test."
	a, err := r.MXSecure(t.Context(), "lab.test")
	if err != nil || !a.Secure {
		t.Errorf("%+v, %v", a, err)
	}
}

// If several servers were named as validating, only those that passed the self-check are believed, although all
// mark their answers. Those that failed it are not asked.
func TestBeliefNeedsTheSelfCheck(t *testing.T) {
	t.Parallel()
	// The liar marks each answer, but not the one about the root zone.
	liar := serve(t, func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
		if q.Question[0].Name == "." {
			rootZone(n, w, q)
			return
		}
		zone(`example.com. 300 IN MX 10 evil.test.`)(n, marking{w, q, nil}, q)
	})
	good := serve(t, signed(secureZone))
	for _, check := range []bool{false, true} {
		r := resolver(t, liar, good)
		if check {
			if works, got := r.Believes(t.Context()); !works || got[0].Believed || got[0].Authentic || !got[1].Believed {
				t.Errorf("%v, %+v", works, got)
			}
		}
		a, err := r.MXSecure(t.Context(), "example.com")
		if err != nil || !a.Secure || a.Records[0].Host != "mx.example.com" {
			t.Errorf("%+v, %v", a, err)
		}
	}
	a, err := resolver(t, liar).MXSecure(t.Context(), "example.com")
	if err != nil || a.Secure {
		t.Errorf("the liar alone: %+v, %v", a, err)
	}
}

// A server that stops validating is not believed after the next self-check. Answers that were secure before are
// counted. A server that gives no answer to the check stays believed, so that its other answers cannot be downgraded.
func TestBeliefIsLost(t *testing.T) {
	t.Parallel()
	answer, change := switched(signed(secureZone))
	server := serve(t, answer)
	r := resolver(t, server)
	expect := func(when string, secure bool, lapsed uint64) {
		t.Helper()
		a, err := r.MXSecure(t.Context(), "example.com")
		if n := r.Counts().Lapsed; err != nil || a.Secure != secure || n != lapsed {
			t.Errorf("%s: %+v, %v; %d lapsed, want %d", when, a, err, n, lapsed)
		}
	}
	expect("validating", true, 0)
	change(func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
		if q.Question[0].Name == "." {
			rcode(dns.RcodeServerFailure)(n, w, q)
			return
		}
		signed(secureZone)(n, w, q)
	})
	if works, got := r.Believes(t.Context()); works || got[0].Err == nil || !got[0].Believed || got[0].Lost {
		t.Errorf("no answer: %v, %+v", works, got)
	}
	expect("no answer to the check", true, 0)
	change(func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
		if q.Question[0].Name == "." {
			rootZone(n, w, q)
			return
		}
		signed(secureZone)(n, w, q)
	})
	expect("before the check", true, 0)
	if works, got := r.Believes(t.Context()); works || !got[0].Lost || got[0].Believed {
		t.Errorf("not validating: %v, %+v", works, got)
	}
	if works, got := r.Believes(t.Context()); works || got[0].Lost || got[0].Believed {
		t.Errorf("not validating any more: %v, %+v", works, got)
	}
	expect("not validating", false, 1)
	expect("not validating", false, 1)
	change(signed(secureZone))
	expect("before the next check", false, 1)
	if works, _ := r.Believes(t.Context()); !works {
		t.Error("a server that validates again is not believed")
	}
	expect("validating again", true, 1)
}

// While it is unknown whether a named server validates, its marked answers are neither secure nor insecure.
func TestUncheckedServer(t *testing.T) {
	t.Parallel()
	answer, change := switched(func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
		if q.Question[0].Name == "." {
			rcode(dns.RcodeRefused)(n, w, q)
			return
		}
		signed(secureZone, "plain.test.")(n, w, q)
	})
	server := serve(t, answer)
	r, err := resolve.NewDNS([]string{server.addr}, server.addr)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := r.MXSecure(t.Context(), "example.com"); !errors.Is(err, resolve.ErrTemporary) || !fault.IsOutage(err) {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := r.TLSA(t.Context(), "_25._tcp.example.com"); !errors.Is(err, resolve.ErrTemporary) {
		t.Errorf("an absence: %v", err)
	}
	if a, err := r.MXSecure(t.Context(), "plain.test"); err != nil || a.Secure {
		t.Errorf("an insecure answer: %+v, %v", a, err)
	}
	if _, err := r.MX(t.Context(), "example.com"); err != nil {
		t.Errorf("another look-up: %v", err)
	}
	change(signed(secureZone))
	if a, err := r.MXSecure(t.Context(), "example.com"); err != nil || !a.Secure {
		t.Errorf("the server answers the check: %+v, %v", a, err)
	}
}

// A validating server with a wrong clock finds the signatures of every signed zone wrong. That is an outage of ours and
// no verdict about the domain, although unsigned domains are found.
func TestWrongClock(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]handler{
		"extended error": func(_ *nameserver, w dns.ResponseWriter, q *dns.Msg) {
			m := new(dns.Msg).SetRcode(q, dns.RcodeServerFailure)
			m.SetEdns0(1232, false)
			m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeSignatureExpired}}
			w.WriteMsg(m)
		},
		"failure unless unchecked": func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
			if !q.CheckingDisabled {
				rcode(dns.RcodeServerFailure)(n, w, q)
			} else if q.Question[0].Name == "." {
				rootZone(n, w, q)
			} else {
				secureZone(n, w, q)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var clockIsWrong atomic.Bool
			r := resolver(t, serve(t, func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
				if clockIsWrong.Load() && !strings.HasSuffix(q.Question[0].Name, "plain.test.") {
					wrong(n, w, q)
					return
				}
				signed(secureZone, "plain.test.")(n, w, q)
			}))
			for _, name := range []string{"example.com", "plain.test"} {
				if _, err := r.MXSecure(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			}
			clockIsWrong.Store(true)
			_, err := r.TLSA(t.Context(), "_25._tcp.mx.example.com")
			if !errors.Is(err, resolve.ErrNoServer) || !fault.IsOutage(err) || errors.Is(err, resolve.ErrBogus) ||
				!errors.Is(err, resolve.ErrTemporary) || !strings.Contains(err.Error(), "check its clock") {
				t.Errorf("error %v", err)
			}
			if _, err := r.MXSecure(t.Context(), "plain.test"); err != nil {
				t.Error(err)
			}
			if works, got := r.Believes(t.Context()); works || !errors.Is(got[0].Err, resolve.ErrBogus) || got[0].Lost {
				t.Errorf("the self-check: %v, %+v", works, got)
			}
			clockIsWrong.Store(false)
			if a, err := r.TLSA(t.Context(), "_25._tcp.mx.example.com"); err != nil || !a.Secure {
				t.Errorf("the clock is right again: %+v, %v", a, err)
			}
		})
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	r := resolver(t, serve(t, withRoot(func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
		if q.Question[0].Name == "bogus.test." && !q.CheckingDisabled || q.Question[0].Name == "broken.test." {
			rcode(dns.RcodeServerFailure)(n, w, q)
			return
		}
		signed(secureZone, "plain.test.")(n, w, q)
	})))
	r.MXSecure(t.Context(), "example.com")
	r.MXSecure(t.Context(), "plain.test")
	r.MXSecure(t.Context(), "no.plain.test")
	r.AddrsSecure(t.Context(), "no.example.com")
	r.TLSA(t.Context(), "bogus.test")
	r.TLSA(t.Context(), "broken.test")
	r.MX(t.Context(), "example.com")
	want := resolve.Counts{Secure: 1, Absent: 1, Insecure: 2, Bogus: 1, Failed: 1}
	if diff := cmp.Diff(want, r.Counts()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Failed look-ups of TLSA records and of an alias are cached, so that not each email to the host pays for them.
// Failures of other look-ups are not cached.
func TestCachedKeepsFailuresOfHostTLSA(t *testing.T) {
	t.Parallel()
	answer, change := switched(withRoot(rcode(dns.RcodeServerFailure)))
	server := serve(t, answer)
	c := resolve.NewCached(resolver(t, server), 10)
	for range 3 {
		if _, err := c.TLSA(t.Context(), "_25._tcp.mx.test"); !errors.Is(err, resolve.ErrTemporary) {
			t.Errorf("error %v", err)
		}
		if _, err := c.CNAMESecure(t.Context(), "mx.test"); !errors.Is(err, resolve.ErrTemporary) {
			t.Errorf("error %v", err)
		}
	}
	if n := server.udp.Load(); n != 8 { // in two rounds, with a query without validation each
		t.Errorf("%d queries, want 8", n)
	}
	if _, err := c.MXSecure(t.Context(), "example.com"); !errors.Is(err, resolve.ErrTemporary) {
		t.Errorf("error %v", err)
	}
	change(signed(secureZone))
	if a, err := c.MXSecure(t.Context(), "example.com"); err != nil || !a.Secure {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := c.TLSA(t.Context(), "_25._tcp.mx.test"); !errors.Is(err, resolve.ErrTemporary) {
		t.Errorf("error %v", err)
	}
}

// A failure of our own servers is not cached.
func TestCachedForgetsOutages(t *testing.T) {
	t.Parallel()
	answer, change := switched(signed(secureZone))
	r := resolver(t, serve(t, answer))
	c := resolve.NewCached(r, 10)
	if _, err := c.MXSecure(t.Context(), "plain.test"); err != nil {
		t.Fatal(err)
	}
	change(rcode(dns.RcodeServerFailure))
	if _, err := c.TLSA(t.Context(), "_25._tcp.mx.example.com"); !errors.Is(err, resolve.ErrNoServer) {
		t.Errorf("error %v", err)
	}
	change(signed(secureZone))
	if a, err := c.TLSA(t.Context(), "_25._tcp.mx.example.com"); err != nil || !a.Secure {
		t.Errorf("%+v, %v", a, err)
	}
}

// Servers that cannot authenticate anything do not stand in the way of mail: secure look-ups then ask all servers, and
// find insecure answers. A server that was named as a validating one and does not answer stops the mail, because
// somebody could silence it.
func TestWithoutSecureAnswers(t *testing.T) {
	t.Parallel()
	mx := zone("a.example. 60 IN MX 10 mx.a.example.")
	plain, other, dead := serve(t, withRoot(mx)), serve(t, mx), serve(t, silence)
	for name, c := range map[string]struct {
		servers, validating []string
		answered            bool
	}{
		"a local server without validation, which stops": {servers: []string{dead.addr, elsewhere(other)}, answered: true},
		"a named server without validation": {servers: []string{elsewhere(other)}, validating: []string{plain.addr},
			answered: true},
		"a named server that does not answer": {servers: []string{elsewhere(other)}, validating: []string{dead.addr}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := resolve.NewDNS(c.servers, c.validating...)
			if err != nil {
				t.Fatal(err)
			}
			a, err := r.MXSecure(t.Context(), "a.example")
			if (err == nil) != c.answered || a.Secure || c.answered && len(a.Records) != 1 {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
}

// The DNS server in containers of Docker passes on what others say.
func TestForwarderIsNotBelieved(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]bool{"127.0.0.11:53": false, "127.0.0.53:53": true, "[::1]:53": true,
		"192.0.2.1:53": false} {
		r, err := resolve.NewDNS([]string{addr})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.MayBelieve(); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
	if r, err := resolve.NewDNS(nil, "127.0.0.11:53"); err == nil && !r.MayBelieve() {
		t.Error("a server that the operator named is not believed")
	}
}

// Some servers drop questions about types that they do not know. Mail to signed domains would wait for them, so a
// server that nobody named is not believed then, and a named one is reported.
func TestServerWithoutTLSA(t *testing.T) {
	t.Parallel()
	server := serve(t, func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
		if q.Question[0].Qtype == dns.TypeTLSA {
			rcode(dns.RcodeNotImplemented)(n, w, q)
			return
		}
		signed(secureZone)(n, w, q)
	})
	r := resolver(t, server)
	if works, got := r.Believes(t.Context()); works || got[0].Err == nil || got[0].Believed {
		t.Errorf("%v, %+v", works, got)
	}
	if a, err := r.MXSecure(t.Context(), "example.com"); err != nil || a.Secure {
		t.Errorf("%+v, %v", a, err)
	}
	named, err := resolve.NewDNS([]string{server.addr}, server.addr)
	if err != nil {
		t.Fatal(err)
	}
	if works, got := named.Believes(t.Context()); works || got[0].Err == nil {
		t.Errorf("named: %v, %+v", works, got)
	}
	if _, err := named.MXSecure(t.Context(), "example.com"); !fault.IsOutage(err) {
		t.Errorf("named: %v", err)
	}
}

// A failure because of a slow name server is not taken for wrong signatures, although the late answer is then in the
// cache of the server. A server that does not validate finds no wrong signatures at all.
func TestSlowNameServer(t *testing.T) {
	t.Parallel()
	for name, validating := range map[string]bool{"validating": true, "not validating": false} {
		var asked atomic.Int32
		zone := secureZone
		if validating {
			zone = signed(secureZone)
		} else {
			zone = withRoot(secureZone)
		}
		r := resolver(t, serve(t, func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
			if q.Question[0].Qtype == dns.TypeMX && asked.Add(1) == 1 {
				rcode(dns.RcodeServerFailure)(n, w, q)
				return
			}
			zone(n, w, q)
		}))
		if a, err := r.MXSecure(t.Context(), "example.com"); err != nil || a.Secure != validating {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
}

// The operator's other DNS servers may know names that exist only in their network. The servers that were named as
// validating ones do not hide them, unless they prove that the names do not exist.
func TestNamesOfThePrivateNetwork(t *testing.T) {
	t.Parallel()
	private := serve(t, zone("partner.example. 60 IN MX 10 mx.partner.example.", "mx.partner.example. 60 IN A 192.0.2.1"))
	for name, absent := range map[string]handler{"insecure": withRootSigned(zone()), "proven": signed(zone())} {
		public := serve(t, absent)
		r, err := resolve.NewDNS([]string{private.addr}, public.addr)
		if err != nil {
			t.Fatal(err)
		}
		a, err := r.MXSecure(t.Context(), "partner.example")
		found, addrErr := r.AddrsSecure(t.Context(), "mx.partner.example")
		if known := name == "insecure"; (err == nil) != known || (addrErr == nil) != known || a.Secure || found.Secure {
			t.Errorf("%s: %+v, %v; %+v, %v", name, a, err, found, addrErr)
		}
	}
}

// withRootSigned returns a handler that passes the self-check and marks no other answer as authenticated.
func withRootSigned(answer handler) handler {
	return func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
		if q.Question[0].Name == "." {
			signed(answer)(n, w, q)
			return
		}
		answer(n, w, q)
	}
}
