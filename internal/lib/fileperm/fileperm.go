// Package fileperm makes files and folders accessible only to their owner. Files get mode 0600 and folders 0700,
// regardless of the umask and the previous mode. [Exposed] examines files that belong to the operator.
//
// # Failures
//
// If a function returns no error, only the owner can access the file or folder. If a mode cannot be changed because
// another user owns the file, the error contains the command that fixes it.
//
// # Out of scope
//
// The package does not check parent folders, access control lists, or the owner. On Windows, which uses access control
// lists instead of modes, the package changes nothing.
package fileperm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
)

const others = 0o077 // permissions for the group and for all other users

// Dir creates a folder and its missing parents, or removes other users' permissions from an existing folder.
func Dir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("create a folder: %w", err)
	}
	return own(path, 0o700)
}

// own adds owner permissions that the umask may have removed, and removes all permissions for other users.
func own(path string, rights fs.FileMode) error {
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&rights != rights && runtime.GOOS != "windows" {
		err = os.Chmod(path, info.Mode()&^others|rights)
	}
	if err != nil {
		return fmt.Errorf("restrict %s to its owner: %w", path, err)
	}
	return Mend(path)
}

// File creates an empty file, or removes other users' permissions from an existing file.
func File(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("create a file: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("create a file: %w", err)
	}
	return own(path, 0o600)
}

// Exists reports whether there is a file, a folder or a symbolic link at a path, as far as this user can see.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Mend removes other users' permissions from a file or folder, if it exists.
func Mend(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the mode of %s: %w", path, err)
	}
	// Windows uses access control lists instead of mode bits and reports mode 0666 for every file.
	mode := info.Mode()
	if mode.Perm()&others == 0 || runtime.GOOS == "windows" {
		return nil
	}
	if err := os.Chmod(path, mode&^others); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("other users can read or change %s (mode %04o), and changing the mode failed: %w; "+
			"run `chmod go= %s` as "+
			"its owner",
			path, mode.Perm(), err, path)
	}
	return nil
}

// Exposed returns the permissions of a file of the operator that other users can read or change, or 0 if only its owner
// can change it, and only its owner and its group can read it. The group may read the file, because it can be that of
// the node's user. Exposed also returns 0 if the file cannot be examined.
func Exposed(path string) fs.FileMode {
	const groupChanges, allOthers = 0o020, 0o007
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS == "windows" || info.Mode().Perm()&(groupChanges|allOthers) == 0 {
		return 0
	}
	return info.Mode().Perm()
}
