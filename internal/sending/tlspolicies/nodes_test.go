package tlspolicies_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/mail/mtasts/ststest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/tlspolicies"
)

// Two nodes share the cache. Each sees what the other has fetched, failed to fetch, and forgotten.
func TestTwoNodes(t *testing.T) {
	t.Parallel()
	url := dbtest.PostgresURL(t)
	one, two := dbtest.Open(t, url), dbtest.Open(t, url)
	f := newFixture(t, one)
	other := f.service(two)
	run(t, one)
	run(t, two)
	f.publish(site, "1", enforced)
	f.expect(other, "plain.example", "", none, "", 0)
	f.expect(f.s, site, "enforce", live, "", 1)
	f.expect(other, site, "enforce", live, "", 1)

	f.publish(site, "2", ststest.Policy("testing", week, "a.example"))
	f.expect(other, site, "testing", live, "", 2)
	f.expect(f.s, site, "testing", live, "", 2)

	f.lab.Set(site, ststest.Site{TXT: ststest.Record("3"), Handler: http.NotFound})
	f.expect(f.s, site, "testing", cached, mtasts.FetchError, 3)
	f.expect(other, site, "testing", cached, mtasts.FetchError, 3)

	// The record is gone, so that only the hint can tell the other node.
	f.lab.Set(site, ststest.Site{})
	f.expect(other, site, "testing", cached, mtasts.FetchError, 3)
	if err := f.s.Forget(t.Context(), site); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; {
		if p, st := f.find(other, site); p.Mode == "" && st.Origin == none {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the other node does not forget the policy")
		}
	}
}

// If a node is killed between the fetch and the commit, the former policy applies until another node has fetched the
// new one. The claim of the killed node ends by itself.
func TestKilledNode(t *testing.T) {
	t.Parallel()
	for engine, url := range map[string]string{"sqlite": dbtest.SQLiteFile(t), "postgres": dbtest.PostgresURL(t)} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			killed := dbtest.Open(t, url)
			f := newFixture(t, killed)
			f.publish(site, "1", enforced)
			f.expect(f.s, site, "enforce", live, "", 1)
			asked, answer := make(chan struct{}), make(chan struct{})
			f.lab.Set(site, ststest.Site{TXT: ststest.Record("2"), Handler: func(w http.ResponseWriter, _ *http.Request) {
				asked <- struct{}{}
				<-answer
				w.Header().Set("Content-Type", "text/plain")
				w.Write([]byte(ststest.Policy("testing", week, "new.example")))
			}})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				f.s.For(t.Context(), site)
			}()
			<-asked
			killed.Close()
			close(answer)
			<-ended

			d := dbtest.Open(t, url)
			s := f.service(d)
			if e, err := s.Show(t.Context(), site); err != nil || e.ID != "1" || e.Policy.Mode != "enforce" || e.FailedID != "" {
				t.Errorf("after the kill, the cache has %+v, %v", e, err)
			}
			f.lab.Set(site, ststest.Site{})
			f.expect(s, site, "enforce", cached, mtasts.FetchError, 2)
			f.publish(site, "2", ststest.Policy("testing", week, "new.example"))
			f.clock.add(30 * time.Second)
			f.expect(s, site, "testing", live, "", 3)
		})
	}
}

// If an answer of the database is lost at any moment, the old or the new policy applies, or mail waits. The row has the
// old or the new policy with its id.
func TestPolicyTorn(t *testing.T) {
	t.Parallel()
	d, proxy := dbtest.Proxied(t, 5*time.Second)
	f := newFixture(t, d)
	n, updated := 0, 0
	policy := func() string { return ststest.Policy("enforce", week, fmt.Sprintf("mx%d.example", n)) }
	f.publish(site, "0", policy())
	f.expect(f.s, site, "enforce", live, "", 1)
	dbtest.EachTorn(t, proxy, func() {
		n++
		f.clock.add(time.Hour) // ends claims, and what is in memory
		f.publish(site, strconv.Itoa(n), policy())
	}, func() error {
		p, st, err := f.s.For(t.Context(), site)
		switch {
		case err == nil && st.Origin == live && p.Matches(fmt.Sprintf("mx%d.example", n)):
			updated++
		case err == nil && (st.Origin != cached || p.Mode != mtasts.Enforce), err != nil && p.Mode != "":
			t.Errorf("try %d: %+v, %+v, %v", n, p, st, err)
		}
		return err
	}, func(skip int, _ error) {
		e, err := f.service(d).Show(t.Context(), site)
		if id, _ := strconv.Atoi(e.ID); err != nil || !e.Policy.Matches("mx"+e.ID+".example") || id > n {
			t.Errorf("answer %d torn: try %d has stored %+v, %v", skip, n, e, err)
		}
	})
	if n < 3 || updated < 2 {
		t.Errorf("%d tries, of which %d see the new policy: the test reaches too little", n, updated)
	}
}

// Without the database, the valid policies in memory apply. Mail for other domains waits, because the database may have
// a policy that forbids a connection in clear, whether the domain still publishes it or not.
func TestWithoutDatabase(t *testing.T) {
	t.Parallel()
	d, proxy := dbtest.Proxied(t, 3*time.Second)
	f := newFixture(t, d)
	f.publish(site, "1", enforced)
	f.publish("two.example", "1", enforced)
	f.expect(f.s, site, "enforce", live, "", 1)
	f.expect(f.s, site, "enforce", live, "", 1)
	other := f.service(d)
	f.expect(other, site, "enforce", live, "", 1)
	cold := f.service(d)
	f.expect(f.s, "four.example", "", none, "", 0)
	f.clock.add(time.Hour)
	f.expect(f.s, "recent.example", "", none, "", 0)
	proxy.Refuse()
	f.expect(f.s, "recent.example", "", none, "", 0)
	f.expect(f.s, site, "enforce", live, "", 1)
	f.publish("recent.example", "1", enforced)
	f.unknown(f.s, "recent.example") // no claim is possible
	f.unknown(f.s, "two.example")
	f.lab.Set("three.example", ststest.Site{TXT: ststest.Record("1"), Handler: http.NotFound})
	f.unknown(f.s, "three.example")
	f.unknown(f.s, "four.example") // was read an hour ago
	f.lab.Set(site, ststest.Site{})
	f.unknown(cold, site)
	f.expect(other, site, "enforce", cached, mtasts.FetchError, 1)
	f.publish(site, "2", ststest.Policy("none", 60))
	f.expect(other, site, "enforce", cached, mtasts.FetchError, 1)
	f.clock.add(week * time.Second)
	f.unknown(other, site) // has expired
	if n := f.lab.Fetches("two.example") + f.lab.Fetches("three.example") + f.lab.Fetches("recent.example"); n != 0 {
		t.Errorf("%d fetches without the database", n)
	}
	if len(f.log.take()) == 0 {
		t.Error("nothing is logged")
	}
	if err := proxy.Pass(); err != nil {
		t.Fatal(err)
	}
	f.clock.add(time.Hour)
	f.expect(f.s, "two.example", "enforce", live, "", 1)
	f.expect(cold, site, "none", live, "", 2)
	if e, err := f.s.Show(t.Context(), "two.example"); err != nil || e.ID != "1" {
		t.Errorf("the cache has %+v, %v", e, err)
	}
}

// A policy is fetched again after a day, so that it does not expire while it is published.
func TestRefresh(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.publish(site, "1", enforced)
		f.expect(f.s, site, "enforce", live, "", 1)
		for _, c := range []struct {
			after   time.Duration
			fetches int
		}{{24*time.Hour - time.Microsecond, 1}, {3*time.Hour + time.Microsecond, 2}, {0, 2}, {20 * time.Hour, 2},
			{7 * time.Hour, 3}} {
			f.clock.add(c.after)
			f.refresh()
			if n := f.lab.Fetches(site); n != c.fetches {
				t.Errorf("after %v, there were %d fetches, want %d", c.after, n, c.fetches)
			}
		}
		if all := f.log.take(); len(all) > 0 {
			t.Errorf("logged: %q", all)
		}
		e, err := f.s.Show(t.Context(), site)
		if err != nil || !e.ExpiresAt.Equal(f.clock.Now().Add(week*time.Second)) {
			t.Errorf("%+v, %v", e, err)
		}
		// A change without a new id is seen too.
		f.publish(site, "1", ststest.Policy("none", week))
		f.clock.add(27 * time.Hour)
		f.refresh()
		f.expect(f.s, site, "none", live, "", 4)
	})
}

func (f *fixture) refresh() {
	f.Helper()
	if err := f.s.Refresh(f.Context()); err != nil {
		f.Fatal(err)
	}
}

// A refresh that fails is logged, unless the policy demands nothing, and is repeated after hours. The policy applies
// until it expires, and then its row is deleted.
func TestRefreshFails(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		for _, c := range []struct {
			domain  string
			mode    mtasts.Mode
			site    ststest.Site
			result  mtasts.Result // after the record has another id
			fetches int           // for each try
			warned  bool
		}{
			{"gone.example", "enforce", ststest.Site{}, mtasts.FetchError, 0, true},
			{"broken.example", "enforce", ststest.Site{TXT: ststest.Record("1"), Handler: http.NotFound}, "", 1, true},
			{"testing.example", "testing", ststest.Site{TXT: ststest.Record("1"), Policy: "x"}, "", 1, true},
			{"none.example", "none", ststest.Site{TXT: ststest.Record("1"), Policy: "x"}, "", 1, false},
		} {
			f.publish(c.domain, "1", ststest.Policy(string(c.mode), 2*24*3600, "a.example"))
			f.expect(f.s, c.domain, c.mode, live, "", 1)
			f.lab.Set(c.domain, c.site)
			origin := live
			if c.result != "" {
				origin = cached
			}
			f.clock.add(27 * time.Hour)
			f.refresh()
			f.expect(f.s, c.domain, c.mode, origin, c.result, 1+c.fetches)
			f.clock.add(4*time.Hour - time.Microsecond)
			f.refresh()
			f.expect(f.s, c.domain, c.mode, origin, c.result, 1+c.fetches)
			f.clock.add(time.Microsecond)
			f.refresh()
			f.expect(f.s, c.domain, c.mode, origin, c.result, 1+2*c.fetches)
			if all := f.log.take(); (len(all) == 2) != c.warned || len(all) == 2 && !strings.Contains(all[0], "be refreshed") {
				t.Errorf("%s: logged: %q", c.domain, all)
			}
			f.clock.add(24 * time.Hour)
			f.refresh()
			f.absent(c.domain)
		}
	})
}

func (f *fixture) absent(domain string) {
	f.Helper()
	if e, err := f.s.Show(f.Context(), domain); err == nil {
		f.Errorf("the cache has %+v", e)
	}
}

// A policy that no email uses for 180 days is dropped. Its uses are recorded once a day. The row of a domain whose
// policy could never be had is deleted after a day.
func TestUnusedPolicies(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		day := 24 * time.Hour
		f.publish(site, "1", ststest.Policy("enforce", 31557600, "a.example"))
		f.publish("used.example", "1", ststest.Policy("enforce", 31557600, "a.example"))
		f.lab.Set("never.example", ststest.Site{TXT: ststest.Record("1"), Handler: http.NotFound})
		f.expect(f.s, "never.example", "", none, mtasts.FetchError, 1)
		f.expect(f.s, site, "enforce", live, "", 1)
		f.expect(f.s, "used.example", "enforce", live, "", 1)
		f.clock.add(day + time.Microsecond)
		f.refresh()
		f.absent("never.example")
		f.clock.add(100 * day)
		f.expect(f.s, "used.example", "enforce", live, "", 1)
		used := f.clock.Now()
		f.clock.add(day - time.Microsecond)
		f.expect(f.s, "used.example", "enforce", live, "", 1)
		if e, err := f.s.Show(t.Context(), "used.example"); err != nil || !e.UsedAt.Equal(used) {
			t.Errorf("%+v, %v; want used at %v", e, err, used)
		}
		f.clock.add(77 * day)
		f.refresh() // just before 180 days
		if e, err := f.s.Show(t.Context(), site); err != nil || !e.FetchedAt.Equal(f.clock.Now()) {
			t.Errorf("a policy unused for 179 days: %+v, %v", e, err)
		}
		f.clock.add(2 * day)
		f.refresh()
		f.absent(site)
		f.expect(f.s, "used.example", "enforce", live, "", 3)
	})
}

// A refresh handles any number of policies, and ends with its context.
func TestRefreshMany(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sqlite(t))
	const n = 250
	for i := range n {
		f.publish(fmt.Sprintf("d%d.example", i), "1", enforced)
		f.expect(f.s, fmt.Sprintf("d%d.example", i), "enforce", live, "", 1)
	}
	f.clock.add(27 * time.Hour)
	f.refresh()
	for i := range n {
		f.expect(f.s, fmt.Sprintf("d%d.example", i), "enforce", live, "", 2)
	}
}

func TestNewNeedsDeps(t *testing.T) {
	t.Parallel()
	if _, err := tlspolicies.New(tlspolicies.Config{}, tlspolicies.Deps{}); err == nil {
		t.Error("a service without dependencies")
	}
}

// If the outcome of a failed fetch cannot be stored, the node does not take it for the row: the next email reads the
// row, which another node may have changed.
func TestFailedFetchIsNoRow(t *testing.T) {
	t.Parallel()
	d, proxy := dbtest.Proxied(t, 3*time.Second)
	f := newFixture(t, d)
	f.lab.Set(site, ststest.Site{TXT: ststest.Record("1"), Handler: func(w http.ResponseWriter, r *http.Request) {
		proxy.Refuse()
		http.NotFound(w, r)
	}})
	f.expect(f.s, site, "", none, mtasts.FetchError, 1)
	if err := proxy.Pass(); err != nil {
		t.Fatal(err)
	}
	now := db.Micros(f.clock.Now())
	if err := d.Update(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE mta_sts_policies SET id = '2', policy = $1, fetched_at = $2, expires_at = $3,
			claimed_until = 0`, strings.ReplaceAll(enforced, "\r", ""), now, now+int64(time.Hour/time.Microsecond))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	f.lab.Set(site, ststest.Site{})
	f.expect(f.s, site, "enforce", cached, mtasts.FetchError, 1)
}
