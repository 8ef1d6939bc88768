package db_test

import (
	"net/url"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// A user who may not create tables can use a database that is up to date, and is refused on an empty one.
func TestMigrateWithoutRights(t *testing.T) {
	t.Parallel()
	user := dbtest.NewRole(t)
	migrated, empty := dbtest.PostgresURL(t), dbtest.EmptyPostgresURL(t)
	err := dbtest.Open(t, migrated).Update(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `GRANT SELECT ON migrations, installation TO `+user)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	migrate := func(of string) ([]string, error) {
		u, err := url.Parse(of)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.User(user)
		d, err := db.Open(t.Context(), db.Options{URL: u.String()})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		return d.Migrate(t.Context())
	}
	if applied, err := migrate(migrated); err != nil || len(applied) > 0 {
		t.Errorf("up to date: %v, %v", applied, err)
	}
	if applied, err := migrate(empty); err == nil {
		t.Errorf("the user has applied %v", applied)
	}
}
