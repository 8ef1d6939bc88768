package emails_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/emails"
)

// sizes is an HTTP host that counts requests. The path of a file contains its size in bytes. Responses to requests
// below /cut end early, and the first request to /later fails.
type sizes struct {
	mu    sync.Mutex
	asked map[string]int
}

func (s *sizes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked[r.URL.Path]++
	n := s.asked[r.URL.Path]
	s.mu.Unlock()
	dir, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	size, err := strconv.Atoi(name)
	if err != nil || dir == "later" && n == 1 {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(size))
	if dir == "cut" {
		size /= 2
	}
	io.WriteString(w, strings.Repeat("x", size))
}

func hostOfSizes(t *testing.T) (*sizes, string) {
	t.Helper()
	s := &sizes{asked: map[string]int{}}
	host := httptest.NewServer(s)
	t.Cleanup(host.Close)
	return s, host.URL
}

// fetch handles the fetch job for an email. The parameter tries is the number of tries so far.
func (f *fixture) fetch(t *testing.T, emailID string, tries int) {
	t.Helper()
	j := f.inHand(t, emails.FetchKind, emailID)
	if j.Tries = tries; f.Emails.Kinds()[1].Handle(t.Context(), j) != nil {
		t.Fatal("it cannot be fetched, for a reason of ours")
	}
}

// The size limit for a fetched file is the maximum size of an email minus the size of the email's other parts. The
// limit is computed in units of 57 bytes, each of which is sent as 78 bytes of base64.
func TestWhatIsFetchedHasItsRoom(t *testing.T) {
	_, url := hostOfSizes(t)
	const all = (1 << 20) / 78 // units
	each(t, func(t *testing.T, f *fixture) {
		for _, c := range []struct {
			name  string
			given int // units
			paths []string
			fits  bool
		}{
			{"one file", 0, []string{fmt.Sprint(all * 57)}, true},
			{"a larger one", 0, []string{fmt.Sprint(all*57 + 1)}, false},
			{"beside what is given", 9000, []string{fmt.Sprint((all - 9000) * 57)}, true},
			{"more beside what is given", 9000, []string{fmt.Sprint((all-9000)*57 + 1)}, false},
			{"two files", 1, []string{fmt.Sprint(6000 * 57), fmt.Sprint((all - 6001) * 57)}, true},
			{"two files with an octet more", 1, []string{fmt.Sprint(6000 * 57), fmt.Sprint((all-6001)*57 + 1)}, false},
			{"twice the same", 1, []string{fmt.Sprint(6721 * 57), fmt.Sprint(6721 * 57)}, true},
			{"twice the same, and larger", 1, []string{fmt.Sprint(6722 * 57), fmt.Sprint(6722 * 57)}, false},
		} {
			s := hello("a@one.example")
			if c.given > 0 {
				s.Attachments = []emails.Upload{{Filename: "a.txt", Content: make([]byte, c.given*57), HasContent: true}}
			}
			for _, path := range c.paths {
				s.Attachments = append(s.Attachments, emails.Upload{Path: url + "/a/" + path})
			}
			f.change(`DELETE FROM jobs`)
			id := f.Send(s)
			f.fetch(t, id, 0)
			handed, again := f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'delivery'`),
				f.Count(`SELECT COUNT(*) FROM jobs
				WHERE kind = 'emails.fetch'`)
			if c.fits && (handed != 1 || again != 0) || !c.fits && (handed != 0 || again != 1) {
				t.Errorf("%s: %d deliveries and %d fetches wait", c.name, handed, again)
			}
		}
	})
}

// A later try keeps the files that earlier tries fetched, counts their sizes, and does not request them again.
func TestLaterTryOfFetching(t *testing.T) {
	host, url := hostOfSizes(t)
	each(t, func(t *testing.T, f *fixture) {
		for _, c := range []struct {
			paths []string
			fits  bool
		}{
			{[]string{"a/7000", "later/8000", "a/7000"}, true},
			{[]string{"a/513000", "later/253251", "a/10"}, false},
		} {
			clear(host.asked)
			f.change(`DELETE FROM jobs`)
			s := hello("a@one.example")
			for _, path := range c.paths {
				s.Attachments = append(s.Attachments, emails.Upload{Path: url + "/" + path})
			}
			id := f.Send(s)
			f.fetch(t, id, 0)
			if n := f.Count(`SELECT COUNT(*) FROM email_attachments WHERE email_id = $1 AND blob_key <> ''`,
				db.ID(id)); n != 1 {
				t.Errorf("%v: %d files are kept of the first try", c.paths, n)
			}
			f.fetch(t, id, 1)
			if n := f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'delivery'`); (n == 1) != c.fits {
				t.Errorf("%v: %d deliveries", c.paths, n)
			}
			if n := host.asked["/"+c.paths[0]]; n != 1 {
				t.Errorf("%v: the first is asked for %d times", c.paths, n)
			}
		}
	})
}

// A response that ends early counts as a failed try. After the third failed try, the email fails and its fetched files
// are deleted.
func TestFetchThatIsCutEndsTheEmail(t *testing.T) {
	_, url := hostOfSizes(t)
	each(t, func(t *testing.T, f *fixture) {
		s := hello("a@one.example")
		s.Attachments = []emails.Upload{{Path: url + "/cut/10000"}}
		id := f.Send(s)
		for tries, want := range []emails.State{emails.Queued, emails.Queued, emails.Failed} {
			f.fetch(t, id, tries)
			if got := f.state(id); got != want {
				t.Errorf("after %d tries it is %s", tries+1, got)
			}
		}
		if left := f.keys(t); len(left) > 0 || !strings.Contains(f.logged.String(), "tries=3") {
			t.Errorf("left are %v, logged is %s", left, f.logged)
		}
	})
}
