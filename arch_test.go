package postrider

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/postrider/postrider/"

// layers lists the groups of packages, from the top layer to the bottom layer. A package may import only packages in
// its own group and in lower layers, so that a reader can start at any layer and read downward. Each group under
// internal is a folder with a doc.go that says what belongs there.
var layers = [][]string{
	{"cmd", "e2e", "scripts", "internal/cli", "internal/bench", "internal/node"},
	{"internal/front"},
	{"internal/outbound"},
	{"internal/campaigns"},
	{"internal/sending"},
	{"internal/audience"},
	{"internal/accounts"},
	{"internal/platform"},
	{"internal/mail"},
	{"internal/lib"},
	{"client"},
	{"docs"},
}

// shared lists the groups whose packages must not import each other. The packages listed for a group are exempt: all
// other packages in the group may import them.
var shared = map[string][]string{
	"internal/front":    {"internal/front/web", "internal/front/api/wire"},
	"internal/outbound": {"internal/outbound/requestlog"},
}

// layerOf returns a package's layer number, counted from the top, and its group. The number is -1 if the package is in
// no layer.
func layerOf(pkg string) (layer int, group string) {
	for l, groups := range layers {
		for _, g := range groups {
			if pkg == g || strings.HasPrefix(pkg, g+"/") {
				return l, g
			}
		}
	}
	return -1, ""
}

// mayImport reports whether the import rules allow a package to import another package. Both parameters are package
// paths relative to the module.
func mayImport(pkg, other string) bool {
	from, group := layerOf(pkg)
	to, otherGroup := layerOf(other)
	if from != to || group != otherGroup {
		return to >= from
	}
	within, apart := shared[group]
	return !apart || slices.Contains(within, other) || strings.HasPrefix(other, pkg+"/")
}

type goPackage struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
}

// packages returns every package in the module, as printed by `go list`.
func packages(t *testing.T) (all []goPackage) {
	t.Helper()
	_ = os.Getenv("POSTRIDER_TEST_RUN") // changes on each run, so that go test does not reuse a cached result
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 50 {
		t.Fatalf("go list showed %d packages: the test looks at the wrong place", len(all))
	}
	return all
}

func TestImportsRunDownward(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		pkg, ok := strings.CutPrefix(p.ImportPath, module)
		if !ok {
			continue // this package
		}
		if l, _ := layerOf(pkg); l < 0 {
			t.Errorf("%s is in no group: move it into a folder of a group", pkg)
			continue
		}
		for _, path := range p.Imports {
			if other, ok := strings.CutPrefix(path, module); ok && !mayImport(pkg, other) {
				t.Errorf("%s imports %s, which is not below it: pass what is needed in, or use an event listener or a job",
					pkg, other)
			}
		}
	}
}

// composing lists the packages that assemble the program from other packages. The limit on the number of imports does
// not apply to the packages in composing.
var composing = []string{"cmd/postrider", "internal/bench", "internal/cli", "internal/front/api",
	"internal/front/dashboard", "internal/front/signin", "internal/node", "internal/node/resources",
	"internal/node/testnode"}

const (
	maxImports     = 26  // limit for a package that is not in composing
	maxMeanImports = 4.5 // limit for the average over all packages that are not in composing
)

// Each package imports only a few other packages, so that a reader can understand it without reading the whole program.
func TestImportsAreFew(t *testing.T) {
	t.Parallel()
	var counted, imports int
	for _, p := range packages(t) {
		pkg, ok := strings.CutPrefix(p.ImportPath, module)
		if !ok || slices.Contains(composing, pkg) {
			continue
		}
		n := 0
		for _, path := range p.Imports {
			if strings.HasPrefix(path, module) {
				n++
			}
		}
		if counted, imports = counted+1, imports+n; n > maxImports {
			t.Errorf("%s imports %d packages of Postrider, more than %d", pkg, n, maxImports)
		}
	}
	if mean := float64(imports) / float64(counted); mean > maxMeanImports {
		t.Errorf("a package imports %.2f others on average, more than %.1f", mean, maxMeanImports)
	}
}

// The doc.go of each group says what belongs there and what the group may import.
func TestGroupsHaveADoc(t *testing.T) {
	t.Parallel()
	for _, groups := range layers[1:] {
		for _, g := range groups {
			if g == "docs" {
				continue // no group of packages
			}
			if _, err := os.Stat(filepath.Join(filepath.FromSlash(g), "doc.go")); err != nil {
				t.Errorf("%s has no doc.go: %v", g, err)
			}
		}
	}
}

// Programs that use package client need no other module, so client imports only the standard library.
func TestClientImportsOnlyTheStandardLibrary(t *testing.T) {
	t.Parallel()
	found := false
	for _, p := range packages(t) {
		if p.ImportPath != module+"client" {
			continue
		}
		found = true
		for _, path := range p.Imports {
			if first, _, _ := strings.Cut(path, "/"); strings.Contains(first, ".") {
				t.Errorf("client imports %s, which is not in the standard library", path)
			}
		}
	}
	if !found {
		t.Error("there is no package client")
	}
}

const (
	maxFileLines     = 600
	maxFunctionLines = 90
)

// longFunctions are the functions that may be longer than maxFunctionLines, because they are plain lists of cases or
// requests that are easy to skim.
var longFunctions = map[string]bool{
	"internal/front/api/routes.go routes":   true, // a table of all API operations
	"internal/cli/plans_test.go everything": true, // sends one request to each operation
}

// banned lists words that mean nothing to a new reader. No function, type, field or parameter may have one of the
// banned words as its name.
var banned = []string{"enter", "veil", "bury", "disown", "heeded", "sift", "seated", "octets", "octet", "Grown",
	"Happened", "Leaving", "Affords", "Budget", "Listed", "Reported", "Destined", "Followed",
	"Fix", "Brief", "because", "causing"}

// sourceFiles parses each Go file in the module and calls f with the file and its path.
func sourceFiles(t *testing.T, f func(path string, fset *token.FileSet, file *ast.File, lines int)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == "testdata" || entry.Name() == ".git") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		f(filepath.ToSlash(path), fset, file, bytes.Count(text, []byte("\n")))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSizes checks that no file or function is too long to be read in one sitting. Generated files may be longer. Lines in tables of test data do not
// count toward the length of a function.
func TestSizes(t *testing.T) {
	t.Parallel()
	sourceFiles(t, func(path string, fset *token.FileSet, file *ast.File, lines int) {
		if lines > maxFileLines && !strings.HasSuffix(path, "_gen.go") {
			t.Errorf("%s has %d lines: split it by topic; %d are the most", path, lines, maxFileLines)
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || longFunctions[path+" "+fn.Name.Name] {
				continue
			}
			length := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1
			if length-tableLines(fset, fn) > maxFunctionLines {
				t.Errorf("%s: %s has %d lines; %d are the most", path, fn.Name.Name, length, maxFunctionLines)
			}
		}
	})
}

// tableLines returns how many lines of a function belong to tables, that is, composite literals and multi-line string
// literals.
func tableLines(fset *token.FileSet, fn *ast.FuncDecl) (all int) {
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			all += fset.Position(n.End()).Line - fset.Position(n.Pos()).Line
			return false
		case *ast.BasicLit:
			all += strings.Count(n.Value, "\n")
		}
		return true
	})
	return all
}

// statement matches the beginning of an SQL statement.
var statement = regexp.MustCompile(`^\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH( RECURSIVE)?) [a-zA-Z(]`)

// Every SQL statement must be in a file whose name begins with "store", except in package db.
func TestStatementsStandInStores(t *testing.T) {
	t.Parallel()
	sourceFiles(t, func(path string, fset *token.FileSet, file *ast.File, _ int) {
		if strings.HasPrefix(filepath.Base(path), "store") || strings.HasSuffix(path, "_test.go") ||
			strings.HasPrefix(path, "internal/platform/db/") || strings.HasPrefix(path, "internal/node/testnode/") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING && statement.MatchString(strings.Trim(l.Value, "`\"")) {
				t.Errorf("%s: an SQL statement outside of store.go and store_*.go", fset.Position(l.Pos()))
			}
			return true
		})
	})
}

// TestNames checks that no function, type, field or parameter has a banned name. The names in generated files follow from
// the API.
func TestNames(t *testing.T) {
	t.Parallel()
	sourceFiles(t, func(path string, fset *token.FileSet, file *ast.File, _ int) {
		if strings.HasSuffix(path, "_gen.go") {
			return
		}
		check := func(id *ast.Ident) {
			if id != nil && slices.Contains(banned, id.Name) {
				t.Errorf("%s: the name %s says nothing to a newcomer", fset.Position(id.Pos()), id.Name)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				check(n.Name)
			case *ast.TypeSpec:
				check(n.Name)
			case *ast.Field:
				for _, id := range n.Names {
					check(id)
				}
			}
			return true
		})
	})
}
