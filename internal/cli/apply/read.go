package apply

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/spelling"
)

const maxFile = 16 << 20 // maximum size of a file, in bytes

// file is a file of a set-up.
type file struct {
	name  string
	lines map[string]int // lines of tables and fields by their key
}

// line returns the line of a field, or of the nearest table around it; 0 if neither is known.
func (f *file) line(key toml.Key) int {
	for n := len(key); n > 0; n-- {
		if line := f.lines[key[:n].String()]; line > 0 {
			return line
		}
	}
	first := 0 // a table that has no line of its own begins with its first table or field
	for name, line := range f.lines {
		if strings.HasPrefix(name, key[:1].String()+".") && (first == 0 || line < first) {
			first = line
		}
	}
	return first
}

// Load reads a file, or all files of a folder whose names end in .toml. If something in them is wrong, the error is of
// type Problems and has all problems.
func Load(path string) (*Setup, error) {
	names, err := filesOf(path)
	if err != nil {
		return nil, err
	}
	s := &Setup{}
	var problems Problems
	for _, name := range names {
		problems = append(problems, s.load(name)...)
	}
	problems = append(problems, s.duplicates()...)
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	if len(problems) > 0 {
		return nil, problems
	}
	return s, nil
}

func filesOf(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the set-up: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	all, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("read the set-up: %w", err)
	}
	var names []string
	for _, f := range all {
		if strings.HasSuffix(f.Name(), ".toml") && f.Type()&fs.ModeDir == 0 {
			names = append(names, filepath.Join(path, f.Name()))
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("the folder %s has no file whose name ends in .toml", path)
	}
	return names, nil
}

// load reads one file.
func (s *Setup) load(name string) (problems Problems) {
	whole := func(line int, format string, args ...any) Problems {
		return Problems{{File: name, Line: line, Message: fmt.Sprintf(format, args...)}}
	}
	text, err := readLimited(name)
	if err != nil {
		return whole(0, "%v", err)
	}
	tables := map[string]map[string]toml.Primitive{}
	meta, err := toml.Decode(text, &tables)
	if wrong, ok := errors.AsType[toml.ParseError](err); ok {
		return whole(wrong.Position.Line, "the file is not a set-up: %s. Write tables such as [topics.News]", wrong.Message)
	}
	if err != nil {
		return whole(0, "the file is not a set-up: %v", err)
	}
	f := &file{name, linesOf(text)}
	for _, key := range meta.Keys() { // Decode ignores values that are not tables
		if len(key) == 1 && meta.Type(key...) != "Hash" {
			problems = append(problems, Problem{name, f.line(key), key.String(), "write tables such as [topics.News]"})
			delete(tables, key[0])
		}
	}
	for _, table := range slices.Sorted(maps.Keys(tables)) {
		k := kindOf(table)
		if k == nil {
			key := toml.Key{table}
			problems = append(problems, Problem{name, f.line(key), key.String(), "this kind of resource is unknown" +
				suggestion(table, kindTables())})
			continue
		}
		for _, resource := range slices.Sorted(maps.Keys(tables[table])) {
			d := &declaration{kind: k, name: resource, file: f, key: toml.Key{table, resource}, spec: k.spec()}
			problems = append(problems, d.decode(&meta, tables[table][resource])...)
			s.declarations = append(s.declarations, d)
		}
	}
	return problems
}

// wrongType matches the error about a value of another type. Its groups are the key, the given and the right type.
var wrongType = regexp.MustCompile(`\(last key "(.*)"\): incompatible types: TOML value has type (.*); ` +
	`destination has type (.*)$`)

// decode reads the table of a declaration.
func (d *declaration) decode(meta *toml.MetaData, table toml.Primitive) (problems Problems) {
	if err := meta.PrimitiveDecode(table, d.spec); err != nil {
		m := wrongType.FindStringSubmatch(err.Error())
		if m == nil {
			return Problems{d.problem("", "%v", err)}
		}
		field := strings.TrimPrefix(strings.TrimPrefix(m[1], d.key.String()), ".")
		return Problems{d.problem(field, "the value must be a %s, not a %s", m[3], m[2])}
	}
	known := fieldsOf(d.spec)
	for _, key := range meta.Keys() {
		if len(key) != len(d.key)+1 || !slices.Equal(key[:len(d.key)], d.key) {
			continue
		}
		if field := key[len(key)-1]; !slices.Contains(known, field) {
			problems = append(problems, d.problem(field, "the field is unknown%s", suggestion(field, known)))
		}
	}
	for _, key := range meta.Undecoded() {
		if len(key) == len(d.key)+2 && slices.Equal(key[:len(d.key)], d.key) && slices.Contains(strict, key[len(d.key)]) {
			problems = append(problems, d.problem(strings.Join(key[len(d.key):], "."), "the field is unknown"))
		}
	}
	name, faults := d.spec.read(d.name, filepath.Dir(d.file.name))
	d.name = name
	for _, err := range faults {
		field := ""
		if e, ok := errors.AsType[*fault.Error](err); ok {
			field = e.Field
		}
		if first, _, _ := strings.Cut(field, "."); !slices.Contains(known, first) {
			field = "" // such as the name, which is part of the table's name
		}
		problems = append(problems, d.problem(field, "%v", err))
	}
	return problems
}

// strict lists the fields that are tables with fields of their own.
var strict = []string{"capabilities", "variables"}

// suggestion returns the end of a sentence about an unknown name.
func suggestion(name string, known []string) string {
	if nearest := spelling.Nearest(name, known); nearest != "" {
		return "; did you mean " + nearest + "?"
	}
	return "; known are " + strings.Join(known, ", ")
}

func kindTables() (all []string) {
	for _, k := range kinds {
		all = append(all, k.table)
	}
	return all
}

// duplicates returns a problem for each resource that occurs twice.
func (s *Setup) duplicates() (problems Problems) {
	seen := map[[2]string]*declaration{}
	for _, d := range s.declarations {
		key := [2]string{d.kind.table, d.name}
		if other := seen[key]; other != nil {
			problems = append(problems, d.problem("", "%s:%d has the same %s", other.file.name, other.file.line(other.key),
				d.kind.title))
		}
		seen[key] = d
	}
	return problems
}

// readLimited reads a file of at most maxFile bytes.
func readLimited(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return "", fmt.Errorf("%s is not a regular file of at most %d MB", name, maxFile>>20)
	}
	text, err := os.ReadFile(name)
	return string(text), err
}

// linesOf returns the lines of tables and fields in a TOML file by their key. The keys of inline tables are left out.
func linesOf(text string) map[string]int {
	lines := map[string]int{}
	var table toml.Key
	n, quote := 0, ""
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if quote != "" { // within a text of several lines
			if strings.Contains(line, quote) {
				quote = ""
			}
			continue
		}
		if strings.HasPrefix(line, "[") {
			if key := keyOf(strings.ReplaceAll(strings.ReplaceAll(line, "[[", "["), "]]", "]")); key != nil {
				table = key
				lines[table.String()] = n
			}
			continue
		}
		before, after, ok := strings.Cut(line, "=")
		if !ok {
			continue
		}
		if key := keyOf(before + "= 0"); key != nil {
			lines[append(table[:len(table):len(table)], key...).String()] = n
		}
		for _, q := range []string{`"""`, `'''`} {
			if strings.Count(after, q) == 1 {
				quote = q
			}
		}
	}
	return lines
}

// keyOf returns the key in a line of TOML, or nil.
func keyOf(line string) (longest toml.Key) {
	var ignored map[string]any
	meta, err := toml.Decode(line, &ignored)
	if err != nil {
		return nil
	}
	for _, key := range meta.Keys() {
		if len(key) > len(longest) {
			longest = key
		}
	}
	return longest
}
