package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// needInstallation are commands that do not create an installation. Only dev, serve and migrate do.
var needInstallation = []string{"teams create Acme", "keys create --team Acme --create-team",
	"users create ada@example.com", "storage", "policy show one.example", "jobs", "audit list", "teams list",
	"teams delete Acme --yes", "keys list --team Acme", "users list", "emails erase a@one.example",
	"emails delete 0190f6a1-0000-7000-8000-00000000000a --team Acme", "export contacts --team Acme"}

// A command that needs an installation does not create one if data_dir is wrong. Otherwise, an erasure would report
// that it found nothing.
func TestMissingDatabase(t *testing.T) {
	t.Parallel()
	p := &installation{t: t, dir: t.TempDir(), vars: map[string]string{}}
	p.vars["POSTRIDER_DATA_DIR"] = p.dir
	for _, command := range needInstallation {
		p.refused("set data_dir to the directory of the node", strings.Fields(command)...)
	}
	p.refused("", "backup", t.TempDir()+"/backup.tar")
	if made, err := os.ReadDir(p.dir); err != nil || len(made) > 0 {
		t.Errorf("the directory has %v, %v", made, err)
	}
	p.refused(fmt.Sprintf("data_dir = %q", p.dir), "teams", "list")
	p.must("migrate")
	p.refused("--create-team creates a new one", "keys", "create", "--team", "Acme")
	p.refused("use it with --create-team", "keys", "create", "--team", "Acme", "--email", "owner@acme.example")
	p.key("Acme")
	p.must("keys", "create", "--team", "Acme")
	p.must("teams", "list")
}

// A command that needs an installation leaves an empty database empty, as one that database_url names by mistake.
func TestEmptyDatabase(t *testing.T) {
	t.Parallel()
	file := t.TempDir()
	if err := os.WriteFile(file+"/postrider.db", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, vars := range []map[string]string{{"POSTRIDER_DATA_DIR": file},
		{"POSTRIDER_DATA_DIR": t.TempDir(), "POSTRIDER_DATABASE_URL": dbtest.EmptyPostgresURL(t)}} {
		p := &installation{t: t, dir: vars["POSTRIDER_DATA_DIR"], vars: vars}
		if vars["POSTRIDER_DATABASE_URL"] == "" {
			p.refused("the database has no tables", "backup", t.TempDir()+"/backup.tar")
		}
		for _, command := range needInstallation {
			p.refused("run `postrider migrate` or `postrider serve`", strings.Fields(command)...)
		}
		vars["POSTRIDER_SECRET_KEY"] = testSecretKey
		if url := vars["POSTRIDER_DATABASE_URL"]; url != "" {
			var n int
			err := dbtest.Open(t, url).QueryRow(t.Context(), `SELECT COUNT(*) FROM pg_tables
				WHERE schemaname = 'public'`).Scan(&n)
			if err != nil || n != 0 {
				t.Errorf("the database has %d tables, %v", n, err)
			}
		}
		p.must("migrate")
		p.must("teams", "list")
	}
}

// A command that uses the database of database_url leaves nothing in a wrong folder, whether it succeeds or fails.
func TestWrongFolder(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	dir := filepath.Join(parent, "data")
	p := &installation{t: t, dir: dir, vars: map[string]string{"POSTRIDER_DATA_DIR": dir,
		"POSTRIDER_DATABASE_URL": dbtest.EmptyPostgresURL(t), "POSTRIDER_SECRET_KEY": testSecretKey}}
	p.refused("run `postrider migrate`", "teams", "list")
	p.must("migrate")
	p.must("teams", "create", "Acme")
	p.must("teams", "list")
	p.must("emails", "erase", "a@one.example")
	p.must("jobs")
	p.must("backup", "--done-elsewhere")
	delete(p.vars, "POSTRIDER_SECRET_KEY")
	p.refused("the secret key", "teams", "list")
	if made, err := os.ReadDir(parent); err != nil || len(made) > 0 {
		t.Errorf("the commands have made %v, %v", made, err)
	}
}

// No command writes to a database whose table of migrations belongs to another program.
func TestForeignDatabase(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, vars := range []map[string]string{{"POSTRIDER_DATA_DIR": folder},
		{"POSTRIDER_DATA_DIR": t.TempDir(), "POSTRIDER_DATABASE_URL": dbtest.EmptyPostgresURL(t)}} {
		url := vars["POSTRIDER_DATABASE_URL"]
		if url == "" {
			url = folder + "/postrider.db"
		}
		d := dbtest.Open(t, url)
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `CREATE TABLE migrations (id INTEGER PRIMARY KEY, name TEXT)`)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		d.Close()
		p := &installation{t: t, dir: vars["POSTRIDER_DATA_DIR"], vars: vars}
		for _, command := range append([]string{"migrate", "serve"}, needInstallation...) {
			p.refused("a database that only Postrider uses", strings.Fields(command)...)
		}
	}
}
