package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// outcome is the result of running the tests against a mutant.
type outcome int

const (
	noticed outcome = iota
	timeout         // the tests exceeded the time limit, which counts as detected
	lived
	untested // all tests passed, and no test of the mutant's package reaches it
	equal
	outcomes
)

func (o outcome) String() string {
	return [...]string{"noticed", "timeout", "lived", "no test", "equal"}[o]
}

func (t *tree) isEqual(m *mutant) bool {
	return t.equal[fmt.Sprintf("%s\n- %s\n+ %s", m.file, m.before, m.after)]
}

// try runs the tests that reach a mutant, and returns the outcome and the name of the failed test.
func (t *tree) try(m *mutant) (o outcome, why string) {
	if t.isEqual(m) {
		return equal, ""
	}
	dir, err := folder(t.dir)
	if err != nil {
		t.fatal(err)
	}
	defer os.RemoveAll(dir)
	overlay := t.overlay
	if m.number == 0 {
		if overlay, err = writeOverlay(map[string][]byte{m.file: m.text}, dir); err != nil {
			t.fatal(err)
		}
	}
	survived := untested
	for _, p := range t.watching(m) {
		s := t.suiteOf(p)
		tests := s.reaching(m)
		if len(tests) == 0 {
			continue
		}
		r := run{pkg: p, program: s.program, dir: dir, mutant: m.number}
		if m.number == 0 {
			r.program = filepath.Join(dir, "test")
			if err := t.build(p, overlay, r.program); err != nil {
				t.fatal(err)
			}
		}
		engines := []string{"sqlite"}
		if p == m.pkg {
			survived = lived
			if p.databases {
				engines = []string{"sqlite", "postgres"}
			} else {
				engines = []string{""}
			}
		}
		for _, r.engine = range engines {
			if o, why := t.notice(r, tests); o != lived {
				return o, why
			}
		}
	}
	return survived, ""
}

// watching returns the packages whose tests run against a mutant: the mutant's own package, followed by the packages
// that import it.
func (t *tree) watching(m *mutant) []*pkg {
	all := []*pkg{m.pkg}
	for _, p := range t.pkgs {
		if !t.near && p != m.pkg && slices.Contains(p.imports, m.pkg.name) && !slices.Contains(apart, p.name) {
			all = append(all, p)
		}
	}
	return all
}

// notice runs a package's tests against a mutant. If all tests pass, notice returns lived; otherwise, it returns the
// outcome and the name of the failed test. A failed test is run a second time on its own, because some tests
// occasionally fail on a busy machine.
func (t *tree) notice(r run, tests []test) (outcome, string) {
	r.patience = patience
	batches := split(tests)
	if r.engine == "postgres" {
		// Each run of the test program also starts a PostgreSQL server, so all tests run in one batch.
		r.patience = time.Minute
		batches = [][]test{tests}
	}
	for len(batches) > 0 {
		r.tests = batches[0]
		o, name := t.run(r)
		if o == lived {
			batches = batches[1:]
			continue
		}
		top, _, _ := strings.Cut(name, "/")
		i := slices.IndexFunc(r.tests, func(t test) bool { return t.name == top })
		if o != noticed || i < 0 {
			return o, r.pkg.name + " " + name
		}
		again := r
		again.tests = r.tests[i : i+1]
		if o, _ := t.run(again); o != lived {
			return noticed, r.pkg.name + " " + name
		}
		fmt.Printf("%s %s fails now and then\n", r.pkg.name, top)
		if batches[0] = slices.Concat(r.tests[:i], r.tests[i+1:]); len(batches[0]) == 0 {
			batches = batches[1:]
		}
	}
	return lived, ""
}

// split divides tests into batches, with the fastest tests first. Each batch may take twice as long as the previous
// one, because fast tests detect most mutants and starting a program takes some time.
func split(tests []test) (batches [][]test) {
	var batch []test
	var sum time.Duration
	limit := time.Second
	for _, t := range tests {
		if len(batch) > 0 && sum+t.took > limit {
			batches = append(batches, batch)
			batch, sum, limit = nil, 0, 2*limit
		}
		batch, sum = append(batch, t), sum+t.took
	}
	return append(batches, batch)
}

// folder creates a folder for temporary files that other users can access, because PostgreSQL does not run as root. The
// folder has a short name, because the path of a Unix socket in it may be at most 107 bytes long.
func folder(in string) (string, error) {
	dir, err := os.MkdirTemp(in, "mutants")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711)
}

// fatal removes the temporary files, prints the error and exits.
func (t *tree) fatal(err error) {
	os.RemoveAll(t.dir)
	log.Fatal(err)
}
