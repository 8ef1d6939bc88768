package promote

import (
	"errors"
	"testing"
)

// A change that the node records while a round deletes the recorded changes is copied by a later round.
func TestChangeWhileChangesAreDropped(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.copied()
	f.exec(`UPDATE contents SET subject = 'one'`)
	file := f.file()
	defer file.Close()
	changes, err := readChanges(t.Context(), file, 0, changesMost)
	if err != nil || len(changes) < 3 {
		t.Fatalf("%d changes, %v", len(changes), err)
	}
	f.copied() // a round copies these changes and deletes them, step by step
	f.exec(`UPDATE contents SET subject = 'two'`)
	if err := dropChanges(t.Context(), f.Source, changes[len(changes)-1].seq); err != nil { // its last step comes now
		t.Fatal(err)
	}
	f.finish()
}

// A move that was killed between two commits of a round loses and doubles nothing.
func TestKilledInRound(t *testing.T) {
	t.Parallel()
	for name, kill := range map[string]struct{ removed, added int }{
		"some rows are removed": {40, 0}, "all rows are removed": {1 << 30, 0}, "some rows are added": {1 << 30, 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.copied()
			f.change()
			f.killedInRound(kill.removed, kill.added)
			f.exec(`UPDATE contents SET subject = 'after the kill'`)
			f.finish()
		})
	}
}

// killedInRound does what a round does that is killed after a number of commits: a round first removes all changed
// rows, and then adds them.
func (f *fixture) killedInRound(removed, added int) {
	f.Helper()
	to, err := openTarget(f.Context(), f.URL)
	if err != nil {
		f.Fatal(err)
	}
	defer to.close()
	file := f.file()
	defer file.Close()
	m := &move{Options: f.Options, tables: f.tables, to: to, file: file}
	killed := errors.New("killed")
	commits := func(most int, commit func(replacement) error) func(replacement) error {
		return func(r replacement) error {
			if most--; most < 0 {
				return killed
			}
			return commit(r)
		}
	}
	_, _, err = m.eachChange(f.Context(), file, commits(removed, func(r replacement) error {
		return to.remove(f.Context(), r)
	}))
	if err == nil {
		_, _, err = m.eachChange(f.Context(), file, commits(added, func(r replacement) (err error) {
			if r.rows, err = readKeys(f.Context(), file, r.of, r.keys); err != nil {
				return err
			}
			return to.add(f.Context(), r)
		}))
	}
	if !errors.Is(err, killed) {
		f.Fatalf("the round was not killed: %v", err)
	}
}
