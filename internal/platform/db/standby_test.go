package db_test

import (
	"bytes"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// A node says at its start whether accepted emails survive the loss of the primary.
func TestLogStandbys(t *testing.T) {
	primary := dbtest.NewServer(t, dbtest.MemoryFolder(), "wal_level=replica", "max_wal_senders=4")
	admin := dbtest.OpenSuperuser(t, primary.URL)
	alter := func(statements ...string) {
		t.Helper()
		for _, text := range append(statements, `SELECT pg_reload_conf()`) {
			if err := admin(text); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
	}
	says := func(url, want string) {
		t.Helper()
		var got string
		poll(t, func() bool { // a reloaded configuration takes a moment to become effective
			var log bytes.Buffer
			d, err := db.Open(t.Context(), db.Options{URL: url, MaxConns: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			d.LogStandbys(t.Context())
			got = log.String()
			return want != "" && strings.Contains(got, want) || want == "" && got == ""
		})
		if n := strings.Count(got, "\n"); n > 1 {
			t.Errorf("%d lines:\n%s", n, got)
		}
	}
	alter(`CREATE USER clerk`)
	clerk := strings.Replace(primary.URL, "//postgres@", "//clerk@", 1)
	says(primary.URL, "level=INFO msg=\"PostgreSQL has no standby")
	says(clerk, "level=INFO msg=\"PostgreSQL has no standby")

	standby := primary.Standby(t)
	says(primary.URL, "level=WARN msg=\"PostgreSQL has no synchronous standby")
	says(clerk, "level=WARN msg=\"PostgreSQL has no synchronous standby")

	alter(`ALTER SYSTEM SET synchronous_standby_names = '*'`)
	says(primary.URL, "")
	says(clerk, `grant="GRANT pg_monitor TO \"clerk\""`)
	says(primary.URL+"&synchronous_commit=local", "level=WARN msg=\"synchronous_commit is local")
	says(primary.URL+"&synchronous_commit=off", "level=WARN msg=\"synchronous_commit is off")
	alter(`GRANT pg_monitor TO clerk`)
	says(clerk, "")

	standby.Stop(syscall.SIGINT)
	says(clerk, "level=WARN msg=\"no synchronous standby is connected")

	alter(`ALTER SYSTEM RESET synchronous_standby_names`)
	says(primary.URL, "level=INFO msg=\"PostgreSQL has no standby")
	alter(`SELECT pg_create_physical_replication_slot('standby')`)
	says(primary.URL, "level=WARN msg=\"PostgreSQL has no synchronous standby")

	var log bytes.Buffer
	d, err := db.Open(t.Context(), db.Options{URL: dbtest.SQLiteFile(t), Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	log.Reset()
	if d.LogStandbys(t.Context()); log.Len() > 0 {
		t.Errorf("on SQLite: %s", log.String())
	}
}
