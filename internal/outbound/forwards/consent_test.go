package forwards_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/outbound/forwards"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domains"
)

var regexpMark = regexp.MustCompile(`X-Postrider-Loop: .*\r\n`)

// An address gets mail only after its owner agreed, and none after its owner refused.
func TestConsent(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		r, err := f.rules.Create(t.Context(), f.Acme.TeamID, f.domain.ID,
			forwards.NewRule{Local: "Sales", Address: "bob@target.example"})
		f.Must(err)
		f.run(0)
		if len(f.mails) != 1 || f.mails[0].to != "bob@target.example" || !strings.Contains(f.mails[0].text, "“Acme”") ||
			!strings.Contains(f.mails[0].text, "sales@in.acme.example") {
			t.Fatalf("mails %+v", f.mails)
		}
		send := func() int {
			f.deliver(f.signed(""), "ann@author.example", "sales@in.acme.example")
			f.run(0)
			return len(f.host.Messages())
		}
		if n := send(); n != 0 {
			t.Fatalf("%d messages without consent", n)
		}
		confirm, refuse := f.tokens()
		q, err := f.rules.ReadConfirm(t.Context(), confirm)
		if err != nil || q.Team != "Acme" || q.Address != "bob@target.example" || q.Confirmed {
			t.Fatalf("%+v, %v", q, err)
		}
		if n := send(); n != 0 {
			t.Fatalf("%d messages after the page was only shown", n)
		}
		f.Must(f.rules.Confirm(t.Context(), q))
		if n := send(); n != 1 || f.get(r).State() != forwards.Active {
			t.Fatalf("%d messages after consent, state %s", n, f.get(r).State())
		}
		q, err = f.rules.ReadRefuse(t.Context(), refuse)
		f.Must(err)
		f.Must(f.rules.Refuse(t.Context(), q))
		if n := send(); n != 1 || f.get(r).State() != forwards.Refused {
			t.Fatalf("%d messages after refusal, state %s", n, f.get(r).State())
		}
		_, err = f.rules.Create(t.Context(), f.Acme.TeamID, f.domain.ID,
			forwards.NewRule{Local: "*", Address: "BOB@target.example"})
		if fault.KindOf(err) != fault.Forbidden {
			t.Errorf("a refused address again: %v", err)
		}
		if _, err := f.rules.Ask(t.Context(), f.Acme.TeamID, f.domain.ID, r.ID); fault.KindOf(err) != fault.Invalid {
			t.Errorf("asked again: %v", err)
		}
		for _, bad := range []string{"", "x", refuse, confirm[:len(confirm)-1]} {
			if _, err := f.rules.ReadConfirm(t.Context(), bad); fault.KindOf(err) != fault.NotFound {
				t.Errorf("%q: %v", bad, err)
			}
		}
		if _, err := f.rules.ReadRefuse(t.Context(), confirm); fault.KindOf(err) != fault.NotFound {
			t.Errorf("the wrong link: %v", err)
		}
	})
}

// The answer of an owner covers only the rules that the mail named: neither later rules nor another match.
func TestConsentCoversWhatWasAsked(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		first := f.rule("sales", "bob@target.example")
		old, _ := f.tokens()
		if first.State() != forwards.Active {
			t.Fatalf("the confirmed rule is %s", first.State())
		}
		everything := "*"
		_, err := f.rules.Update(t.Context(), f.Acme.TeamID, f.domain.ID, first.ID, forwards.Change{Local: &everything})
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("a wider match: %v", err)
		}
		second, err := f.rules.Create(t.Context(), f.Acme.TeamID, f.domain.ID,
			forwards.NewRule{Local: "*", Address: "Bob@target.example"})
		f.Must(err)
		q, err := f.rules.ReadConfirm(t.Context(), old)
		if err != nil || !q.Confirmed || fmt.Sprint(q.Names) != "[sales@in.acme.example]" {
			t.Errorf("the first link shows %+v, %v", q, err)
		}
		f.Must(f.rules.Confirm(t.Context(), q))
		f.deliver(f.signed(""), "ann@author.example", "secret@in.acme.example")
		f.run(1) // the second mail waits for another day
		if s, n := f.get(second).State(), len(f.host.Messages()); s != forwards.Waiting || n != 0 {
			t.Errorf("without an answer the second rule is %s, and %d messages were forwarded", s, n)
		}
		if s := f.get(first).State(); s != forwards.Active {
			t.Errorf("meanwhile the first rule is %s", s)
		}
		f.exec(`DELETE FROM forward_asks`)
		f.exec(`UPDATE jobs SET run_at = 0`)
		f.run(0)
		f.confirm()
		f.Must(f.rules.Confirm(t.Context(), q)) // opening the first link again revokes nothing
		f.deliver(f.signed(""), "ann@author.example", "other@in.acme.example")
		f.run(0)
		if s, n := f.get(second).State(), len(f.host.Messages()); s != forwards.Active || n != 1 {
			t.Errorf("after the answer the second rule is %s, and %d messages were forwarded", s, n)
		}
		local := "info"
		narrow, err := f.rules.Update(t.Context(), f.Acme.TeamID, f.domain.ID, second.ID, forwards.Change{Local: &local})
		if err != nil || narrow.State() != forwards.Active {
			t.Errorf("a narrower match: %s, %v", narrow.State(), err)
		}
	})
}

// An address is asked once a day by all teams together, and a team asks 20 addresses a day.
func TestConfirmationMailsAreLimited(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		on := true
		other := f.Verified(f.Other.TeamID, domains.NewDomain{Name: "in.other.example",
			Capabilities: domains.Capabilities{Receiving: &on}})
		first, err := f.rules.Create(t.Context(), f.Acme.TeamID, f.domain.ID,
			forwards.NewRule{Local: "*", Address: "bob@target.example"})
		f.Must(err)
		f.run(0)
		_, err = f.rules.Create(t.Context(), f.Other.TeamID, other.ID,
			forwards.NewRule{Local: "*", Address: "Bob@target.example"})
		f.Must(err)
		_, err = f.rules.Ask(t.Context(), f.Acme.TeamID, f.domain.ID, first.ID)
		f.Must(err)
		created, err := f.rules.Create(t.Context(), f.Acme.TeamID, f.domain.ID,
			forwards.NewRule{Local: "sales", Address: "bob@target.example"})
		f.Must(err)
		f.run(2)
		first, err = f.rules.Get(t.Context(), f.Acme.TeamID, f.domain.ID, first.ID)
		f.Must(err)
		second, err := f.rules.Get(t.Context(), f.Acme.TeamID, f.domain.ID, created.ID)
		f.Must(err)
		if first.AskedAt.IsZero() || !first.AskAfter.Equal(first.AskedAt.Add(24*time.Hour)) || !second.AskedAt.IsZero() || !created.AskedAt.IsZero() ||
			!second.AskAfter.Equal(first.AskedAt.Add(24*time.Hour)) || !created.AskAfter.Equal(second.AskAfter) {
			t.Errorf("asked at %s and %s, after %s and %s", first.AskedAt, second.AskedAt, first.AskAfter, second.AskAfter)
		}
		if n := f.mailCount(); n != 1 {
			t.Fatalf("%d mails to one address", n)
		}
		f.exec(`UPDATE forward_asks SET asked_at = $1`, f.DB.Now().Add(-25*time.Hour).UnixMicro())
		f.exec(`UPDATE jobs SET run_at = 0`)
		f.run(1) // one of the two has to wait for another day
		if n := f.mailCount(); n != 2 {
			t.Fatalf("%d mails after a day", n)
		}
		f.exec(`DELETE FROM jobs`)
		for i := range 25 {
			_, err := f.rules.Create(t.Context(), f.Acme.TeamID, f.domain.ID,
				forwards.NewRule{Local: "*", Address: fmt.Sprintf("x%d@target.example", i)})
			f.Must(err)
		}
		before := f.mailCount()
		f.run(6) // the mail to bob counts too
		if n := f.mailCount() - before; n != 19 {
			t.Errorf("%d mails of a team in a day", n)
		}
	})
}

func TestRulesAreChecked(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		off := f.Verified(f.Acme.TeamID, domains.NewDomain{Name: "out.acme.example"})
		for _, test := range []struct {
			domain string
			in     forwards.NewRule
			field  string
		}{
			{f.domain.ID, forwards.NewRule{Address: "a@b.example"}, "match"},
			{f.domain.ID, forwards.NewRule{Local: "a@b", Address: "a@b.example"}, "match"},
			{f.domain.ID, forwards.NewRule{Local: "sales*", Address: "a@b.example"}, "match"},
			{f.domain.ID, forwards.NewRule{Local: strings.Repeat("a", 65), Address: "a@b.example"}, "match"},
			{f.domain.ID, forwards.NewRule{Local: "*"}, "address"},
			{f.domain.ID, forwards.NewRule{Local: "*", Address: "a@b.example", URL: "https://b.example"}, "address"},
			{f.domain.ID, forwards.NewRule{Local: "*", Address: "nobody"}, "address"},
			{f.domain.ID, forwards.NewRule{Local: "*", Address: "a@in.acme.example"}, "address"},
			{f.domain.ID, forwards.NewRule{Local: "*", Address: "a@example.com"}, "address"},
			{f.domain.ID, forwards.NewRule{Local: "*", URL: "ftp://b.example"}, "url"},
			{f.domain.ID, forwards.NewRule{Local: "*", URL: "https://b.example/" + strings.Repeat("x", 2000)}, "url"},
			{off.ID, forwards.NewRule{Local: "*", Address: "a@b.example"}, "domain_id"},
		} {
			_, err := f.rules.Create(t.Context(), f.Acme.TeamID, test.domain, test.in)
			e, ok := errors.AsType[*fault.Error](err)
			if !ok || e.Field != test.field {
				t.Errorf("%+v: %v, want a fault about %s", test.in, err, test.field)
			}
		}
		r := f.rule("sales", "https://127.0.0.1:1/x")
		if _, err := f.rules.Create(t.Context(), f.Acme.TeamID, f.domain.ID,
			forwards.NewRule{Local: "SALES", URL: r.URL}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("the same rule again: %v", err)
		}
		for name, err := range map[string]error{
			"get":    second(f.rules.Get(t.Context(), f.Other.TeamID, f.domain.ID, r.ID)),
			"domain": second(f.rules.Get(t.Context(), f.Acme.TeamID, off.ID, r.ID)),
			"create": second(f.rules.Create(t.Context(), f.Other.TeamID, f.domain.ID, forwards.NewRule{Local: "*",
				URL: "https://b.example"})),
			"update": second(f.rules.Update(t.Context(), f.Other.TeamID, f.domain.ID, r.ID, forwards.Change{})),
			"delete": f.rules.Delete(t.Context(), f.Other.TeamID, f.domain.ID, r.ID),
			"ask":    second(f.rules.Ask(t.Context(), f.Other.TeamID, f.domain.ID, r.ID)),
		} {
			if fault.KindOf(err) != fault.NotFound {
				t.Errorf("%s of another team: %v", name, err)
			}
		}
		for i := range forwards.MaxPerDomain - 1 {
			_, err := f.rules.Create(t.Context(), f.Acme.TeamID, f.domain.ID,
				forwards.NewRule{Local: fmt.Sprint("l", i), URL: r.URL})
			f.Must(err)
		}
		if _, err := f.rules.Create(t.Context(), f.Acme.TeamID, f.domain.ID,
			forwards.NewRule{Local: "more", URL: r.URL}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("rule 101: %v", err)
		}
		all, more, err := f.rules.List(t.Context(), f.Acme.TeamID, f.domain.ID, page.Page{Limit: 60})
		if err != nil || len(all) != 60 || !more {
			t.Errorf("%d rules, more %v, %v", len(all), more, err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// Rules and addresses go with their domain, their team, and the erasure of an address.
func TestErasures(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.rule("*", "bob@target.example")
		f.rule("*", "carl@target.example")
		f.exec(`UPDATE forward_targets SET asked_at = 1`)
		rows := func() [2]int {
			return [2]int{f.Count(`SELECT COUNT(*) FROM forwards`), f.Count(`SELECT COUNT(*) FROM forward_targets`)}
		}
		a, err := erasure.Parse("Bob@target.example")
		f.Must(err)
		found, err := forwards.EraseAddress(t.Context(), f.DB, a, erasure.Scope{Teams: []string{f.Acme.TeamID}})
		if err != nil || len(found) != 2 || rows() != [2]int{1, 1} {
			t.Errorf("after the erasure of an address: %v, %+v, %v", rows(), found, err)
		}
		f.Must(f.Domains.Delete(t.Context(), f.Acme.TeamID, f.domain.ID))
		if rows() != [2]int{0, 1} {
			t.Errorf("without the domain: %v", rows())
		}
		f.exec(`UPDATE forward_targets SET changed_at = 1, asked_at = 1`)
		f.Must(f.rules.Sweep(t.Context()))
		if rows() != [2]int{0, 0} {
			t.Errorf("after the sweep: %v", rows())
		}
		f.domain = f.Verified(f.Acme.TeamID, domains.NewDomain{Name: "new.acme.example",
			Capabilities: domains.Capabilities{Receiving: new(true)}})
		f.rule("*", "https://127.0.0.1:1/x")
		f.Must(f.rules.EraseTeam(t.Context(), f.Acme.TeamID))
		if rows() != [2]int{0, 0} {
			t.Errorf("without the team: %v", rows())
		}
	})
}

// A team cannot lift its limits by the erasure of an address: a refusal stays, and confirmation emails stay counted.
func TestErasureLiftsNoLimit(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		erase := func(address string) {
			a, err := erasure.Parse(address)
			f.Must(err)
			f.Must(second(forwards.EraseAddress(t.Context(), f.DB, a,
				erasure.Scope{Teams: []string{f.Acme.TeamID}, Refusals: true})))
		}
		f.rule("*", "bob@target.example")
		_, token := f.tokens()
		q, err := f.rules.ReadRefuse(t.Context(), token)
		f.Must(err)
		f.Must(f.rules.Refuse(t.Context(), q))
		erase("bob@target.example")
		_, err = f.rules.Create(t.Context(), f.Acme.TeamID, f.domain.ID,
			forwards.NewRule{Local: "*", Address: "bob@target.example"})
		if fault.KindOf(err) != fault.Forbidden {
			t.Errorf("a rule after the erasure of a refusal: %v", err)
		}
		const most = 20
		for i := range most + 3 {
			address := fmt.Sprintf("x%d@target.example", i)
			f.Must(second(f.rules.Create(t.Context(), f.Acme.TeamID, f.domain.ID,
				forwards.NewRule{Local: "*", Address: address})))
			f.run(max(0, i+1-(most-1))) // bob was asked, too
			if i < most-1 {
				token, _ := f.tokens()
				erase(address)
				if _, err := f.rules.ReadConfirm(t.Context(), token); fault.KindOf(err) != fault.NotFound {
					t.Errorf("the link of an erased address: %v", err)
				}
			}
		}
		if n := f.mailCount(); n != most {
			t.Errorf("%d confirmation emails", n)
		}
		if n := f.Count(`SELECT COUNT(*) FROM forward_targets WHERE address LIKE 'x1@%' OR target LIKE 'x1@%'`); n != 0 {
			t.Error("an erased address is stored")
		}
	})
}

// Strangers are asked only about domains that may receive, because a name that is not the team's could mislead them.
func TestUnverifiedDomainAsksNobody(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		d, err := f.Domains.Create(t.Context(), f.Acme.TeamID, domains.NewDomain{Name: "security.bank.example",
			Capabilities: domains.Capabilities{Receiving: new(true)}})
		f.Must(err)
		r, err := f.rules.Create(t.Context(), f.Acme.TeamID, d.ID, forwards.NewRule{Local: "*", Address: "bob@target.example"})
		f.Must(err)
		f.run(1)
		if n := f.mailCount(); n != 0 || f.get(r).State() != forwards.Waiting {
			t.Errorf("%d emails, state %s", n, f.get(r).State())
		}
		_, err = f.rules.Create(t.Context(), f.Acme.TeamID, f.domain.ID,
			forwards.NewRule{Local: "evil.example/unlock", Address: "bob@target.example"})
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("a match like a link: %v", err)
		}
		f.Must(f.Domains.Delete(t.Context(), f.Acme.TeamID, d.ID))
		f.Must(second(f.rules.Create(t.Context(), f.Acme.TeamID, f.domain.ID,
			forwards.NewRule{Local: "*", Address: "bob@target.example"})))
		f.exec(`UPDATE jobs SET run_at = 0`)
		f.run(0)
		if n := f.mailCount(); n != 1 {
			t.Errorf("%d emails after the other domain was deleted", n)
		}
	})
}

// The erasure of an author deletes the forwarded copies of the author's mail, with their texts, and nothing else.
func TestErasureOfAnAuthor(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.rule("*", "bob@target.example")
		f.deliver(f.signed(""), "ann@author.example", "sales@in.acme.example")
		f.deliver("From: joann@author.example\r\nSubject: Another\r\n\r\nHello\r\n", "joann@author.example",
			"sales@in.acme.example")
		f.run(0)
		f.host.Wait(2)
		f.Counted(time.Now().Add(48 * time.Hour))
		a, err := erasure.Parse("Ann@author.example")
		f.Must(err)
		for i, want := range []int{2, 1} {
			found, err := f.Emails.EraseAddress(t.Context(), a,
				erasure.Scope{Teams: []string{f.Acme.TeamID}, DryRun: i == 0})
			if err != nil || len(found) != 1 || !strings.Contains(fmt.Sprint(found), "forwarded emails from it") {
				t.Errorf("found %v, %v", found, err)
			}
			if n := f.Count(`SELECT COUNT(*) FROM emails`); n != want {
				t.Errorf("%d forwarded copies, want %d", n, want)
			}
		}
		if n := f.Count(`SELECT COUNT(*) FROM emails WHERE sender LIKE '%joann@%'`); n != 1 {
			t.Errorf("%d copies of another author's mail", n)
		}
		if n := f.Count(`SELECT COUNT(*) FROM email_messages`); n != 1 {
			t.Errorf("%d messages", n)
		}
	})
}
