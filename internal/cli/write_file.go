package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// writeWhole creates a file that only its owner can read. The file is renamed to its final name only after it is
// complete and synced to disk.
func writeWhole(name string, write func(f *os.File) error) (err error) {
	dir := filepath.Dir(name)
	f, err := os.CreateTemp(dir, filepath.Base(name)+".partial-*") // mode 0600
	if err != nil {
		return fmt.Errorf("create the file: %w", err)
	}
	defer func() {
		f.Close()
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("finish the file: %w", err)
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return fmt.Errorf("finish the file: %w", err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("finish the file: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
