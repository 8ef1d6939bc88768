package dbtest

import (
	"log/slog"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/db/dbtest/pgproxy"
)

// Proxy starts a proxy before a fresh schema of PostgreSQL. Its URL works in that schema.
func Proxy(t testing.TB) *pgproxy.Proxy {
	t.Helper()
	p, err := pgproxy.Start(PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Proxied opens a fresh schema of PostgreSQL by way of a proxy, with a patience of its own; 0 is the default.
func Proxied(t testing.TB, patience time.Duration) (*db.DB, *pgproxy.Proxy) {
	t.Helper()
	p := Proxy(t)
	return open(t, db.Options{URL: p.URL(), MaxConns: 6, Patience: patience, Log: slog.New(slog.DiscardHandler)}), p
}
