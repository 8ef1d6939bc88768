package emails_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/emails"
)

// files is an HTTP host that counts all requests and concurrent requests. Requests below /slow block until the host is
// closed.
type files struct {
	mu             sync.Mutex
	asked          map[string]int
	inHand, most   int
	came, released chan struct{}
}

func (f *files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.asked[r.URL.Path]++
	f.inHand++
	f.most = max(f.most, f.inHand)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.inHand--
		f.mu.Unlock()
	}()
	f.came <- struct{}{}
	switch r.URL.Path {
	case "/slow":
		select {
		case <-f.released:
		case <-r.Context().Done():
		}
	case "/gone":
		http.NotFound(w, r)
		return
	}
	fmt.Fprint(w, "content")
}

// hosts serves the files at n loopback addresses and returns their URLs.
func (f *files) hosts(t *testing.T, n int) (urls []string) {
	t.Helper()
	f.asked, f.came, f.released = map[string]int{}, make(chan struct{}, 10_000), make(chan struct{})
	for i := range n {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.%d:0", i+1))
		if err != nil {
			t.Fatal(err)
		}
		s := &httptest.Server{Listener: l, Config: &http.Server{Handler: f}}
		s.Start()
		t.Cleanup(s.Close)
		urls = append(urls, s.URL)
	}
	t.Cleanup(func() { close(f.released) })
	return urls
}

func (f *fixture) handedOver(teamID string) int {
	f.T.Helper()
	return f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'delivery' AND team_id = $1`, db.ID(teamID))
}

// If a team's attachments come from slow hosts, the team uses only its share of the concurrent fetches, and only a few
// per host. Other teams' attachments are still fetched, and an email without attachments from the same team is sent on
// time.
func TestSlowAttachmentsHoldUpTheirTeamAlone(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		var slow files
		urls := slow.hosts(t, 14)
		evil := f.TeamOf("evil.example")
		for i := range 140 {
			e := hello(fmt.Sprintf("a%d@one.example", i))
			e.From = "a@evil.example"
			e.Attachments = []emails.Upload{{Path: urls[i%14] + "/slow"}}
			if _, err := f.Emails.Send(t.Context(), evil, e, emails.Idempotency{}); err != nil {
				t.Fatal(err)
			}
		}
		f.Run(f.Emails.Kinds()...)
		deadline := time.After(30 * time.Second)
		for i := range 30 {
			select {
			case <-slow.came:
			case <-deadline:
				t.Fatalf("only %d fetches have begun", i)
			}
		}
		var good files
		e := hello("b@two.example")
		e.Attachments = []emails.Upload{{Path: good.hosts(t, 1)[0] + "/file"}}
		f.Send(e)
		testnode.Until(t, "the other team's attachment is fetched", func() bool {
			return f.handedOver(f.Acme.TeamID) == 1
		})

		e = hello("c@three.example")
		e.From, e.ScheduledAt = "a@evil.example", time.Now().Add(time.Hour).Format(time.RFC3339)
		later, err := f.Emails.Send(t.Context(), evil, e, emails.Idempotency{})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Emails.Reschedule(t.Context(), evil.TeamID, later, time.Now().Format(time.RFC3339)); err != nil {
			t.Fatal(err)
		}
		testnode.Until(t, "a scheduled email does not wait for others' attachments", func() bool {
			return f.handedOver(evil.TeamID) == 1
		})
		slow.mu.Lock()
		defer slow.mu.Unlock()
		if slow.inHand != slow.most || slow.most > 56 {
			t.Errorf("%d fetches are in hand and %d were, of 64", slow.inHand, slow.most)
		}
	})
}

func TestOneHostIsAskedByFewAtOnce(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		var one files
		url := one.hosts(t, 1)[0]
		for i := range 30 {
			e := hello(fmt.Sprintf("a%d@one.example", i))
			e.Attachments = []emails.Upload{{Path: url + "/slow"}}
			f.Send(e)
		}
		f.Run(f.Emails.Kinds()...)
		for range 4 {
			<-one.came
		}
		var good files // good has the same IP address but a different port, so it counts as a different host
		other := f.TeamOf("other.example")
		e := hello("b@two.example")
		e.From, e.Attachments = "a@other.example", []emails.Upload{{Path: good.hosts(t, 1)[0] + "/file"}}
		if _, err := f.Emails.Send(t.Context(), other, e, emails.Idempotency{}); err != nil {
			t.Fatal(err)
		}
		testnode.Until(t, "another team gets at the host", func() bool { return f.handedOver(other.TeamID) == 1 })
		one.mu.Lock()
		defer one.mu.Unlock()
		if one.most != 4 {
			t.Errorf("%d fetches at once from one host, want 4", one.most)
		}
	})
}

func TestWhatIsFetchedIsKept(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		var host files
		url := host.hosts(t, 1)[0]
		e := hello("a@one.example")
		for range 20 {
			e.Attachments = append(e.Attachments, emails.Upload{Path: url + "/same"})
		}
		twice := f.Send(e)
		e.Attachments = []emails.Upload{{Path: url + "/first"}, {Path: url + "/gone"}}
		fails := f.Send(e)
		// The job has the kind that older releases used, when fetch jobs did not have a kind of their own.
		e.Attachments = []emails.Upload{{Path: url + "/old"}}
		old := f.Send(e)
		if err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE jobs SET kind = 'emails.release' WHERE dedupe = $1`, old)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		f.Run(f.Emails.Kinds()...)
		testnode.Until(t, "an email that fails to fetch goes on", func() bool {
			if err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
				_, err := f.Queue.Move(t.Context(), tx, emails.FetchKind, f.Acme.TeamID, f.Acme.TeamID, fails,
					time.Now().Add(-time.Second))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return f.state(fails) == emails.Failed
		})
		testnode.Until(t, "all are handed over", func() bool { return f.handedOver(f.Acme.TeamID) == 2 })
		if n := strings.Count(f.logged.String(), "an attachment could not be fetched"); n < 3 ||
			!strings.Contains(f.logged.String(), fails) {
			t.Errorf("%d failures are logged: %s", n, f.logged)
		}
		host.mu.Lock()
		defer host.mu.Unlock()
		if host.asked["/same"] != 1 || host.asked["/first"] != 1 || host.asked["/gone"] < 3 || host.asked["/old"] != 1 {
			t.Errorf("asked for %v", host.asked)
		}
		o, err := f.Emails.Outgoing(t.Context(), emails.Delivery{TeamID: f.Acme.TeamID,
			EmailID: twice, Domain: "one.example"})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := f.Emails.Compose(t.Context(), o)
		if err != nil || len(raw) < 20*len("Y29udGVudA==") {
			t.Errorf("composed %d bytes, %v", len(raw), err)
		}
	})
}

// A failure of the file store never causes an email to fail. The email waits until the store works again, no matter how
// many tries that takes.
func TestStoreThatIsAwayEndsNoEmail(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		var host files
		e := hello("a@one.example")
		e.Attachments = []emails.Upload{{Path: host.hosts(t, 1)[0] + "/file"}}
		id := f.Send(e)
		if err := errors.Join(os.Rename(f.folder, f.folder+".away"), os.WriteFile(f.folder, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		due := func() {
			err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
				_, err := f.Queue.Move(t.Context(), tx, emails.FetchKind, f.Acme.TeamID, f.Acme.TeamID, id,
					time.Now().Add(-time.Second))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		f.Run(f.Emails.Kinds()...)
		testnode.Until(t, "the host is asked again and again", func() bool {
			due()
			host.mu.Lock()
			defer host.mu.Unlock()
			return host.asked["/file"] > 5
		})
		if state := f.state(id); state != emails.Queued {
			t.Errorf("the email is %s", state)
		}
		testnode.Until(t, "it waits for at most 30 seconds and has lost no try", func() bool {
			return f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'emails.fetch' AND tries + failures = 0 AND run_at < $1`,
				f.DB.Now().Add(30*time.Second).UnixMicro()) == 1
		})
		if err := errors.Join(os.Remove(f.folder), os.Rename(f.folder+".away", f.folder)); err != nil {
			t.Fatal(err)
		}
		testnode.Until(t, "the email goes on", func() bool {
			due()
			return f.handedOver(f.Acme.TeamID) == 1
		})
	})
}

// If a try fails because of the file store, the files fetched in that try are deleted. If fetched files were kept after
// a failed try, each try would add files to a full store.
func TestFetchThatCannotBeStoredLeavesNothing(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		tmp := filepath.Join(f.folder, ".tmp") // folder to which blobs are written
		host := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/second" {
				if err := os.Rename(tmp, tmp+".away"); err != nil {
					t.Error(err)
				}
			}
			io.WriteString(rw, "content")
		}))
		defer host.Close()
		e := hello("a@one.example")
		e.Attachments = []emails.Upload{{Path: host.URL + "/first"}, {Path: host.URL + "/second"}}
		id := f.Send(e)
		j := jobs.Job{Kind: emails.FetchKind, Lane: f.Acme.TeamID, TeamID: f.Acme.TeamID, Payload: id}
		if err := f.Emails.Kinds()[1].Handle(t.Context(), j); err == nil {
			t.Error("no error")
		}
		if left := f.keys(t); len(left) != 0 {
			t.Errorf("left are %v", left)
		}
	})
}

// If a stored file cannot be read for a second attachment with the same path, the email waits until the file store
// works again.
func TestStoreThatCannotBeReadEndsNoEmail(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		var mended atomic.Bool
		host := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/other" && !mended.Load() { // by now, the first file has been stored
				path := f.onlyBlob(t)
				// A folder can be opened like a file but cannot be read.
				if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
					t.Error(err)
				}
			}
			fmt.Fprint(out, "content")
		}))
		defer host.Close()
		e := hello("a@one.example")
		for _, file := range []string{"/same", "/other", "/same"} {
			e.Attachments = append(e.Attachments, emails.Upload{Path: host.URL + file})
		}
		id := f.Send(e)
		due := func() {
			if err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
				_, err := f.Queue.Move(t.Context(), tx, emails.FetchKind, f.Acme.TeamID, f.Acme.TeamID, id,
					time.Now().Add(-time.Second))
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		f.Run(f.Emails.Kinds()...)
		testnode.Until(t, "it is tried again", func() bool {
			due()
			return f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'emails.fetch' AND attempt > 4`) == 1 ||
				f.state(id) != emails.Queued
		})
		if state := f.state(id); state != emails.Queued {
			t.Fatalf("the email is %s", state)
		}
		mended.Store(true)
		testnode.Until(t, "the email goes on", func() bool { due(); return f.handedOver(f.Acme.TeamID) == 1 })
	})
}

// onlyBlob returns the path of the only stored attachment.
func (f *fixture) onlyBlob(t *testing.T) (path string) {
	err := filepath.WalkDir(f.folder, func(name string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && strings.HasPrefix(e.Name(), "attachments") {
			path = name
		}
		return err
	})
	if err != nil || path == "" {
		t.Errorf("found %q, %v", path, err)
	}
	return path
}
