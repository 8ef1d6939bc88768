package explain

import (
	"strings"
	"testing"
	"time"
)

// The explanation of an email to a paused destination has the operator's reason, until the email has an outcome.
func TestHeld(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for state, held := range map[string]bool{"queued": true, "delivery_delayed": true, "scheduled": false,
		"delivered": false, "bounced": false} {
		f := Facts{Now: now, CreatedAt: now.Add(-time.Hour), State: state, Recipients: []To{{"A@Example.net", state, now}},
			Held: map[string]Hold{"example.net": {"They move.", now.Add(-10 * time.Minute)}}}
		r := Explain(f).Recipients[0]
		want := "The email waits, because the operator of this installation has paused mail to example.net: They move."
		if (r.Verdict == want) != held || held && (r.Act != Operator || len(r.Steps) == 0 ||
			!strings.Contains(r.Next, "resumed")) {
			t.Errorf("%s: %s (%s, %q) %s", state, r.Verdict, r.Act, r.Steps, r.Next)
		}
		if spent := reasonsOf(&Answer{Recipients: []RecipientAnswer{r}}); held && !strings.HasSuffix(spent, " operator_pause") ||
			!held && strings.Contains(spent, "operator_pause") {
			t.Errorf("%s: the time was spent on %s", state, spent)
		}
		f.Held = map[string]Hold{"example.net": {Since: now.Add(-2 * time.Hour)}}
		if r := Explain(f).Recipients[0]; held && !strings.HasSuffix(r.Verdict, "mail to example.net.") {
			t.Errorf("without a reason: %s", r.Verdict)
		}
		f.Held = map[string]Hold{"other.net": {Reason: "x"}}
		if r := Explain(f).Recipients[0]; strings.Contains(r.Verdict, "paused mail") {
			t.Errorf("another destination: %s", r.Verdict)
		}
	}
}
