package dbtest

import (
	"os"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest/pgproxy"
)

// Proxy starts a proxy in front of a new migrated PostgreSQL database. The proxy's URL names that database.
func Proxy(t testing.TB) *pgproxy.Proxy {
	t.Helper()
	return ProxyTo(t, PostgresURL(t))
}

// Proxied opens a new migrated PostgreSQL database through a proxy. If patience is 0, the default from db.Options
// applies. Opening the database is bounded by patience too, so patience must be at least a second on a busy machine.
func Proxied(t testing.TB, patience time.Duration) (*db.DB, *pgproxy.Proxy) {
	t.Helper()
	p := Proxy(t)
	return OpenThrough(t, p, patience), p
}

// OpenThrough opens the migrated database behind a proxy.
func OpenThrough(t testing.TB, p *pgproxy.Proxy, patience time.Duration) *db.DB {
	t.Helper()
	return open(t, Through(p, db.Options{MaxConns: maxConns, Patience: patience}))
}

// tornVariable is the environment variable that makes tests cut every answer. The command `make torn` sets it to "all".
const tornVariable = "POSTRIDER_TEST_TORN"

// TornStep returns the interval between the answers that a test cuts: 1 in `make torn`, and step in `make test`. Each
// cut takes time, because it requires a new connection with empty caches.
func TornStep(step int) int {
	if os.Getenv(tornVariable) == "all" {
		return 1
	}
	return step
}

// EachTorn calls the act function repeatedly until every answer from the database has been cut once. Each call cuts off
// a different answer in the middle. The prepare function runs before each call to act. After each call, the check
// function receives the error that act returned; the connection is intact while check runs.
func EachTorn(t testing.TB, p *pgproxy.Proxy, prepare func(), act func() error,
	check func(skip int, err error)) (failed int) {
	t.Helper()
	return SomeTorn(t, p, 1, prepare, act, check)
}

// SomeTorn is like EachTorn but for actions with many answers. In `make test`, SomeTorn cuts the first answer and then
// every step-th answer.
func SomeTorn(t testing.TB, p *pgproxy.Proxy, step int, prepare func(), act func() error,
	check func(skip int, err error)) (failed int) {
	t.Helper()
	const most = 200
	for skip := 0; skip < most; skip += TornStep(step) {
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
