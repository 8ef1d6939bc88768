package grants

import (
	"slices"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// DescribeScopes has exactly one description for each scope that an app can have, with and without sending limits.
func TestWords(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	var all teams.Scopes
	for _, x := range scopeDescriptions {
		if x.words == "" || x.words == x.limited || seen[x.words] || all.Has(x.scope) {
			t.Errorf("%s: %q", x.scope, x.words)
		}
		seen[x.words] = true
		all |= teams.NewScopes(x.scope)
	}
	if want := (Scopes{Full: true}).All(); all != want {
		t.Errorf("said are %v, want %v more and %v less", all, want&^all, all&^want)
	}
	if free, limited := DescribeScopes(all, false), DescribeScopes(all, true); len(free) != len(scopeDescriptions) ||
		len(limited) != len(scopeDescriptions) || slices.Equal(free, limited) {
		t.Errorf("%d and %d sentences", len(free), len(limited))
	}
}

// A grant that needs approvals cannot send emails on its own. A grant with limits cannot send emails that do not count
// toward its limits.
func TestWays(t *testing.T) {
	t.Parallel()
	full := Scopes{Full: true}.All()
	if got := DescribeSending(full); len(got) != len(sendingDescriptions) {
		t.Errorf("full access: %q", got)
	}
	if got := DescribeSending(full &^ teams.NewScopes(teams.EmailsSend, teams.BroadcastsWrite, teams.AutomationsWrite,
		teams.EventsSend)); got != nil {
		t.Errorf("without the ways: %q", got)
	}
	// The set omits broadcasts:write, which an app with limits keeps. The tests in package broadcasts check that an app
	// with limits can neither send nor resume broadcasts.
	if got := DescribeSending(Limits{Emails: 1}.restrict(full) &^ teams.NewScopes(teams.BroadcastsWrite)); len(got) != 1 ||
		got[0] != "by sending them, and broadcasts" {
		t.Errorf("with a limit: %q", got)
	}
	approved := Limits{Approval: true}.restrict(full) &^ teams.NewScopes(teams.BroadcastsWrite)
	if got := DescribeSending(approved); got != nil {
		t.Errorf("with an approval: %q", got)
	}
}

func TestParseLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		recipients, emails, approval string
		want                         Limits
		ok                           bool
	}{
		{"", " ", "", Limits{}, true},
		{"5", " 10 ", "yes", Limits{5, 10, true}, true},
		{"150", "1000000", "", Limits{150, 1_000_000, false}, true},
		{"151", "", "", Limits{}, false},
		{"", "1000001", "", Limits{}, false},
		{"0", "", "", Limits{}, false},
		{"-1", "", "", Limits{}, false},
		{"1.5", "", "", Limits{}, false},
		{"", "99999999999999999999", "", Limits{}, false},
	} {
		got, err := ParseLimits(c.recipients, c.emails, c.approval)
		if (err == nil) != c.ok || c.ok && got != c.want {
			t.Errorf("%q, %q, %q: %+v, %v", c.recipients, c.emails, c.approval, got, err)
		}
	}
}
