package grants

import (
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// TestRestrict lists the scopes of full access that a grant with limits lacks. Before you add a new scope here, check
// that an app cannot use it to send uncounted emails.
func TestRestrict(t *testing.T) {
	t.Parallel()
	full := Scopes{Full: true}.All()
	const ways = "api_keys:write webhooks:write events:send automations:write members:write grants:write approvals:write"
	for _, c := range []struct {
		name         string
		limits       Limits
		of           teams.Scopes
		lacks, gains string
	}{
		{"no limit", Limits{}, full, "", ""},
		{"recipients", Limits{Recipients: 1}, full, ways, ""},
		{"a day", Limits{Emails: 1}, full, ways, ""},
		{"approval", Limits{Approval: true}, full, "emails:send emails:write " + ways, ""},
		{"approval of one who sends", Limits{Approval: true}, teams.NewScopes(teams.EmailsSend), "emails:send",
			"approvals:read approvals:request"},
		{"approval of one who does not send", Limits{Approval: true}, teams.NewScopes(teams.EmailsRead), "", ""},
		{"all limits", Limits{1, 1, true}, full, "emails:send emails:write " + ways, ""},
	} {
		got := c.limits.restrict(c.of)
		if lacks, gains := (c.of &^ got).String(), (got &^ c.of).String(); lacks != c.lacks || gains != c.gains {
			t.Errorf("%s: lacks %q and gains %q, want %q and %q", c.name, lacks, gains, c.lacks, c.gains)
		}
		if c.limits.Any() && unnamed&got != 0 {
			t.Errorf("%s: has %s", c.name, unnamed&got)
		}
	}
}
