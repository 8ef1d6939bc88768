package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// The error of a node that cannot start because the disk is full says so, and where. Other errors of the database have
// their cause.
func TestStartErrors(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	full := d.Update(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), `PRAGMA max_page_count = 1`); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), `INSERT INTO installation (name, value) VALUES ('x', $1)`, strings.Repeat("x", 1<<22))
		return err
	})
	d.Close()
	closed := d.Update(t.Context(), func(*db.Tx) error { return nil })
	for _, x := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("start the job runner: %w", full), "the disk of data_dir (/data) is full, so the database can store " +
			"nothing: free some space, or move the folder to a larger disk: start the job runner: "},
		{fmt.Errorf("start the job runner: %w", closed), "(update: the database is closed)"},
		{errors.New("another error"), "another error"},
	} {
		got := explain(config.Config{DataDir: "/data"}, x.err)
		if !strings.Contains(got.Error(), x.want) || !errors.Is(got, x.err) {
			t.Errorf("%v; want %s", got, x.want)
		}
	}
	if err := explain(config.Config{}, nil); err != nil {
		t.Error(err)
	}
}
