package keyring

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Parse returns the keyring for a hexadecimal master key: 64 digits in upper or lower case. White space around the key
// is ignored. Errors from Parse never contain the key.
func Parse(text string) (*Keyring, error) {
	text = strings.TrimSpace(text)
	master, err := hex.DecodeString(text)
	if err != nil || len(master) != MasterSize {
		return nil, fmt.Errorf("secret key must be %d hexadecimal digits, this one has %d characters; make one with "+
			"`openssl rand -hex 32`",
			2*MasterSize, len(text))
	}
	return New(master)
}

// LoadOrCreate returns the keyring for the key file at path. If the file does not exist, LoadOrCreate creates it with a
// new key. Nodes that start at the same time with the same folder agree on one key. When LoadOrCreate returns, the key
// is on disk. LoadOrCreate rejects a file that users other than its owner can read or change.
func LoadOrCreate(path string) (*Keyring, error) {
	k, err := Load(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	if err := create(path); err != nil {
		return nil, fmt.Errorf("create secret key file %s: %w", path, err)
	}
	return Load(path)
}

// Load returns the keyring for the key file at path. If the file does not exist, the error wraps fs.ErrNotExist. Load
// rejects a file that users other than its owner can read or change.
func Load(path string) (*Keyring, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open secret key file: %w", err)
	}
	defer f.Close()

	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("examine secret key file: %w", err)
	}
	// Windows has access lists instead of mode bits, and reports 0666 for every file.
	if info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("secret key file %s can be read or changed by others (mode %04o): run `chmod 600 %s`; if "+
			"it was exposed, its secrets are too",
			path, info.Mode().Perm(), path)
	}
	text, err := io.ReadAll(io.LimitReader(f, 1024))
	if err != nil {
		return nil, fmt.Errorf("read secret key file %s: %w", path, err)
	}
	k, err := Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("secret key file %s: %w", path, err)
	}
	return k, nil
}

// create writes a new key to a temporary file and links it to its final name. Unlike a rename, a link fails if the name
// already exists. If the name exists, another process created the key first; create then discards its own key.
func create(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".secret-*") // Mode 0600.
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())

	master := make([]byte, MasterSize)
	rand.Read(master) // rand.Read never returns an error; if it fails, it crashes the program
	_, err = f.WriteString(hex.EncodeToString(master) + "\n")
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(dir)
}

// syncDir syncs a folder, so that the file names in it survive a power failure.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
