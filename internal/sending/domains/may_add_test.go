package domains_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

// refusedField checks that err is a fault about a field whose message contains a text.
func refusedField(t *testing.T, err error, field, text string) {
	t.Helper()
	if e, ok := errors.AsType[*fault.Error](err); !ok || e.Field != field || !strings.Contains(e.Message, text) {
		t.Errorf("got %v, want a fault of %s with %q", err, field, text)
	}
}

// No domain is added below a delegated one, and no domain is delegated above the team's own ones.
func TestDomainsBelowDelegatedOnes(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newSetups(t, d)
		parent := f.create(team, "mail.acme.example")
		add := func(teamID, name string) error {
			_, err := f.Create(t.Context(), teamID, domains.NewDomain{Name: name})
			return err
		}
		v := f.choose(team, parent.ID, domains.SetupDelegation)
		f.must(add(otherTeam, "b.mail.acme.example")) // a choice alone reserves nothing from other teams
		refusedField(t, add(team, "c.mail.acme.example"), "name", "its records would disappear")
		f.install(v.Records, true)
		f.look(team, parent.ID)
		for _, name := range []string{"a.mail.acme.example", "x.y.mail.acme.example"} {
			refusedField(t, add(team, name), "name", "below `mail.acme.example`")
			refusedField(t, add(otherTeam, name), "name", "below `mail.acme.example`")
		}
		f.must(add(team, "xmail.acme.example"))
		apex := f.create(team, "acme.example")
		err := f.ChangeSetup(t.Context(), team, apex.ID, to(domains.SetupDelegation))
		refusedField(t, err, "setup", "This team has the domain `mail.acme.example`")
		f.must(f.ChangeSetup(t.Context(), team, apex.ID, to(domains.SetupCNAME)))
	})
}

// A domain is refused if the names of its records would be too long.
func TestLongNames(t *testing.T) {
	f := newSetups(t, dbtest.SQLite(t))
	long := strings.Repeat("abcdefghi.", 19) + "example" // 197 bytes
	_, err := f.Create(t.Context(), team, domains.NewDomain{Name: long, TrackingSubdomain: strings.Repeat("t", 56)})
	refusedField(t, err, "name", "is too long")
	_, err = f.Create(t.Context(), team, domains.NewDomain{Name: long, TrackingSubdomain: strings.Repeat("t", 55)})
	f.must(err)
}
