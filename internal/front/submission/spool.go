package submission

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// spool is the folder of the files in which large messages are kept until they are whole. A file loses its name as
// soon as it is open, so that nothing of a message outlives the process, however it ends. A file with a name was left
// behind between these two steps; any process may remove it, because files are not opened by name.
type spool string

// openSpool makes the folder for its owner only, and removes the files that were left there.
func openSpool(folder string) (spool, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("make the folder for large messages: %w", err)
	}
	if err := os.Chmod(folder, 0o700); err != nil { // It may have existed.
		return "", fmt.Errorf("close the folder for large messages to others: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(folder, spoolPattern))
	for _, name := range left {
		err = errors.Join(err, remove(name))
	}
	if err != nil {
		return "", fmt.Errorf("remove large messages that were left: %w", err)
	}
	return spool(folder), nil
}

const spoolPattern = "message-*"

// file returns a new file that only its owner can read. Closing it frees its space.
func (s spool) file() (*os.File, error) {
	f, err := os.CreateTemp(string(s), spoolPattern) // Mode 0600.
	if err != nil {
		return nil, err
	}
	if err := remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// remove removes a file that another process may remove at the same time.
func remove(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
