package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

const gremlins = "github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0"

// swaps lists the kinds of gremlins mutations that this program uses, with the operator replacements for each kind.
var swaps = map[string]map[string]string{
	"ARITHMETIC_BASE":         {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*"},
	"CONDITIONALS_BOUNDARY":   {"<": "<=", "<=": "<", ">": ">=", ">=": ">"},
	"CONDITIONALS_NEGATION":   {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"},
	"INCREMENT_DECREMENT":     {"++": "--", "--": "++"},
	"INVERT_ASSIGNMENTS":      {"+=": "-=", "-=": "+=", "*=": "/=", "/=": "*="},
	"INVERT_LOGICAL":          {"&&": "||", "||": "&&"},
	"INVERT_LOOPCTRL":         {"break": "continue", "continue": "break"},
	"INVERT_NEGATIVES":        {"-": "+"},
	"REMOVE_SELF_ASSIGNMENTS": {"+=": "=", "-=": "=", "*=": "=", "/=": "=", "|=": "=", "&=": "="},
}

// apart lists test-support packages that are not mutated. The tests of these packages do not run against mutants,
// because they build other programs.
var apart = []string{"internal/mail/linear", "internal/mail/mailtest", "internal/mail/smtpsink",
	"internal/mail/smtptest"}

// mutant is a source file with one small change.
type mutant struct {
	pkg           *pkg
	file          string // relative to the module root
	line, col, at int    // at is the byte offset of the change
	kind          string
	text          []byte // content of the whole file after the change
	before, after string // changed line before and after the change
	number        int    // number that switches the mutant on at run time; 0 if it must be built separately
}

func (m *mutant) place() string { return fmt.Sprintf("%s:%d:%d", m.file, m.line, m.col) }

// pkg is a package in the module.
type pkg struct {
	name      string // the package's folder, relative to the module root
	files     []string
	imports   []string
	databases bool // whether the package's tests use dbtest

	once  sync.Once // for the suite
	suite suite
}

// span is a range of bytes in a file.
type span struct {
	file     string
	from, to int
}

// tree is the module in the working directory, with its packages and mutants.
type tree struct {
	dir     string // for temporary files
	near    bool
	overlay string        // the -overlay argument for building packages with all mutants
	slots   chan struct{} // limits how many programs run at the same time
	pkgs    []*pkg
	chosen  []*pkg
	mutants []*mutant
	unseen  []span          // slice capacities; no test can detect a change to a capacity
	equal   map[string]bool // contents of equal.txt: file name and the line before and after the change
}

// load finds all mutants for the packages that match the patterns, and sorts them by position.
func (t *tree) load(patterns []string) error {
	if err := t.list(patterns); err != nil {
		return err
	}
	if err := t.operators(); err != nil {
		return err
	}
	for _, p := range t.chosen {
		for _, name := range p.files {
			if err := t.statements(p, name); err != nil {
				return err
			}
		}
	}
	t.mutants = slices.DeleteFunc(t.mutants, func(m *mutant) bool {
		return slices.ContainsFunc(t.unseen, func(s span) bool { return s.file == m.file && s.from <= m.at && m.at < s.to })
	})
	key := func(m *mutant) string { return m.place() + "\n" + m.after }
	slices.SortStableFunc(t.mutants, func(a, b *mutant) int { return cmp.Compare(key(a), key(b)) })
	same := func(a, b *mutant) bool { return bytes.Equal(a.text, b.text) && a.file == b.file }
	t.mutants = slices.CompactFunc(t.mutants, same)
	return t.equals("scripts/mutants/equal.txt")
}

// list finds all packages in the module, and those that match the patterns.
func (t *tree) list(patterns []string) error {
	module, err := output("go", "list", "-m")
	if err != nil {
		return err
	}
	prefix := strings.TrimSpace(module) + "/"
	wanted, err := output("go", append([]string{"list"}, patterns...)...)
	if err != nil {
		return err
	}
	all, err := output("go", "list", "-json=ImportPath,GoFiles,Imports,TestImports,XTestImports", "./...")
	if err != nil {
		return err
	}
	for dec := json.NewDecoder(strings.NewReader(all)); ; {
		var l struct {
			ImportPath                                  string
			GoFiles, Imports, TestImports, XTestImports []string
		}
		if err := dec.Decode(&l); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("read what go list says: %w", err)
		}
		p := &pkg{name: strings.TrimPrefix(l.ImportPath, prefix)}
		for _, f := range l.GoFiles {
			p.files = append(p.files, p.name+"/"+f)
		}
		for _, i := range slices.Concat(l.Imports, l.TestImports, l.XTestImports) {
			p.imports = append(p.imports, strings.TrimPrefix(i, prefix))
		}
		p.databases = slices.Contains(p.imports, "internal/platform/db/dbtest")
		t.pkgs = append(t.pkgs, p)
		if slices.Contains(strings.Fields(wanted), l.ImportPath) && !slices.Contains(apart, p.name) {
			t.chosen = append(t.chosen, p)
		}
	}
}

// operators runs gremlins to list the operators that can be changed. gremlins gets a copy of the tree without tests,
// because otherwise it would run all tests to measure their coverage.
func (t *tree) operators() error {
	bare := filepath.Join(t.dir, "bare")
	for _, name := range []string{"go.mod", "go.sum", "internal"} {
		err := filepath.WalkDir(name, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			to := filepath.Join(bare, path)
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return err
			}
			return os.WriteFile(to, text, 0o644)
		})
		if err != nil {
			return fmt.Errorf("copy the tree: %w", err)
		}
	}
	report := filepath.Join(t.dir, "gremlins.json")
	args := []string{"run", gremlins, "unleash", "--dry-run", "--workers=1", "--output=" + report}
	for kind := range swaps {
		args = append(args, "--"+strings.ReplaceAll(strings.ToLower(kind), "_", "-"))
	}
	c := exec.Command("go", append(args, "./internal")...)
	c.Dir = bare
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("run gremlins: %w: %s", err, out)
	}
	text, err := os.ReadFile(report)
	if err != nil {
		return fmt.Errorf("read gremlins' report: %w", err)
	}
	var all struct {
		Files []struct {
			Name      string `json:"file_name"`
			Mutations []struct {
				Type         string
				Line, Column int
			}
		}
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("read gremlins' report: %w", err)
	}
	for _, f := range all.Files {
		name := "internal/" + strings.TrimPrefix(f.Name, "internal/")
		i := slices.IndexFunc(t.chosen, func(p *pkg) bool { return slices.Contains(p.files, name) })
		if i < 0 {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		lines := bytes.SplitAfter(text, []byte("\n"))
		for _, m := range f.Mutations {
			at := m.Column - 1
			for _, l := range lines[:m.Line-1] {
				at += len(l)
			}
			for _, size := range []int{8, 5, 2, 1} { // finds the longest operator at this position
				old := string(text[at:min(at+size, len(text))])
				if s := swaps[m.Type][old]; s != "" {
					t.add(t.chosen[i], name, text, at, at+size, s, old+" becomes "+s)
					break
				}
			}
		}
	}
	return nil
}

// statements adds kinds of mutants that gremlins does not have: changes to conditions that are not comparisons, and
// changes to returned values.
func (t *tree) statements(p *pkg, name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	change := func(n ast.Node, to, kind string) {
		t.add(p, name, text, set.Position(n.Pos()).Offset, set.Position(n.End()).Offset, to, kind)
	}
	source := func(n ast.Node) string {
		return string(text[set.Position(n.Pos()).Offset:set.Position(n.End()).Offset])
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if source(n.Fun) == "make" && len(n.Args) == 3 {
				t.unseen = append(t.unseen, span{name, set.Position(n.Args[2].Pos()).Offset, set.Position(n.Args[2].End()).Offset})
			}
		case *ast.IfStmt:
			if _, operator := n.Cond.(*ast.BinaryExpr); operator {
				break
			}
			s, not := strings.CutPrefix(source(n.Cond), "!")
			if !not {
				s = "!" + s
			}
			change(n.Cond, s, "condition negated")
		case *ast.ReturnStmt:
			for i, r := range n.Results {
				switch s := source(r); {
				case s == "true":
					change(r, "false", "returns false")
				case s == "false":
					change(r, "true", "returns true")
				case i == len(n.Results)-1 && isError(r, s):
					change(r, "nil", "returns no error")
				}
			}
		}
		return true
	})
	return nil
}

// isError reports whether an expression looks like an error: the variable err, or a call that creates an error.
func isError(e ast.Expr, source string) bool {
	_, call := e.(*ast.CallExpr)
	made := func(prefix string) bool { return strings.HasPrefix(source, prefix) }
	return source == "err" || call && (made("fmt.Errorf(") || made("errors.New(") || made("fault."))
}

// add adds a mutant that replaces the bytes between two offsets in a file.
func (t *tree) add(p *pkg, name string, text []byte, from, to int, with, kind string) {
	m := &mutant{pkg: p, file: name, at: from, kind: kind, text: slices.Concat(text[:from], []byte(with), text[to:])}
	begin := bytes.LastIndexByte(text[:from], '\n') + 1
	m.line, m.col = bytes.Count(text[:from], []byte("\n"))+1, from-begin+1
	line := func(text []byte) string {
		l, _, _ := bytes.Cut(text[begin:], []byte("\n"))
		return strings.TrimSpace(string(l))
	}
	m.before, m.after = line(text), line(m.text)
	t.mutants = append(t.mutants, m)
}

// equals reads the list of mutants that no test can detect. Each entry has at least four lines and ends with an empty
// line: the file, the line before the change, the line after the change, and the reason why no test can detect the
// change.
func (t *tree) equals(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	t.equal = map[string]bool{}
	for entry := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		lines := strings.Split(entry, "\n")
		if strings.HasPrefix(entry, "#") {
			continue
		}
		if len(lines) < 4 || !strings.HasPrefix(lines[1], "- ") || !strings.HasPrefix(lines[2], "+ ") {
			return fmt.Errorf("%s: this is no file, line before, line after and reason:\n%s", name, entry)
		}
		source, err := os.ReadFile(lines[0])
		if err != nil || !strings.Contains(string(source), lines[1][2:]) {
			fmt.Printf("%s: %s has no line %s any more\n", name, lines[0], lines[1][2:])
		}
		t.equal[strings.Join(lines[:3], "\n")] = true
	}
	return nil
}

func output(name string, args ...string) (string, error) {
	c := exec.Command(name, args...)
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", c, err, stderr.String())
	}
	return string(out), nil
}
