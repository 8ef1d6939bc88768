package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"runtime"
)

// checker checks whether mutants compile. A checker only type-checks the mutant's package, which is much faster than
// compiling the program.
type checker struct {
	set      *token.FileSet
	importer types.Importer
	files    map[string]*ast.File // unchanged, by name
}

// newChecker compiles the packages that the given packages import, because the checker reads their types from the
// compiler's export data.
func newChecker(pkgs []*pkg) (*checker, error) {
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Export"}
	for _, p := range pkgs {
		args = append(args, "./"+p.name)
	}
	list, err := output("go", args...)
	if err != nil {
		return nil, err
	}
	export := map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader([]byte(list))); ; {
		var l struct{ ImportPath, Export string }
		if err := dec.Decode(&l); err == io.EOF {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read what go list says: %w", err)
		}
		export[l.ImportPath] = l.Export
	}
	set := token.NewFileSet()
	open := func(path string) (io.ReadCloser, error) {
		if export[path] == "" {
			return nil, errors.New("no export data of " + path)
		}
		return os.Open(export[path])
	}
	return &checker{set, importer.ForCompiler(set, "gc", open), map[string]*ast.File{}}, nil
}

// compiles reports whether a mutant's package compiles with the mutant's change.
func (c *checker) compiles(m *mutant) (bool, error) {
	changed, err := parser.ParseFile(c.set, m.file, m.text, parser.SkipObjectResolution)
	if err != nil {
		return false, nil
	}
	files := []*ast.File{changed}
	for _, name := range m.pkg.files {
		if name == m.file {
			continue
		}
		if c.files[name] == nil {
			if c.files[name], err = parser.ParseFile(c.set, name, nil, parser.SkipObjectResolution); err != nil {
				return false, err
			}
		}
		files = append(files, c.files[name])
	}
	config := types.Config{Importer: c.importer, Sizes: types.SizesFor("gc", runtime.GOARCH)}
	_, err = config.Check(m.pkg.name, c.set, files, nil)
	return err == nil, nil
}
