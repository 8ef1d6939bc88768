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
	"syscall"
	"unicode"
)

// fileMax is the maximum size of a key file in bytes, which suffices for a thousand keys.
const fileMax = 64 << 10

// Parse returns the keyring for a hexadecimal master key: 64 digits in upper or lower case. Earlier master keys may
// follow, newest first. White space or commas separate keys. Errors from Parse never contain a key.
func Parse(text string) (*Keyring, error) {
	var keys [][]byte
	for i, word := range words(text) {
		master, err := hex.DecodeString(word)
		if err != nil || len(master) != MasterSize {
			which := ""
			if i > 0 {
				which = fmt.Sprintf(" %d", i+1)
			}
			return nil, fmt.Errorf("secret key%s must be %d hexadecimal digits, this one has %d characters; put your "+
				"copy of the key there, or make one with `openssl rand -hex 32` for a new installation", which,
				2*MasterSize, len(word))
		}
		keys = append(keys, master)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("secret key must be %d hexadecimal digits, this one has 0 characters; put your copy of "+
			"the key there, or make one with `openssl rand -hex 32` for a new installation", 2*MasterSize)
	}
	return New(keys[0], keys[1:]...)
}

// words splits a text at white space and commas.
func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || r == ',' })
}

// Rotate puts a new master key before the keys in the file at path, which become earlier keys. When Rotate returns, the
// file is on disk. A crash leaves either the former file or the new one.
func Rotate(path string) error {
	if _, err := Load(path); err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read secret key file: %w", err)
	}
	master := make([]byte, MasterSize)
	rand.Read(master) // rand.Read never returns an error; if it fails, it crashes the program
	keys := append([]string{hex.EncodeToString(master)}, words(string(text))...)
	f, err := os.CreateTemp(filepath.Dir(path), ".secret-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write secret key file %s: %w", path, err)
	}
	defer os.Remove(f.Name())
	if _, err = f.WriteString(strings.Join(keys, "\n") + "\n"); err == nil {
		err = keepOwner(f, path)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("write secret key file %s: %w", path, err)
	}
	return nil
}

// keepOwner gives a file the owner of the file at path. Otherwise, a node could not read its key after root has rotated
// it.
func keepOwner(f *os.File, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if of, ok := info.Sys().(*syscall.Stat_t); ok && int(of.Uid) != os.Geteuid() {
		return f.Chown(int(of.Uid), int(of.Gid))
	}
	return nil
}

// LoadOrCreate returns the keyring for the key file at path. If the file does not exist, LoadOrCreate creates it with a
// new key, and created is true. Nodes that start at the same time with the same folder agree on one key. When
// LoadOrCreate returns, the key is on disk. LoadOrCreate rejects a file that users other than its owner can read or
// change.
func LoadOrCreate(path string) (k *Keyring, created bool, err error) {
	if k, err = Load(path); !errors.Is(err, fs.ErrNotExist) {
		return k, false, err
	}
	if created, err = create(path); err != nil {
		return nil, false, fmt.Errorf("create secret key file %s: %w", path, err)
	}
	k, err = Load(path)
	return k, created, err
}

// Load returns the keyring for the key file at path. If the file does not exist, the error wraps fs.ErrNotExist. Load
// rejects a file that users other than its owner can read or change.
func Load(path string) (*Keyring, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("open secret key file: %w: run this program as the owner of the file", err)
	}
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
	text, err := io.ReadAll(io.LimitReader(f, fileMax))
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
// already exists. If the name exists, another process created the key first; create then discards its own key and
// returns false.
func create(path string) (bool, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, err
	}
	f, err := os.CreateTemp(dir, ".secret-*") // Mode 0600.
	if err != nil {
		return false, err
	}
	defer os.Remove(f.Name())

	master := make([]byte, MasterSize)
	rand.Read(master) // rand.Read never returns an error; if it fails, it crashes the program
	_, err = f.WriteString(hex.EncodeToString(master) + "\n")
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return false, err
	}
	err = os.Link(f.Name(), path)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	return err == nil, syncDir(dir)
}

// syncDir syncs a folder, so that the file names in it survive a power failure.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
