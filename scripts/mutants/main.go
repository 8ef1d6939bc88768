// Mutants finds out which changes to the program the tests detect. A mutant is a copy of the program with one small
// change. Mutants runs the tests against each mutant and reports the mutants that pass all tests.
//
//	make mutants N=100 SEED=1 PKG=./internal/platform/jobs
//
// The gremlins tool lists the operators that can be changed, and list.go adds changes to conditions and returned
// values. N of these changes are chosen at random, using SEED as the random seed. Mutants that do not compile are
// skipped and do not count toward N.
//
// The source tree is never changed. All chosen mutants are built into the packages' test programs, with the go
// command's -overlay flag. An environment variable with the number of a mutant switches that mutant on (schema.go). A
// mutant that is not inside a function is built separately. First, each package's tests run one by one without a
// mutant, to find out which mutants each test reaches and how long the test takes (suite.go). Then, for each mutant,
// the tests that reach it are run, fastest first, until one fails or times out (try.go). Tests in the mutant's package
// run on SQLite and then on PostgreSQL; tests in the packages that import it run only on SQLite. A mutant counts as
// detected only if a test fails twice. Tests that fail without a mutant are not used.
//
// Mutants that behave like the original program are listed in equal.txt, with the reason for each, and are not tested.
package main

import (
	"flag"
	"fmt"
	"log"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// carriers are the packages that accept, store and deliver mail; they are mutated by default.
var carriers = []string{"./internal/platform/jobs", "./internal/sending/emails", "./internal/sending/delivery",
	"./internal/sending/suppressions", "./internal/sending/domains", "./internal/platform/page",
	"./internal/platform/events", "./internal/outbound/receiving", "./internal/front/submission",
	"./internal/outbound/webhooks", "./internal/mail/..."}

// memory limits the address space of each started program, in bytes, because a mutant may allocate memory endlessly.
const memory = 16 << 30

func main() {
	log.SetFlags(0)
	n := flag.Int("n", 100, "how many mutants are tried")
	seed := flag.Uint64("seed", 1, "chooses which")
	side := flag.Int("side", 2, "how many are tried side by side")
	only := flag.String("only", "", "try all of these instead: files, file:line or file:line:column, by commas")
	near := flag.Bool("near", false, "run the tests of the mutant's own package alone")
	flag.Parse()
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: memory, Max: memory}); err != nil {
		log.Fatalf("limit the memory of tests: %v", err)
	}
	patterns := flag.Args()
	if len(patterns) == 0 {
		patterns = carriers
	}
	dir, err := folder("")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	t := &tree{dir: dir, near: *near, slots: make(chan struct{}, *side)}
	if err := t.load(patterns); err != nil {
		t.fatal(err)
	}
	fmt.Printf("%d mutants in %d packages\n", len(t.mutants), len(t.chosen))
	all := t.mutants
	rand.New(rand.NewPCG(*seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if *only != "" {
		all = slices.DeleteFunc(all, func(m *mutant) bool {
			return !slices.ContainsFunc(strings.Split(*only, ","), func(place string) bool {
				return strings.HasPrefix(m.place()+":", place+":")
			})
		})
		*n = len(all)
	}
	chosen, err := t.choose(all, *n)
	if err != nil {
		t.fatal(err)
	}
	if t.overlay, err = schemata(chosen, dir); err != nil {
		t.fatal(err)
	}
	summarize(tryAll(t, chosen, *side))
}

// choose returns the first n mutants that compile or that are listed in equal.txt.
func (t *tree) choose(all []*mutant, n int) (chosen []*mutant, err error) {
	c, err := newChecker(t.chosen)
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		if len(chosen) == n {
			break
		}
		ok := t.isEqual(m)
		if !ok {
			if ok, err = c.compiles(m); err != nil {
				return nil, err
			}
		}
		if ok {
			chosen = append(chosen, m)
		}
	}
	return chosen, nil
}

// tally counts a package's mutants by outcome.
type tally [outcomes]int

// tryAll tests the mutants and prints the outcome of each.
func tryAll(t *tree, all []*mutant, side int) map[string]tally {
	score := map[string]tally{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range side {
		wg.Go(func() {
			mu.Lock()
			defer mu.Unlock()
			for len(all) > 0 {
				m := all[0]
				all = all[1:]
				mu.Unlock()
				begun := time.Now()
				o, why := t.try(m)
				mu.Lock()
				fmt.Printf("%-8s %s  %s  %s (%.0f s)\n", o, m.place(), m.kind, why, time.Since(begun).Seconds())
				if o == lived || o == untested {
					fmt.Printf("- %s\n+ %s\n", m.before, m.after)
				}
				s := score[m.pkg.name]
				s[o]++
				score[m.pkg.name] = s
			}
		})
	}
	wg.Wait()
	return score
}

func summarize(score map[string]tally) {
	var total tally
	show := func(name string, t tally) {
		some := t[noticed] + t[timeout]
		of := some + t[lived] + t[untested]
		fmt.Printf("%-26s %3d of %3d noticed, %3.0f %%; %d by the time limit; %d lived, %d have no test, %d are equal\n",
			name, some, of, 100*float64(some)/float64(max(of, 1)), t[timeout], t[lived], t[untested], t[equal])
	}
	fmt.Println()
	for _, name := range slices.Sorted(maps.Keys(score)) {
		for o, n := range score[name] {
			total[o] += n
		}
		show(name, score[name])
	}
	show("all", total)
}
