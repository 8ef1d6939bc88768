//go:build chaos

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/grants"
)

const (
	broadcastSize = 240
	// broadcastPace lets a broadcast last for about 15 s, in recipients per hour.
	broadcastPace = broadcastSize * 240
	// noticing is the time after which no more emails of a stopped sender may arrive. It is longer than a node may cache a
	// decision about a broadcast, and longer than the hosts' latency.
	noticing = 4 * time.Second
)

// tenant is a team that sends emails beside the load of the cluster. Its emails have numbers of their own, so that a
// scenario can tell them from the load.
type tenant struct {
	w      *cluster
	name   string
	key    string
	first  int // number of its first email
	domain string
}

// tenantsMade is the number of tenants in all scenarios, which run in parallel.
var tenantsMade atomic.Int64

// tenant creates a team with a key. If the domain is not empty, tenant adds and verifies it.
func (w *cluster) tenant(name, domain string) *tenant {
	w.t.Helper()
	c := &tenant{w: w, name: name, domain: domain}
	c.key = w.command("keys", "create", "--create-team", "--team", name)
	c.first = burstFrom * (1 + int(tenantsMade.Add(1)))
	if domain != "" {
		c.addDomain()
	}
	return c
}

// command runs one of the program's commands while the nodes are running.
func (w *cluster) command(args ...string) string {
	w.t.Helper()
	env := append(w.nodes[0].env[:len(w.nodes[0].env):len(w.nodes[0].env)], "POSTRIDER_DATA_DIR="+w.nodes[0].folder())
	if w.server != nil {
		env = append(env, "POSTRIDER_DATABASE_URL="+w.server.URL)
	}
	out, errOut, err := command(w.t, env, args...)
	if err != nil {
		w.t.Fatalf("postrider %s: %v %s", strings.Join(args, " "), err, errOut)
	}
	return strings.TrimSpace(out)
}

// request makes a request with a credential, which must get the given status, and decodes the response. A request that
// a node cannot answer at present is repeated.
func (w *cluster) request(n *node, bearer, method, path string, body, out any, want int) {
	w.t.Helper()
	var a reply
	var err error
	if !within(30*time.Second, func() bool {
		a, err = caller{addr: n.addr, bearer: bearer}.ask(w.t.Context(), method, path, body)
		return err == nil && a.status != http.StatusServiceUnavailable
	}) || a.status != want {
		w.t.Fatalf("%s %s is answered with %d, %v: %.300s", method, path, a.status, err, a.text)
	}
	if out != nil {
		if err := json.Unmarshal([]byte(a.text), out); err != nil {
			w.t.Fatalf("%s %s: %v: %.300s", method, path, err, a.text)
		}
	}
}

func (c *tenant) do(method, path string, body, out any, want int) {
	c.w.t.Helper()
	c.w.request(c.w.nodes[len(c.w.nodes)-1], c.key, method, path, body, out, want)
}

// addDomain adds the team's domain, verifies it, and waits until it is verified.
func (c *tenant) addDomain() {
	c.w.t.Helper()
	var d struct{ ID, Status string }
	c.do(http.MethodPost, "/domains", map[string]any{"name": c.domain}, &d, http.StatusCreated)
	c.do(http.MethodPost, "/domains/"+d.ID+"/verify", nil, nil, http.StatusOK)
	eventually(c.w.t, 20*time.Second, "the domain is verified", func() bool {
		c.do(http.MethodGet, "/domains/"+d.ID, nil, &d, http.StatusOK)
		return d.Status == "verified"
	})
}

// deleteDomain deletes the team's only domain.
func (c *tenant) deleteDomain() {
	c.w.t.Helper()
	var all struct{ Data []struct{ ID string } }
	c.do(http.MethodGet, "/domains", nil, &all, http.StatusOK)
	c.do(http.MethodDelete, "/domains/"+all.Data[0].ID, nil, nil, http.StatusOK)
}

// address returns the address of the tenant's reader number i.
func (c *tenant) address(i int) string { return fmt.Sprintf("u%d@reader.example", c.first+i) }

// each calls f for the numbers from 0 to n-1, several at a time.
func each(n int, f func(i int)) {
	numbers := make(chan int, n) // never blocks, although a failed test ends the goroutines that read the channel
	for i := range n {
		numbers <- i
	}
	close(numbers)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range numbers {
				f(i)
			}
		})
	}
	all.Wait()
}

// readers creates a segment with contacts.
func (c *tenant) readers() (segmentID string) {
	c.w.t.Helper()
	var segment struct{ ID string }
	c.do(http.MethodPost, "/segments", map[string]any{"name": "Readers"}, &segment, http.StatusCreated)
	each(broadcastSize, func(i int) {
		c.do(http.MethodPost, "/contacts", map[string]any{"email": c.address(i), "segments": []string{segment.ID}}, nil,
			http.StatusCreated)
	})
	return segment.ID
}

// broadcast sends a broadcast to a segment. If the pace is 0, the broadcast has no pace.
func (c *tenant) broadcast(segmentID string, pace int) (broadcastID string) {
	c.w.t.Helper()
	body := map[string]any{"from": "News <news@" + c.domain + ">", "subject": "News", "segment_id": segmentID,
		"html": "<p>News</p>", "send": true}
	if pace > 0 {
		body["pace"] = pace
	}
	var b struct{ ID string }
	c.do(http.MethodPost, "/broadcasts", body, &b, http.StatusCreated)
	return b.ID
}

// paused checks that a broadcast is paused for a reason.
func (c *tenant) paused(broadcastID, reason string) {
	c.w.t.Helper()
	var b struct{ State, Reason string }
	c.do(http.MethodGet, "/broadcasts/"+broadcastID, nil, &b, http.StatusOK)
	if b.State != "paused" || b.Reason != reason {
		c.w.t.Errorf("the broadcast of %s is %s, with the reason %q, want %q", c.name, b.State, b.Reason, reason)
	}
}

// arrived returns how many of the tenant's emails with the numbers from 0 to n-1 have arrived.
func (c *tenant) arrived(n int) (came int) {
	for i := range n {
		came += min(len(c.w.mail.copies(c.first+i)), 1)
	}
	return came
}

// silent checks that none of the tenant's first n emails arrives for a while, except for those that are in transit.
func (c *tenant) silent(n int) {
	c.w.t.Helper()
	time.Sleep(noticing)
	before := c.arrived(n)
	time.Sleep(noticing)
	if after := c.arrived(n); after != before {
		c.w.t.Errorf("%d emails of %s arrived %v after it was stopped", after-before, c.name, noticing)
	}
}

// sent waits until a broadcast is sent and all its emails have a result, and returns the number of delivered emails.
func (c *tenant) sent(broadcastID string) (delivered int, leftOut map[string]int) {
	c.w.t.Helper()
	var r struct {
		State              string
		Delivered, Waiting int
		LeftOut            map[string]int `json:"left_out"`
	}
	if !within(time.Minute, func() bool {
		c.do(http.MethodGet, "/broadcasts/"+broadcastID+"/results", nil, &r, http.StatusOK)
		return r.State == "sent" && r.Waiting == 0 && c.w.waiting() >= 0
	}) {
		c.w.t.Errorf("the broadcast of %s is %s, with %d emails delivered and %d waiting", c.name, r.State, r.Delivered,
			r.Waiting)
	}
	return r.Delivered, r.LeftOut
}

// once checks that each of the tenant's emails for which wanted returns true arrived once, and that the others did not
// arrive. An email that was in transit when a node was killed may have arrived more often.
func (c *tenant) once(n int, wanted func(i int) bool) {
	c.w.t.Helper()
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	lost, doubled, wrong := 0, 0, 0
	for i := range n {
		copies := len(c.w.mail.copies(c.first + i))
		switch {
		case !wanted(i):
			wrong += copies
		case copies == 0:
			lost++
		default:
			doubled += max(copies-1-c.w.allowed[c.first+i], 0)
		}
	}
	if lost+doubled+wrong > 0 {
		c.w.t.Errorf("of %d emails of %s %d are lost, %d arrived twice, and %d arrived although they must not", n, c.name,
			lost, doubled, wrong)
	}
}

func always(int) bool { return true }

// sendersStopped suspends a team, and deletes the API key of another one, in the middle of a broadcast. Both broadcasts
// pause immediately. After a node was killed and the broadcasts were resumed, each contact has one email.
func sendersStopped(t *testing.T, engine string) sum {
	w := newCluster(t, engine, setup{})
	suspended, keyless := w.tenant("Suspended", "suspended.example"), w.tenant("Keyless", "keyless.example")
	segments := []string{suspended.readers(), keyless.readers()}
	second := w.command("keys", "create", "--create-team", "--team", "Keyless")
	w.during(func() {
		w.burst(w.nodes[0])
		ids := []string{suspended.broadcast(segments[0], broadcastPace), keyless.broadcast(segments[1], broadcastPace)}
		for _, c := range []*tenant{suspended, keyless} {
			eventually(t, time.Minute, "a part has arrived", func() bool { return c.arrived(broadcastSize) > broadcastSize/4 })
		}
		w.command("teams", "suspend", "Suspended")
		var keys struct{ Data []struct{ ID string } }
		keyless.do(http.MethodGet, "/api-keys", nil, &keys, http.StatusOK)
		sender := keys.Data[len(keys.Data)-1].ID
		keyless.do(http.MethodDelete, "/api-keys/"+sender, nil, nil, http.StatusOK)
		keyless.key = second
		suspended.paused(ids[0], "team_suspended")
		keyless.paused(ids[1], "api_key_deleted")
		var both sync.WaitGroup
		both.Go(func() { suspended.silent(broadcastSize) })
		keyless.silent(broadcastSize)
		both.Wait()
		w.kill(0)
		suspended.paused(ids[0], "team_suspended")
		keyless.paused(ids[1], "api_key_deleted")
		w.command("teams", "resume", "Suspended")
		resume := func() bool { // nodes that share no process with the command hear of the change a little later
			a, err := caller{addr: w.nodes[0].addr, bearer: suspended.key}.ask(t.Context(), http.MethodPost,
				"/broadcasts/"+ids[0]+"/resume", nil)
			return err == nil && a.status == http.StatusOK
		}
		eventually(t, 30*time.Second, "the team may resume its broadcast", resume)
		keyless.do(http.MethodPost, "/broadcasts/"+ids[1]+"/resume", nil, nil, http.StatusOK)
		for i, c := range []*tenant{suspended, keyless} {
			if delivered, _ := c.sent(ids[i]); delivered != broadcastSize {
				t.Errorf("%d emails of %s are delivered", delivered, c.name)
			}
		}
	})
	w.settle()
	suspended.once(broadcastSize, always)
	keyless.once(broadcastSize, always)
	s := w.sum()
	s.more = fmt.Sprintf("two broadcasts of %d", broadcastSize)
	return s
}

// domainLost deletes a team's domain in the middle of a broadcast, while emails are scheduled, and kills a node before
// the team adds the domain again. Everything goes on, and each email arrives once. After the domain is deleted again,
// another team verifies it: the emails that wait then fail.
func domainLost(t *testing.T, engine string) sum {
	const scheduled, taken = 60, 20
	w := newCluster(t, engine, setup{})
	c, thief := w.tenant("Loser", "lost.example"), w.tenant("Taker", "")
	segment := c.readers()
	var ids []string
	schedule := func(from, n int, in time.Duration) (ids []string) {
		var mu sync.Mutex
		at := time.Now().Add(in).Format(time.RFC3339)
		each(n, func(i int) {
			var e struct{ ID string }
			c.do(http.MethodPost, "/emails", map[string]any{"from": "a@lost.example", "to": c.address(from + i),
				"subject": "s", "text": "t", "scheduled_at": at}, &e, http.StatusOK)
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, e.ID)
		})
		return ids
	}
	states := func(ids []string, want string) bool {
		n := 0
		for _, id := range ids {
			var e struct {
				LastEvent string `json:"last_event"`
			}
			c.do(http.MethodGet, "/emails/"+id, nil, &e, http.StatusOK)
			if e.LastEvent == want {
				n++
			}
		}
		return n == len(ids)
	}
	const all = broadcastSize + scheduled
	w.during(func() {
		w.burst(w.nodes[0])
		broadcast := c.broadcast(segment, broadcastPace)
		eventually(t, time.Minute, "a part has arrived", func() bool { return c.arrived(broadcastSize) > broadcastSize/4 })
		ids = schedule(broadcastSize, scheduled, 4*time.Second)
		c.deleteDomain()
		c.paused(broadcast, "domain_not_verified")
		c.silent(all)
		eventually(t, time.Minute, "the scheduled emails are withheld", func() bool {
			return states(ids, "delivery_delayed")
		})
		w.kill(0)
		c.paused(broadcast, "domain_not_verified")
		c.addDomain()
		if delivered, _ := c.sent(broadcast); delivered != broadcastSize {
			t.Errorf("%d emails of the broadcast are delivered", delivered)
		}
		eventually(t, time.Minute, "the scheduled emails are delivered", func() bool { return states(ids, "delivered") })
		late := schedule(all, taken, 3*time.Second)
		c.deleteDomain()
		eventually(t, time.Minute, "the late emails are withheld", func() bool {
			return states(late, "delivery_delayed")
		})
		thief.domain = "lost.example"
		thief.addDomain()
		eventually(t, time.Minute, "the late emails fail", func() bool { return states(late, "failed") })
	})
	w.settle()
	c.once(all+taken, func(i int) bool { return i < all })
	for _, id := range ids {
		var events struct{ Data []struct{ Type string } }
		c.do(http.MethodGet, "/emails/"+id+"/events", nil, &events, http.StatusOK)
		if n := strings.Count(fmt.Sprint(events.Data), "delivery_delayed"); n != 1 {
			t.Errorf("an email has %d events delivery_delayed: %v", n, events.Data)
		}
	}
	s := w.sum()
	s.more = fmt.Sprintf("a broadcast of %d, %d emails withheld, %d failed", broadcastSize, scheduled, taken)
	return s
}

// contactsDeleted unsubscribes and deletes contacts, and adds some of them again, while their emails of a broadcast
// wait. None of them gets an email, although a node is killed before the broadcast goes on.
func contactsDeleted(t *testing.T, engine string) sum {
	w := newCluster(t, engine, setup{})
	c := w.tenant("Forgetful", "forgetful.example")
	segment := c.readers()
	deleted := map[int]bool{}
	w.during(func() {
		w.burst(w.nodes[0])
		w.mail.slow(2 * time.Second)
		broadcast := c.broadcast(segment, 0)
		eventually(t, time.Minute, "all emails are enqueued", func() bool {
			var r struct{ Entered int }
			c.do(http.MethodGet, "/broadcasts/"+broadcast+"/results", nil, &r, http.StatusOK)
			return r.Entered == broadcastSize
		})
		c.do(http.MethodPost, "/broadcasts/"+broadcast+"/pause", nil, nil, http.StatusOK)
		w.mail.slow(latency)
		c.silent(broadcastSize)
		for i := range broadcastSize {
			deleted[i] = i%2 == 0 && len(w.mail.copies(c.first+i)) == 0
		}
		each(broadcastSize, func(i int) {
			if !deleted[i] {
				return
			}
			path := "/contacts/" + c.address(i)
			c.do(http.MethodPatch, path, map[string]any{"unsubscribed": true}, nil, http.StatusOK)
			c.do(http.MethodDelete, path, nil, nil, http.StatusOK)
			if i%4 == 0 {
				c.do(http.MethodPost, "/contacts", map[string]any{"email": c.address(i), "segments": []string{segment}}, nil,
					http.StatusCreated)
			}
		})
		w.kill(0)
		c.do(http.MethodPost, "/broadcasts/"+broadcast+"/resume", nil, nil, http.StatusOK)
		gone := 0
		for _, is := range deleted {
			if is {
				gone++
			}
		}
		delivered, leftOut := c.sent(broadcast)
		if delivered != broadcastSize-gone || leftOut["contact_deleted"] != gone || gone < broadcastSize/8 {
			t.Errorf("%d of %d contacts were deleted; %d emails are delivered, and %v left out", gone, broadcastSize, delivered,
				leftOut)
		}
	})
	w.settle()
	c.once(broadcastSize, func(i int) bool { return !deleted[i] })
	s := w.sum()
	s.more = fmt.Sprintf("a broadcast of %d", broadcastSize)
	return s
}

// appsLimited limits one connected app, demands approval for another one, and lowers the role of the user who connected
// a third one, while the apps' emails are scheduled. A node is killed when the emails are due. The emails fail, except
// for those within the limit and those of an app whose rights did not change.
func appsLimited(t *testing.T, engine string) sum {
	const perApp, limit = 30, 10
	w := newCluster(t, engine, setup{})
	c := w.tenant("Apps", "apps.example")
	names := []string{"untouched", "limited", "approval", "demoted"}
	apps := make([]pair, len(names))
	for i, name := range names {
		apps[i] = w.app(c, name+"@people.example")
	}
	ids := make([][]string, len(names))
	w.during(func() {
		w.burst(w.nodes[0])
		at := time.Now().Add(8 * time.Second)
		var mu sync.Mutex
		each(perApp*len(names), func(i int) {
			var e struct{ ID string }
			k := i / perApp
			// A token is valid only for the public URL of the node that issued it.
			w.request(w.nodes[0], apps[k].Access, http.MethodPost, "/emails", map[string]any{"from": "a@apps.example",
				"to": c.address(i), "subject": "s", "text": "t", "scheduled_at": at.Format(time.RFC3339)}, &e, http.StatusOK)
			mu.Lock()
			defer mu.Unlock()
			ids[k] = append(ids[k], e.ID)
		})
		set := func(k int, limits map[string]any) {
			c.do(http.MethodPatch, "/oauth/grants/"+apps[k].grantID(t), map[string]any{"limits": limits}, nil, http.StatusOK)
		}
		set(1, map[string]any{"emails_per_day": limit})
		set(2, map[string]any{"approval": true})
		var members struct {
			Data []struct {
				ID, Email string
			}
		}
		c.do(http.MethodGet, "/team/members?limit=100", nil, &members, http.StatusOK)
		for _, m := range members.Data {
			if strings.HasPrefix(m.Email, "demoted@") {
				c.do(http.MethodPatch, "/team/members/"+m.ID, map[string]any{"role": "viewer"}, nil, http.StatusOK)
			}
		}
		if time.Now().After(at) {
			t.Error("the emails were due before the apps were limited")
		}
		time.Sleep(time.Until(at))
		w.kill(0)
		count := func(k int, state string) (n int) {
			for _, id := range ids[k] {
				var e struct {
					LastEvent string `json:"last_event"`
				}
				c.do(http.MethodGet, "/emails/"+id, nil, &e, http.StatusOK)
				if e.LastEvent == state {
					n++
				}
			}
			return n
		}
		for k, delivered := range []int{perApp, limit, 0, 0} {
			if !within(time.Minute, func() bool {
				return count(k, "delivered") == delivered && count(k, "failed") == perApp-delivered
			}) {
				t.Errorf("the app %s: %d emails are delivered, want %d, and %d failed", names[k], count(k, "delivered"), delivered,
					count(k, "failed"))
			}
		}
	})
	w.settle()
	came := 0
	for i := perApp; i < 2*perApp; i++ {
		came += min(len(w.mail.copies(c.first+i)), 1)
	}
	if came != limit {
		t.Errorf("%d emails of the limited app arrived, want %d", came, limit)
	}
	c.once(perApp*len(names), func(i int) bool {
		return i < perApp || i < 2*perApp && len(w.mail.copies(c.first+i)) > 0
	})
	s := w.sum()
	s.more = fmt.Sprintf("%d scheduled emails of each of %d apps", perApp, len(names))
	return s
}

// app invites a user to a tenant's team and connects an app on the user's behalf.
func (w *cluster) app(c *tenant, email string) (p pair) {
	w.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	by := caller{addr: w.nodes[0].named(), jar: jar}
	expect := func(method, path string, body any, status int) reply {
		w.t.Helper()
		a, err := by.ask(context.Background(), method, path, body)
		if err != nil || a.status != status {
			w.t.Fatalf("%s %s is answered with %d, %v: %.500s", method, path, a.status, err, a.text)
		}
		return a
	}
	said := w.command("users", "invite", email, "--team", c.name, "--role", "admin")
	expect(http.MethodPost, invitationLink.FindString(said), url.Values{"password": {password}}, http.StatusSeeOther)
	_, query, _ := strings.Cut(authorizePath(anyLoopback, grants.CLI, "full_access"), "?")
	form, err := url.ParseQuery(query)
	if err != nil {
		w.t.Fatal(err)
	}
	form.Set("decision", "allow")
	form.Set("team", strings.Fields(strings.Split(w.command("teams", "show", c.name), "\n")[0])[1])
	a := expect(http.MethodPost, "/oauth/authorize", form, http.StatusSeeOther)
	to, err := url.Parse(a.location)
	if err != nil || to.Query().Get("code") == "" {
		w.t.Fatalf("no code in %q: %.300s", a.location, a.text)
	}
	a = expect(http.MethodPost, "/oauth/token", codeFor(to.Query().Get("code")), http.StatusOK)
	if err := json.Unmarshal([]byte(a.text), &p); err != nil {
		w.t.Fatal(err)
	}
	return p
}
