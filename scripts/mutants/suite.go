package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// suite is a package's test program, built with all mutants, and a list of its tests, sorted by duration. The list does
// not contain tests that fail without a mutant.
type suite struct {
	program string
	tests   []test
}

// test is a test that go test runs: a test function, an example, or the seed corpus of a fuzz target.
type test struct {
	name    string
	took    time.Duration
	reached []int // the numbers of the mutants that the test reaches
}

// reaching returns the tests that reach a mutant. If the mutant is built separately, reaching returns all tests.
func (s *suite) reaching(m *mutant) []test {
	if m.number == 0 {
		return s.tests
	}
	var all []test
	for _, t := range s.tests {
		if slices.Contains(t.reached, m.number) {
			all = append(all, t)
		}
	}
	return all
}

// suiteOf returns the suite for a package. The first call for a package builds the test program and runs each test
// separately, on SQLite.
func (t *tree) suiteOf(p *pkg) *suite {
	p.once.Do(func() {
		if err := t.measure(p); err != nil {
			t.fatal(fmt.Errorf("the tests of %s: %w", p.name, err))
		}
	})
	return &p.suite
}

// If tooMany or more of a package's tests fail without a mutant, the program exits with an error, because the tests
// apparently cannot run on this machine.
const tooMany = 5

var testName = regexp.MustCompile(`(?m)^(Test|Fuzz|Example)\S*$`)

func (t *tree) measure(p *pkg) error {
	dir, err := folder(t.dir)
	if err != nil {
		return err
	}
	p.suite.program = filepath.Join(dir, "test")
	if err := t.build(p, t.overlay, p.suite.program); err != nil {
		return err
	}
	if _, err := os.Stat(p.suite.program); errors.Is(err, fs.ErrNotExist) {
		return nil // the package has no tests
	}
	list := exec.Command(p.suite.program, "-test.list=.")
	list.Dir = p.name
	text, err := list.Output()
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	var out []string
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, name := range testName.FindAllString(string(text), -1) {
		wg.Go(func() {
			one, ok := t.alone(p, name)
			mu.Lock()
			defer mu.Unlock()
			if !ok {
				fmt.Printf("%s %s fails without a change and is left out\n", p.name, name)
				out = append(out, name)
				return
			}
			p.suite.tests = append(p.suite.tests, one)
		})
	}
	wg.Wait()
	if len(out) >= tooMany {
		return fmt.Errorf("these fail without a change: %s", strings.Join(out, ", "))
	}
	slices.SortFunc(p.suite.tests, func(a, b test) int { return cmp.Compare(a.took, b.took) })
	return nil
}

// alone runs a single test without a mutant, and returns false if the test fails twice.
func (t *tree) alone(p *pkg, name string) (one test, ok bool) {
	t.slots <- struct{}{}
	defer func() { <-t.slots }()
	dir, err := folder(t.dir)
	if err != nil {
		t.fatal(err)
	}
	defer os.RemoveAll(dir)
	one.name = name
	r := run{pkg: p, program: p.suite.program, dir: dir, engine: "sqlite", patience: longest, tests: []test{one}}
	r.reached = filepath.Join(dir, "reached")
	if err := os.WriteFile(r.reached, nil, 0o666); err != nil {
		t.fatal(err)
	}
	for range 2 {
		begun := time.Now()
		o, _, err := r.start()
		if err != nil {
			t.fatal(err)
		}
		if one.took = time.Since(begun); o == lived {
			ok = true
			break
		}
	}
	text, err := os.ReadFile(r.reached)
	if err != nil {
		t.fatal(err)
	}
	for line := range strings.FieldsSeq(string(text)) {
		number, err := strconv.Atoi(line)
		if err != nil {
			t.fatal(err)
		}
		one.reached = append(one.reached, number)
	}
	return one, ok
}

// build builds a package's test program. If the package has no tests, the go command creates no program.
func (t *tree) build(p *pkg, overlay, program string) error {
	t.slots <- struct{}{}
	defer func() { <-t.slots }()
	c := exec.Command("go", "test", "-c", "-vet=off", overlay, "-o", program, "./"+p.name)
	if text, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w: %s", err, text)
	}
	return nil
}

// The time limit for a test run is patience plus impatience times the tests' duration without a mutant, but at most
// longest.
const (
	patience   = 30 * time.Second
	impatience = 6
	longest    = 5 * time.Minute
)

// run describes a test run on one database engine, or on both if engine is "". The field dir is the folder for
// temporary files.
type run struct {
	pkg             *pkg
	program, engine string
	dir             string
	tests           []test
	patience        time.Duration
	mutant          int    // the number of the mutant to switch on
	reached         string // the file that the numbers of reached mutants are written to
}

var failed = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)`)

// run waits for a free slot and then runs tests.
func (t *tree) run(r run) (outcome, string) {
	t.slots <- struct{}{}
	defer func() { <-t.slots }()
	o, name, err := r.start()
	if err != nil {
		t.fatal(err)
	}
	return o, name
}

// start runs tests until one fails. If all tests pass, the outcome is lived; otherwise, the second result is the name
// of the failed test.
func (r run) start() (o outcome, name string, err error) {
	var names []string
	limit := r.patience
	for _, t := range r.tests {
		names = append(names, t.name)
		limit += impatience * t.took
	}
	limit = min(limit, longest)
	// The test program exits at its time limit, or is killed 10 seconds later.
	ctx, cancel := context.WithTimeout(context.Background(), limit+10*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, r.program, "-test.run=^("+strings.Join(names, "|")+")$", "-test.failfast",
		"-test.paniconexit0", "-test.timeout="+limit.String())
	c.Dir = r.pkg.name
	c.Env = append(os.Environ(), "TMPDIR="+r.dir, "POSTRIDER_TEST_ENGINE="+r.engine,
		onVariable+"="+strconv.Itoa(r.mutant), reachedVariable+"="+r.reached)
	var text tail
	c.Stdout, c.Stderr = &text, &text
	// SIGQUIT terminates PostgreSQL and any Go program that does not handle this signal.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGQUIT}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGQUIT) }
	c.WaitDelay = 5 * time.Second
	err = c.Run()
	switch {
	case c.Process == nil:
		return 0, "", err
	case err == nil:
		return lived, "", nil
	case ctx.Err() != nil || strings.Contains(string(text), "panic: test timed out"):
		return timeout, "", nil
	}
	name = "a crash"
	for _, f := range failed.FindAllStringSubmatch(string(text), -1) {
		name = f[1] // the last match is the innermost subtest
	}
	return noticed, name, nil
}

// tail is a writer that keeps only the end of the output, because a mutant may write endless output.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	const most = 4 << 20
	if *t = append(*t, p...); len(*t) > 2*most {
		*t = append((*t)[:0], (*t)[len(*t)-most:]...)
	}
	return len(p), nil
}
