package cli

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// The first start on an empty PostgreSQL database writes no error to the server's log.
func TestFirstStartLogsNoError(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t, dbtest.MemoryFolder(), "logging_collector=on", "log_min_messages=error")
	p := &installation{t: t, dir: t.TempDir()}
	p.vars = map[string]string{"POSTRIDER_DATA_DIR": p.dir, "POSTRIDER_DATABASE_URL": server.URL}
	n := p.start()
	log := func() (text string) {
		err := n.DB.QueryRow(t.Context(), `SELECT pg_read_file(pg_current_logfile())`).Scan(&text)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if text := log(); strings.Contains(text, "ERROR") {
		t.Errorf("the server has logged:\n%s", text)
	}
	if _, err := n.DB.Query(t.Context(), `SELECT missing`); err == nil {
		t.Error("a missing column was read")
	}
	for try := 0; !strings.Contains(log(), `column "missing" does not exist`); try++ {
		if try == 1000 {
			t.Fatalf("the log does not show errors: %q", log())
		}
	}
	n.end()
}
