package linear

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// counted lists the instrumented packages of the standard library, which are those that parse text. All packages from
// other modules are instrumented too.
var counted = []string{"bufio", "bytes", "encoding/base64", "encoding/hex", "encoding/pem", "html", "mime",
	"mime/multipart",
	"mime/quotedprintable", "net/mail", "net/textproto", "net/url", "regexp", "regexp/syntax", "sort", "strconv",
	"strings",
	"unicode/utf16", "unicode/utf8"}

const (
	counter = "package steps\n\nvar N uint64\n\n" +
		"func To(i, n int) int {\n\tif i < 0 {\n\t\tN += uint64(n)\n\t} else {\n\t\tN += uint64(i)\n\t}\n\treturn i\n}\n\n" +
		"func From(i, n int) int {\n\tN += uint64(n - max(i, 0))\n\treturn i\n}\n\n" +
		"func All(i, n int) int {\n\tN += uint64(n)\n\treturn i\n}\n"
	counts = "package linear\n\nimport \"steps\"\n\nconst counting = true\n\nfunc steps() uint64 { return steps_.N }\n"
	cut    = "package strings\n\nfunc countedCut(s, sep string) (before, after string, found bool) {\n\tif i := " +
		"Index(s, sep); i >= 0 {\n" +
		"\t\treturn s[:i], s[i+len(sep):], true\n\t}\n\treturn s, \"\", false\n}\n"
)

// runCounted reruns the current test in an instrumented test binary.
func runCounted(t *testing.T) {
	t.Helper()
	o := overlay{t: t, dir: t.TempDir(), Replace: map[string]string{}}
	root := strings.TrimSpace(o.run("go", "env", "GOROOT"))
	o.put(filepath.Join(root, "src/steps/steps.go"), []byte(counter))
	o.put(filepath.Join(root, "src/strings/countedcut.go"), []byte(cut))
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	o.put(filepath.Join(here, "count_test.go"), []byte(strings.Replace(counts, `import "steps"`, `import steps_ "steps"`,
		1)))
	mods := []string{"mod", "edit"}
	for dec := json.NewDecoder(strings.NewReader(o.run("go", "list", "-test", "-deps",
		"-json=ImportPath,ForTest,Standard,Dir,Module,GoFiles,EmbedFiles", "."))); ; {
		var p struct {
			ImportPath, ForTest, Dir string
			Standard                 bool
			Module                   *struct {
				Path, Dir, GoMod string
				Main             bool
			}
			GoFiles, EmbedFiles []string
		}
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		switch {
		case p.ForTest != "" || strings.HasSuffix(p.ImportPath, ".test") || p.Standard &&
			!slices.Contains(counted, p.ImportPath):
		case p.Standard || p.Module.Main:
			for _, name := range p.GoFiles {
				if text := o.count(filepath.Join(p.Dir, name)); text != nil {
					o.put(filepath.Join(p.Dir, name), text)
				}
			}
		default:
			// The go command cannot overlay files in other modules, but it can replace whole modules.
			dir := filepath.Join(o.dir, p.Module.Path)
			if replace := "-replace=" + p.Module.Path + "=" + dir; !slices.Contains(mods, replace) {
				mods = append(mods, replace)
				o.copy(p.Module.GoMod, filepath.Join(dir, "go.mod"))
			}
			to := filepath.Join(dir, strings.TrimPrefix(p.Dir, p.Module.Dir))
			o.copyPackage(p.Dir, to, p.GoFiles)
			for _, name := range p.EmbedFiles {
				o.copy(filepath.Join(p.Dir, name), filepath.Join(to, name))
			}
		}
	}
	main := filepath.Dir(strings.TrimSpace(o.run("go", "env", "GOMOD")))
	mod := filepath.Join(o.dir, "go.mod")
	o.copy(filepath.Join(main, "go.mod"), mod)
	o.copy(filepath.Join(main, "go.sum"), filepath.Join(o.dir, "go.sum"))
	o.run("go", append(mods, mod)...)
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(o.dir, "overlay.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-vet=off", "-trimpath", "-modfile", mod,
		"-overlay", file,
		"-run", "^"+t.Name()+"$", "-v", ".").CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("%v\n%s", err, out)
	}
}

// overlay maps source files to the files that the go command reads in their place.
type overlay struct {
	t       *testing.T
	dir     string
	Replace map[string]string
}

func (o *overlay) run(name string, args ...string) string {
	o.t.Helper()
	out, err := exec.CommandContext(o.t.Context(), name, args...).Output()
	if err != nil {
		o.t.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
	}
	return string(out)
}

// copyPackage copies the files of a package, and instruments its Go files.
func (o *overlay) copyPackage(from, to string, goFiles []string) {
	o.t.Helper()
	entries, err := os.ReadDir(from)
	if err != nil {
		o.t.Fatal(err)
	}
	for _, e := range entries {
		switch {
		case e.IsDir() || strings.HasSuffix(e.Name(), "_test.go"):
		case slices.Contains(goFiles, e.Name()):
			text := o.count(filepath.Join(from, e.Name()))
			if text == nil {
				o.copy(filepath.Join(from, e.Name()), filepath.Join(to, e.Name()))
			} else if err := write(filepath.Join(to, e.Name()), text); err != nil {
				o.t.Fatal(err)
			}
		default:
			o.copy(filepath.Join(from, e.Name()), filepath.Join(to, e.Name()))
		}
	}
}

func (o *overlay) copy(from, to string) {
	o.t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = write(to, text)
	}
	if err != nil {
		o.t.Fatal(err)
	}
}

func write(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

func (o *overlay) put(path string, content []byte) {
	o.t.Helper()
	file := filepath.Join(o.dir, fmt.Sprintf("%d.go", len(o.Replace)))
	if err := os.WriteFile(file, content, 0o600); err != nil {
		o.t.Fatal(err)
	}
	o.Replace[path] = file
}

// count returns an instrumented copy of a Go file, or nil if the file contains nothing to count.
func (o *overlay) count(path string) []byte {
	o.t.Helper()
	source, err := os.ReadFile(path)
	if err != nil {
		o.t.Fatal(err)
	}
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
	if err != nil {
		o.t.Fatal(err)
	}
	at := func(p token.Pos) int { return files.Position(p).Offset }
	put := map[int]string{}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Body != nil {
				put[at(n.Body.Lbrace)+1] += "steps_.N++;"
			}
		case *ast.FuncLit:
			put[at(n.Body.Lbrace)+1] += "steps_.N++;"
		case *ast.ForStmt:
			put[at(n.Body.Lbrace)+1] += "steps_.N++;"
		case *ast.RangeStmt:
			put[at(n.Body.Lbrace)+1] += "steps_.N++;"
		case *ast.CallExpr:
			if kind := search(n.Fun); kind != "" {
				first := source[at(n.Args[0].Pos()):at(n.Args[0].End())]
				put[at(n.Pos())] = "steps_." + kind + "(" + put[at(n.Pos())]
				put[at(n.End())] += fmt.Sprintf(", len(%s))", first)
			}
		}
		return true
	})
	if len(put) == 0 {
		return nil
	}
	put[at(tree.Name.End())] = `; import steps_ "steps";`
	var out bytes.Buffer
	for i, c := range source {
		out.WriteString(put[i])
		out.WriteByte(c)
	}
	out.WriteString(put[len(source)])
	return bytes.ReplaceAll(out.Bytes(), []byte("stringslite.Cut("), []byte("countedCut("))
}

// search returns the name of the counter function for an assembly search: To, From or All. From the result of the
// search, the counter function derives how many bytes were read.
func search(f ast.Expr) string {
	s, ok := f.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if in, ok := s.X.(*ast.Ident); !ok || in.Name != "bytealg" && in.Name != "stringslite" {
		return ""
	}
	switch name := s.Sel.Name; {
	case strings.HasPrefix(name, "Index"):
		return "To"
	case strings.HasPrefix(name, "LastIndex"):
		return "From"
	case strings.HasPrefix(name, "Count"):
		return "All"
	}
	return ""
}
