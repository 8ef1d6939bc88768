package forwards_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	msgauth "github.com/emersion/go-msgauth/dkim"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/mail/arc"
	"github.com/postrider/postrider/internal/mail/dkim/opendkimtest"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/forwards"
	"github.com/postrider/postrider/internal/platform/db"
)

// A forwarded message is the received one with further fields above it, and its author's signature stays valid.
func TestForwardedMessage(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		r := f.rule("sales", "bob@target.example")
		raw := f.signed("")
		f.deliver(raw, "ann@author.example", "Sales@in.acme.example", "else@in.acme.example")
		f.run(0)
		got := f.host.Messages()
		if len(got) != 1 {
			t.Fatalf("%d messages", len(got))
		}
		m := got[0]
		if !strings.HasPrefix(m.From, "b-") || !strings.HasSuffix(m.From, "@mx.postrider.test") ||
			len(m.To) != 1 || m.To[0] != "bob@target.example" {
			t.Errorf("from %s to %v", m.From, m.To)
		}
		if !bytes.HasSuffix(m.Data, []byte(raw)) {
			t.Errorf("the message was changed:\n%s", m.Data)
		}
		added := string(m.Data[:len(m.Data)-len(raw)])
		for _, field := range []string{"ARC-Seal: i=1; a=rsa-sha256; cv=none;", "X-Postrider-Loop: " + r.ID + "\r\n",
			"X-Forwarded-To: bob@target.example\r\n", "Received: by mx.postrider.test (forwarding)",
			"Received: from mail.author.example ([192.0.2.9])"} {
			if !strings.Contains(added, field) {
				t.Errorf("%q is missing in\n%s", field, added)
			}
		}
		if strings.Contains(added, "Return-Path") || strings.Contains(added, "\nDKIM-Signature:") {
			t.Errorf("added:\n%s", added)
		}
		f.verify(m.Data)
		if got := f.get(r); got.Forwarded != 1 || got.Failed != 0 || got.State() != forwards.Active {
			t.Errorf("%+v", got)
		}
		if n := f.Count(`SELECT COUNT(*) FROM suppressions`); n != 0 {
			t.Errorf("%d suppressions", n)
		}
	})
}

// verify checks the signature of the author and our seal, with libraries and with opendkim.
func (f *fixture) verify(data []byte) {
	t := f.t
	t.Helper()
	signing, err := f.Domains.Signing(t.Context(), f.domain.ID)
	f.Must(err)
	s := signing.Signers[0]
	f.keys[s.Selector+"._domainkey."+s.Domain] = s.Key.Record()
	all, err := msgauth.VerifyWithOptions(bytes.NewReader(data), &msgauth.VerifyOptions{
		LookupTXT: func(name string) ([]string, error) { return f.keys.lookup(t.Context(), name) }})
	if err != nil || len(all) != 1 || all[0].Err != nil || all[0].Domain != "author.example" {
		t.Errorf("signatures %+v, %v", all, err)
	}
	if c := arc.Verify(t.Context(), f.keys.lookup, bytes.NewReader(data)); c.State != arc.Pass ||
		c.Sets[len(c.Sets)-1].Sealer != "in.acme.example" {
		t.Errorf("chain %+v", c)
	}
	opendkimtest.Verify(t, "author.example", f.keys, data)
}

// A large message, which is in the blob store, is forwarded unchanged too, and a second hop extends the chain.
func TestLargeMessageAndSecondHop(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.rule("*", "bob@target.example")
		raw := f.signed("") + strings.Repeat("0123456789\r\n", 100_000)
		f.deliver(raw, "ann@author.example", "sales@in.acme.example")
		f.run(0)
		first := f.host.Wait(1)[0].Data
		if !bytes.HasSuffix(first, []byte(raw)) {
			t.Errorf("the large message was changed: %d bytes", len(first))
		}
		if n := f.Count(`SELECT COUNT(*) FROM email_messages WHERE blob_key <> ''`); n != 1 {
			t.Errorf("%d emails have their message in a blob", n)
		}
		f.rule("next", "carl@other.example")
		raw = f.signed("")
		f.deliver(raw, "ann@author.example", "sales@in.acme.example")
		f.run(0)
		second := string(f.host.Wait(2)[1].Data)
		f.verify([]byte(second))
		// The second hop gets the message without the mark of the first rule, as from another host.
		start := strings.Index(second, "ARC-Seal")
		again := regexpMark.ReplaceAllString(second[start:], "")
		f.deliver(again, "x@elsewhere.example", "next@in.acme.example")
		f.run(0)
		for _, m := range f.host.Wait(4)[2:] {
			if m.To[0] == "carl@other.example" {
				f.verify(m.Data)
				if !bytes.Contains(m.Data, []byte("ARC-Seal: i=2; a=rsa-sha256; cv=pass;")) {
					t.Errorf("the second seal is missing:\n%s", m.Data)
				}
			}
		}
	})
}

// A message whose ARC chain takes too long to verify is forwarded at once without a further seal. Strangers could
// otherwise stop the forwarding of all teams with slow DNS servers.
func TestSlowChain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.rule("*", "bob@target.example")
		f.deliver(f.signed(""), "ann@author.example", "sales@in.acme.example")
		f.run(0)
		first := string(f.host.Wait(1)[0].Data)
		again := regexpMark.ReplaceAllString(first[strings.Index(first, "ARC-Seal"):], "")
		f.rules = testnode.Must(forwards.New(forwards.Config{Hostname: "mx.postrider.test", PublicURL: testnode.PublicURL,
			SealTime: 20 * time.Millisecond}, f.deps()))
		f.slow.Store(true)
		f.deliver(again, "x@elsewhere.example", "next@in.acme.example")
		f.run(0)
		if m := f.host.Wait(2)[1]; !strings.HasSuffix(string(m.Data), again) || strings.Contains(string(m.Data), "ARC-Seal: i=2") {
			t.Errorf("the message is\n%s", m.Data)
		}
	})
}

// A message goes to each target once, and to none of a rule that does not match or waits.
func TestSeveralRules(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.rule("sales", "bob@target.example")
		f.rule("*", "BOB@target.example")
		f.rule("support", "carl@target.example")
		off := f.rule("sales", "off@target.example")
		no := false
		_, err := f.rules.Update(t.Context(), f.Acme.TeamID, f.domain.ID, off.ID, forwards.Change{Enabled: &no})
		f.Must(err)
		waiting, err := f.rules.Create(t.Context(), f.Acme.TeamID, f.domain.ID,
			forwards.NewRule{Local: "*", Address: "dora@target.example"})
		f.Must(err)
		f.deliver(f.signed(""), "ann@author.example", "sales@in.acme.example", "support@in.acme.example",
			"third@in.acme.example")
		f.run(0)
		var to []string
		for _, m := range f.host.Wait(2) {
			to = append(to, m.To...)
		}
		if len(to) != 2 || !strings.Contains(strings.ToLower(fmt.Sprint(to)), "bob@target.example") ||
			!strings.Contains(fmt.Sprint(to), "carl@target.example") {
			t.Errorf("to %v", to)
		}
		if s := f.get(waiting).State(); s != forwards.Waiting {
			t.Errorf("the rule that waits is %s", s)
		}
	})
}

// Spam and messages that could cause a mail loop are stopped, and the rule says why.
func TestStops(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		r := f.rule("*", "bob@target.example")
		hops := strings.Repeat("X-Postrider-Loop: 0190f6a1-0000-7000-8000-00000000000a\r\n", 5)
		for i, test := range []struct{ name, from, header, spam, reason string }{
			{"own mark", "a@x.example", "X-Postrider-Loop: " + r.ID + "\r\n", "", "in a circle"},
			{"five hops", "a@x.example", hops, "", "5 rules have forwarded"},
			{"automatic reply", "a@x.example", "Auto-Submitted: auto-replied (vacation)\r\n", "", "automatic reply"},
			{"bounce", "", "Content-Type: multipart/report; report-type=delivery-status; boundary=x\r\n", "", "a bounce"},
			{"null path", "", "Auto-Submitted: auto-generated\r\n", "", "a bounce"},
			{"spam", "a@x.example", "", "GTUBE", "spam: GTUBE"},
		} {
			f.spam = test.spam
			f.deliver(f.signed(test.header), test.from, "sales@in.acme.example")
			f.run(0)
			if got := f.get(r); got.Stopped != int64(i+1) || !strings.Contains(got.Reason, test.reason) {
				t.Errorf("%s: %d stopped, %q", test.name, got.Stopped, got.Reason)
			}
		}
		if n := len(f.host.Messages()); n != 0 {
			t.Errorf("%d messages were forwarded", n)
		}
		f.spam = ""
		for _, test := range []struct{ from, header string }{
			{"a@x.example", strings.TrimSuffix(hops, "X-Postrider-Loop: 0190f6a1-0000-7000-8000-00000000000a\r\n")},
			{"a@x.example", "Auto-Submitted: auto-generated\r\n"},
			{"", "Auto-Submitted: no\r\n"},
		} {
			f.deliver(f.signed(test.header), test.from, "sales@in.acme.example")
		}
		f.run(0)
		f.host.Wait(3)
		if got := f.get(r); got.Forwarded != 3 || got.Stopped != 6 {
			t.Errorf("%+v", got)
		}
	})
}

// Bounces of forwarded mail suppress nothing and are shown at the rule. A rule that only fails is switched off.
func TestBounces(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		r := f.rule("*", "bob@target.example")
		f.setReply("550 5.1.1 no such user")
		f.deliver(f.signed(""), "ann@author.example", "sales@in.acme.example")
		f.run(0)
		got := f.get(r)
		if got.Failed != 1 || got.State() != forwards.Failing || !strings.Contains(got.Reason, "no such user") {
			t.Fatalf("after a refusal: %+v", got)
		}
		f.setReply("")
		f.deliver(f.signed(""), "ann@author.example", "sales@in.acme.example")
		f.run(0)
		path := f.host.Wait(1)[0].From
		if got = f.get(r); got.State() != forwards.Active || got.Forwarded != 2 {
			t.Fatalf("after a success: %+v", got)
		}
		for i, report := range []string{"", "from a later host"} {
			if i == 1 { // four days later
				f.Update(func(tx *db.Tx) error {
					tx.Queue(t.Context(), `UPDATE forwards SET failing_since = $1`,
						f.DB.Now().Add(-4*24*time.Hour).UnixMicro())
					return nil
				})
				f.deliver(f.signed(""), "ann@author.example", "sales@in.acme.example")
				f.run(0)
				path = f.host.Wait(2)[1].From
				f.Update(func(tx *db.Tx) error {
					tx.Queue(t.Context(), `UPDATE forwards SET failing_since = $1`,
						f.DB.Now().Add(-4*24*time.Hour).UnixMicro())
					return nil
				})
			}
			f.deliver("From: mailer-daemon@target.example\r\nSubject: Undelivered "+report+"\r\nMIME-Version: 1.0\r\n"+
				"Content-Type: multipart/report; report-type=delivery-status; boundary=b\r\n\r\n--b\r\n\r\nSorry\r\n--b\r\n"+
				"Content-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; mx.target.example\r\n\r\n"+
				"Final-Recipient: rfc822; bob@target.example\r\nAction: failed\r\nStatus: 5.1.1\r\n"+
				"Diagnostic-Code: smtp; 550 5.1.1 gone away\r\n\r\n--b--\r\n", "", path)
			f.run(0)
		}
		got = f.get(r)
		if got.Failed != 3 || got.State() != forwards.Disabled || !strings.Contains(got.Reason, "gone away") {
			t.Errorf("after bounces for days: %+v", got)
		}
		if len(f.told) != 1 || !strings.Contains(f.told[0], "*@in.acme.example to bob@target.example") {
			t.Errorf("notices %q", f.told)
		}
		if n := f.Count(`SELECT COUNT(*) FROM suppressions`); n != 0 {
			t.Errorf("%d suppressions", n)
		}
		yes := true
		got, err := f.rules.Update(t.Context(), f.Acme.TeamID, f.domain.ID, r.ID, forwards.Change{Enabled: &yes})
		if err != nil || got.State() != forwards.Active {
			t.Errorf("switched on again: %+v, %v", got, err)
		}
	})
}

func (f *fixture) setReply(line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reply = line
}

// A rule waits while its team may not send, its quota is used up, or its hourly limit is reached.
func TestWaits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		r := f.rule("*", "bob@target.example")
		for _, test := range []struct {
			name       string
			begin, end func()
		}{
			{"suspended", func() { f.Must(f.Teams.SetSuspended(t.Context(), f.Acme.TeamID, true)) },
				func() { f.Must(f.Teams.SetSuspended(t.Context(), f.Acme.TeamID, false)) }},
			{"quota", func() { f.quota(1) }, func() { f.quota(0) }},
			{"storm", func() {
				f.exec(`UPDATE forwards SET hour = $1, hour_count = 1000`,
					f.DB.Now().Add(time.Hour).Truncate(time.Hour).UnixMicro())
			}, func() { f.exec(`UPDATE forwards SET hour_count = 0`) }},
		} {
			before, reads := f.get(r), f.reads
			test.begin()
			f.deliver(f.signed(""), "ann@author.example", "sales@in.acme.example")
			f.run(1)
			if got := f.get(r); got.Forwarded != before.Forwarded || got.Stopped != before.Stopped {
				t.Errorf("%s: %+v", test.name, got)
			}
			if f.reads != reads { // a large message would also be written to a blob
				t.Errorf("%s: the message was read, although it waits", test.name)
			}
			test.end()
			f.exec(`UPDATE jobs SET run_at = 0`)
			f.run(0)
			if got := f.get(r); got.Forwarded != before.Forwarded+1 {
				t.Errorf("%s, afterwards: %+v", test.name, got)
			}
		}
		// A message does not wait forever.
		f.Must(f.Teams.SetSuspended(t.Context(), f.Acme.TeamID, true))
		f.deliver(f.signed(""), "ann@author.example", "sales@in.acme.example")
		f.exec(`UPDATE jobs SET created_at = $1`, f.DB.Now().Add(-25*time.Hour).UnixMicro())
		f.run(0)
		if got := f.get(r); got.Stopped != 1 || !strings.Contains(got.Reason, "suspended") {
			t.Errorf("after a day: %+v", got)
		}
	})
}

func (f *fixture) exec(text string, args ...any) {
	f.t.Helper()
	f.Update(func(tx *db.Tx) error {
		tx.Queue(f.t.Context(), text, args...)
		return nil
	})
}

func (f *fixture) quota(daily int64) {
	f.t.Helper()
	f.Must(f.Quotas.Set(f.t.Context(), f.Teams, f.Acme.TeamID, func(q *teams.Quota) { q.Daily = daily }))
}
