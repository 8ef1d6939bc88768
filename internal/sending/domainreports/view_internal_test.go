package domainreports

import (
	"fmt"
	"testing"
)

// Very many problems do not stop the counting of those that are known, and do not hide a new kind.
func TestManyProblems(t *testing.T) {
	a := newAnalysis()
	for i := range groupsMax {
		a.count(problem{kind: Impostor, source: fmt.Sprint(i)}, 1)
	}
	a.count(problem{kind: Impostor, source: "1"}, 99)
	for _, source := range []string{"x", "y"} {
		a.count(problem{kind: OwnSignature, source: source}, 50)
	}
	a.messages = 50_000
	got := ""
	for _, f := range a.findings() {
		got += fmt.Sprintf("%s %s %d, ", f.Kind, f.Source, f.Messages)
	}
	if want := "own_signature many sources 100, impostor 1 100, "; got != want {
		t.Errorf("%s instead of %s", got, want)
	}
}
