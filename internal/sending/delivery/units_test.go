package delivery

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

// The answer for a recipient is the reply to the first SMTP command that the host refused.
func TestAnswerFor(t *testing.T) {
	t.Parallel()
	ok, go354 := smtpclient.Reply{Code: 250}, smtpclient.Reply{Code: 354}
	no := smtpclient.Reply{Code: 550, Text: "no"}
	for _, c := range []struct {
		name   string
		result smtpclient.Result
		want   [2]smtpclient.Stage
		reply  [2]int
	}{
		{"taken", smtpclient.Result{Mail: ok, Rcpt: []smtpclient.Reply{ok, ok}, Data: go354, Final: ok},
			[2]smtpclient.Stage{smtpclient.StageFinal, smtpclient.StageFinal}, [2]int{250, 250}},
		{"refused at the end", smtpclient.Result{Mail: ok, Rcpt: []smtpclient.Reply{ok, no}, Data: go354, Final: no},
			[2]smtpclient.Stage{smtpclient.StageFinal, smtpclient.StageRcpt}, [2]int{550, 550}},
		{"refused at MAIL", smtpclient.Result{Mail: no, Rcpt: []smtpclient.Reply{no, no}, Data: no},
			[2]smtpclient.Stage{smtpclient.StageMail, smtpclient.StageMail}, [2]int{550, 550}},
		{"refused at DATA", smtpclient.Result{Mail: ok, Rcpt: []smtpclient.Reply{ok, no}, Data: no},
			[2]smtpclient.Stage{smtpclient.StageData, smtpclient.StageRcpt}, [2]int{550, 550}},
		{"no answer to DATA", smtpclient.Result{Mail: ok, Rcpt: []smtpclient.Reply{ok, no}},
			[2]smtpclient.Stage{smtpclient.StageData, smtpclient.StageRcpt}, [2]int{451, 550}},
	} {
		for i := range c.want {
			a := answerFor(c.result, i)
			local := c.name == "no answer to DATA" && i == 0
			if a.stage != c.want[i] || a.reply.Code != c.reply[i] || a.unknown || a.reply.Local != local {
				t.Errorf("%s, recipient %d: %+v", c.name, i, a)
			}
		}
	}
}

// If a conversation fails, interrupt sets an answer for each recipient. The next host is tried only if the conversation
// failed before the RCPT commands were sent.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	cut, busy := errors.New("cut"), &smtpclient.Reply{Code: 421, Text: "busy"}
	odd := &smtpclient.Reply{Code: 220, Text: "what?"}
	for _, c := range []struct {
		name    string
		err     error
		stage   smtpclient.Stage
		reply   string
		unknown bool
		again   bool
	}{
		{"nobody there", &smtpclient.Error{Stage: smtpclient.StageConnect, Err: cut}, smtpclient.StageConnect, "451 4.4.1",
			false, true},
		{"another error", cut, smtpclient.StageConnect, "451 4.4.1", false, true},
		{"greeting", &smtpclient.Error{Stage: smtpclient.StageGreeting, Err: cut}, smtpclient.StageGreeting, "451 4.4.2",
			false, true},
		{"its own words", &smtpclient.Error{Stage: smtpclient.StageGreeting, Reply: busy}, smtpclient.StageGreeting,
			"421 busy", false, true},
		{"words that are no refusal", &smtpclient.Error{Stage: smtpclient.StageHello, Reply: odd}, smtpclient.StageHello,
			"451 4.4.2", false, true},
		{"no TLS", &smtpclient.Error{Stage: smtpclient.StageTLS, Err: smtpclient.ErrNoTLS}, smtpclient.StageTLS, "454 4.7.4",
			false, true},
		{"bad TLS", &smtpclient.Error{Stage: smtpclient.StageTLS, Err: cut}, smtpclient.StageTLS, "454 4.7.5", false, true},
		{"MAIL", &smtpclient.Error{Stage: smtpclient.StageMail, Err: cut}, smtpclient.StageMail, "451 4.4.2", false, true},
		{"password", &smtpclient.Error{Stage: smtpclient.StageAuth, Err: cut}, smtpclient.StageAuth, "454 4.7.8", false,
			false},
		{"RCPT", &smtpclient.Error{Stage: smtpclient.StageRcpt, Err: cut}, smtpclient.StageRcpt, "451 4.4.2", false, false},
		{"message", &smtpclient.Error{Stage: smtpclient.StageBody, Err: cut}, smtpclient.StageBody, "451 4.4.2", false,
			false},
		{"after the message", &smtpclient.Error{Stage: smtpclient.StageFinal, Sent: true, Err: cut}, smtpclient.StageFinal,
			"451 4.4.2", true, false},
	} {
		var out outcome
		_, again := out.interrupt(c.err, smtpclient.Envelope{To: []string{"a", "b"}}, smtpclient.Result{})
		if again != c.again || len(out.answers) != 2 || out.conversation == "" {
			t.Errorf("%s: again %v, %d answers, %q", c.name, again, len(out.answers), out.conversation)
		}
		for _, a := range out.answers {
			if a.stage != c.stage || !strings.HasPrefix(a.reply.String(), c.reply) || a.unknown != c.unknown {
				t.Errorf("%s: %+v", c.name, a)
			}
		}
	}
	// If some recipients were refused before the conversation failed, they keep their answer, and no other host is
	// tried.
	ok, no := smtpclient.Reply{Code: 250}, smtpclient.Reply{Code: 550}
	later := smtpclient.Reply{Code: 450}
	e := &smtpclient.Error{Stage: smtpclient.StageMail, Err: cut, Transcript: "what was said"}
	for _, c := range []struct {
		mail, rcpt smtpclient.Reply
		decided    bool
	}{{ok, no, true}, {no, no, false}, {ok, later, false}, {ok, ok, false}} {
		out := outcome{conversation: "before"}
		_, again := out.interrupt(e, smtpclient.Envelope{To: []string{"a"}}, smtpclient.Result{Mail: c.mail,
			Rcpt: []smtpclient.Reply{c.rcpt}})
		if again == c.decided || (out.answers[0].reply.Code == 550) != c.decided || out.conversation != "what was said" {
			t.Errorf("%d after %d: again %v, %+v, %q", c.rcpt.Code, c.mail.Code, again, out.answers, out.conversation)
		}
	}
}

// If no host can be tried, the answer is permanent if the reason is permanent; otherwise it is temporary.
func TestAnswerForPlanError(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]string{resolve.ErrNullMX: "556 5.1.10", resolve.ErrNoDomain: "550 5.1.2",
		resolve.ErrNoHost: "550 5.1.2",
		errOurselves:      "554 5.4.6", errPrivate: "550 5.4.4", resolve.ErrTemporary: "451 4.4.3",
		errors.New("x"): "451 4.4.3"} {
		a := answerForPlanError(fmt.Errorf("plan: %w", err))
		if !strings.HasPrefix(a.reply.String(), want+" plan: ") || a.stage != smtpclient.StageConnect || !a.reply.Local {
			t.Errorf("%v: %+v", err, a)
		}
	}
}

func TestDescribeTLS(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]smtpclient.TLSState{"": {}, "TLS 1.3 AES, certificate verified": {Version: "TLS 1.3",
		Cipher: "AES", Verified: true},
		"TLS 1.2 RC4, certificate not verified": {Version: "TLS 1.2", Cipher: "RC4"}} {
		if got := describeTLS(s); got != want {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
}

// A plan has at most maxHops addresses, at most maxPerHost addresses per host, and no forbidden addresses.
func TestPlanIsBounded(t *testing.T) {
	t.Parallel()
	many := func(third int) (all []netip.Addr) {
		for i := range 6 {
			all = append(all, netip.AddrFrom4([4]byte{1, 1, byte(third), byte(i + 1)}))
		}
		return all
	}
	dns := resolve.Fake{MXRecords: map[string][]resolve.MX{
		"many.net":    {{Host: "a.test", Pref: 10}, {Host: "b.test", Pref: 20}, {Host: "c.test", Pref: 30}},
		"private.net": {{Host: "private.test", Pref: 10}},
		"both.net":    {{Host: "private.test", Pref: 10}, {Host: "missing.test", Pref: 20}},
		"missing.net": {{Host: "missing.test", Pref: 10}},
		"us.net":      {{Host: "us.test", Pref: 10}, {Host: "a.test", Pref: 10}, {Host: "b.test", Pref: 20}},
	}, AddrRecords: map[string][]netip.Addr{"a.test": many(1), "b.test": many(2), "c.test": many(3), "us.test": many(4),
		"private.test": addrs("10.0.0.1", "192.168.1.1")}}
	for domain, want := range map[string]struct {
		hops int
		err  error
	}{"many.net": {maxHops, nil}, "private.net": {0, errPrivate}, "both.net": {0, errPrivate},
		"missing.net": {0, resolve.ErrNoHost},
		"us.net":      {0, errOurselves}} {
		s := newService(Config{Transport: Direct, OwnHosts: []string{"US.test"}}, Deps{DNS: dns})
		w, err := s.choose(t.Context(), domain, "", domains.Opportunistic, nil)
		if !errors.Is(err, want.err) || len(w.hops) != want.hops {
			t.Errorf("%s: %v, %v", domain, w.hops, err)
		}
		of := map[string]int{}
		for _, h := range w.hops {
			of[h.name]++
		}
		if domain == "many.net" && (of["a.test"] != maxPerHost || of["b.test"] != maxPerHost) {
			t.Errorf("of one host: %v", of)
		}
	}
}

// Among hosts with the same MX preference, hosts with an idle connection come first. Hosts that failed recently come
// last.
func TestPreference(t *testing.T) {
	t.Parallel()
	s := newService(Config{Transport: Direct}, Deps{})
	hops := []hop{{name: "a", addr: "a:25", pref: 10}, {name: "b", addr: "b:25", pref: 10},
		{name: "c", addr: "c:25", pref: 10},
		{name: "d", addr: "d:25", pref: 11}}
	s.hosts.claimDial("a:25", time.Now())
	s.hosts.endDial("a:25", noGreeting, answer{}, time.Now())
	for _, kept := range []string{"c:25", "d:25"} {
		k := poolKey{addr: kept}
		s.pool.idle[k] = []*pooledConn{{key: k}}
	}
	s.prefer(hops)
	got := ""
	for _, h := range hops {
		got += h.name
	}
	if got != "cbda" {
		t.Errorf("they are tried in the order %s", got)
	}
	two := []hop{{addr: "a:25"}, {addr: "b:25"}}
	if s.prefer(two); two[0].addr != "b:25" {
		t.Error("of two, the one that failed is tried first")
	}
}

// The result of the check for an IPv6 route is cached for one minute.
func TestRouteToIPv6IsRemembered(t *testing.T) {
	t.Parallel()
	s, now := newService(Config{}, Deps{}), time.Unix(1_800_000_000, 0)
	real := s.hasIPv6(now)
	for _, known := range []int64{-now.Unix(), now.Unix()} {
		s.ipv6.Store(known)
		if got := s.hasIPv6(now.Add(59 * time.Second)); got != (known > 0) {
			t.Errorf("what was known a minute ago is asked for again")
		}
		s.ipv6.Store(known)
		if got := s.hasIPv6(now.Add(time.Minute)); got != real || s.ipv6.Load() != known && s.ipv6.Load() == 0 {
			t.Errorf("what was known is never asked for again")
		}
		if at := s.ipv6.Load(); max(at, -at) != now.Add(time.Minute).Unix() || (at > 0) != real {
			t.Errorf("a route %v is remembered as %d", real, at)
		}
	}
}

// After a message is composed, reserved memory that is no longer needed is released if it is at least 1 MiB.
func TestMemoryIsGivenBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ size, parts, want int64 }{{3 << 20, 2 << 20, 2 << 20}, {3<<20 - 1, 2 << 20, 3<<20 - 1},
		{1 << 20, 2 << 20, 1 << 20}} {
		s := newService(Config{}, Deps{})
		if _, err := s.reserveMemory(t.Context(), "team", c.size); err != nil {
			t.Fatal(err)
		}
		msg := [][]byte{make([]byte, c.parts/2), make([]byte, c.parts/2)}
		if left := s.shrinkReservation("team", c.size, msg); left != c.want || s.memory.Held("team") != c.want {
			t.Errorf("of %d for a message of %d %d are kept, and %d held", c.size, c.parts, left, s.memory.Held("team"))
		}
	}
	s := newService(Config{}, Deps{})
	if size, err := s.reserveMemory(t.Context(), "team", memory+1); err != nil || size != memory {
		t.Errorf("a message larger than all memory takes %d, %v", size, err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if size, err := s.reserveMemory(gone, "other", 1); err == nil || size != 0 {
		t.Errorf("while there is no memory %d is taken, %v", size, err)
	}
}

// A job's group is its destination domain. Test addresses have a separate group. With the relay transport, all other
// mail is in one group.
func TestGroups(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ transport, domain, want string }{{Direct, "a.example", "a.example"},
		{Relay, "a.example", "relay relay"},
		{Capture, "a.example", Capture}, {Relay, "sandbox.example", "sandbox.example"}, {Capture, "sandbox.example",
			"sandbox.example"}} {
		s := newService(Config{Transport: c.transport, Relays: relays("relay:25"), SandboxDomains: []string{"sandbox.example"},
			LaneConnections: 3}, Deps{})
		if got := s.group(emails.Lane(c.domain, "team", false)); got != c.want {
			t.Errorf("%s to %s: %q", c.transport, c.domain, got)
		}
		nobody := c.transport == Capture || c.domain == "sandbox.example"
		if share := s.share(c.want, "team"); (share == jobs.Share{Most: prefetch * 3}) != nobody {
			t.Errorf("%s to %s: %+v", c.transport, c.domain, share)
		}
		for range 2 {
			s.shape.recordVerdicts(c.want, throttled, time.Second, time.Now())
		}
		if n, again := s.limit(c.want); again.IsZero() != nobody || nobody && n != 3 {
			t.Errorf("%s to %s: %d, again at %v", c.transport, c.domain, n, again)
		}
	}
}
