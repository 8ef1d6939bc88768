package delivery

import (
	"bytes"
	"crypto/tls"
	"errors"
	"testing"

	"github.com/postrider/postrider/internal/mail/dane"
	"github.com/postrider/postrider/internal/mail/mtasts/ststest"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

func reportMessage() []byte {
	return []byte("From: a@" + from + "\r\nTo: " + address(1) + "\r\nSubject: Report\r\n\r\nHello.\r\n")
}

// A TLS report reaches a host that does not satisfy the TLSA records or the policy of its domain, and one without TLS.
// Other mail does not.
func TestSendReport(t *testing.T) {
	t.Parallel()
	for _, server := range []*tls.Config{smtptest.NewCA(t).ServerTLS("other.test"), nil} {
		for _, withDANE := range []bool{true, false} {
			mx := smtptest.NewServer(t, smtptest.Config{TLS: server})
			lab := ststest.New(t)
			n := one(mx.Addr)
			if withDANE {
				n = signed(mx.Addr, dane.Record{Usage: dane.UsageEE, Selector: dane.SelectorKey,
					Matching: dane.MatchingSHA256, Data: make([]byte, 32)})
			} else {
				lab.Set(destination, policy("1", "enforce", "mx.other.example"))
			}
			cfg := n.config(1)
			cfg.DANE = true
			f := newFixture(t, dbtest.SQLite(t), cfg, n.dns).withPolicies(lab)
			err := f.service.SendUnqueued(t.Context(), f.Acme.TeamID, "a@"+from, address(1), reportMessage())
			if err == nil {
				t.Error("other mail disregards the policies")
			}
			f.Must(f.service.SendReport(t.Context(), f.Acme.TeamID, "a@"+from, address(1), reportMessage()))
			if got := mx.Messages(); len(got) != 1 || got[0].TLS != (server != nil) ||
				!bytes.HasPrefix(got[0].Data, []byte("DKIM-Signature:")) {
				t.Errorf("messages %+v", got)
			}
		}
	}
}

// If a host may have a report, no other host gets it.
func TestSendReportOnce(t *testing.T) {
	t.Parallel()
	first := smtptest.Script(t, "S: 220 mx.test\nC: EHLO *\nS: 250 mx.test\nC: MAIL *\nS: 250 ok\nC: RCPT *\nS: 250 ok\n"+
		"C: DATA\nS: 354 go\n(data)\n(drop)\n")
	second := smtptest.NewServer(t, smtptest.Config{})
	n := one(first.Addr)
	n.host(destination, "mx2.test", 20, second.Addr)
	f := newFixture(t, dbtest.SQLite(t), n.config(1), n.dns)
	err := f.service.SendReport(t.Context(), f.Acme.TeamID, "a@"+from, address(1), reportMessage())
	if e, ok := errors.AsType[*smtpclient.Error](err); !ok || !e.Sent {
		t.Errorf("the error is %v", err)
	}
	if len(second.Messages()) > 0 {
		t.Error("another host has a copy")
	}
}
