package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	uncompiled
	outcomes
)

func (o outcome) String() string {
	return [...]string{"noticed", "timeout", "lived", "no test", "equal", "uncompiled"}[o]
}

// patience bounds the tests of a package. The tests of the mutant's own package get a minute, plus impatience times
// their duration without a change.
const (
	patience   = 5 * time.Minute
	impatience = 6
)

// try runs the tests against a mutant, and returns which noticed it.
func (t *tree) try(m *mutant) (o outcome, why string) {
	if t.equal[fmt.Sprintf("%s\n- %s\n+ %s", m.file, m.before, m.after)] {
		return equal, ""
	}
	dir, err := folder(t.dir)
	if err != nil {
		t.fatal(err)
	}
	defer os.RemoveAll(dir)
	overlay := t.overlay(m, dir)
	if err := exec.Command("go", "build", overlay, "./"+m.pkg.name).Run(); err != nil {
		return uncompiled, ""
	}
	survived := untested
	if t.covered(m) {
		survived = lived
		engines := []string{""}
		if m.pkg.databases {
			engines = []string{"sqlite", "postgres"}
		}
		for _, engine := range engines {
			r := run{m.pkg, engine, dir, min(patience, time.Minute+impatience*m.pkg.took), []string{overlay}}
			if o, why := t.notice(r, m.pkg.unreliable); o != lived {
				return o, why
			}
		}
	}
	for _, p := range t.pkgs {
		if t.near || p == m.pkg || !slices.Contains(p.imports, m.pkg.name) || slices.Contains(apart, p.name) {
			continue
		}
		if o, why := t.notice(run{p, "sqlite", dir, patience, []string{overlay}}, nil); o != lived {
			return o, why
		}
	}
	return survived, ""
}

// notice runs the tests of a package against a mutant. A failing test must fail once more by itself: on a busy
// machine some fail now and then. Such a test, and those that are left out, do not count.
func (t *tree) notice(r run, out []string) (outcome, string) {
	for {
		o, name := t.test(r, out...)
		test, _, _ := strings.Cut(name, "/")
		if o != noticed || !strings.HasPrefix(test, "Test") {
			return o, r.pkg.name + " " + name
		}
		alone := r
		alone.args = append([]string{"-run=^" + test + "$"}, r.args...)
		if again, _ := t.test(alone); again != lived {
			return noticed, r.pkg.name + " " + name
		}
		fmt.Printf("%s %s fails now and then\n", r.pkg.name, test)
		out = append(slices.Clip(out), test)
	}
}

// overlay writes the changed file, and returns the argument that substitutes it for the original.
func (t *tree) overlay(m *mutant, dir string) string {
	changed, list := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	real, err := filepath.Abs(m.file)
	if err != nil {
		t.fatal(err)
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {real: changed}})
	if err != nil {
		t.fatal(err)
	}
	for name, text := range map[string][]byte{changed: m.text, list: text} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.fatal(err)
		}
	}
	return "-overlay=" + list
}

var failed = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)`)

// run describes a test run: the tests of a package, on one engine or with "" on both, with temporary files in dir.
type run struct {
	pkg         *pkg
	engine, dir string
	limit       time.Duration
	args        []string // more for go test
}

// test runs tests, except those in out. The outcome is lived if they pass; otherwise name is the test that failed.
func (t *tree) test(r run, out ...string) (o outcome, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), r.limit+2*time.Minute) // for the building
	defer cancel()
	args := append([]string{"test", "-count=1", "-vet=off", "-failfast", "-timeout=" + r.limit.String()}, r.args...)
	if len(out) > 0 {
		args = append(args, "-skip=^("+strings.Join(out, "|")+")$")
	}
	c := exec.CommandContext(ctx, "go", append(args, "./"+r.pkg.name)...)
	c.Env = append(os.Environ(), "TMPDIR="+r.dir, "POSTRIDER_TEST_ENGINE="+r.engine)
	c.WaitDelay = time.Second
	said, err := c.CombinedOutput()
	text := string(said)
	switch {
	case err == nil:
		return lived, ""
	case ctx.Err() != nil || strings.Contains(text, "panic: test timed out"):
		return timeout, ""
	case strings.Contains(text, "[build failed]") || strings.Contains(text, "[setup failed]"):
		t.fatal(fmt.Errorf("the tests of %s cannot be built: %s", r.pkg.name, text))
	}
	name = "a crash"
	for _, f := range failed.FindAllStringSubmatch(text, -1) {
		name = f[1] // the innermost subtest comes last
	}
	return noticed, name
}

// block is a piece of a file that the tests execute as a whole or not at all.
type block struct {
	file                     string
	line, col, toLine, toCol int
	ran                      bool
}

// covered reports whether the tests of a mutant's package execute it. Code outside of functions always counts. The
// first call for a package runs its tests unchanged.
func (t *tree) covered(m *mutant) bool {
	m.pkg.once.Do(func() {
		if err := t.measure(m.pkg); err != nil {
			t.fatal(err)
		}
	})
	outside := true
	for _, b := range m.pkg.blocks {
		if b.file == m.file && (b.line < m.line || b.line == m.line && b.col <= m.col) &&
			(m.line < b.toLine || m.line == b.toLine && m.col < b.toCol) {
			if b.ran {
				return true
			}
			outside = false
		}
	}
	return outside
}

// measure runs a package's tests without a change, on SQLite, and leaves out those that fail.
func (t *tree) measure(p *pkg) error {
	dir, err := folder(t.dir)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	profile := filepath.Join(dir, "profile")
	for tries := 1; ; tries++ {
		begun := time.Now()
		o, name := t.test(run{p, "sqlite", dir, patience, []string{"-coverprofile=" + profile}}, p.unreliable...)
		if o == lived {
			p.took = time.Since(begun)
			break
		}
		test, _, _ := strings.Cut(name, "/")
		if tries == 5 || !strings.HasPrefix(test, "Test") {
			return fmt.Errorf("the tests of %s fail without a change: %s %s", p.name, o, name)
		}
		fmt.Printf("%s %s fails without a change and is left out\n", p.name, test)
		p.unreliable = append(p.unreliable, test)
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		path, rest, _ := strings.Cut(line, ".go:")
		var b block
		var statements, count int
		_, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &b.line, &b.col, &b.toLine, &b.toCol, &statements, &count)
		if err != nil {
			continue // "mode: set"
		}
		b.file, b.ran = p.name+"/"+filepath.Base(path)+".go", count > 0
		p.blocks = append(p.blocks, b)
	}
	return nil
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
