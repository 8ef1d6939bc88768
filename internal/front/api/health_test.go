package api

import (
	"context"
	"errors"
	"testing"

	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

func TestReadyz(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t),
		Options{Ready: func(context.Context) error { return errors.New("the database does not answer") }})
	if w := f.do(t, "GET /readyz"); w.Code != 503 ||
		w.Body.String() != `{"status":"unavailable: the database does not answer"}` {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
