package db_test

import (
	"path/filepath"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

func TestCheckFile(t *testing.T) {
	t.Parallel()
	d, err := db.Open(t.Context(), db.Options{URL: dbtest.SQLiteFile(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.SetFact(t.Context(), "colour", "red"); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "copy.db")
	if err := d.Snapshot(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	if err := db.CheckFile(t.Context(), path); err != nil {
		t.Error(err)
	}
	if got, err := db.FactOfFile(t.Context(), path, "colour"); got != "red" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if n, err := db.CountRows(t.Context(), path); err != nil || n["oauth_clients"] != 1 || n["emails"] != 0 || len(n) < 80 {
		t.Errorf("%v, %v", n, err)
	}
}
