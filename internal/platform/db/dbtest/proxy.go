package dbtest

import (
	"log/slog"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest/pgproxy"
)

// Proxy starts a proxy in front of a new migrated database of PostgreSQL. Its URL names that database.
func Proxy(t testing.TB) *pgproxy.Proxy {
	t.Helper()
	p, err := pgproxy.Start(PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Proxied opens a new migrated database of PostgreSQL through a proxy. A patience of 0 is the default.
func Proxied(t testing.TB, patience time.Duration) (*db.DB, *pgproxy.Proxy) {
	t.Helper()
	p := Proxy(t)
	return open(t, db.Options{URL: p.URL(), MaxConns: 6, Patience: patience, Log: slog.New(slog.DiscardHandler)}), p
}

// EachTorn calls act repeatedly, each time with another answer of the database cut in the middle: first the first
// answer, then the second, until all answers were cut once. prepare runs before each call. check runs after it with the
// error of act, while the connection is intact.
func EachTorn(t testing.TB, p *pgproxy.Proxy, prepare func(), act func() error,
	check func(skip int, err error)) (failed int) {
	t.Helper()
	const most = 200
	for skip := range most {
		prepare()
		before := p.Torn()
		p.Tear(skip, 1)
		err := act()
		torn := p.Torn() > before
		if passed := p.Pass(); passed != nil {
			t.Fatal(passed)
		}
		check(skip, err)
		switch {
		case err != nil && !torn:
			t.Errorf("it fails without an answer torn: %v", err)
			return failed
		case err != nil:
			failed++
		case !torn:
			return failed
		}
	}
	t.Errorf("it takes more than %d answers", most)
	return failed
}
