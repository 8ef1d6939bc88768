package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	// Creating is the name of an API key whose creation has begun and whose token was not shown yet.
	Creating string `json:"creating,omitempty"`
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

// WriteFile replaces a file atomically: after a crash, the file has either the old or the new content.
func WriteFile(path string, text []byte, mode fs.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".partial-*")
	if err != nil {
		return err
	}
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
