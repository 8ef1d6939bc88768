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

// A test program that contains mutants reads these environment variables.
const (
	onVariable      = "POSTRIDER_MUTANT"          // the number of the mutant to switch on
	reachedVariable = "POSTRIDER_MUTANTS_REACHED" // the file that the numbers of reached mutants are written to
)

// support is the format string of a source file that is added to each rewritten package. The arguments of the format
// string are the package's name and the highest mutant number.
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

// schemata rewrites the mutants' packages so that each mutant can be switched on by its number. schemata returns the
// -overlay argument that makes the go command use the rewritten files. A mutant that is not inside a function cannot be
// switched on at run time. A mutant that cannot be switched on gets no number and is built separately.
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

// schema returns a rewritten source file that contains the mutants, and the name of its package. For each mutant, the
// file contains a changed copy of the mutant's function, with the same parameters. The original function calls the copy
// if the mutant is switched on, so any change within a function is possible. In the original function, a statement
// inserted before the changed code records that the mutant is reached.
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

// enclosing returns the syntax nodes that contain a position, from the file to the innermost node.
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

// function returns the declaration of the function in path, or nil if path contains no function or the function cannot
// be copied.
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

// recovers reports whether a function itself calls recover, which has an effect only in a deferred function. A copied
// function is called by the original and is therefore not itself deferred.
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

// rewriting collects the source code to insert into a file.
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

// dispatch inserts a statement into a function that calls the function's copy if the mutant is switched on.
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

// call returns the source code that calls a function's copy, with %d in place of the mutant's number. Unnamed
// parameters are given names so that they can be passed on.
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

// note inserts a statement that records that a mutant is reached. The statement goes before the innermost statement
// that contains the mutant. If the innermost statement is the if in an else if, note puts that if into a block.
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

// writeOverlay writes the given files and returns the -overlay argument that makes the go command use them instead of
// the originals.
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
