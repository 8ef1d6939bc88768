package automations_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/lib/fault"
)

// A failed webhook call is retried for several hours before the step fails. If a webhook call cannot succeed, the step
// fails immediately.
func TestCalls(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		id := s.automation(trigger("go"), step("call", engine.Webhook, `{"url": "https://acme.example/hook"}`), sends("mail"))
		failed := "failed(webhook_failed): start call=failed(webhook_failed)"
		for what, c := range map[string]struct {
			status int
			err    error
			calls  int
			want   string
		}{
			"an error of the host": {503, nil, 6, failed},
			"too many requests":    {429, nil, 6, failed},
			"no answer":            {0, errors.New("there was no answer in time"), 6, failed},
			"no status":            {0, nil, 6, failed},
			"the address is gone":  {410, nil, 1, failed},
			"a redirect":           {302, nil, 1, failed},
			"an address of ours": {0, fault.Invalidf("url", "not public"), 1,
				"failed(webhook_refused): start call=failed(webhook_refused)"},
			"another status of success": {204, nil, 1, "completed: start call mail"},
		} {
			s.called, s.ids = nil, nil
			s.answer = func() (int, error) { return c.status, c.err }
			s.happens("go", ann, "")
			for range 10 {
				s.work()
				all := s.runs(id)
				if r := all[len(all)-1]; r.Status == automations.Running &&
					!strings.Contains(r.Steps[1].Failure.Message, "the next one is at") {
					t.Errorf("%s: between two calls the step says %+v", what, r.Steps[1].Failure)
				}
				s.pass(4 * time.Hour)
			}
			all := s.runs(id)
			if got := runLines(all[len(all)-1]); got != c.want || len(s.called) != c.calls {
				t.Errorf("%s: %s after %d calls", what, got, len(s.called))
			}
			for i := range s.ids {
				if s.ids[i] != s.ids[0] {
					t.Errorf("%s: the calls have the ids %q", what, s.ids)
				}
			}
		}
		s.consistent()
	})
}

// A webhook call that could not be started does not count as an attempt.
func TestCallThatIsHeldUp(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		id := s.automation(trigger("go"), step("call", engine.Webhook, `{"url": "https://acme.example/hook"}`))
		s.answer = func() (int, error) { return 0, fault.New(fault.Unavailable, "", "busy") }
		s.happens("go", ann, "")
		for range 20 {
			s.work()
			s.pass(time.Minute)
		}
		s.mustRun(id, "running: start call=running")
		s.answer = func() (int, error) { return 200, nil }
		s.work()
		s.mustRun(id, "completed: start call")
	})
}
