package delivery

import (
	"net/netip"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/sending/evidence"
)

// trouble returns the facts that are recorded only for an attempt that did not go well. They come from the memory of
// this node, so that they cost neither a statement nor a look-up.
func (s *Service) trouble(t *try, out outcome, deciding answer) *evidence.Trouble {
	return &evidence.Trouble{Route: s.routeOf(t), Peer: peerOf(out.link.tls), PTR: s.reverse.of(out.link.source),
		Same: s.answers.count(s.answerKey(t, out, deciding), t.job.TeamID, s.shape.now())}
}

// routeOf describes the hosts of a try's destination, with the addresses that were candidates.
func (s *Service) routeOf(t *try) (r evidence.Route) {
	if kept, ok := s.p.DNS.(interface{ MXKept(string) time.Duration }); ok {
		r.Kept = kept.MXKept(t.d.Domain)
	}
	for _, h := range t.route.seen.hosts {
		r.Implicit = r.Implicit || h.Implicit
		x := evidence.Host{Name: h.Name, Pref: h.Pref, Skipped: t.route.seen.skipped[h.Name]}
		for i, to := range t.route.hops {
			if ip, err := netip.ParseAddr(hostOf(to.addr)); err == nil && to.name == h.Name {
				x.Addrs = append(x.Addrs, evidence.Addr{IP: ip, Tried: i < t.route.next})
			}
		}
		r.Hosts = append(r.Hosts, x)
	}
	return r
}

func peerOf(s smtpclient.TLSState) evidence.Peer {
	c := s.Cert
	return evidence.Peer{Names: c.Names, More: c.More, Issuer: c.Issuer, Expires: c.Expires, Problem: s.Problem}
}

// answerKey returns what attempts have in common that got the same kind of answer: the provider, or else the host or
// the destination, and the class of the answer. The text of an answer is not part of it, because it contains ids.
func (s *Service) answerKey(t *try, out outcome, a answer) string {
	who := t.d.Domain
	if host, _, _ := strings.Cut(out.host, " "); host != "" {
		who = strings.ToLower(host)
	}
	if p := t.seen.Provider; p != evidence.NotRecorded && p != evidence.Other {
		who = p.String()
	}
	kind := "final"
	if !a.reply.Permanent() {
		kind = "temporary"
	}
	return who + " " + kind + " " + classify(a.stage, a.reply).Name()
}
