package report

import (
	"slices"
	"testing"
)

// The result for a feedback report contains each recipient only once, even if several fields contain the address.
func TestFeedbackFields(t *testing.T) {
	for _, c := range []struct {
		text, feedback, from string
		to                   []string
	}{
		{"Feedback-Type: Abuse; x\nOriginal-Rcpt-To: <ann@d.example>\nRemoval-Recipient: " +
			"ANN@d.example\nOriginal-Recipient: rfc822;bob@d.example\n",
			"abuse", "", []string{"ann@d.example", "bob@d.example"}},
		{"\n\nfeedback-type: Not-Spam\nOriginal-Mail-From: <a@acme.example>\nOriginal-Mail-From: <b@acme.example>\n",
			"not-spam", "a@acme.example", nil},
		{"Feedback-Type:\nOriginal-Rcpt-To: nobody\n", "abuse", "", nil},
	} {
		var r Report
		r.readFeedback(c.text)
		var to []string
		for _, one := range r.Recipients {
			to = append(to, one.Original)
		}
		if r.Feedback != c.feedback || r.MailFrom != c.from || !slices.Equal(to, c.to) {
			t.Errorf("%q: %s of %q to %q", c.text, r.Feedback, r.MailFrom, to)
		}
	}
}
