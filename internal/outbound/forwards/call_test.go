package forwards_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/outbound/forwards"
)

// A rule with a URL posts the payload of email.received, signed, and tries again after an error.
func TestCall(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		var mu sync.Mutex
		var bodies []string
		var ids []string
		status := http.StatusOK
		var secret string
		hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			bodies, ids = append(bodies, string(body)), append(ids, r.Header.Get("svix-id"))
			if n, ok := verify(t, secret, request{string(body), r.Header}); n != 1 || !ok {
				t.Errorf("%d signatures, verified: %v", n, ok)
			}
			w.WriteHeader(status)
		}))
		defer hook.Close()
		set := func(to int) {
			mu.Lock()
			defer mu.Unlock()
			status = to
		}
		r := f.rule("sales", hook.URL+"/?s3cr3t")
		secret = f.secret(r)
		if r.State() != forwards.Active {
			t.Fatalf("%+v", r)
		}
		f.deliver(f.signed(""), "ann@author.example", "sales@in.acme.example")
		f.run(0)
		if len(bodies) != 1 || !strings.Contains(bodies[0], `"type":"email.received"`) ||
			!strings.Contains(bodies[0], "ann@author.example") {
			t.Fatalf("%q", bodies)
		}
		set(http.StatusInternalServerError)
		f.deliver(f.signed(""), "ann@author.example", "sales@in.acme.example")
		f.run(1)
		set(http.StatusOK)
		f.exec(`UPDATE jobs SET run_at = 0`)
		f.run(0)
		if len(bodies) != 3 || bodies[1] != bodies[2] || ids[1] != ids[2] || ids[0] == ids[1] {
			t.Errorf("%d requests with the ids %v", len(bodies), ids)
		}
		if got := f.get(r); got.Forwarded != 2 || got.Failed != 0 || got.State() != forwards.Active {
			t.Errorf("%+v", got)
		}
		set(http.StatusGone)
		f.deliver(f.signed(""), "ann@author.example", "sales@in.acme.example")
		f.run(0)
		if got := f.get(r); got.Failed != 1 || got.State() != forwards.Failing || !strings.Contains(got.Reason, "410") {
			t.Errorf("%+v", got)
		}
		f.deliver(f.signed("X-Postrider-Loop: "+r.ID+"\r\n"), "ann@author.example", "sales@in.acme.example")
		f.run(0)
		if got := f.get(r); got.Stopped != 1 || len(bodies) != 4 {
			t.Errorf("%+v", got)
		}
		f.exec(`UPDATE forwards SET failing_since = 1`)
		f.deliver(f.signed(""), "ann@author.example", "sales@in.acme.example")
		f.run(0)
		if got := f.get(r); got.State() != forwards.Disabled || len(f.told) != 1 ||
			!strings.Contains(f.told[0], hook.URL) || strings.Contains(f.told[0], "s3cr3t") {
			t.Errorf("%+v, notices %q", got, f.told)
		}
	})
}

// A message whose URL cannot be called for a reason of our own waits for a day, and is then stopped.
func TestCallsWaitForADay(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.calls = fault.New(fault.Unavailable, "", "The DNS does not answer.")
		r := f.rule("sales", "http://127.0.0.1:9/x")
		f.deliver(f.signed(""), "ann@author.example", "sales@in.acme.example")
		f.run(1)
		if got := f.get(r); got.Stopped+got.Failed != 0 {
			t.Errorf("%+v", got)
		}
		f.exec(`UPDATE jobs SET run_at = 0, created_at = $1`, f.DB.Now().Add(-25*time.Hour).UnixMicro())
		f.run(0)
		if got := f.get(r); got.Stopped != 1 || !strings.Contains(got.Reason, "for a day: The DNS does not answer") {
			t.Errorf("after a day: %+v", got)
		}
	})
}

// A rule with a URL that has forwarded too many messages in an hour waits too, and the message is not read meanwhile.
func TestCallsPerHour(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		defer hook.Close()
		all := []forwards.Rule{f.rule("sales", hook.URL), f.rule("sales", "bob@target.example")}
		f.exec(`UPDATE forwards SET hour = $1, hour_count = 1000`,
			f.DB.Now().Add(time.Hour).Truncate(time.Hour).UnixMicro())
		f.deliver(f.signed(""), "ann@author.example", "sales@in.acme.example")
		f.run(2)
		for _, r := range all {
			if got := f.get(r); got.Forwarded != 0 || f.reads != 0 {
				t.Errorf("to %s%s: %d forwarded, %d messages read", r.URL, r.Address, got.Forwarded, f.reads)
			}
		}
		f.exec(`UPDATE forwards SET hour_count = 0`)
		f.exec(`UPDATE jobs SET run_at = 0`)
		f.run(0)
		for _, r := range all {
			if got := f.get(r); got.Forwarded != 1 {
				t.Errorf("to %s%s, afterwards: %d forwarded", r.URL, r.Address, got.Forwarded)
			}
		}
	})
}
