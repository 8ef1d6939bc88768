package dbtest

import (
	"testing"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

func TestID(t *testing.T) {
	t.Parallel()
	a, b, long := ID("email 1"), ID("email 2"), ID("an email with a very long name")
	if !id.Valid(a) || !id.Valid(long) || a >= b || long == ID("an email with another long name") {
		t.Errorf("%s, %s, %s", a, b, long)
	}
}

// A text in the place of an id is found, whether a statement compares it, inserts it or looks for it in a list.
func TestWrongID(t *testing.T) {
	columnTypes()["things.id"], columnTypes()["things.name"] = "BLOB", "TEXT"
	columnTypes()["others.id"] = "TEXT"
	for _, c := range []struct {
		sql   string
		args  []any
		wrong bool
	}{
		{`SELECT name FROM things WHERE id = $1`, []any{"x"}, true},
		{`SELECT name FROM things WHERE id = $1`, []any{db.ID("x")}, false},
		{`SELECT name FROM things WHERE name = $1`, []any{"x"}, false},
		{`SELECT 1 FROM things t JOIN others o ON o.id = t.name WHERE t.id > $1`, []any{"x"}, true},
		{`SELECT 1 FROM things t JOIN others o ON o.id = t.name WHERE o.id > $1`, []any{"x"}, false},
		{`SELECT name FROM things WHERE COALESCE(id, id) = $1`, []any{"x"}, true},
		{`DELETE FROM things WHERE id = ANY($1)`, []any{[]string{"x"}}, true},
		{`DELETE FROM things WHERE id = ANY($1)`, []any{[]db.ID{"x"}}, false},
		{`INSERT INTO things (name, id) VALUES ($2, $1)`, []any{"x", "y"}, true},
		{`INSERT INTO things (name, id) VALUES ($1, $2)`, []any{"x", db.ID("y")}, false},
		{`INSERT OR FAIL INTO things (name, id) VALUES ($1, $2), ($3, $4)`, []any{"x", "y", "x", "y"}, true},
	} {
		if got := wrongID(db.Statement{SQL: c.sql, Args: c.args}); (got != "") != c.wrong {
			t.Errorf("%s with %T: %q", c.sql, c.args[0], got)
		}
	}
}
