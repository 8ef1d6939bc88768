package submission

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// spool is the folder that holds large messages while they arrive. Each file is unlinked immediately after it is
// opened, so that no message remains on disk when the process ends. A process that dies before it unlinks the file
// leaves the file behind. Any process may remove such a leftover file, because no process opens spool files by name.
type spool string

// newSpool creates the spool folder, to which only its owner has access, and removes leftover files.
func newSpool(folder string) (spool, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("create the folder for large messages: %w", err)
	}
	if err := os.Chmod(folder, 0o700); err != nil { // the folder may already have existed
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

// file returns a new file that only its owner can read. Closing the file frees its disk space.
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

// remove removes a file. The result is nil if another process has already removed the file.
func remove(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
