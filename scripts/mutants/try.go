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

// outcome is the result for a mutant.
type outcome int

const (
	noticed outcome = iota
	timeout         // noticed because it did not end
	lived
	untested // lived, and the tests of its package do not run through it
	equal
	outcomes
)

func (o outcome) String() string {
	return [...]string{"noticed", "timeout", "lived", "no test", "equal"}[o]
}

func (t *tree) isEqual(m *mutant) bool {
	return t.equal[fmt.Sprintf("%s\n- %s\n+ %s", m.file, m.before, m.after)]
}

// try runs the tests that reach a mutant, and returns which noticed it.
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

// watching returns the packages whose tests are run against a mutant: its own, then those that import it.
func (t *tree) watching(m *mutant) []*pkg {
	all := []*pkg{m.pkg}
	for _, p := range t.pkgs {
		if !t.near && p != m.pkg && slices.Contains(p.imports, m.pkg.name) && !slices.Contains(apart, p.name) {
			all = append(all, p)
		}
	}
	return all
}

// notice runs tests of a package against a mutant, and returns lived or the test that noticed it. A failing test must
// fail once more by itself: on a busy machine some fail now and then.
func (t *tree) notice(r run, tests []test) (outcome, string) {
	r.patience = patience
	batches := split(tests)
	if r.engine == "postgres" {
		// Every program starts a server of its own.
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

// split divides tests, the quickest first, into batches of which each is given twice the time of the one before:
// most mutants are noticed by quick tests, and each run of a program takes some time itself.
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

// folder makes a directory for temporary files that other users may enter: PostgreSQL runs as another user than root.
// Its name is short, because that of a socket in it may have at most 107 octets.
func folder(in string) (string, error) {
	dir, err := os.MkdirTemp(in, "mutants")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711)
}

// fatal ends the program.
func (t *tree) fatal(err error) {
	os.RemoveAll(t.dir)
	log.Fatal(err)
}
