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

const keepKey = "the secret key is not in it: keep a copy of %s elsewhere; nothing that is sealed can be used " +
	"without it\n"

// backup copies the database and the blobs of an SQLite installation into one archive, which has the shape of
// data_dir. A node may run meanwhile.
//
// The deletion of blobs is held off before the database is copied as of one instant, so the archive has each blob
// that its rows refer to, and perhaps some later ones, which are swept some time after a restore. An archive under
// its final name is whole and on disk.
func backup(ctx context.Context, e *env, args []string) error {
	flags := flag.NewFlagSet("backup", flag.ContinueOnError)
	force := flags.Bool("force", false, "replace FILE if it exists")
	withKey := flags.Bool("with-key", false,
		"put the secret key into FILE too: whoever gets the file can then use all that is sealed in it")
	c, words, err := e.loadWords(flags, args, 1)
	if errors.Is(err, errWords) {
		return fmt.Errorf("%w; %s", err, backupUsage)
	}
	if err != nil {
		return err
	}
	if c.DatabaseURL != "" {
		return errors.New("the database is PostgreSQL, which has its own tools: copy it with pg_dump first, and then the " +
			"blobs " +
			"(blob_url: a folder with cp or rsync, a bucket with its own tools) and the secret key")
	}
	key := filepath.Join(c.DataDir, "secret.key")
	if *withKey && c.SecretKey != "" {
		return errors.New("--with-key: the secret key is not a file here but the setting secret_key; keep a copy of that " +
			"setting")
	}
	if _, err := os.Stat(node.DatabaseURL(c)); err != nil {
		return fmt.Errorf("there is no installation in data_dir: %w", err)
	}
	if _, err := os.Lstat(words[0]); !*force && err == nil {
		return fmt.Errorf("%s exists; choose another name, or say --force to replace it", words[0])
	}
	b := &archive{to: words[0]}
	if *withKey {
		b.key = key
	}
	if err := b.write(ctx, c, e); err != nil {
		return err
	}
	fmt.Fprintf(e.out, "wrote %s: the database (%d octets) and %d blobs (%d octets)\n", b.to, b.dbSize, b.blobs,
		b.blobSize)
	switch {
	case *withKey:
		fmt.Fprintln(e.out, "the secret key is in it: whoever gets the file can use all that is sealed in it")
	case c.SecretKey != "":
		fmt.Fprintf(e.out, keepKey, "the setting secret_key")
	default:
		fmt.Fprintf(e.out, keepKey, key)
	}
	return nil
}

// archive is a backup in progress.
type archive struct {
	to, key          string // the key is left out when it is ""
	dbSize, blobSize int64
	blobs            int
	tar              *tar.Writer
}

// write makes the archive.
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

// fill adds everything to the archive. snapshot is the name of a temporary file.
func (b *archive) fill(ctx context.Context, c config.Config, e *env, snapshot string) (err error) {
	d, err := openDB(ctx, c, newLogger(c, e.errOut))
	if err != nil {
		return err
	}
	defer d.Close()
	blobs, err := blob.Open(ctx, c.BlobURL)
	if err != nil {
		return fmt.Errorf("open blob_url: %w", err)
	}
	defer blobs.Close()
	held, err := blobs.Hold(ctx)
	if errors.Is(err, blob.ErrNoFolder) {
		fmt.Fprintln(e.errOut, "the blobs are in a bucket, and not in the backup; copy them with the tools of the bucket")
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
			return ctx.Err() // the blob is given again from where it is kept
		}
		if err != nil {
			return fmt.Errorf("copy blob %s: %w", file.Name, err)
		}
		b.blobs++
		b.blobSize += size
		return ctx.Err()
	})
}

// database adds the database as it is now, and the key.
func (b *archive) database(ctx context.Context, d *db.DB, snapshot string) (err error) {
	f, err := os.OpenFile(snapshot, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("make a file for the copy of the database: %w", err)
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

// add adds a file to the archive, with its owner and its time. A file that does not exist adds nothing.
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
	h.Name, h.Mode, h.Format = name, 0o600, tar.FormatPAX // keeps fractions of a second
	if err := b.tar.WriteHeader(h); err != nil {
		return 0, err
	}
	n, err := io.Copy(b.tar, f)
	if err == nil && n != info.Size() {
		err = fmt.Errorf("%s has changed while it was copied", from)
	}
	return n, err
}
