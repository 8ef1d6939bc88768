package dashboard_test

import (
	"bufio"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// A page is told of many changes at most once a second. The last change is not lost.
func TestLiveChanges(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Viewer)
		r, err := http.NewRequestWithContext(t.Context(), "GET", b.url+"/app/live", nil)
		b.must(err)
		w, err := v.c.Do(r)
		b.must(err)
		defer w.Body.Close()
		begun := time.Now()
		lines := bufio.NewScanner(w.Body)
		next := func() {
			for lines.Scan() {
				if lines.Text() == "event: change" {
					return
				}
			}
			t.Fatalf("the stream ended: %v", lines.Err())
		}
		n := 0
		for round := range 3 {
			for i := range 10 {
				b.send(fmt.Sprintf("r%d-%d@example.org", round, i), "Many")
			}
			next()
			n++
		}
		id := b.send("last@example.org", "Last")
		b.delivered(id)
		next()
		n++
		if least := time.Duration(n-1) * time.Second; time.Since(begun) < least {
			t.Errorf("%d changes were told within %s, want at least %s", n, time.Since(begun), least)
		}
	})
}

// One member has at most 20 live pages of a team, so that others can still open some.
func TestLivePagesOfAMember(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Viewer)
		open := func(v *visitor) *http.Response {
			var w *http.Response
			v.eventually("the user may request another page", func() bool {
				r, err := http.NewRequestWithContext(t.Context(), "GET", b.url+"/app/live", nil)
				b.must(err)
				w, err = v.c.Do(r)
				b.must(err)
				t.Cleanup(func() { w.Body.Close() })
				return w.Header.Get("Retry-After") == "" // the limit on pages a second has this header
			})
			return w
		}
		var first *http.Response
		for i := range 20 {
			w := open(v)
			if w.StatusCode != http.StatusOK {
				t.Fatalf("stream %d begins with %d", i, w.StatusCode)
			}
			if i == 0 {
				first = w
			}
		}
		if w := open(v); w.StatusCode != http.StatusTooManyRequests {
			t.Errorf("stream 21 of a member begins with %d", w.StatusCode)
		}
		if w := open(b.visitor(teams.Viewer)); w.StatusCode != http.StatusOK {
			t.Errorf("another member's stream begins with %d", w.StatusCode)
		}
		first.Body.Close()
		b.eventually("a closed page makes room for another", func() bool { return open(v).StatusCode == http.StatusOK })
	})
}
