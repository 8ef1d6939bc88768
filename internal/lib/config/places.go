package config

import (
	"cmp"
	"fmt"
	"strings"
)

// The TOML library does not tell the lines of keys. These functions find them in the text, if the file is written as
// people write it: each table has a line with its name, and each key begins a line.

// placeAt returns the place of a line in a file, or the file's name if the line is 0.
func placeAt(file string, line int) string {
	if line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d", file, line)
}

// lineOf returns the number of the line at whose beginning a top-level key or the name of a table is, or 0 if there is
// none.
func lineOf(data []byte, key string) int {
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		before, _, ok := strings.Cut(line, "=")
		switch before = strings.TrimSpace(before); {
		case ok && unquoted(before) == key:
			return n
		case strings.Trim(before, "[] \t") == key && strings.HasPrefix(before, "["):
			return n
		}
	}
	return 0
}

func unquoted(key string) string { return strings.Trim(key, "\"'") }

// linesOf returns the numbers of the lines with the tables [[key]], or nil if not all of the given number are found, for
// example because they are written in another way.
func linesOf(data []byte, key string, count int) (all []int) {
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		line, _, _ = strings.Cut(line, "#")
		inner, begins := strings.CutPrefix(strings.TrimSpace(line), "[[")
		if inner, ends := strings.CutSuffix(inner, "]]"); begins && ends && strings.Trim(inner, "\"' \t") == key {
			all = append(all, n)
		}
	}
	if len(all) != count {
		return nil
	}
	return all
}

// setPlace notes the place of a table, or of a key of a table.
func (l *loader) setPlace(name, place string) {
	if l.places == nil {
		l.places = map[string]string{}
	}
	l.places[name] = place
}

// setPlacesOfKeys notes the places of the keys of a table whose name is in the line with the given number.
func (l *loader) setPlacesOfKeys(table, file string, data []byte, header int) {
	n := 0
	for line := range strings.Lines(string(data)) {
		if n++; n <= header || header == 0 {
			continue
		}
		before, _, isKey := strings.Cut(strings.TrimSpace(line), "=")
		if strings.HasPrefix(before, "[") {
			return
		}
		if isKey {
			l.setPlace(table+"."+unquoted(strings.TrimSpace(before)), placeAt(file, n))
		}
	}
}

// placeIn returns the place of a key of a table, or else that of the table.
func (l *loader) placeIn(table, key string) string {
	return cmp.Or(l.places[table+"."+key], l.places[table])
}
