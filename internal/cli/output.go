package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/postrider/postrider/internal/cli/apply"
	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/lib/fault"
)

// print writes a result: v as one JSON document if --json is given, or else what text writes.
func (e *env) print(v any, text func(w io.Writer) error) error {
	if !e.json {
		return text(e.out)
	}
	return encode(e.out, v)
}

// encode writes v as an indented JSON document.
func encode(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	if err := out.Encode(v); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// done writes the result of a command whose text output is a line, or none if line is "".
func (e *env) done(v any, line string) error {
	return e.print(v, func(w io.Writer) error {
		if line == "" {
			return nil
		}
		_, err := fmt.Fprintln(w, line)
		return err
	})
}

// note writes a line about the progress. With --json, standard output has only the result, so the line goes to standard
// error.
func (e *env) note(format string, args ...any) {
	w := e.out
	if e.json {
		w = e.errOut
	}
	fmt.Fprintf(w, format+"\n", args...)
}

// listing writes a list row by row: as a table, or as a JSON document with the member data.
type listing struct {
	e     *env
	table *tabwriter.Writer
	rows  int
	err   error
}

// list begins a list whose table has the given columns.
func (e *env) list(columns ...string) *listing {
	l := &listing{e: e}
	if e.json {
		return l
	}
	l.table = tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
	l.cells(columns)
	return l
}

func (l *listing) cells(cells []string) {
	if l.err == nil {
		_, l.err = io.WriteString(l.table, strings.Join(cells, "\t")+"\n")
	}
}

// add writes a row: the object in JSON, the cells in the table.
func (l *listing) add(object any, cells ...string) {
	if l.rows++; !l.e.json {
		l.cells(cells)
		return
	}
	text, err := json.Marshal(object)
	if l.err == nil {
		l.err = err
	}
	separator := ",\n  "
	if l.rows == 1 {
		separator = `{"data": [` + "\n  "
	}
	if l.err == nil {
		_, l.err = io.WriteString(l.e.out, separator+string(text))
	}
}

// end ends the list.
func (l *listing) end() error {
	switch {
	case l.err != nil:
		return fmt.Errorf("write the list: %w", l.err)
	case l.e.json:
		end := "\n]}\n"
		if l.rows == 0 {
			end = `{"data": []}` + "\n"
		}
		_, err := io.WriteString(l.e.out, end)
		return err
	}
	return l.table.Flush()
}

// clock returns a time for tables.
func clock(t time.Time) string { return t.Format(time.DateTime) }

// moment returns a time for JSON, or nil if it is zero.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// nilIfZero returns nil for the zero value, which is null in JSON.
func nilIfZero[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// faultKinds are the names of the kinds of errors in JSON.
var faultKinds = map[fault.Kind]string{fault.Invalid: "invalid", fault.Missing: "invalid",
	fault.MissingParameter: "invalid", fault.BadID: "invalid", fault.NotFound: "not_found", fault.Forbidden: "forbidden",
	fault.Suspended: "forbidden", fault.Locked: "locked", fault.Unavailable: "unavailable"}

// errorObject is an error in JSON.
type errorObject struct {
	Kind    string          `json:"kind"` // usage, settings, the name of a kind of fault, or failed
	Command string          `json:"command"`
	Message string          `json:"message"`
	Wrong   []problemObject `json:"problems,omitempty"` // of the settings or of a set-up
}

// problemObject is a wrong setting, or a wrong field of a set-up, in JSON.
type problemObject struct {
	Setting *string `json:"setting"`
	Place   *string `json:"place"`
	Message string  `json:"message"`
}

// problemObjects returns problems in JSON, as a list that is not nil.
func problemObjects(problems []*config.Problem) []problemObject {
	all := []problemObject{}
	for _, p := range problems {
		all = append(all, problemObject{nilIfZero(p.Setting), nilIfZero(p.Place), p.Message()})
	}
	return all
}

// setupProblems returns the problems of a set-up in JSON.
func setupProblems(err error) (all []problemObject) {
	ofSetup, _ := errors.AsType[apply.Problems](err)
	for _, p := range ofSetup {
		place := p.File
		if p.Line > 0 {
			place = fmt.Sprintf("%s:%d", place, p.Line)
		}
		all = append(all, problemObject{nilIfZero(p.Field), &place, p.Message})
	}
	return all
}

// describe returns an error as an object.
func describe(err error) errorObject {
	o := errorObject{Kind: "failed", Message: err.Error(), Wrong: problemObjects(config.Problems(err))}
	if of, ok := errors.AsType[*commandError](err); ok {
		o.Command, o.Message = of.command, of.cause.Error()
	}
	_, isUsage := errors.AsType[usageError](err)
	_, isFault := errors.AsType[*fault.Error](err)
	ofSetup := setupProblems(err)
	switch {
	case isUsage:
		o.Kind = "usage"
	case len(config.Problems(err)) > 0:
		o.Kind = "settings"
	case len(ofSetup) > 0:
		o.Kind, o.Wrong = "invalid", ofSetup
	case isFault && faultKinds[fault.KindOf(err)] != "":
		o.Kind = faultKinds[fault.KindOf(err)]
	}
	return o
}
