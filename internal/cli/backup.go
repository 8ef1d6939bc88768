package cli

import (
	"archive/tar"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
)

const backupUsage = "use: postrider backup FILE [--force] [--with-key]"

const keepKey = "the secret key is not in it: keep a copy of %s elsewhere; encrypted data cannot be read " +
	"without it\n"

// backup copies the database and the blobs of an SQLite installation into one tar archive that has the same layout as
// data_dir. A node may be running during the backup.
//
// The copy of the database is a snapshot, and blobs are not deleted during a backup. The archive therefore contains
// every blob that the copied database refers to. The archive may also contain a few newer blobs, which the sweep
// deletes after a restore. The archive file is renamed to its final name only after it is complete and synced to disk.
func backup(ctx context.Context, e *env, args []string) error {
	flags := flag.NewFlagSet("backup", flag.ContinueOnError)
	force := flags.Bool("force", false, "replace FILE if it exists")
	withKey := flags.Bool("with-key", false,
		"add the secret key to FILE; anybody who has the file can then decrypt the secrets in it")
	flags.Usage = verbUsage(flags, backupUsage)
	c, words, err := e.loadWords(flags, args, 1)
	if errors.Is(err, errWords) {
		return fmt.Errorf("%w; %s", err, backupUsage)
	}
	if err != nil {
		return err
	}
	if c.DatabaseURL != "" {
		return errors.New("this command does not back up PostgreSQL: copy the database with pg_dump first, and then the " +
			"blobs " +
			"(blob_url: a folder with cp or rsync, a bucket with its own tools) and the secret key")
	}
	key := filepath.Join(c.DataDir, "secret.key")
	if *withKey && c.SecretKey != "" {
		return errors.New("--with-key: the secret key is in the setting secret_key and not in a file; keep a copy of that " +
			"setting")
	}
	if err := findDatabase(c); err != nil {
		return err
	}
	if _, err := os.Lstat(words[0]); !*force && err == nil {
		return fmt.Errorf("%s exists; choose another name, or use --force to replace it", words[0])
	}
	b := &archive{to: words[0]}
	if *withKey {
		b.key = key
	}
	if err := b.write(ctx, c, e); err != nil {
		return err
	}
	fmt.Fprintf(e.out, "wrote %s: the database (%d bytes) and %d blobs (%d bytes)\n", b.to, b.dbSize, b.blobs,
		b.blobSize)
	switch {
	case *withKey:
		fmt.Fprintln(e.out, "the secret key is in it: anybody who has the file can decrypt the secrets in it")
	case c.SecretKey != "":
		fmt.Fprintf(e.out, keepKey, "the setting secret_key")
	default:
		fmt.Fprintf(e.out, keepKey, key)
	}
	return nil
}

// archive is a backup in progress.
type archive struct {
	to, key          string // file names; if key is "", the archive contains no secret key
	dbSize, blobSize int64
	blobs            int
	tar              *tar.Writer
}

// write creates the archive.
func (b *archive) write(ctx context.Context, c config.Config, e *env) error {
	return writeWhole(b.to, func(f *os.File) error {
		b.tar = tar.NewWriter(f)
		if err := b.fill(ctx, c, e, f.Name()+".db"); err != nil {
			return fmt.Errorf("back up %s: %w", c.DataDir, err)
		}
		if err := b.tar.Close(); err != nil {
			return fmt.Errorf("finish the backup: %w", err)
		}
		return nil
	})
}

// fill adds the database, the key and the blobs to the archive. The parameter snapshot is the name of a temporary file.
func (b *archive) fill(ctx context.Context, c config.Config, e *env, snapshot string) (err error) {
	d, err := openDB(ctx, c, newLogger(c, e.errOut))
	if err != nil {
		return err
	}
	defer d.Close()
	if empty, err := d.IsEmpty(ctx); err != nil {
		return err
	} else if empty {
		return errors.New("the database has no tables: correct data_dir")
	}
	// With a key that is not the one of the database, nothing could be restored from the archive.
	switch _, err := node.OpenKeyring(ctx, d, c, false); {
	case err != nil && b.key != "":
		return err
	case err != nil:
		fmt.Fprintf(e.errOut, "the backup is made, but look for the key: %v\n", err)
	}
	blobs, err := blob.Open(ctx, c.BlobURL)
	if err != nil {
		return fmt.Errorf("open blob_url: %w", err)
	}
	defer blobs.Close()
	held, err := blobs.Hold(ctx)
	if errors.Is(err, blob.ErrNoFolder) {
		fmt.Fprintln(e.errOut, "the backup does not contain the blobs, because they are in a bucket; "+
			"copy them with the bucket's own tools")
		return b.database(ctx, d, snapshot)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Release()) }()
	if err := b.database(ctx, d, snapshot); err != nil {
		return err
	}
	return held.Each(ctx, func(file blob.File) error {
		size, err := b.add(file.Path, path.Join("blobs", file.Name))
		if errors.Is(err, fs.ErrNotExist) {
			return ctx.Err() // the blob was moved, so Each lists it again at its new path
		}
		if err != nil {
			return fmt.Errorf("copy blob %s: %w", file.Name, err)
		}
		b.blobs++
		b.blobSize += size
		return ctx.Err()
	})
}

// database adds a snapshot of the database and, if requested, the secret key to the archive.
func (b *archive) database(ctx context.Context, d *db.DB, snapshot string) (err error) {
	f, err := os.OpenFile(snapshot, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("create a file for the copy of the database: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(snapshot)) }()
	if err := f.Close(); err != nil {
		return err
	}
	if err := d.Snapshot(ctx, snapshot); err != nil {
		return fmt.Errorf("copy the database: %w", err)
	}
	if b.dbSize, err = b.add(snapshot, "postrider.db"); err != nil || b.key == "" {
		return err
	}
	_, err = b.add(b.key, "secret.key")
	return err
}

// add adds a file to the archive, with its owner and modification time, and returns its size. If the file does not
// exist, add returns fs.ErrNotExist and leaves the archive unchanged.
func (b *archive) add(from, name string) (int64, error) {
	f, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	h, err := tar.FileInfoHeader(info, "")
	if err != nil {
		return 0, err
	}
	h.Name, h.Mode, h.Format = name, 0o600, tar.FormatPAX // the PAX format preserves fractions of a second
	if err := b.tar.WriteHeader(h); err != nil {
		return 0, err
	}
	n, err := io.Copy(b.tar, f)
	if err == nil && n != info.Size() {
		err = fmt.Errorf("%s changed while it was being copied", from)
	}
	return n, err
}
