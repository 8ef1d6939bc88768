package webhooks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/platform/signing"
)

// A backlog measurement is due whenever enough jobs have been inserted since the last measurement. Only jobs from
// committed transactions count.
func TestEnteredIsMeasuredInParts(t *testing.T) {
	d := dbtest.SQLite(t)
	var c entryCounter
	add := func(team string, n int, fails bool) (due bool) {
		t.Helper()
		err := d.Update(t.Context(), func(tx *db.Tx) error {
			due = c.add(tx, team, n, 10)
			if fails {
				return errors.New("no")
			}
			return nil
		})
		if (err != nil) != fails {
			t.Fatal(err)
		}
		return due
	}
	for i, x := range []struct {
		team  string
		n     int
		fails bool
		due   bool
	}{{"a", 4, false, false}, {"a", 5, true, false}, {"a", 5, false, false}, {"b", 9, false, false}, {"a", 1, true, true},
		{"a", 1, false, true},
		{"a", 9, false, false}, {"a", 1, false, true}, {"b", 1, false, true}, {"c", 10, false, true}} {
		if due := add(x.team, x.n, x.fails); due != x.due {
			t.Errorf("step %d: it is measured: %v", i, due)
		}
	}
	c.n = map[string]int{}
	for i := range cacheMax - 1 {
		c.n[fmt.Sprint(i)] = 1
	}
	if add("a", 3, false); len(c.n) != cacheMax || c.n["a"] != 3 {
		t.Errorf("%d teams are known", len(c.n))
	}
	if add("b", 3, false); len(c.n) != 1 || c.n["b"] != 3 {
		t.Errorf("%d teams are known with one more", len(c.n))
	}
}

// The mean duration follows the latest responses, starts over when an endpoint recovers, and is bounded.
func TestMeanOfAnswers(t *testing.T) {
	h := &health{timeout: timeout}
	is := func(want time.Duration) {
		t.Helper()
		if got := h.all["e"].mean; got != want {
			t.Errorf("the mean is %v, want %v", got, want)
		}
	}
	h.note("e", true, answer{took: 8 * time.Second})
	is(8 * time.Second)
	h.note("e", true, answer{took: 4 * time.Second})
	is(7 * time.Second)
	if n, _ := h.limit("e"); n != int(perEndpoint*quick/(7*time.Second)) {
		t.Errorf("%d attempts", n)
	}
	h.note("e", false, answer{took: 3 * time.Second})
	is(6 * time.Second)
	h.note("e", true, answer{took: 2 * time.Second})
	is(2 * time.Second)
	h.note("zero", true, answer{})
	if n, _ := h.limit("zero"); n != perEndpoint {
		t.Errorf("%d attempts at one that answers at once", n)
	}
	h.all = map[string]*condition{}
	for i := range healthMax - 1 {
		h.all[fmt.Sprint(i)] = nil
	}
	if h.of("one"); len(h.all) != healthMax {
		t.Errorf("%d endpoints are remembered", len(h.all))
	}
	if h.of("another"); len(h.all) != 1 {
		t.Errorf("%d endpoints are remembered with one more", len(h.all))
	}
}

// Neither error responses nor attempts that began before a pause extend the pause. An endpoint with too many
// connections gets a different kind of pause.
func TestRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &health{timeout: timeout}
		late, words := answer{late: true, took: timeout}, answer{took: time.Second}
		is := func(want int, rest time.Duration) {
			t.Helper()
			n, again := h.limit("e")
			if n != want || rest == 0 != again.IsZero() || rest > 0 && time.Until(again) != rest {
				t.Errorf("%d attempts, again in %v; want %d, %v", n, time.Until(again), want, rest)
			}
		}
		for range failingRow - 1 {
			h.note("e", false, late)
		}
		is(slowAttempts, 0)
		h.note("e", false, words)
		is(failingLanes, 0)
		for range failingRow - 1 {
			h.note("e", false, late)
		}
		is(failingLanes, 0)
		h.note("e", false, late)
		is(0, timeout/restPart)
		h.note("e", false, late) // the attempt began before the pause
		is(0, timeout/restPart)
		time.Sleep(timeout/restPart - 1)
		is(0, 1)
		time.Sleep(time.Nanosecond)
		is(1, 0)
		h.note("e", false, late)
		is(0, 2*timeout/restPart)
		h.note("e", false, words)
		is(0, 2*timeout/restPart) // the pause continues
		time.Sleep(2 * timeout / restPart)
		is(failingLanes, 0)

		want := crowdedFirst
		for range 7 {
			if got := h.crowded("e"); got != want {
				t.Errorf("it rests for %v, want %v", got, want)
			}
			is(0, want)
			time.Sleep(want / 2)
			if got := h.crowded("e"); got != want-want/2 {
				t.Errorf("in a rest it rests for %v more", got)
			}
			time.Sleep(want - want/2)
			is(1, 0)
			want = min(2*want, crowdedMax)
		}
		h.note("e", true, words)
		is(perEndpoint, 0)
		if got := h.crowded("e"); got != crowdedFirst {
			t.Errorf("after it got through it rests for %v", got)
		}
	})
}

// TestJudgedAtItsEdges checks how an attempt affects its endpoint, at the boundaries of the time limits.
func TestJudgedAtItsEdges(t *testing.T) {
	const limit = 5 * 24 * time.Hour
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.SQLite(t)
		ok, bad, gone := verdict{state: Success}, verdict{state: Attempting, reason: "it is broken"},
			verdict{state: Failed, gone: true}
		for i, c := range []struct {
			name     string
			failing  time.Duration // how long the endpoint has been failing; 0 means that it is not failing
			warned   bool
			v        verdict
			works    time.Duration // time since the last success; 0 means that there was none
			failed   bool          // whether the endpoint counts as failing after the attempt
			notified string
		}{
			{"it works", 0, false, ok, 0, false, ""},
			{"it works after a failure", time.Minute, false, ok, 0, true, ""},
			{"it works after a minute", time.Minute + 1000, false, ok, 0, false, ""},
			{"it works after a warning", time.Second, true, ok, 0, false, ""},
			{"it begins to fail", 0, false, bad, 0, true, ""},
			{"it is gone", 0, false, gone, 0, false, "disabled"},
			{"it fails for a while", limit/warnAfter - 1000, false, bad, 0, true, ""},
			{"it fails for a fifth", limit / warnAfter, false, bad, 0, true, "fails"},
			{"it fails, and the team knows", limit - 1000, true, bad, 0, true, ""},
			{"it fails for long", limit, true, bad, 0, true, "disabled"},
			{"it fails for long, and nobody knows", limit, false, bad, 0, true, "disabled"},
			{"it fails now and then", limit, true, bad, time.Hour, false, ""},
			{"it worked before", limit, true, bad, limit + time.Hour, true, "disabled"},
		} {
			notified := ""
			s := &Service{c: Config{DisableAfter: limit}, p: Deps{DB: d, Log: slog.New(slog.DiscardHandler),
				Notify: func(_ context.Context, _ *db.Tx, team, subject, text string) error {
					if notified = subject; team != dbtest.ID("team") || !strings.Contains(text,
						"\n\n  https://one.example/hook\n\n") ||
						strings.Contains(text, "secret") {
						t.Errorf("%s: %s is told %q", c.name, team, text)
					}
					return nil
				}}}
			s.endpoints.start(d)
			e := &Endpoint{ID: dbtest.ID(fmt.Sprint("e", i)), TeamID: dbtest.ID("team"), Status: Enabled,
				URL:       "https://user:secret@one.example/hook?key=secret#secret",
				CreatedAt: d.Now(), warned: c.warned,
				secret: signing.Secret{Sealed: []byte{1}}}
			if c.failing > 0 {
				e.FailingSince = d.Now().Add(-c.failing)
			}
			err := d.Update(t.Context(), func(tx *db.Tx) error {
				insertEndpoint(t.Context(), tx, e)
				saveEndpoint(t.Context(), tx, e)
				if c.works > 0 {
					tx.Queue(t.Context(), `INSERT INTO webhook_deliveries (webhook_id, message_id, team_id, chain, status, tries,
						next_at, finished_at)
						VALUES ($1, $3, $4, 'c', 'success', 1, 0, $2)`, db.ID(e.ID), d.Now().Add(-c.works).UnixMicro(),
						db.ID(dbtest.ID("m")), db.ID(e.TeamID))
				}
				return nil
			})
			if err == nil {
				err = d.Update(t.Context(), func(tx *db.Tx) error { return s.judged(t.Context(), tx, e, c.v) })
			}
			after, err2 := getEndpoint(t.Context(), d.Reader, dbtest.ID("team"), e.ID)
			if err != nil || err2 != nil {
				t.Fatal(c.name, err, err2)
			}
			disabled := after.Status == Disabled
			if after.FailingSince.IsZero() == c.failed || disabled != (c.notified == "disabled") ||
				!strings.Contains(notified, c.notified) || notified != "" && c.notified == "" {
				t.Errorf("%s: failing since %v, %s, told %q", c.name, after.FailingSince, after.Status, notified)
			}
			if after.warned != (c.failed && (c.warned || c.notified == "fails")) {
				t.Errorf("%s: warned %v", c.name, after.warned)
			}
			// If another node gets the same result, that node sends no second notice.
			if notified = ""; c.notified != "" {
				err := d.Update(t.Context(), func(tx *db.Tx) error { return s.judged(t.Context(), tx, e, c.v) })
				if err != nil || notified != "" {
					t.Errorf("%s: %v, told again %q", c.name, err, notified)
				}
			}
		}
	})
}

// A team's connections to an address are limited in number, including connections that are being opened. A new
// connection replaces an idle connection that has been used. Addresses without connections are removed from the count.
func TestConnectionsAreCounted(t *testing.T) {
	c := &connections{all: map[connKey]map[*connection]bool{}}
	at := connKey{"team", netip.MustParseAddr("192.0.2.1")}
	add := func() (*connection, bool) {
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close(); far.Close() })
		x := &connection{Conn: near, c: c, key: at}
		return x, c.acquire(x)
	}
	var all []*connection
	for range perAddress {
		x, ok := add()
		if !ok {
			t.Fatalf("there is no room for %d", len(all)+1)
		}
		all = append(all, x)
	}
	if _, ok := add(); ok {
		t.Error("there is room beyond the limit while all are dialled")
	}
	all[3].use(1)
	if _, ok := add(); ok {
		t.Error("there is room beyond the limit while one is used")
	}
	all[3].use(-1)
	x, ok := add()
	if !ok || len(c.all[at]) != perAddress || c.all[at][all[3]] || !c.all[at][x] {
		t.Error("one that idles makes no room")
	}
	if _, err := all[3].Conn.Write([]byte("x")); err == nil {
		t.Error("the one that made room is open")
	}
	for _, x := range append(all, x) {
		x.Close()
	}
	if len(c.all) != 0 {
		t.Errorf("what is closed is counted: %d", len(c.all))
	}
}

// A failed dial removes its connections from the count.
func TestDialsThatFail(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	c := &connections{guard: netguard.New(netguard.Options{AllowLoopback: true}), all: map[connKey]map[*connection]bool{}}
	conn, err := c.dial(context.WithValue(t.Context(), teamKey{}, "team"), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(c.all[connKey{"team", netip.MustParseAddr("127.0.0.1")}]); n != 1 {
		t.Errorf("%d connections are counted", n)
	}
	conn.Close()
	l.Close()
	if conn, err := c.dial(t.Context(), "tcp", addr); err == nil || conn != nil {
		t.Errorf("nobody listens: %v, %v", conn, err)
	}
	c.guard = netguard.New(netguard.Options{})
	if _, err := c.dial(t.Context(), "tcp", addr); !errors.Is(err, netguard.ErrRefused) {
		t.Errorf("an address that may not be dialled: %v", err)
	}
	if len(c.all) != 0 {
		t.Errorf("connections that there are not are counted: %d", len(c.all))
	}
}

// Cached endpoints expire, are removed after a change, and are limited in number.
func TestWhatIsKnownEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.SQLite(t)
		var k endpointCache
		if k.start(d); k.ttl != cacheAlone {
			t.Errorf("alone it is known for %v", k.ttl)
		}
		one := []*Endpoint{{ID: "e"}}
		_, epoch, ok := k.get(dbtest.ID("team"))
		if ok {
			t.Error("it is known from the beginning")
		}
		k.put(dbtest.ID("team"), one, epoch)
		time.Sleep(k.ttl - 1)
		if all, _, ok := k.get(dbtest.ID("team")); !ok || len(all) != 1 {
			t.Error("it is forgotten early")
		}
		time.Sleep(time.Nanosecond)
		if _, _, ok := k.get(dbtest.ID("team")); ok {
			t.Error("it is known for too long")
		}
		k.put(dbtest.ID("team"), one, epoch)
		d.Hint(hintTopic, dbtest.ID("team"))
		if _, _, ok := k.get(dbtest.ID("team")); ok {
			t.Error("it is known after a change")
		}
		if k.put(dbtest.ID("team"), one, epoch); len(k.teams) != 0 {
			t.Error("what was read before a change is kept after it")
		}
		epoch = k.epoch[bucket(dbtest.ID("team"))]
		for i := range cacheMax - 1 {
			k.teams[fmt.Sprint(i)] = cachedEndpoints{}
		}
		if k.put(dbtest.ID("team"), one, epoch); len(k.teams) != cacheMax {
			t.Errorf("%d teams are known", len(k.teams))
		}
		epoch = k.epoch[bucket(dbtest.ID("other"))]
		if k.put(dbtest.ID("other"), one, epoch); len(k.teams) != 1 {
			t.Errorf("%d teams are known with one more", len(k.teams))
		}
		if e, err := k.endpoint(t.Context(), dbtest.ID("other"), "e"); err != nil || e != one[0] {
			t.Errorf("%v, %v", e, err)
		}
		if e, err := k.endpoint(t.Context(), dbtest.ID("other"), "another"); err != nil || e != nil {
			t.Errorf("an endpoint that there is not: %v, %v", e, err)
		}
	})
}

// TestJudgeAtItsEdges checks responses at the boundaries of status classes, and the last attempts of a schedule.
func TestJudgeAtItsEdges(t *testing.T) {
	schedule := []time.Duration{time.Second, time.Hour, time.Minute}
	for _, c := range []struct {
		code, tries int
		state       State
		wait        time.Duration
		reason      string
	}{
		{199, 1, Attempting, time.Second, "the endpoint answered 199 "},
		{300, 1, Attempting, time.Second, "the endpoint answered 300; redirects are not followed"},
		{399, 1, Attempting, time.Second, "the endpoint answered 399; redirects are not followed"},
		{400, 1, Attempting, time.Second, "the endpoint answered 400 Bad Request"},
		{500, 3, Attempting, time.Minute, "the endpoint answered 500 Internal Server Error"},
		{500, 4, Failed, 0, "the endpoint answered 500 Internal Server Error"},
	} {
		if v := judge(answer{code: c.code}, schedule, c.tries); v != (verdict{c.state, c.wait, false, c.reason}) {
			t.Errorf("%d at try %d: %+v", c.code, c.tries, v)
		}
	}
	now := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{"0": 0, "1": time.Second,
		"Thu, 01 Oct 2026 12:00:01 GMT": time.Second,
		"Thu, 01 Oct 2026 11:00:00 GMT": 0} {
		if got, ok := retryAfter(text, now); !ok || got != want {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "soon", "-1", "1.5"} {
		if got, ok := retryAfter(text, now); ok || got != 0 {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
}

// Ids consist of a prefix and 32 hexadecimal digits. They are stored as UUIDs, which sort by time.
func TestIDs(t *testing.T) {
	good := strings.Repeat("0a", 16)
	if err := CheckID("event_id", MessagePrefix, MessagePrefix+good); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"", good, AttemptPrefix + good, MessagePrefix + good[1:], MessagePrefix + good + "0",
		MessagePrefix + good[1:] + "g",
		MessagePrefix + strings.ToUpper(good)} {
		if err := CheckID("event_id", MessagePrefix, text); fault.KindOf(err) != fault.BadID {
			t.Errorf("%q: %v", text, err)
		}
	}
	at := time.UnixMilli(1_800_000_000_000)
	ids := []string{id.First(at.Add(-time.Millisecond)), id.First(at), string(attemptKey(newAttemptID(at))),
		id.First(at.Add(time.Millisecond))}
	if !slices.IsSorted(ids) || len(newAttemptID(at)) != len(AttemptPrefix)+32 {
		t.Errorf("%q", ids)
	}
	if eventID := id.New(); messageKey(messageID(eventID)) != db.ID(eventID) || messageKey(MessagePrefix+good[1:]) != "" {
		t.Errorf("%s is stored as %s", eventID, messageKey(messageID(eventID)))
	}
}

// explain returns a short reason that does not contain the URL.
func TestExplain(t *testing.T) {
	late := &url.Error{Op: "Post", URL: "https://secret", Err: context.DeadlineExceeded}
	for _, c := range []struct {
		err  error
		want string
	}{
		{late, "there was no answer in time"},
		{&url.Error{Op: "Post", URL: "https://secret", Err: errors.New("broken")}, "broken"},
		{errors.New("broken\x00"), "broken\ufffd"},
		{fmt.Errorf("dial: %w", netguard.ErrRefused), "the address of the endpoint is not public: dial: " +
			netguard.ErrRefused.Error()},
		{errors.New(strings.Repeat("x", 500)), strings.Repeat("x", 500)},
		{errors.New(strings.Repeat("x", 501)), strings.Repeat("x", 500)},
		{errors.New(strings.Repeat("x", 499) + "é"), strings.Repeat("x", 499)},
	} {
		if got := explain(c.err); got != c.want {
			t.Errorf("%v: %q", c.err, got)
		}
	}
	if !isTimeout(late) || isTimeout(errors.New("broken")) || isTimeout(&url.Error{Err: errors.New("broken")}) {
		t.Error("a timeout is not told from another error")
	}
}

// An endpoint without a list of event types selects all types, an endpoint with a list selects only the listed types,
// and a disabled endpoint selects none.
func TestWants(t *testing.T) {
	for _, c := range []struct {
		e    Endpoint
		want int
	}{{Endpoint{Status: Enabled}, 20}, {Endpoint{Status: Enabled, Events: Types()[:2]}, 2}, {Endpoint{Status: Disabled},
		0}, {Endpoint{Status: deleted}, 0}} {
		n := 0
		for _, one := range Types() {
			if c.e.wants(one) {
				n++
			}
		}
		if n != c.want {
			t.Errorf("%+v wants %d", c.e, n)
		}
	}
	if e := (Endpoint{Status: Enabled}); e.wants("email.eaten") {
		t.Error("it wants what there is not")
	}
}

// A service whose settings are zero uses the documented defaults.
func TestDefaults(t *testing.T) {
	d := dbtest.SQLite(t)
	s := newService(Config{}, Deps{DB: d, Guard: netguard.New(netguard.Options{})})
	if s.c.Workers != 1024 || s.c.EndpointMax != endpointMax || s.c.TeamMax != teamMax || s.c.Timeout != timeout ||
		s.client.Timeout != timeout {
		t.Errorf("%+v", s.c)
	}
	s = newService(Config{Workers: 1, EndpointMax: 2, TeamMax: 3, Timeout: 4 * time.Second},
		Deps{DB: d, Guard: netguard.New(netguard.Options{})})
	if s.c.Workers != 1 || s.c.EndpointMax != 2 || s.c.TeamMax != 3 || s.c.Timeout != 4*time.Second ||
		s.health.timeout != 4*time.Second {
		t.Errorf("%+v", s.c)
	}
	for _, k := range s.Kinds() {
		if k.Lease < time.Minute || len(k.Schedule) == 0 || k.Schedule[0] < time.Second ||
			k.Schedule[len(k.Schedule)-1] > time.Hour {
			t.Errorf("%s: %v, %v", k.Name, k.Lease, k.Schedule)
		}
	}
	if transport := s.client.Transport.(*http.Transport); transport.IdleConnTimeout != 30*time.Second ||
		transport.TLSHandshakeTimeout != 10*time.Second || transport.MaxResponseHeaderBytes != 64<<10 {
		t.Errorf("%+v", transport)
	}
}

// A finished delivery stores the time at which it finished; an open delivery does not.
func TestSettledDeliveries(t *testing.T) {
	d := dbtest.SQLite(t)
	for _, c := range []struct {
		state   State
		settled bool
	}{{Pending, false}, {Attempting, false}, {Success, true}, {Failed, true}} {
		var first, second int64
		err := d.Update(t.Context(), func(tx *db.Tx) error {
			m := &entry{ID: messageID(id.New()), TeamID: dbtest.ID("team"), chain: "c"}
			at := func() (at int64, err error) {
				err = tx.QueryRow(t.Context(), `SELECT finished_at FROM webhook_deliveries WHERE message_id = $1`,
					messageKey(m.ID)).Scan(&at)
				return at, err
			}
			insertDelivery(t.Context(), tx, dbtest.ID("e"), m, c.state)
			var err, err2 error
			first, err = at()
			saveDelivery(t.Context(), tx, &deliveryResult{TeamID: dbtest.ID("team"), EndpointID: dbtest.ID("e"),
				MessageID: m.ID, State: c.state, Tries: 1})
			if c.state == Success {
				other, n := dbtest.ID("other"), messageID(id.New())
				insertDelivery(t.Context(), tx, other, &entry{ID: n, TeamID: dbtest.ID("team"), chain: "c"}, Pending)
				saveDelivery(t.Context(), tx, &deliveryResult{TeamID: dbtest.ID("team"), EndpointID: other, MessageID: n,
					State: Success,
					Tries: 1})
				m.ID = n
			}
			second, err2 = at()
			return errors.Join(err, err2)
		})
		if err != nil || (first > 0) != (c.state == Failed) || (second > 0) != c.settled {
			t.Errorf("%s: finished at %d when it is entered, and %d when it was tried; %v", c.state, first, second, err)
		}
	}
}

// If an SQL statement fails while an endpoint's team is being warned or the endpoint is being disabled, a later attempt
// repeats the action.
func TestJudgedWithoutAStatement(t *testing.T) {
	dbtest.SQLiteTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		const limit = 5 * 24 * time.Hour
		for name, failing := range map[string]time.Duration{"a warning": limit / 2, "the end": 2 * limit} {
			notified, n := 0, 0
			s := &Service{c: Config{DisableAfter: limit}, p: Deps{DB: d, Notify: func(context.Context, *db.Tx, string, string,
				string) error {
				notified++
				return nil
			}}}
			s.endpoints.start(d)
			var e *Endpoint
			failed := trace.EachBroken(t, func() {
				n++
				notified = 0
				e = &Endpoint{ID: dbtest.ID(fmt.Sprint(name, n)), TeamID: dbtest.ID("team"), URL: "https://one.example",
					Status:       Enabled,
					CreatedAt:    d.Now(),
					FailingSince: d.Now().Add(-failing), secret: signing.Secret{Sealed: []byte{1}}}
				err := d.Update(t.Context(), func(tx *db.Tx) error {
					insertEndpoint(t.Context(), tx, e)
					saveEndpoint(t.Context(), tx, e)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}, func() error {
				return d.Update(t.Context(), func(tx *db.Tx) error {
					return s.judged(t.Context(), tx, e, verdict{state: Attempting,
						reason: "x"})
				})
			}, func(err error) {
				after, err2 := getEndpoint(t.Context(), d.Reader, dbtest.ID("team"), e.ID)
				if done := after.warned || after.Status == Disabled; err2 != nil || done != (err == nil) || err == nil &&
					notified != 1 {
					t.Errorf("%s: warned %v, %s, after %v, %v", name, after.warned, after.Status, err, err2)
				}
			})
			if failed < 2 {
				t.Errorf("%s fails %d times alone", name, failed)
			}
		}
	})
}
