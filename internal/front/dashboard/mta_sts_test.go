package dashboard

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/sending/servedpolicies"
)

// The card of a policy says what the owner has to publish and when. The owner of a delegated domain has nothing to
// publish.
func TestPolicyCard(t *testing.T) {
	t.Parallel()
	soon, later := time.Now().Add(time.Hour), time.Now().Add(25*time.Hour)
	records := []servedpolicies.Record{{Name: "mta-sts.in.example", Type: "CNAME", Value: "postrider.test"},
		{Name: "_mta-sts.in.example", Type: "TXT", Value: "v=STSv1; id=1;"}}
	stale := []servedpolicies.Problem{{Type: servedpolicies.RecordProblem, Message: "Publish: v=STSv1; id=2;"}}
	const clear = `data-copy="v=STSv1; id=1;"`
	for name, c := range map[string]struct {
		p        servedpolicies.Policy
		due      bool
		has, not []string
	}{
		"changed": {p: servedpolicies.Policy{State: servedpolicies.Updating, NewIDAt: soon, PublishBy: later},
			has: []string{"Waiting for the new id", "The id appears here at", "Publish the TXT record then, and before", clear,
				"Next check", "“Check now”"},
			not: []string{"Does not work", "Begin with", "Next check within"}},
		"new id appeared": {p: servedpolicies.Policy{State: servedpolicies.Updating, PublishBy: later, Problems: stale},
			has: []string{"Publish the TXT record with the new id", "id=2"}, not: []string{`class="wrong"`, "appears here"}},
		"failing": {p: servedpolicies.Policy{State: servedpolicies.Failing, Problems: stale},
			has: []string{"Does not work", `class="wrong"`}, not: []string{"with the new id"}},
		"ending": {p: servedpolicies.Policy{State: servedpolicies.Ending, NewIDAt: soon, KeepUntil: later},
			has: []string{"The id appears here at", "Publish the TXT record then.", "Keep both records until"},
			not: []string{"and before"}},
		"ending with the former id": {p: servedpolicies.Policy{State: servedpolicies.Ending, KeepUntil: later, Problems: stale},
			has: []string{`class="wrong"`, "id=2"}},
		"due": {due: true, p: servedpolicies.Policy{State: servedpolicies.Pending},
			has: []string{"Next check within a minute."}, not: []string{"“Check now”"}},
		"delegated": {p: servedpolicies.Policy{State: servedpolicies.Working, NewIDAt: soon, Automatic: true},
			has: []string{"The name servers of this installation publish it at", "You add no records"},
			not: []string{clear, "Publish the TXT record"}},
		"delegated and ending": {p: servedpolicies.Policy{State: servedpolicies.Ending, KeepUntil: later, Automatic: true},
			has: []string{"Keep the delegation until"}, not: []string{clear, "both records"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.p.Records, c.p.NextCheckAt, c.p.Domain = records, soon, "in.example"
			v := domainView{base: base{May: map[string]bool{"domains:write": true}}, Settings: true,
				MTASTS: &mtaSTSView{Policy: c.p, Due: c.due, Choice: &web.Field{Name: "mode", Options: mtaSTSChoices}}}
			v.Form, v.Ticks = settingsForm(&v.Domain)
			w := httptest.NewRecorder()
			site := web.New(web.Config{}, nil, nil, slog.New(slog.DiscardHandler))
			if err := site.Show(w, httptest.NewRequest("GET", "/", nil), 200, domainPage, v); err != nil {
				t.Fatal(err)
			}
			_, card, _ := strings.Cut(w.Body.String(), `aria-labelledby="sts-title"`)
			card, _, ok := strings.Cut(card, "</section>")
			if !ok {
				t.Fatalf("the page has no card:\n%s", w.Body)
			}
			for _, text := range c.has {
				if !strings.Contains(card, text) {
					t.Errorf("%q is missing in\n%s", text, card)
				}
			}
			for _, text := range c.not {
				if strings.Contains(card, text) {
					t.Errorf("%q is in\n%s", text, card)
				}
			}
		})
	}
}

// The sentence after a change names only what the owner has to do.
func TestPolicySaved(t *testing.T) {
	t.Parallel()
	at := time.Now()
	for want, p := range map[string]servedpolicies.Policy{
		"Policy saved. Publish its records.":                     {State: servedpolicies.Pending},
		"Policy saved. Publish the new id when it appears here.": {State: servedpolicies.Updating, NewIDAt: at},
		"Policy saved.":                  {State: servedpolicies.Pending, Automatic: true},
		"The policy is being withdrawn.": {State: servedpolicies.Ending, NewIDAt: at, Automatic: true},
		"The policy is being withdrawn. Publish the new id when it appears here, and keep both records for now.": {
			State: servedpolicies.Ending, NewIDAt: at},
	} {
		if got := policySaved(&p); got != want {
			t.Errorf("%+v: %q instead of %q", p, got, want)
		}
	}
}
