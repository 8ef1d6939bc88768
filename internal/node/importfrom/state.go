package importfrom

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

// stateVersion is the version of the format of state files.
const stateVersion = 3

// state is the progress of an import. It contains no keys.
type state struct {
	Version int    `json:"version"`
	Source  string `json:"source"`  // product and place, such as "resend https://api.resend.com"
	Account string `json:"account"` // fingerprint of the key
	Team    string `json:"team_id"`
	Done    []Kind `json:"done"`   // kinds that are imported completely
	Kind    Kind   `json:"kind"`   // the kind that is being imported, or ""
	Cursor  string `json:"cursor"` // the page of that kind that comes next
	// Began is when the next page was begun, in Unix microseconds of the database's clock.
	Began    int64             `json:"began"`
	Segments map[string]string `json:"segments"` // ids of this installation by ids of the source
	Topics   map[string]string `json:"topics"`
	// Templates holds the ids of templates of the source, so that a template that it returns again is not created
	// twice.
	Templates map[string]bool `json:"templates"`
	// Keys holds the keys of properties by the names that their values have in the source.
	Keys map[string]string `json:"keys"`
	// Matched holds the ids of objects of this installation that correspond to an object of the source. No object
	// corresponds to two.
	Matched map[string]bool `json:"matched"`
	Report  Report          `json:"report"`
}

func newState(source, team string, dry bool) *state {
	return &state{Version: stateVersion, Source: source, Team: team, Segments: map[string]string{},
		Topics: map[string]string{}, Templates: map[string]bool{}, Keys: map[string]string{}, Matched: map[string]bool{},
		Report: Report{Source: source, Team: team, DryRun: dry,
			Counts: map[Kind]*Count{}, Items: []Item{}, LeftOut: []LeftOut{}, Notes: []string{}}}
}

// fingerprint tells the keys of a source apart without containing them. A cursor of one account must not be used for
// another one, because everything before it would be missing.
func fingerprint(source, key string) string {
	sum := sha256.Sum256([]byte(source + "\x00" + key))
	return hex.EncodeToString(sum[:8])
}

func (s *state) done(kind Kind) bool { return slices.Contains(s.Done, kind) }

// errBusy means that another process uses the same state file.
var errBusy = errors.New("another import uses this state file: wait until it has ended")

// stateFile is a locked file with the state of an import. The nil *stateFile stores nothing.
type stateFile struct {
	path string
	lock *os.File
}

// openState locks a state file and reads its state, which is nil if the file does not exist or is to be ignored.
func openState(path string, ignore bool) (*stateFile, *state, error) {
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("lock the state file: %w", err)
	}
	f := &stateFile{path, lock}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, nil, errBusy
		}
		return nil, nil, fmt.Errorf("lock the state file: %w", err)
	}
	if ignore {
		return f, nil, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil, nil
	}
	s := newState("", "", false)
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if err == nil && s.Version != stateVersion {
		err = fmt.Errorf("the file has version %d, and this program reads version %d", s.Version, stateVersion)
	}
	if err != nil {
		f.close()
		return nil, nil, fmt.Errorf("read the state file %s: %w; begin again with --restart", path, err)
	}
	return f, s, nil
}

// save replaces the file with the given state. After a crash, the file has the old or the new state.
func (f *stateFile) save(s *state) error {
	if f == nil {
		return nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode the state of the import: %w", err)
	}
	next, err := os.OpenFile(f.path+".next", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err == nil {
		_, err = next.Write(text)
		if err == nil {
			err = next.Sync()
		}
		err = errors.Join(err, next.Close())
	}
	if err == nil {
		err = os.Rename(next.Name(), f.path)
	}
	if err != nil {
		return fmt.Errorf("store the state of the import: %w", err)
	}
	return nil
}

// remove deletes the file at the end of the import.
func (f *stateFile) remove() error {
	if f == nil {
		return nil
	}
	if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete the state file: %w", err)
	}
	return nil
}

// close releases the lock. The lock's file stays, because deleting it could let two processes lock different files.
func (f *stateFile) close() {
	if f != nil {
		// A child process that is just being started may have a copy of the descriptor, which would keep the lock.
		syscall.Flock(int(f.lock.Fd()), syscall.LOCK_UN)
		f.lock.Close()
	}
}
