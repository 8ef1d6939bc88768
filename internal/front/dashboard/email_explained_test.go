package dashboard

import (
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/sending/explain"
)

// A row of the explanation says what happened and to whom the time belongs: a look-up of mail hosts is no work of the
// recipient's server. The meaning of a reply is left out if the verdict contains it.
func TestExplainedRows(t *testing.T) {
	answer := explain.Answer{Recipients: []explain.RecipientAnswer{{Address: "laura@example.org",
		Verdict: "The mail server refused the email for good. The mailbox is full.", TotalMS: 100,
		Meaning: &explain.ReplyMeaning{Says: "The mailbox is full."},
		Intervals: []explain.Interval{{Reason: "dns", Cause: "dns", Says: "Looked up.", Duration: 25},
			{Reason: "envelope", Cause: "host", Says: "Answered.", Duration: 75}}}}}
	v := emailView{}
	v.choose(&url.URL{}, &answer)
	var got [][2]string
	for _, r := range v.Rows {
		got = append(got, [2]string{r.Says, r.Who})
	}
	if diff := cmp.Diff([][2]string{{"Looked up.", "DNS"}, {"Answered.", "Recipient’s server"}}, got); diff != "" {
		t.Error(diff)
	}
	if v.Meaning != "" {
		t.Errorf("the meaning %q is repeated", v.Meaning)
	}
	answer.Recipients[0].Steps = explain.CheckTLS.Steps()
	answer.Recipients[0].Verdict = "It waits. To use a relay, set `relay_addr`."
	v.choose(&url.URL{}, &answer)
	if text := v.Chosen.Verdict + strings.Join(v.Chosen.Steps, " "); strings.Contains(text, "`") ||
		!strings.Contains(text, "Or set the domain's tls to opportunistic") {
		t.Errorf("the page marks names as the API does: %s", text)
	}
	answer.Recipients[0].Verdict = "The email was delivered."
	if v.choose(&url.URL{}, &answer); v.Meaning != "The mailbox is full." {
		t.Errorf("the meaning is %q", v.Meaning)
	}
}
