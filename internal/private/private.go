// Package private keeps files and folders to their owner: mode 0600 and 0700, whatever the umask and whatever was there
// before.
//
// What it returns without an error is private. Where a mode cannot be changed, because somebody else owns the file, the
// error says what to run. It does not look at folders above, at access lists, or at who the owner is.
package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
)

const others = 0o077 // rights of the group and of everybody

// Dir makes a folder, and what is missing above it, or takes the rights of others on it away.
func Dir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	return own(path, 0o700)
}

// own gives the owner of a file or folder the rights that the umask may have kept back, and takes those of others away.
func own(path string, rights fs.FileMode) error {
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&rights != rights && runtime.GOOS != "windows" {
		err = os.Chmod(path, info.Mode()&^others|rights)
	}
	if err != nil {
		return fmt.Errorf("make %s the owner's: %w", path, err)
	}
	return Mend(path)
}

// File makes an empty file, or takes the rights of others on it away.
func File(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("make a file: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("make a file: %w", err)
	}
	return own(path, 0o600)
}

// Mend takes the rights of others on a file or folder away, if it is there.
func Mend(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at who can read %s: %w", path, err)
	}
	// Windows has access lists instead of these bits, and reports 0666 for every file.
	mode := info.Mode()
	if mode.Perm()&others == 0 || runtime.GOOS == "windows" {
		return nil
	}
	if err := os.Chmod(path, mode&^others); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("others can read or change %s (mode %04o), and that cannot be mended: %w; run `chmod go= %s` as its owner",
			path, mode.Perm(), err, path)
	}
	return nil
}
