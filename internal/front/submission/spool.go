package submission

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// spool is the folder for large messages while they arrive. A file is unlinked as soon as it is open, so that nothing
// of a message remains when the process ends. A process that died between these two steps leaves a named file. Any
// process may remove it, because no process opens files by name.
type spool string

// newSpool creates the folder for its owner only, and removes leftover files.
func newSpool(folder string) (spool, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("create the folder for large messages: %w", err)
	}
	if err := os.Chmod(folder, 0o700); err != nil { // the folder may have existed
		return "", fmt.Errorf("restrict the folder for large messages to its owner: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(folder, spoolPattern))
	for _, name := range left {
		err = errors.Join(err, remove(name))
	}
	if err != nil {
		return "", fmt.Errorf("remove leftover large messages: %w", err)
	}
	return spool(folder), nil
}

const spoolPattern = "message-*"

// file returns a new file that only its owner can read. Closing it frees its space.
func (s spool) file() (*os.File, error) {
	f, err := os.CreateTemp(string(s), spoolPattern) // mode 0600
	if err != nil {
		return nil, err
	}
	if err := remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// remove removes a file. Another process may remove the same file at the same time.
func remove(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
