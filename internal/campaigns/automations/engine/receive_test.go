package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/platform/events"
)

// A run stores only those members of a received event that steps refer to, by the key of the waiting step or by the
// event's name.
func TestKeptOfEvents(t *testing.T) {
	t.Parallel()
	const sent = `{"total":30,"user":{"name":"Bo","id":7},"user.name":"whole","users":[],"note":"long"}`
	nothing := map[string]engine.Event{}
	kept := func(text string) map[string]engine.Event {
		e := engine.Event{Name: "order.placed", At: noon.Add(time.Minute)}
		if text != "" {
			e.Payload = payload(t, text)
		}
		return map[string]engine.Event{"wait": e}
	}
	rule := func(field, value string) string {
		return `{"key":"x","type":"condition","config":{"type":"rule","field":"` + field + `","operator":"eq","value":` +
			value + `}}`
	}
	for step, want := range map[string]map[string]engine.Event{
		`{"key":"x","type":"contact_delete"}`:                       nothing,
		rule("event.total", "1"):                                    nothing,
		rule("wait_events.wait.total", "1"):                         kept(`{"total":30}`),
		rule("event.n", `{"var":"wait_events.order.placed.total"}`): kept(`{"total":30}`),
		rule("wait_events.wait.missing", "1"):                       kept(""),
		rule("wait_events.wait.user.name", "1"): kept(
			`{"user":{"name":"Bo","id":7},"user.name":"whole"}`),
		`{"key":"x","type":"contact_update","config":{"first_name":{"var":"wait_events.wait.note"}}}`: kept(
			`{"note":"long"}`),
		`{"key":"x","type":"contact_update","config":{"properties":{"n":{"var":"wait_events.wait.note"}}}}`: kept(
			`{"note":"long"}`),
		`{"key":"x","type":"webhook","config":{"url":"https://a.example","payload":{"a":[{"b":{"var":
			"wait_events.wait.users"}}]}}}`: kept(`{"users":[]}`),
		`{"key":"x","type":"send_email","config":{"template":{"id":"a","variables":{"V":{"var":"wait_events.wait.total"},
			"W":["x",{"var":"wait_events.order.placed.note"}]}}}}`: kept(`{"total":30,"note":"long"}`),
	} {
		g := parse(t, `[`+start+`,{"key":"wait","type":"wait_for_event","config":{"event_name":"order.placed"}},`+step+`]`,
			`[{"from":"start","to":"wait"},{"from":"wait","to":"x","type":"event_received"}]`)
		r := &engine.Run{ID: "run", At: "wait", Waits: &engine.Wait{Until: noon.Add(time.Hour), Event: "order.placed"},
			Received: map[string]engine.Event{}}
		rec, ok := g.Receive(r, engine.Event{Name: "order.placed", Payload: payload(t, sent), At: noon.Add(time.Minute)})
		if !ok || rec.Failure != nil || r.At != "x" || !cmp.Equal(rec.Output["payload"], any(payload(t, sent))) {
			t.Errorf("%s: %+v", step, rec)
		}
		if d := cmp.Diff(want, r.Received); d != "" {
			t.Errorf("%s keeps (-want +got):\n%s", step, d)
		}
	}
}

// A run fails if the stored members of its received events exceed MaxReceived.
func TestTooMuchReceived(t *testing.T) {
	t.Parallel()
	const waits = 6
	steps, links, before := []string{start}, []string{}, "start"
	refers := []string{}
	for i := range waits {
		key, by := fmt.Sprint("w", i), "event_received"
		if i == 0 {
			by = "default"
		}
		steps = append(steps, `{"key":"`+key+`","type":"wait_for_event","config":{"event_name":"e"}}`)
		links = append(links, fmt.Sprintf(`{"from":%q,"to":%q,"type":%q}`, before, key, by))
		refers = append(refers, `{"var":"wait_events.`+key+`.x"}`)
		before = key
	}
	steps = append(steps, `{"key":"post","type":"webhook","config":{"url":"https://a.example","payload":{"all":[`+
		strings.Join(refers, ",")+`]}}}`)
	links = append(links, fmt.Sprintf(`{"from":%q,"to":"post","type":"event_received"}`, before))
	g := parse(t, "["+strings.Join(steps, ",")+"]", "["+strings.Join(links, ",")+"]")
	r := &engine.Run{ID: "run", At: "w0"}
	e := engine.Event{Name: "e", Payload: map[string]any{"x": strings.Repeat("y", events.MaxPayload-20)}, At: noon}
	for i := range 4 {
		r.Waits = &engine.Wait{Until: noon.Add(time.Hour), Event: "e"}
		if rec, ok := g.Receive(r, e); !ok || rec.Failure != nil {
			t.Fatalf("the event %d: %+v", i, rec.Failure)
		}
	}
	r.Waits = &engine.Wait{Until: noon.Add(time.Hour), Event: "e"}
	rec, ok := g.Receive(r, e)
	if !ok || rec.Status != engine.StepFailed || rec.Failure.Reason != engine.ReceivedTooLarge || r.At != "" ||
		r.Waits != nil ||
		len(r.Received) != 4 {
		t.Errorf("%+v, at %q with %d events", rec.Failure, r.At, len(r.Received))
	}
}
