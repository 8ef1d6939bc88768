package main

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// snippets are declarations with one change each, written «before→after». Each snippet has an expression and the values
// of that expression without and with the change. If both values are the same, evaluating the expression does not reach
// the change.
var snippets = []struct{ code, value, off, on string }{
	{"func less(a int) bool { return a «<→<=» 3 }", "less(3)", "false", "true"},
	{`func both(a, b bool) bool {
	return a «&&→||» b
}`, "both(true, false)", "false", "true"},
	{"func step(n *int) { *n«++→--» }", "func() int { n := 0; step(&n); return n }()", "1", "-1"},
	{`func add(n int) int {
	n «+=→-=» 2
	return n
}`, "add(1)", "3", "-1"},
	{`func fails() error { return «fmt.Errorf("bad")→nil» }`, "fails()", "bad", "<nil>"},
	{`func local() int {
	const n = 3 «+→-» 1
	return n
}`, "local()", "4", "2"},
	{"func literal() int { return func(n int) int { return «-→+»n }(1) }", "literal()", "-1", "1"},

	// The following functions have parameters, receivers or type parameters.
	{"func blank(_ int, more ...string) int { return len(more) «+→-» 1 }", `blank(0, "a", "b")`, "3", "1"},
	{"func unnamed(int, ...string) bool { return «true→false» }", "unnamed(0)", "true", "false"},
	{`type value struct{}

func (value) method() bool { return «true→false» }`, "value{}.method()", "true", "false"},
	{`type pointer struct{ n int }

func (p *pointer) step() *pointer { p.n«++→--»; return p }`, "new(pointer).step().n", "1", "-1"},
	{"func generic[T any, S ~[]T](s S) bool { return len(s) «>→>=» 0 }", "generic([]int{})", "false", "true"},
	{`type list[T any] []T

func (l list[T]) empty() bool { return len(l) «==→!=» 0 }`, "list[int]{}.empty()", "true", "false"},
	{`func shadowed(strings string) *strings.Reader { return reader(strings«+→+strings+»strings) }

func reader(s string) *strings.Reader { return strings.NewReader(s) }`, `shadowed("ab").Len()`, "4", "6"},

	// In the following functions, the copy must declare variables in the same scopes as the original.
	{`func named() (n int, err error) {
	defer func() { n *= 10 }()
	n, m := 1, 2
	n «+=→-=» m
	return
}`, "func() int { n, _ := named(); return n }()", "30", "-10"},
	{`func rebound(n int) (s string) {
	defer func() { s = fmt.Sprint(n) }()
	n, m := 5, 1
	n = n «+→-» m
	return
}`, "rebound(1)", "6", "4"},
	{`func labels() (n int) {
outer:
	for range 3 {
		for range 3 {
			n++
			«continue→break» outer
		}
	}
	return n
}`, "labels()", "3", "1"},
	{`func recurses(n int) int {
	if n == 0 {
		return 0
	}
	return 1 «+→-» recurses(n-1)
}`, "recurses(2)", "2", "0"},
	{`var started int

func init() { started = 1 «-→+» 1 }`, "started", "0", "2"},

	// Nested statements.
	{`func elseif(n int) string {
	if n == 1 {
		return "a"
	} else if m := n + 1; m «==→!=» 3 {
		return "b"
	} else {
		return "c"
	}
}`, "elseif(2)", "b", "c"},
	{`func missed(n int) string {
	if n == 1 {
		return "a"
	} else if m := n + 1; m «==→!=» 3 {
		return "b"
	} else {
		return "c"
	}
}`, "missed(1)", "a", "a"},
	{`func cases(n int) int {
	switch {
	case n «<→<=» 1:
		return 1
	case n < 2:
		return 2
	}
	return 3
}`, "cases(1)", "2", "1"},
	{`func body(n int) int {
	switch n {
	case 1:
		return 5 «+→-» n
	}
	return 3
}`, "body(2)", "3", "3"},
	{`func selects(c chan int) int {
	select {
	case n := <-c:
		return n
	default:
		return 1 «+→-» 1
	}
}`, "selects(nil)", "2", "0"},
	{`func loop() (n int) {
again:
	for i := 0; i «<→<=» 3; i++ {
		n++
		continue again
	}
	return n
}`, "loop()", "3", "4"},
}

// program returns a program that contains the snippets, and the program's mutants. The program prints the values of the
// expressions, one per line.
func program(t *testing.T, p *pkg) (mutants []*mutant) {
	t.Helper()
	text := "package main\n\nimport (\n\t\"fmt\"\n\t\"strings\"\n)\n"
	main := ""
	type place struct {
		at            int
		before, after string
	}
	var places []place
	for _, s := range snippets {
		head, rest, _ := strings.Cut(s.code, "«")
		before, rest, _ := strings.Cut(rest, "→")
		after, rest, ok := strings.Cut(rest, "»")
		if !ok || strings.Contains(rest, "«") {
			t.Fatalf("one change is needed in %s", s.code)
		}
		places = append(places, place{len(text) + len("\n") + len(head), before, after})
		text += "\n" + head + before + rest + "\n"
		main += "\tfmt.Println(" + s.value + ")\n"
	}
	text += "\nfunc main() {\n" + main + "}\n"
	write(t, "go.mod", "module snippets\n\ngo 1.26\n")
	write(t, "main.go", text)
	tr := &tree{}
	for _, c := range places {
		tr.add(p, "main.go", []byte(text), c.at, c.at+len(c.before), c.after, "")
	}
	return tr.mutants
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestSchema switches on each change in turn, and checks that only the value of the snippet's expression changes.
func TestSchema(t *testing.T) {
	t.Chdir(t.TempDir())
	p := &pkg{name: ".", files: []string{"main.go"}}
	mutants := program(t, p)
	checker, err := newChecker([]*pkg{p})
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := schemata(mutants, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", overlay, "-o", "program", ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	write(t, "reached", "")
	run := func(number int) []string {
		c := exec.Command("./program")
		c.Env = append(os.Environ(), onVariable+"="+strconv.Itoa(number))
		if number == 0 {
			c.Env = append(c.Env, reachedVariable+"=reached")
		}
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	}
	off := run(0)
	text, err := os.ReadFile("reached")
	if err != nil {
		t.Fatal(err)
	}
	reached := strings.Fields(string(text))
	for i, s := range snippets {
		if off[i] != s.off {
			t.Errorf("%s is %s without a change, want %s", s.value, off[i], s.off)
		}
		m := mutants[i]
		if ok, err := checker.compiles(m); !ok || err != nil {
			t.Errorf("does not compile: %s: %v", s.code, err)
		}
		if m.number == 0 {
			t.Errorf("is not in the schema: %s", s.code)
			continue
		}
		if got, want := slices.Contains(reached, strconv.Itoa(m.number)), s.on != s.off; got != want {
			t.Errorf("reached: %t, want %t: %s", got, want, s.code)
		}
		on := run(m.number)
		if on[i] != s.on {
			t.Errorf("%s is %s with the change, want %s: %s", s.value, on[i], s.on, s.code)
		}
		if on[i] = off[i]; !slices.Equal(on, off) {
			t.Errorf("other values change: %q, want %q: %s", on, off, s.code)
		}
	}
}

// TestApart checks that changes outside functions, and in functions that cannot be copied, get no number.
func TestApart(t *testing.T) {
	for _, code := range []string{
		"const n = 1 + 1",
		"var n = 1 + 1",
		"var f = func() int { return 1 + 1 }",
		"func f(a [1 + 1]int) {}",
		"func f() int { recover(); return 1 + 1 }",
	} {
		text := "package p\n\n" + code + "\n"
		m := &mutant{file: "p.go", at: strings.Index(text, "+"), number: 1}
		changed, _, err := schema(m.file, []byte(text), []*mutant{m})
		if err != nil {
			t.Fatal(err)
		}
		if m.number != 0 || string(changed) != text {
			t.Errorf("is in the schema: %s", code)
		}
	}
}

// TestCompiles checks that the checker finds changes that do not compile.
func TestCompiles(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "go.mod", "module snippets\n\ngo 1.26\n")
	p := &pkg{name: ".", files: []string{"main.go", "other.go"}}
	write(t, "main.go", "package main\n\nimport \"strings\"\n\nfunc main() { println(strings.Repeat(word, 2)) }\n")
	write(t, "other.go", "package main\n\nvar word = \"a\"\n")
	checker, err := newChecker([]*pkg{p})
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]bool{
		"println(strings.Repeat(word, 2))":       true,
		"println(strings.Repeat(word, 1+1))":     true,
		"println(strings.Repeat(word, -))":       false, // syntax
		"println(strings.Repeat(word-word, 2))":  false, // a type
		"println(strings.Repeat(word, 1 << 80))": false, // a constant
		"println(word)":                          false, // an unused import
		"n := strings.Repeat(word, 2)":           false, // an unused variable
	} {
		text := "package main\n\nimport \"strings\"\n\nfunc main() { " + body + " }\n"
		m := &mutant{pkg: p, file: "main.go", text: []byte(text)}
		if got, err := checker.compiles(m); got != want || err != nil {
			t.Errorf("%s compiles: %t, %v; want %t", body, got, err, want)
		}
	}
}

// TestSplit checks that split returns batches that take longer and longer.
func TestSplit(t *testing.T) {
	var tests []test
	for _, ms := range []int{1, 2, 997, 1500, 1600, 9000, 9001} {
		tests = append(tests, test{took: time.Duration(ms) * time.Millisecond})
	}
	var sizes []int
	for _, b := range split(tests) {
		sizes = append(sizes, len(b))
	}
	if want := []int{3, 1, 1, 1, 1}; !slices.Equal(sizes, want) {
		t.Errorf("batches of %d tests, want %d", sizes, want)
	}
}
