package config

import "testing"

// Nodes of one domain have the same identifier, and each identifier is valid.
func TestFeedbackSenderID(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"mail.example.com":         "examplecom",
		"node2.example.com":        "examplecom",
		"example.co.uk":            "examplecouk",
		"mx.a.de":                  "ade",
		"localhost":                "localhost",
		"a-very-long-name.example": "averylong",
		"":                         "",
	} {
		got := feedbackSenderID(host)
		if !senderID.MatchString(got) || got[:min(len(got), len(want))] != want {
			t.Errorf("%s: %q", host, got)
		}
		if again := feedbackSenderID(host); again != got {
			t.Errorf("%s: %q, and then %q", host, got, again)
		}
	}
	if a, b := feedbackSenderID("a-very-long-name.example"), feedbackSenderID("a-very-long-word.example"); a == b {
		t.Errorf("two domains have %q", a)
	}
}
