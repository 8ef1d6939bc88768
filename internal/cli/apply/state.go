package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
)

// state is the content of a state file: what the last run named, by team. It has no secrets.
type state struct {
	Version int                   `json:"version"`
	Teams   map[string]*teamState `json:"teams"`

	path string
}

// teamState is the state of a team.
type teamState struct {
	// Resources has the resources of the last run by kind and name.
	Resources map[string]map[string]noted `json:"resources"`
	// Begun has the names of resources, by kind, whose creation has begun, and which were not noted with their ids yet.
	// The secrets of API keys, webhooks and forwarding rules among them were not shown yet.
	Begun map[string][]string `json:"unshown,omitempty"` // the name in files of earlier versions
	// BegunAt has the times at which these creations began, by kind and name. Files of earlier versions lack them.
	BegunAt map[string]map[string]time.Time `json:"begun_at,omitempty"`
}

// noted is a resource of the last run.
type noted struct {
	ID string `json:"id"`
	// Permission and Domain are those of an API key, which the API does not show.
	Permission string `json:"permission,omitempty"`
	Domain     string `json:"domain,omitempty"`
}

// of returns the noted resources of a kind.
func (t *teamState) of(kind string) map[string]noted { return t.Resources[kind] }

func (t *teamState) set(kind, name string, n noted) {
	if t.Resources[kind] == nil {
		t.Resources[kind] = map[string]noted{}
	}
	t.Resources[kind][name] = n
}

// hasBegun reports whether a resource may exist that an interrupted run created. Its secret was not shown.
func (t *teamState) hasBegun(kind, name string) bool { return slices.Contains(t.Begun[kind], name) }

// doubtLasts is how long before or after the beginning of a creation its resource may have been created. It covers the
// retries of the request, and clocks of the installation and of this machine that differ.
const doubtLasts = 10 * time.Minute

// created reports whether an interrupted run may have created the resource with an id. Resources that are much older or
// younger than the beginning of the creation belong to somebody else.
func (t *teamState) created(kind, name, resourceID string) bool {
	if !t.hasBegun(kind, name) {
		return false
	}
	begun, known := t.BegunAt[kind][name]
	made, dated := id.Time(resourceID)
	return !known || !dated || made.Sub(begun).Abs() <= doubtLasts
}

// begin notes that the creation of a resource begins.
func (t *teamState) begin(kind, name string, now time.Time) {
	if t.BegunAt == nil {
		t.BegunAt = map[string]map[string]time.Time{}
	}
	if t.BegunAt[kind] == nil {
		t.BegunAt[kind] = map[string]time.Time{}
	}
	t.BegunAt[kind][name] = now.UTC().Truncate(time.Millisecond)
	if t.hasBegun(kind, name) {
		return
	}
	if t.Begun == nil {
		t.Begun = map[string][]string{}
	}
	t.Begun[kind] = append(t.Begun[kind], name)
}

// end notes that a resource is noted with its id and that its secret was shown, or that it does not exist.
func (t *teamState) end(kind, name string) {
	if !t.hasBegun(kind, name) {
		return
	}
	t.Begun[kind] = slices.DeleteFunc(t.Begun[kind], func(other string) bool { return other == name })
	if len(t.Begun[kind]) == 0 {
		delete(t.Begun, kind)
	}
	delete(t.BegunAt[kind], name)
	if len(t.BegunAt[kind]) == 0 {
		delete(t.BegunAt, kind)
	}
}

// readState reads a state file. A file that does not exist is an empty state.
func readState(path string) (*state, error) {
	s := &state{Version: 1, Teams: map[string]*teamState{}, path: path}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if err == nil && (s.Version != 1 || s.Teams == nil) {
		err = errors.New("it was written by another version of the program")
	}
	if err != nil {
		return nil, fmt.Errorf("read the state file %s: %w", path, err)
	}
	return s, nil
}

// team returns the state of a team.
func (s *state) team(id string) *teamState {
	if s.Teams[id] == nil {
		s.Teams[id] = &teamState{}
	}
	if s.Teams[id].Resources == nil {
		s.Teams[id].Resources = map[string]map[string]noted{}
	}
	return s.Teams[id]
}

// save replaces the state file atomically.
func (s *state) save() error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = WriteFile(s.path, append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the state file: %w", err)
	}
	return nil
}

// partialMark is between the name of a file and a random number in the names of temporary files.
const partialMark = ".partial-"

// WriteFile replaces a file atomically: after a crash, the file has either the old or the new content. It removes the
// temporary files of writers that were killed.
func WriteFile(path string, text []byte, mode fs.FileMode) (err error) {
	if err := removePartial(path); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+partialMark+"*")
	if err != nil {
		return err
	}
	// The lock tells other writers that this file is in use. The kernel releases it when the process ends. A file
	// system without locks keeps the temporary files of writers that were killed.
	syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	defer func() {
		f.Close()
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if _, err := f.Write(text); err != nil {
		return err
	}
	if err := errors.Join(f.Chmod(mode), f.Sync()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// removePartial removes the temporary files for a path that no running process has locked. They may contain secrets.
func removePartial(path string) error {
	dir := filepath.Dir(path)
	all, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range all {
		if !strings.HasPrefix(e.Name(), filepath.Base(path)+partialMark) {
			continue
		}
		if err := removeUnlocked(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// removeUnlocked removes a file unless a process has locked it.
func removeUnlocked(name string) error {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // its writer has renamed it
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return nil
	}
	if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
