package postrider

import (
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/packages.md instead of comparing it")

const packageList = "docs/packages.md"

// TestPackageList compares docs/packages.md with the package comments. With the -update flag, TestPackageList writes
// the file instead.
func TestPackageList(t *testing.T) {
	t.Parallel()
	want := listPackages(t)
	if *update {
		if err := os.WriteFile(packageList, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(packageList); err != nil || string(got) != want {
		t.Errorf("%s differs from the package comments (%v). Run: go test . -run TestPackageList -update",
			packageList, err)
	}
}

// listPackages returns the list of packages as Markdown, with one table per group, in layer order.
func listPackages(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("# Packages\n\nThis list is made from the package comments. Do not edit it: change the comment, then " +
		"run `go test . -run TestPackageList -update`.\nEach group imports only groups below it.\n")
	all := packages(t)
	for _, groups := range layers {
		for _, group := range groups {
			writeGroup(t, &b, group, all)
		}
	}
	return b.String()
}

// writeGroup writes the table for one group. A group with a single package has a table with one row.
func writeGroup(t *testing.T, b *strings.Builder, group string, all []goPackage) {
	t.Helper()
	var rows []string
	slices.SortFunc(all, func(a, b goPackage) int { return strings.Compare(a.ImportPath, b.ImportPath) })
	for _, p := range all {
		pkg := strings.TrimPrefix(p.ImportPath, module)
		if _, g := layerOf(pkg); g != group {
			continue
		}
		text := synopsis(t, p.Dir)
		if text == "" {
			t.Errorf("%s has no package comment", pkg)
		} else if rest, ok := strings.CutPrefix(text, "Package "); ok && !strings.HasPrefix(rest, path.Base(pkg)+" ") {
			t.Errorf("the comment of %s does not begin with its name: %s", pkg, text)
		}
		if pkg == group && strings.HasPrefix(group, "internal/") && len(p.Imports) == 0 {
			continue // a group's doc.go; its text becomes the introduction
		}
		rows = append(rows, fmt.Sprintf("| [%s](../%s) | %s |\n", strings.TrimPrefix(pkg, "internal/"), pkg,
			strings.ReplaceAll(text, "|", `\|`)))
	}
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n", group)
	if strings.HasPrefix(group, "internal/") && len(rows) > 1 {
		fmt.Fprintf(b, "%s\n\n", synopsis(t, filepath.FromSlash(group)))
	}
	fmt.Fprintf(b, "| package | what it is |\n| --- | --- |\n%s", strings.Join(rows, ""))
}

// synopsis returns the first sentence of a folder's package comment. If a package has only tests, the package comment
// is in a test file.
func synopsis(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.TrimSpace(f.Doc.Text()); text != "" {
			return new(doc.Package).Synopsis(text)
		}
	}
	return ""
}

// link matches a Markdown link to a file. The regular expression's groups are the text, the path and the anchor.
var link = regexp.MustCompile(`\[([^\]\[]*)\]\(([^)#\s:]+)(?:#([^)\s]*))?\)`)

// notInAnchor matches the characters in a heading that are omitted from its anchor.
var notInAnchor = regexp.MustCompile("[^a-z0-9 _-]")

// hasHeading reports whether a Markdown text has a heading with the given anchor. Anchors are derived from headings in
// the same way as on GitHub and similar sites.
func hasHeading(text, anchor string) bool {
	for line := range strings.Lines(text) {
		title := strings.TrimLeft(line, "#")
		if title == line {
			continue
		}
		title = notInAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
		if strings.ReplaceAll(title, " ", "-") == anchor {
			return true
		}
	}
	return false
}

// TestDocsLinksWork checks that every relative link in the docs points to an existing file and, if the link has an
// anchor, to an existing heading. If the text of a link to a Go file is code, as in [`emails.Service.Send`](…/send.go),
// the file must declare the last part of that name.
func TestDocsLinksWork(t *testing.T) {
	t.Parallel()
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		some, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, some...)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target := filepath.Join(filepath.Dir(page), m[2])
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, m[2])
				continue
			}
			if m[3] != "" {
				if other, err := os.ReadFile(target); err != nil || !hasHeading(string(other), m[3]) {
					t.Errorf("%s links to the heading %s of %s, which does not exist", page, m[3], m[2])
				}
			}
			if name, ok := strings.CutPrefix(m[1], "`"); ok && strings.HasSuffix(target, ".go") {
				name = strings.TrimSuffix(name, "`")
				if name = name[strings.LastIndexByte(name, '.')+1:]; name != "go" && !declares(t, target, name) {
					t.Errorf("%s links to %s for %s, which that file does not declare", page, m[2], name)
				}
			}
		}
	}
}

// declares reports whether a Go file declares a name at the top level, as a method, or as a struct field.
func declares(t *testing.T, file, name string) (found bool) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	isName := func(i *ast.Ident) bool { return i.Name == name }
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			found = found || n.Name.Name == name
			return false
		case *ast.TypeSpec:
			found = found || n.Name.Name == name
		case *ast.ValueSpec:
			found = found || slices.ContainsFunc(n.Names, isName)
		case *ast.Field:
			found = found || slices.ContainsFunc(n.Names, isName)
		}
		return true
	})
	return found
}
