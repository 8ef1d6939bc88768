package dbtest

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/platform/db"
)

// checkIDs makes a test fail if a statement compares or inserts a text where a column holds ids of 16 bytes. SQLite
// would find no row, and a test of what does not exist would pass.
func checkIDs(t testing.TB, o *db.Options) {
	if strings.Contains(o.URL, "://") {
		return // PostgreSQL converts texts
	}
	next := o.Trace
	var seen sync.Map
	o.Trace = func(s db.Statement) {
		if fault := wrongID(s); fault != "" {
			if _, known := seen.LoadOrStore(s.SQL, true); !known {
				t.Errorf("%s, in: %s", fault, s.SQL)
			}
		}
		if next != nil {
			next(s)
		}
	}
}

var (
	tableNames = regexp.MustCompile(`(?i)\b(?:FROM|JOIN|UPDATE|INTO|,)\s+([a-z_]+)(?:\s+(?:AS\s+)?([a-z]+))?`)
	comparedTo = regexp.MustCompile(`(?i)(?:\b([a-z_]+)\.)?\b([a-z_]+)\)?\s*(?:=|<>|<=|>=|<|>)\s*(?:ANY\(|ALL\()?\$(\d+)`)
	inserted   = regexp.MustCompile(`(?is)INSERT (?:OR FAIL )?INTO\s+([a-z_]+)\s*\(([^)]*)\)\s*VALUES\s*\(([^)]*)\)`)
	parameter  = regexp.MustCompile(`^\$(\d+)$`)
)

// wrongID returns a description of the first argument that is a text and belongs to a column of ids, or "".
func wrongID(s db.Statement) string {
	places, ok := idPlaces.Load(s.SQL)
	if !ok {
		places, _ = idPlaces.LoadOrStore(s.SQL, findIDs(s.SQL))
	}
	for _, p := range places.([]idPlace) {
		if p.n < 1 || p.n > len(s.Args) {
			continue
		}
		switch a := s.Args[p.n-1].(type) {
		case string, []string:
			return fmt.Sprintf("$%d is a %T: pass db.ID or db.IDs for the column %s", p.n, a, p.column)
		}
	}
	return ""
}

// idPlace is a parameter $n of a statement that belongs to a column of ids.
type idPlace struct {
	n      int
	column string
}

// idPlaces holds the result of findIDs for each text of a statement, because tests repeat a few texts very often.
var idPlaces sync.Map

// findIDs returns the parameters of a statement that belong to columns of ids.
func findIDs(text string) (places []idPlace) {
	tables := map[string]string{} // by name and alias
	for _, m := range tableNames.FindAllStringSubmatch(text, -1) {
		tables[m[1]] = m[1]
		if m[2] != "" {
			tables[m[2]] = m[1]
		}
	}
	add := func(table, column, number string) {
		if n, err := strconv.Atoi(number); err == nil && isID(tables, table, column) {
			places = append(places, idPlace{n, column})
		}
	}
	for _, m := range comparedTo.FindAllStringSubmatch(text, -1) {
		add(m[1], m[2], m[3])
	}
	for _, m := range inserted.FindAllStringSubmatch(text, -1) {
		columns, values := strings.Split(m[2], ","), strings.Split(m[3], ",")
		for i := range min(len(columns), len(values)) {
			if p := parameter.FindStringSubmatch(strings.TrimSpace(values[i])); p != nil {
				add(m[1], strings.TrimSpace(columns[i]), p[1])
			}
		}
	}
	return places
}

// isID reports whether a column holds ids. If the statement does not say which table the column belongs to, all tables
// of the statement that have the column must agree.
func isID(tables map[string]string, table, column string) bool {
	if table != "" {
		return columnTypes()[tables[table]+"."+column] == "BLOB"
	}
	found := false
	for _, name := range tables {
		switch columnTypes()[name+"."+column] {
		case "BLOB":
			found = true
		case "":
		default:
			return false
		}
	}
	return found
}

// columnTypes returns the types of all columns, by "table.column".
func columnTypes() map[string]string {
	m, err := migratedFile()
	if err != nil {
		panic("dbtest: read the schema: " + err.Error())
	}
	return m.types
}

// ID returns an id for a test whose rows need ids that are easy to tell apart. Names of at most 16 bytes sort as their
// ids do.
func ID(name string) string {
	var b [16]byte
	if copy(b[:], name); len(name) > len(b) {
		sum := sha256.Sum256([]byte(name))
		copy(b[8:], sum[:])
	}
	return uuid.UUID(b).String()
}
