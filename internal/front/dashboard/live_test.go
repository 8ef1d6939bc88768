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
