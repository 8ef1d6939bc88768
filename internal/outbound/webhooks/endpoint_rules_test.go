package webhooks_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
)

// An endpoint must have a public URL, with TLS unless the operator allows plain HTTP, and known event types.
func TestRulesOfEndpoints(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	open := newFixture(t, d, config(), noLoopback)
	c := config()
	c.AllowHTTP = false
	strict := open.again(t, c, loopbackOnly)
	var all []string
	for range 101 {
		all = append(all, "email.sent")
	}
	for _, x := range []struct {
		h      *fixture
		url    string
		names  []string
		broken string // name of the invalid field
		types  []events.Type
	}{
		{strict, "https://hooks.one.example/a", []string{"email.sent", "email.bounced", "email.sent"}, "",
			[]events.Type{"email.sent", "email.bounced"}},
		{strict, "http://hooks.one.example/a", []string{"email.sent"}, "endpoint", nil},
		{open, "http://hooks.one.example/a", []string{"email.sent"}, "", []events.Type{"email.sent"}},
		{open, "ftp://hooks.one.example/a", []string{"email.sent"}, "endpoint", nil},
		{open, "nonsense", []string{"email.sent"}, "endpoint", nil},
		{strict, "https://hooks.one.example", []string{"email.sent", "email.eaten"}, "events", nil},
		{strict, "https://hooks.one.example", all, "events", nil},
	} {
		e, err := x.h.Create(t.Context(), open.Acme.TeamID, x.url, x.names)
		if x.broken != "" {
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "`"+x.broken+"`") {
				t.Errorf("%s %v: %v", x.url, x.names, err)
			}
			continue
		}
		if err != nil || e.URL != x.url || !slices.Equal(e.Events, x.types) {
			t.Errorf("%s %v: %+v, %v", x.url, x.names, e, err)
		}
	}
}
