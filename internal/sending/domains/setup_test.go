package domains_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

// parents is what the parent zones' servers say about delegations.
type parents struct {
	mu    sync.Mutex
	names map[string][]string
	err   error
}

func (p *parents) set(name string, servers ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names[name] = servers
}

func (p *parents) delegation(_ context.Context, name string) ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, p.err
	}
	if len(p.names[name]) == 0 {
		return nil, fmt.Errorf("%w: %s", resolve.ErrNotFound, name)
	}
	return slices.Clone(p.names[name]), nil
}

// setups is a service whose domains can have every set-up, and the DNS around it.
type setups struct {
	*testing.T
	*domains.Service
	db      *db.DB
	dns     *zone
	parents *parents
}

var team, otherTeam = dbtest.ID("team"), dbtest.ID("other")

func newSetups(t *testing.T, d *db.DB) *setups {
	t.Helper()
	f := &setups{T: t, db: d, dns: newZone(), parents: &parents{names: map[string][]string{}}}
	f.dns.CNAMERecords = map[string]string{}
	f.Service, _, _ = build(t, d, f.dns, domains.Config{DNSZone: "dns.mail.test", CAAIssuer: "ca.test",
		DNSNames: []string{"ns1.mail.test", "ns2.mail.test"}})
	oneKey(t, f.Service)
	f.Delegation = f.parents.delegation
	return f
}

func (f *setups) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *setups) create(teamID, name string) domains.Domain {
	f.Helper()
	d, err := f.Create(f.Context(), teamID, domains.NewDomain{Name: name})
	f.must(err)
	return d
}

// choose changes the set-up of a domain and returns its view.
func (f *setups) choose(teamID, domainID, setup string) domains.Setup {
	f.Helper()
	f.must(f.ChangeSetup(f.Context(), teamID, domainID, to(setup)))
	v, err := f.GetSetup(f.Context(), teamID, domainID)
	f.must(err)
	return v
}

// install adds records to the DNS, or removes them.
func (f *setups) install(all []domains.Record, there bool) {
	f.dns.set(func(z *resolve.Fake) {
		for _, r := range all {
			switch {
			case r.Type == "NS":
				if servers := f.parents.names[r.FQDN]; !there {
					f.parents.set(r.FQDN)
				} else if !slices.Contains(servers, r.Value) {
					f.parents.set(r.FQDN, append(servers, r.Value)...)
				}
			case !there:
				delete(z.MXRecords, r.FQDN)
				delete(z.TXTRecords, r.FQDN)
				delete(z.CNAMERecords, r.FQDN)
			case r.Type == "MX":
				z.MXRecords[r.FQDN] = []resolve.MX{{Host: r.Value, Pref: 10}}
			case r.Type == "CNAME":
				z.CNAMERecords[r.FQDN] = r.Value
			default:
				z.TXTRecords[r.FQDN] = []string{r.Value}
			}
		}
	})
}

// to returns a change to a set-up.
func to(setup string) domains.SetupChange { return domains.SetupChange{Setup: &setup} }

// look looks up the domain's records once.
func (f *setups) look(teamID, domainID string) domains.Domain {
	f.Helper()
	f.must(f.Verify(f.Context(), teamID, domainID))
	f.must(f.Kind().Handle(f.Context(), inHand(f.T, f.db, domainID)))
	d, err := f.Get(f.Context(), teamID, domainID)
	f.must(err)
	return d
}

// signs checks with which selectors mail from a domain is signed.
func (f *setups) signs(domainID, want string) {
	f.Helper()
	g, err := f.Signing(f.Context(), domainID)
	f.must(err)
	var all []string
	for _, s := range g.Signers {
		all = append(all, s.Selector)
	}
	if got := strings.Join(all, " "); got != want || !g.MaySend {
		f.Errorf("it signs with %q, want %q; may send: %v", got, want, g.MaySend)
	}
}

// A domain sends all the time while its owner goes from one set-up to the next.
func TestMailGoesOnWhileTheSetupChanges(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newSetups(t, d)
		dom := f.create(team, "mail.acme.example")
		static := f.Records(&dom)
		f.install(static, true)
		if dom = f.look(team, dom.ID); dom.Status != domains.Verified {
			t.Fatalf("with records it is %s", dom.Status)
		}
		f.signs(dom.ID, "postrider postrider-ed")

		cname := f.choose(team, dom.ID, domains.SetupCNAME)
		if v := cname.Domain; v.Status != domains.Pending || v.FormerSetup != domains.SetupRecords || !v.MaySend() {
			t.Errorf("after the choice: %s, former %q, may send: %v", v.Status, v.FormerSetup, v.MaySend())
		}
		var names []string
		for _, r := range cname.Records {
			names = append(names, r.Type+" "+r.FQDN)
			if _, rest, _ := strings.Cut(r.Value, "."); !strings.HasSuffix(rest, ".dns.mail.test") {
				t.Errorf("%s points to %s", r.FQDN, r.Value)
			}
		}
		if got := strings.Join(names, ", "); got != "CNAME send.mail.acme.example, "+
			"CNAME s1._domainkey.mail.acme.example, CNAME s2._domainkey.mail.acme.example" {
			t.Errorf("the records are %s", got)
		}
		f.install(static[:2], false)
		f.install(cname.Records[:2], true)
		if dom = f.look(team, dom.ID); dom.Status != domains.Pending || !dom.MaySend() {
			t.Errorf("with two of three records: %s, may send: %v", dom.Status, dom.MaySend())
		}
		f.signs(dom.ID, "postrider postrider-ed")
		f.install(cname.Records, true)
		if dom = f.look(team, dom.ID); dom.Status != domains.Verified || dom.FormerSetup != "" {
			t.Errorf("with all records: %s, former %q", dom.Status, dom.FormerSetup)
		}
		f.signs(dom.ID, "s1")

		delegation := f.choose(team, dom.ID, domains.SetupDelegation)
		f.signs(dom.ID, "s1")
		f.install(delegation.Records, true)
		if dom = f.look(team, dom.ID); dom.Status != domains.Verified || dom.FormerSetup != domains.SetupCNAME {
			t.Errorf("delegated: %s, former %q", dom.Status, dom.FormerSetup)
		}
		f.signs(dom.ID, "postrider postrider-ed")

		// While the delegation stands, our own servers answer for the records, and those of the owner are not seen.
		back := f.choose(team, dom.ID, domains.SetupRecords)
		f.install(back.Records, true)
		if dom = f.look(team, dom.ID); dom.Status != domains.Pending || !dom.MaySend() {
			t.Errorf("while it is delegated: %s, may send: %v", dom.Status, dom.MaySend())
		}
		f.install(delegation.Records, false)
		if dom = f.look(team, dom.ID); dom.Status != domains.Verified || dom.FormerSetup != domains.SetupDelegation {
			t.Errorf("after the delegation ended: %s, former %q", dom.Status, dom.FormerSetup)
		}
		f.signs(dom.ID, "postrider postrider-ed")
	})
}

// A record that the owner of a deleted domain has left in place verifies no domain of another team.
func TestDanglingRecordsProveNothing(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for _, setup := range []string{domains.SetupCNAME, domains.SetupDelegation} {
			f := newSetups(t, d)
			owner := f.create(team, "mail.acme.example")
			left := f.choose(team, owner.ID, setup)
			f.install(left.Records, true)
			if owner = f.look(team, owner.ID); owner.Status != domains.Verified {
				t.Fatalf("%s: the owner's domain is %s", setup, owner.Status)
			}
			f.must(f.Delete(t.Context(), team, owner.ID))

			thief := f.create(otherTeam, "mail.acme.example")
			for _, tried := range []string{setup, domains.SetupRecords, domains.SetupDelegation, domains.SetupCNAME} {
				f.must(f.ChangeSetup(t.Context(), otherTeam, thief.ID, to(tried)))
				f.answerFromZones()
				if thief = f.look(otherTeam, thief.ID); thief.MaySend() || thief.Status != domains.Pending {
					t.Errorf("%s left, %s chosen: %s, may send: %v", setup, tried, thief.Status, thief.MaySend())
				}
			}
			f.must(f.Delete(t.Context(), otherTeam, thief.ID))
		}
	})
}

// answerFromZones makes the DNS answer what this installation's name servers answer.
func (f *setups) answerFromZones() {
	f.Helper()
	zones, err := zonesIn(f.Zones(f.Context()))
	f.must(err)
	f.dns.set(func(z *resolve.Fake) {
		z.TXTRecords, z.MXRecords = map[string][]string{}, map[string][]resolve.MX{}
		for _, zone := range zones {
			for _, r := range zone.Records {
				switch r.Type {
				case "TXT":
					z.TXTRecords[r.Name] = append(z.TXTRecords[r.Name], r.Value)
				case "MX":
					z.MXRecords[r.Name] = []resolve.MX{{Host: strings.TrimPrefix(r.Value, "10 "), Pref: 10}}
				}
			}
		}
	})
}

// A delegation counts only if it leads to two of our servers and to no others.
func TestDelegationsThatDoNotCount(t *testing.T) {
	f := newSetups(t, dbtest.SQLite(t))
	dom := f.create(team, "mail.acme.example")
	v := f.choose(team, dom.ID, domains.SetupDelegation)
	first, second := v.Records[0].Value, v.Records[1].Value
	for _, c := range []struct {
		servers []string
		want    domains.Status
		found   string
	}{
		{[]string{first}, domains.Pending, first},
		{[]string{first, second, "zz.elsewhere.example"}, domains.Pending, first + "\n" + second + "\nzz.elsewhere.example"},
		{[]string{"ns1.mail.test", "ns2.mail.test"}, domains.Pending, "ns1.mail.test\nns2.mail.test"},
		{[]string{strings.ToUpper(second) + ".", first}, domains.Verified, ""},
	} {
		f.parents.set(dom.Name, c.servers...)
		got := f.look(team, dom.ID)
		if rec := f.Records(&got)[0]; got.Status != c.want || rec.Found != c.found && got.Status != domains.Verified {
			t.Errorf("%v: %s, found %q", c.servers, got.Status, rec.Found)
		}
	}
	f.parents.err = resolve.ErrTemporary
	if got := f.look(team, dom.ID); got.Status != domains.Verified {
		t.Errorf("without an answer it is %s", got.Status)
	}
}

// Set-ups that a domain cannot have are refused with the reason.
func TestSetupsThatAreRefused(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newSetups(t, d)
		dom := f.create(team, "mail.acme.example")
		f.create(team, "acme.example")
		claim, _, err := f.Claim(t.Context(), otherTeam, domains.NewDomain{Name: "acme.example"})
		f.must(err)
		refused := func(s *domains.Service, teamID, id, setup, want string) {
			t.Helper()
			err := s.ChangeSetup(t.Context(), teamID, id, to(setup))
			e, ok := errors.AsType[*fault.Error](err)
			if !ok || !strings.Contains(e.Message, want) || e.Kind == fault.Invalid && e.Field != "setup" {
				t.Errorf("%s: %v", setup, err)
			}
		}
		refused(f.Service, team, dom.ID, "", "must be `records`")
		refused(f.Service, team, dom.ID, "CNAME", "must be `records`")
		refused(f.Service, otherTeam, dom.ID, domains.SetupCNAME, "Domain not found")
		refused(f.Service, otherTeam, claim.DomainID, domains.SetupCNAME, "claimed from another team")
		if _, err := f.GetSetup(t.Context(), otherTeam, dom.ID); fault.KindOf(err) != fault.NotFound {
			t.Errorf("another team reads the set-up: %v", err)
		}
		bare, _, _ := build(t, d, newZone(), domains.Config{})
		refused(bare, team, dom.ID, domains.SetupCNAME, "`dns_zone`")
		one, _, _ := build(t, d, newZone(), domains.Config{DNSZone: "dns.test", DNSNames: []string{"ns1.test"}})
		one.Delegation = f.parents.delegation
		refused(one, team, dom.ID, domains.SetupDelegation, "`dns_names`")
		v, err := one.GetSetup(t.Context(), team, dom.ID)
		f.must(err)
		if len(v.Choices) != 3 || !v.Choices[0].Chosen || v.Choices[1].Reason != "" || v.Choices[2].Reason == "" {
			t.Errorf("the choices are %+v", v.Choices)
		}
		v, err = f.GetSetup(t.Context(), team, f.create(team, "other.example").ID)
		f.must(err)
		if w := v.Choices[2]; w.Reason != "" || !strings.Contains(w.Warning, "all of other.example") {
			t.Errorf("delegating the apex: %+v", w)
		}
	})
}

// Concurrent changes of the set-up give a domain one token, and the last one counts.
func TestConcurrentChangesOfTheSetup(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newSetups(t, d)
		dom := f.create(team, "mail.acme.example")
		var all sync.WaitGroup
		for i := range 12 {
			all.Go(func() {
				setup := []string{domains.SetupCNAME, domains.SetupDelegation, domains.SetupRecords}[i%3]
				if err := f.ChangeSetup(t.Context(), team, dom.ID, to(setup)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		first := f.choose(team, dom.ID, domains.SetupCNAME).Records[0].Value
		f.choose(team, dom.ID, domains.SetupRecords)
		if again := f.choose(team, dom.ID, domains.SetupCNAME).Records[0].Value; again != first {
			t.Errorf("the target was %s and is %s", first, again)
		}
		token, _, _ := strings.Cut(first, ".")
		if len(token) != 16 {
			t.Errorf("the token is %q", token)
		}
	})
}

// A domain that is deleted or gets another set-up during a look-up keeps nothing of it.
func TestChangesDuringALookUp(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newSetups(t, d)
		dom := f.create(team, "mail.acme.example")
		v := f.choose(team, dom.ID, domains.SetupDelegation)
		f.install(v.Records, true)
		happens := func() { f.must(f.ChangeSetup(t.Context(), team, dom.ID, to(domains.SetupCNAME))) }
		f.Delegation = func(ctx context.Context, name string) ([]string, error) {
			happens()
			return f.parents.delegation(ctx, name)
		}
		f.must(f.Kind().Handle(t.Context(), inHand(t, d, dom.ID)))
		got, err := f.Get(t.Context(), team, dom.ID)
		f.must(err)
		if got.Setup != domains.SetupCNAME || got.MaySend() || got.Status != domains.Pending {
			t.Errorf("it has the set-up %s and is %s", got.Setup, got.Status)
		}
		f.must(f.ChangeSetup(t.Context(), team, dom.ID, to(domains.SetupDelegation)))
		happens = func() { f.must(f.Delete(t.Context(), team, dom.ID)) }
		f.must(f.Kind().Handle(t.Context(), inHand(t, d, dom.ID)))
		if zones, err := zonesIn(f.Zones(t.Context())); err != nil || len(zones) != 1 || len(zones[0].Records) != 0 {
			t.Errorf("after the deletion the zones are %v, %v", zones, err)
		}
	})
}

// A domain whose chosen set-up has failed is still looked up, because it sends with its former one.
func TestFormerSetupsAreLookedUpDaily(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newSetups(t, d)
		dom := f.create(team, "mail.acme.example")
		f.install(f.Records(&dom), true)
		f.look(team, dom.ID)
		f.choose(team, dom.ID, domains.SetupCNAME)
		exec(t, d, `DELETE FROM jobs WHERE dedupe = $1`, dom.ID)
		exec(t, d, `UPDATE domains SET status = 'failed', checked_at = $2 WHERE id = $1`, db.ID(dom.ID),
			d.Now().AddDate(0, 0, -2).UnixMicro())
		f.must(f.Recheck(t.Context()))
		if all, _ := left(t, d, dom.ID); all != 1 {
			t.Errorf("%d look-ups are to come", all)
		}
	})
}

// A delegated domain is not verified before our name servers answer for it, and is verified soon after.
func TestDelegationWaitsForNameServers(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newSetups(t, d)
		dom := f.create(team, "mail.acme.example")
		v := f.choose(team, dom.ID, domains.SetupDelegation)
		first, second := v.Records[0].Value, v.Records[1].Value
		var answers []domains.NameServerAnswer
		f.AskServers = func(_ context.Context, name string) []domains.NameServerAnswer {
			if name != dom.Name {
				t.Errorf("the servers are asked about %s", name)
			}
			return answers
		}
		refused := domains.NameServerAnswer{Server: "ns2.mail.test", Answered: true,
			Err: errors.New("ns2.mail.test refuses to answer")}
		silent := domains.NameServerAnswer{Server: "ns2.mail.test", Err: errors.New("ns2.mail.test is silent")}
		has := func(server string, ns ...string) domains.NameServerAnswer {
			return domains.NameServerAnswer{Server: server, NS: ns, Answered: true}
		}
		good1, good2 := has("ns1.mail.test", first, second), has("ns2.mail.test", first, second)
		if dom = f.look(team, dom.ID); dom.Status != domains.Pending {
			t.Fatalf("without a delegation: %s", dom.Status)
		}
		f.install(v.Records, true)
		for _, c := range []struct {
			answers []domains.NameServerAnswer
			problem string
		}{
			{nil, ""},
			{[]domains.NameServerAnswer{good1, refused}, "ns2.mail.test refuses to answer"},
			{[]domains.NameServerAnswer{good1, silent}, "ns2.mail.test is silent"},
			{[]domains.NameServerAnswer{good1, has("ns2.mail.test", "other.ns2.dns.mail.test")}, "an earlier zone"},
			{[]domains.NameServerAnswer{good1, good2, refused}, "ns2.mail.test refuses to answer"},
		} {
			answers = c.answers
			dom = f.look(team, dom.ID)
			if advice := f.Records(&dom)[0].Advice(); dom.Status != domains.Pending || dom.MaySend() ||
				!strings.Contains(advice, "The delegation was found") || !strings.Contains(advice, c.problem) {
				t.Errorf("%s: %s, %q", c.problem, dom.Status, advice)
			}
			if zones, err := zonesIn(f.Zones(t.Context())); err != nil || len(zones) != 2 {
				t.Errorf("%s: %d zones, %v", c.problem, len(zones), err)
			}
			if again := dom.LooksAgainAfter(d.Now()); again > 10*time.Second {
				t.Errorf("%s: the next look-up is in %v", c.problem, again)
			}
		}
		answers = []domains.NameServerAnswer{good1, good2, silent}
		if dom = f.look(team, dom.ID); dom.Status != domains.Verified || f.Records(&dom)[0].Advice() != "" {
			t.Errorf("with two servers: %s", dom.Status)
		}
		answers = []domains.NameServerAnswer{refused}
		if dom = f.look(team, dom.ID); dom.Status != domains.Verified {
			t.Errorf("after the servers failed: %s", dom.Status)
		}
	})
}

// A delegation that is found after it has failed is pending until our name servers answer.
func TestFailedDelegationIsFoundLater(t *testing.T) {
	f := newSetups(t, dbtest.SQLite(t))
	dom := f.create(team, "mail.acme.example")
	v := f.choose(team, dom.ID, domains.SetupDelegation)
	exec(t, f.db, `UPDATE domains SET status = 'failed', checks = $2 WHERE id = $1`, db.ID(dom.ID),
		`{"ns":{"status":"failed"},"ns-seen":{"status":"failed"}}`)
	f.install(v.Records, true)
	f.AskServers = func(context.Context, string) []domains.NameServerAnswer { return nil }
	f.must(f.Kind().Handle(t.Context(), inHand(t, f.db, dom.ID)))
	got, err := f.Get(t.Context(), team, dom.ID)
	f.must(err)
	if left, _ := left(t, f.db, dom.ID); got.Status != domains.Pending || left != 1 {
		t.Errorf("it is %s with %d look-ups", got.Status, left)
	}
}

// A query about a domain whose delegation was not found makes its look-up due.
func TestQueriesCheckDelegations(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newSetups(t, d)
		dom, other := f.create(team, "mail.acme.example"), f.create(team, "other.example")
		v := f.choose(team, dom.ID, domains.SetupDelegation)
		f.choose(team, other.ID, domains.SetupCNAME)
		awaited := func(want ...string) {
			t.Helper()
			if c, err := f.Zones(t.Context()); err != nil || !slices.Equal(c.Awaited, want) {
				t.Errorf("awaited are %v, %v, want %v", c.Awaited, err, want)
			}
		}
		awaited(dom.Name)
		exec(t, d, `DELETE FROM jobs WHERE dedupe = $1 OR dedupe = $2`, dom.ID, other.ID)
		for _, name := range []string{dom.Name, other.Name, "unknown.example", dom.Name} {
			f.must(f.CheckDelegation(t.Context(), name))
		}
		for id, want := range map[string]int{dom.ID: 1, other.ID: 0} {
			if all, _ := left(t, d, id); all != want {
				t.Errorf("%d look-ups, want %d", all, want)
			}
		}
		exec(t, d, `UPDATE jobs SET run_at = $2 WHERE dedupe = $1`, dom.ID, d.Now().Add(time.Hour).UnixMicro())
		f.must(f.CheckDelegation(t.Context(), dom.Name))
		var at int64
		f.must(d.QueryRow(t.Context(), `SELECT run_at FROM jobs WHERE dedupe = $1`, dom.ID).Scan(&at))
		if at > d.Now().UnixMicro() {
			t.Errorf("the look-up is due at %v", time.UnixMicro(at))
		}
		f.install(v.Records, true)
		f.look(team, dom.ID)
		awaited()
	})
}
