package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The environment of a program that is built with a schema.
const (
	onVariable      = "POSTRIDER_MUTANT"          // the number of the mutant that is switched on
	reachedVariable = "POSTRIDER_MUTANTS_REACHED" // a file that gets the numbers of the mutants that are reached
)

// support is added to each package that is rewritten. It takes the package's name and the highest number.
const support = `package %s

import (
	mutantos "os"
	mutantstrconv "strconv"
	mutantatomic "sync/atomic"
)

var (
	mutantOn, _   = mutantstrconv.Atoi(mutantos.Getenv("` + onVariable + `"))
	mutantFile, _ = mutantos.OpenFile(mutantos.Getenv("` + reachedVariable + `"), mutantos.O_WRONLY|mutantos.O_APPEND, 0)
	mutantSeen    [%d + 1]mutantatomic.Bool
)

func mutantReached(number int) {
	if mutantFile != nil && !mutantSeen[number].Swap(true) {
		mutantFile.WriteString(mutantstrconv.Itoa(number) + "\n")
	}
}
`

// schemata rewrites the packages of the mutants so that each mutant is switched on by its number, and returns the
// argument for the go command that substitutes the rewritten files. A mutant that cannot be switched on at run time,
// because it is not in a function, gets no number: it is built by itself.
func schemata(mutants []*mutant, dir string) (overlay string, err error) {
	files := map[string][]*mutant{}
	for i, m := range mutants {
		m.number = i + 1
		files[m.file] = append(files[m.file], m)
	}
	replace := map[string][]byte{}
	for name, inside := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		var clause string
		if replace[name], clause, err = schema(name, text, inside); err != nil {
			return "", err
		}
		replace[filepath.Dir(name)+"/mutants_schema.go"] = fmt.Appendf(nil, support, clause, len(mutants))
	}
	return writeOverlay(replace, dir)
}

// schema returns a file that contains the mutants, and the name of its package. The function of a mutant is copied
// with the change, as a function of its own with the same parameters, to which the original function goes when the
// mutant is switched on. The copy is the text that the mutant has, so any change within a function can be switched.
// In the original, the statement with the mutant is preceded by a note that it is reached.
func schema(name string, text []byte, mutants []*mutant) (changed []byte, clause string, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, "", err
	}
	s := &rewriting{offset: func(p token.Pos) int { return set.Position(p).Offset }, calls: map[*ast.FuncDecl]string{}}
	var copies []byte
	for _, m := range mutants {
		path := enclosing(file, set.File(file.Pos()).Pos(m.at))
		f := function(path)
		if f == nil {
			m.number = 0
			continue
		}
		s.dispatch(f, m.number)
		s.note(path, m.number)
		end := s.offset(f.End()) + len(m.text) - len(text)
		copies = fmt.Appendf(copies, "\n%smutant%d%s\n", m.text[s.offset(f.Pos()):s.offset(f.Name.Pos())], m.number,
			m.text[s.offset(f.Name.End()):end])
	}
	return append(s.apply(text), copies...), file.Name.Name, nil
}

// enclosing returns the nodes that contain a place, the file first.
func enclosing(file *ast.File, place token.Pos) (path []ast.Node) {
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil || place < n.Pos() || n.End() <= place {
			return false
		}
		path = append(path, n)
		return true
	})
	return path
}

// function returns the function that can be copied to change a node in it, or nil.
func function(path []ast.Node) *ast.FuncDecl {
	if len(path) < 3 {
		return nil
	}
	f, ok := path[1].(*ast.FuncDecl)
	if !ok || path[2] != f.Body || recovers(f) {
		return nil
	}
	return f
}

// recovers reports whether a function calls recover itself. That has an effect only in a function that is deferred,
// which its copy is not.
func recovers(f *ast.FuncDecl) (found bool) {
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			name, ok := call.Fun.(*ast.Ident)
			found = found || ok && name.Name == "recover"
		}
		_, literal := n.(*ast.FuncLit)
		return !literal
	})
	return found
}

// rewriting collects what is inserted into a file.
type rewriting struct {
	offset     func(token.Pos) int
	insertions []insertion
	calls      map[*ast.FuncDecl]string
}

type insertion struct {
	at   int
	text string
}

func (s *rewriting) insert(at token.Pos, format string, args ...any) {
	s.insertions = append(s.insertions, insertion{s.offset(at), fmt.Sprintf(format, args...)})
}

func (s *rewriting) apply(text []byte) []byte {
	slices.SortStableFunc(s.insertions, func(a, b insertion) int { return cmp.Compare(a.at, b.at) })
	var out bytes.Buffer
	done := 0
	for _, i := range s.insertions {
		out.Write(text[done:i.at])
		out.WriteString(i.text)
		done = i.at
	}
	out.Write(text[done:])
	return out.Bytes()
}

// dispatch has a function call its copy when the mutant is switched on.
func (s *rewriting) dispatch(f *ast.FuncDecl, number int) {
	if s.calls[f] == "" {
		s.calls[f] = s.call(f)
	}
	call := fmt.Sprintf(s.calls[f], number)
	if f.Type.Results != nil {
		s.insert(f.Body.Lbrace+1, " if mutantOn == %d { return %s };", number, call)
	} else {
		s.insert(f.Body.Lbrace+1, " if mutantOn == %d { %s; return };", number, call)
	}
}

// call returns the call of a function's copy, with %d for the number of the mutant. It names the parameters that have
// no name.
func (s *rewriting) call(f *ast.FuncDecl) string {
	unnamed := 0
	names := func(fields *ast.FieldList) (all []string) {
		if fields == nil {
			return nil
		}
		for _, field := range fields.List {
			more := ""
			if _, variadic := field.Type.(*ast.Ellipsis); variadic {
				more = "..."
			}
			for _, name := range field.Names {
				if name.Name == "_" {
					unnamed++
					s.insert(name.End(), "mutant%d", unnamed)
					all = append(all, fmt.Sprintf("_mutant%d%s", unnamed, more))
					continue
				}
				all = append(all, name.Name+more)
			}
			if field.Names == nil {
				unnamed++
				s.insert(field.Type.Pos(), "_mutant%d ", unnamed)
				all = append(all, fmt.Sprintf("_mutant%d%s", unnamed, more))
			}
		}
		return all
	}
	call := "mutant%d"
	if f.Recv != nil {
		call = names(f.Recv)[0] + "." + call
	}
	if types := names(f.Type.TypeParams); types != nil {
		call += "[" + strings.Join(types, ", ") + "]"
	}
	return call + "(" + strings.Join(names(f.Type.Params), ", ") + ")"
}

// note inserts the note that a mutant is reached before the innermost statement that contains it. An if after an else
// is put into a block for that.
func (s *rewriting) note(path []ast.Node, number int) {
	for i := len(path) - 1; i > 0; i-- {
		statement, ok := path[i].(ast.Stmt)
		if !ok {
			continue
		}
		switch outer := path[i-1].(type) {
		case *ast.IfStmt:
			if outer.Else == statement {
				if _, elseIf := statement.(*ast.IfStmt); elseIf {
					s.insert(statement.Pos(), "{ mutantReached(%d); ", number)
					s.insert(statement.End(), "}")
					return
				}
			}
			continue
		case *ast.CommClause:
			if outer.Comm == statement {
				continue
			}
		case *ast.BlockStmt:
			switch statement.(type) {
			case *ast.CaseClause, *ast.CommClause:
				continue
			}
		case *ast.CaseClause:
		default:
			continue
		}
		s.insert(statement.Pos(), "mutantReached(%d); ", number)
		return
	}
}

// writeOverlay writes files and returns the argument for the go command that substitutes them for the originals.
func writeOverlay(files map[string][]byte, dir string) (string, error) {
	replace := map[string]string{}
	for name, text := range files {
		real, err := filepath.Abs(name)
		if err != nil {
			return "", err
		}
		replace[real] = filepath.Join(dir, fmt.Sprintf("changed%d.go", len(replace)))
		if err := os.WriteFile(replace[real], text, 0o600); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	return "-overlay=" + list, os.WriteFile(list, text, 0o600)
}
