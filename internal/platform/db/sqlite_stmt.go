package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

const cachedStmts = 400 // maximum number of prepared statements for the readers, and separately for the writer

// stmtCache holds prepared statements, keyed by their text. If the cache is full, a new statement replaces an arbitrary
// existing one. A stmtCache is safe for concurrent use.
type stmtCache struct {
	prepare func(ctx context.Context, text string) (*sql.Stmt, error)
	changes *changes // runs the statements of this cache instead, if it is not nil
	mu      sync.RWMutex
	m       map[stmtKey]*cachedStmt
}

// stmtKey is a statement's text, whether all list arguments have exactly one element, and which of its first 64
// arguments are lists of ids. Most lists have one element, and such lists need no JSON encoding.
type stmtKey struct {
	text string
	ones bool
	ids  uint64 // bits; bit 0 is $1
}

// cachedStmt is a prepared statement with a count of its users; the last user closes the statement. The cache counts as
// a user while it contains the statement. Each caller of get counts as a user until it calls release.
type cachedStmt struct {
	st    *sql.Stmt // nil in a cache for changes
	bare  bareStmt  // nil in other caches
	lists bool      // whether the statement has list parameters
	ones  bool      // whether each list has exactly one element
	users atomic.Int64
}

// release decrements the user count, and closes the statement after its last use.
func (c *cachedStmt) release() {
	if c.users.Add(-1) == 0 {
		c.close()
	}
}

func (c *cachedStmt) close() {
	if c.bare != nil {
		c.bare.Close()
		return
	}
	c.st.Close()
}

// get returns the prepared statement for the given SQL text. The caller must call release after it has run the
// statement and closed its rows.
func (c *stmtCache) get(ctx context.Context, text string, args []any) (*cachedStmt, error) {
	key := keyOf(text, args)
	c.mu.RLock()
	kept := c.m[key]
	if kept != nil {
		kept.users.Add(1) // users is above 0, because the cache itself counts as a user
	}
	c.mu.RUnlock()
	if kept != nil {
		return kept, nil
	}
	native, lists := text, false
	if key.ones {
		native, lists = listsAsOnes(text)
	} else {
		native, lists = listsAsJSON(text, key.ids)
	}
	native = rowLimit.ReplaceAllString(native, "LIMIT CAST($$$1 AS INTEGER)")
	native = hint.ReplaceAllString(native, "$1")
	native = asID.ReplaceAllString(native, "UNHEX(REPLACE($1, '-', ''))")
	native = typed.ReplaceAllString(native, "$1")
	native = unnamed(strings.ReplaceAll(native, bytewise, ""))
	made := &cachedStmt{lists: lists, ones: key.ones}
	var err error
	if c.changes != nil {
		made.bare, err = c.changes.prepare(ctx, native)
	} else {
		made.st, err = c.prepare(ctx, native)
	}
	if err != nil {
		return nil, sqliteError("prepare", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept := c.m[key]; kept != nil { // another goroutine prepared it first
		made.close()
		kept.users.Add(1)
		return kept, nil
	}
	if c.m == nil {
		c.m = map[stmtKey]*cachedStmt{}
	}
	if len(c.m) >= cachedStmts {
		for k, old := range c.m { // removes an arbitrary statement, because the iteration order of a map is random
			delete(c.m, k)
			old.release()
			break
		}
	}
	made.users.Store(2)
	c.m[key] = made
	return made, nil
}

// close closes the statements that are not in use. Statements in use are closed by their last user.
func (c *stmtCache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, st := range c.m {
		st.release()
	}
	c.m = nil
}

var (
	anyOf  = regexp.MustCompile(`=\s+ANY\(\$(\d+)\)`)
	noneOf = regexp.MustCompile(`<> ALL\(\$(\d+)\)`)
	unnest = regexp.MustCompile(`UNNEST\(CAST\(\$(\d+) AS (?:TEXT|UUID)\[\]\)\)`)
	hint   = regexp.MustCompile(`/\*sqlite: (.*?) \*/`) // a comment that PostgreSQL ignores

	// rowLimit is a limit that is a parameter. SQLite's planner looks at the value of such a limit, so SQLite would
	// prepare the statement again whenever the parameter is bound. The planner does not look at the value of an
	// expression.
	rowLimit = regexp.MustCompile(`\bLIMIT\s+\$(\d+)`)

	// asID is an id in a column of texts, and typed is a parameter whose type PostgreSQL cannot see elsewhere.
	asID  = regexp.MustCompile(`CAST\(([a-z_.]+) AS UUID\)`)
	typed = regexp.MustCompile(`CAST\((\$\d+) AS UUID\)`)
)

// bytewise makes PostgreSQL compare the bytes of strings, as SQLite always does.
const bytewise = ` COLLATE "C"`

// listsAsJSON replaces the operators on list parameters with SQLite's operators on JSON arrays. Lists of ids are arrays
// of hexadecimal digits.
func listsAsJSON(text string, ids uint64) (native string, lists bool) {
	replace := func(of *regexp.Regexp, text, before, after string) string {
		return of.ReplaceAllStringFunc(text, func(found string) string {
			n := of.FindStringSubmatch(found)[1]
			value := "value"
			if at, err := strconv.Atoi(n); err == nil && ids&(1<<(at-1)) != 0 {
				value = "unhex(value)"
			}
			return before + value + " AS value FROM json_each($" + n + ")" + after
		})
	}
	native = replace(anyOf, text, "IN (SELECT ", ")")
	native = replace(noneOf, native, "NOT IN (SELECT ", ")")
	native = replace(unnest, native, "", "")
	return native, native != text
}

// listsAsOnes replaces the operators on list parameters with operators on single values, for lists of one element each.
func listsAsOnes(text string) (native string, lists bool) {
	native = anyOf.ReplaceAllString(text, `= $$$1`)
	native = noneOf.ReplaceAllString(native, `<> $$$1`)
	native = unnest.ReplaceAllString(native, `value FROM (SELECT $$$1 AS value)`)
	return native, native != text
}

// unnamed replaces $1, $2 and so on by ?, if the statement has each of them once and in this order. For a parameter with
// a name, SQLite and the driver look for the name in each execution, which takes longer than to bind a number.
func unnamed(text string) string {
	n, inOrder := 0, true
	anonymous := parameter.ReplaceAllStringFunc(text, func(name string) string {
		n++
		inOrder = inOrder && name == "$"+strconv.Itoa(n)
		return "?"
	})
	if !inOrder {
		return text
	}
	return anonymous
}

// keyOf returns the key of a statement.
func keyOf(text string, args []any) stmtKey {
	key, lists := stmtKey{text: text, ones: true}, 0
	for i, a := range args {
		n := 0
		switch list := a.(type) {
		case []string:
			n = len(list)
		case []ID:
			n = len(list)
			key.ids |= 1 << i
		case []int64:
			n = len(list)
		case []float64:
			n = len(list)
		default:
			continue
		}
		lists++
		key.ones = key.ones && n == 1
	}
	key.ones = key.ones && lists > 0
	return key
}

// bind returns the arguments in the form that the statement expects.
func (c *cachedStmt) bind(args []any) ([]any, error) {
	if !c.lists {
		return args, nil
	}
	bound := make([]any, len(args))
	for i, a := range args {
		var err error
		switch list := a.(type) {
		case []string:
			if c.ones {
				if bound[i] = list[0]; !utf8.ValidString(list[0]) {
					return nil, fmt.Errorf("parameter $%d: %q is not UTF-8", i+1, list[0])
				}
				continue
			}
			bound[i], err = jsonList(list, func(b []byte, s string) ([]byte, error) { return jsontext.AppendQuote(b, s) })
		case []ID:
			if c.ones {
				bound[i] = list[0]
				continue
			}
			bound[i], err = jsonList(list, func(b []byte, id ID) ([]byte, error) { return id.appendHex(b) })
		case []int64:
			if c.ones {
				bound[i] = list[0]
				continue
			}
			bound[i], err = jsonList(list, func(b []byte, n int64) ([]byte, error) {
				return strconv.AppendInt(b, n, 10),
					nil
			})
		case []float64:
			if c.ones {
				bound[i] = list[0]
				continue
			}
			bound[i], err = jsonList(list, func(b []byte, n float64) ([]byte, error) {
				return strconv.AppendFloat(b, n, 'g', -1, 64), nil
			})
		default:
			bound[i] = a
		}
		if err != nil {
			return nil, fmt.Errorf("parameter $%d: %w", i+1, err)
		}
	}
	return bound, nil
}

func jsonList[T any](list []T, add func([]byte, T) ([]byte, error)) (string, error) {
	b := make([]byte, 0, 2+40*len(list))
	b = append(b, '[')
	for i, x := range list {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = add(b, x); err != nil {
			return "", err
		}
	}
	return string(append(b, ']')), nil
}

// exec runs a statement and returns how many rows it changed.
func (c *stmtCache) exec(ctx context.Context, text string, args []any) (int64, error) {
	st, err := c.get(ctx, text, args)
	if err != nil {
		return 0, err
	}
	defer st.release()
	if args, err = st.bind(args); err != nil {
		return 0, err
	}
	var res driver.Result
	if st.bare != nil {
		res, err = c.changes.run(ctx, st.bare, args)
	} else {
		res, err = st.st.ExecContext(ctx, args...)
	}
	if err != nil {
		return 0, sqliteError("execute", err)
	}
	return res.RowsAffected()
}

// query runs a SELECT. The prepared statement is in use until the rows are closed.
func (c *stmtCache) query(ctx context.Context, text string, args []any) (Rows, error) {
	st, err := c.get(ctx, text, args)
	if err != nil {
		return nil, err
	}
	args, err = st.bind(args)
	if err == nil {
		var rows *sql.Rows
		if rows, err = st.st.QueryContext(ctx, args...); err == nil {
			return &sqlRows{rows, st}, nil
		}
	}
	st.release()
	return nil, sqliteError("query", err)
}

// queryRow runs a SELECT for one row. The prepared statement is in use until the row is scanned.
func (c *stmtCache) queryRow(ctx context.Context, text string, args []any) Row {
	st, err := c.get(ctx, text, args)
	if err != nil {
		return failedRow{err}
	}
	if args, err = st.bind(args); err != nil {
		st.release()
		return failedRow{err}
	}
	return &sqlRow{st.st.QueryRowContext(ctx, args...), st}
}

// sqlRows implements Rows with rows from database/sql.
type sqlRows struct {
	*sql.Rows
	st *cachedStmt
}

// Err returns the error that ended the iteration over the rows, or nil.
func (r *sqlRows) Err() error { return sqliteError("read rows", r.Rows.Err()) }

// Close closes the rows and may be called more than once.
func (r *sqlRows) Close() {
	r.Rows.Close()
	if r.st != nil {
		r.st.release()
		r.st = nil
	}
}

type sqlRow struct {
	row *sql.Row
	st  *cachedStmt
}

func (r *sqlRow) Scan(dest ...any) error {
	err := r.row.Scan(dest...)
	if r.st != nil {
		r.st.release()
		r.st = nil
	}
	return sqliteError("read a row", err)
}
