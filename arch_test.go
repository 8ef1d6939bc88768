// Package postrider holds the law of imports; the program is in cmd/postrider.
package postrider

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/postrider/postrider/"

// layers are the groups of packages from the top down. A package imports packages of its own group and of lower ones
// only; ARCHITECTURE.md gives the reason. Each group below internal is a folder, whose doc.go says what belongs there.
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
}

// shared lists, for the groups whose packages must not know each other, those that the others may import all the same.
var shared = map[string][]string{
	"internal/front":    {"internal/front/web", "internal/front/api/wire"},
	"internal/outbound": {"internal/outbound/requestlog"},
}

// layerOf returns the number of the layer of a package, counted from the top, and its group. The number is -1 if no
// layer has the package.
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

// mayImport reports whether the law of imports lets a package import another one. Both are paths within the module.
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

// packages returns every package of the module, as `go list` shows them.
func packages(t *testing.T) (all []goPackage) {
	t.Helper()
	_ = os.Getenv("POSTRIDER_TEST_RUN") // so that no cached result is shown: go test does not know what is read here
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

// Each group says in its doc.go what belongs there and what it may import.
func TestGroupsHaveADoc(t *testing.T) {
	t.Parallel()
	for _, groups := range layers[1:] {
		for _, g := range groups {
			if _, err := os.Stat(filepath.Join(filepath.FromSlash(g), "doc.go")); err != nil {
				t.Errorf("%s has no doc.go: %v", g, err)
			}
		}
	}
}
