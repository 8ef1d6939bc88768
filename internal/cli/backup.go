package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/archive"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
)

func backupCommand() command {
	return command{use: "backup [FILE]", group: groupSafety, source: ofNode,
		short: "copy a running SQLite installation into one file or a bucket",
		long: "Copies the database and the blobs into one archive, while the node keeps working. FILE is a file, or an " +
			"object such as s3://BUCKET/KEY?region=REGION (docs/operating/storage.md lists the parameters). With " +
			"--done-elsewhere, it makes no backup and only notes that another tool has made one just now.",
		example: "postrider backup /var/backups/postrider-2026-01-31.tar\n" +
			"postrider backup --passphrase-file /root/phrase 's3://backups/2026-01-31.tar?region=eu-central-1'\n" +
			"postrider backup --done-elsewhere",
		define: func(flags *pflag.FlagSet) runner {
			b := &savedArchive{}
			flags.BoolVar(&b.force, "force", false, "replace the file or object if it exists")
			withKey := flags.Bool("with-key", false,
				"add the secret key; anybody who can read the backup can then decrypt the secrets in it")
			secret := flags.String(passphraseFlag, "",
				"`file` whose first line is the passphrase that encrypts the backup (default: "+passphraseVariable+")")
			elsewhere := flags.Bool("done-elsewhere", false, "only note that another tool has made a backup just now")
			return withSettings(func(ctx context.Context, e *env, c config.Config, words []string) error {
				switch {
				case *elsewhere && len(words) > 0:
					return usageError("--done-elsewhere takes no file, because it makes no backup")
				case *elsewhere:
					return noteBackup(ctx, e, c)
				case len(words) == 0:
					return usageError("FILE is missing")
				}
				b.e, b.c, b.to = e, c, words[0]
				return backup(ctx, b, *withKey, *secret)
			})
		}}
}

const keepKey = "the secret key is not in it: keep a copy of %s elsewhere; encrypted data cannot be read " +
	"without it\n"

// passphraseVariable is the variable with the passphrase of backups. A passphrase is never an argument, because other
// users of the machine can read the arguments of processes.
const passphraseVariable = "POSTRIDER_BACKUP_PASSPHRASE"

const passphraseFlag = "passphrase-file"

// passphrase reads the passphrase of a backup from the file, or else from the environment. It returns "" if there is
// none.
func (e *env) passphrase(path string) (string, error) {
	if path == "" {
		return e.getenv(passphraseVariable), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("--%s: %w", passphraseFlag, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return "", fmt.Errorf("--%s: %w", passphraseFlag, err)
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	if line = bytes.TrimSuffix(line, []byte("\r")); len(line) == 0 {
		return "", fmt.Errorf("--%s: the first line of %s is empty", passphraseFlag, path)
	}
	return string(line), nil
}

// backup copies the database and the blobs of an SQLite installation into one archive. A node may be running during
// the backup.
//
// The copy of the database is a snapshot, and blobs are not deleted during a backup. The archive therefore contains
// every blob that the copied database refers to. The archive may also contain a few newer blobs, which the sweep
// deletes after a restore. The archive gets its name only after it is complete and durable, and only then the database
// stores the time of the backup.
func backup(ctx context.Context, b *savedArchive, withKey bool, passphraseFile string) (err error) {
	c := b.c
	if c.DatabaseURL != "" {
		return errors.New("this command does not back up PostgreSQL: copy the database with pg_dump, pg_basebackup or " +
			"pgBackRest first, and then the blobs (blob_url: a folder with cp or rsync, a bucket with its own tools) and the " +
			"secret key; afterwards, `postrider backup --done-elsewhere` notes the time")
	}
	if withKey {
		b.key = filepath.Join(c.DataDir, archive.Key)
		if c.SecretKey != "" {
			return errors.New("--with-key: the secret key is in the setting secret_key and not in a file; keep a copy of " +
				"that setting")
		}
	}
	if err := findDatabase(c); err != nil {
		return err
	}
	if b.passphrase, err = b.e.passphrase(passphraseFile); err != nil {
		return err
	}
	if err := b.make(ctx); err != nil {
		return err
	}
	return b.report()
}

// noteBackup stores the current time as the time of the last backup.
func noteBackup(ctx context.Context, e *env, c config.Config) error {
	n, err := openBeside(ctx, c, e)
	if err != nil {
		return err
	}
	defer n.Close()
	now := n.DB.Now().UTC().Format(time.RFC3339)
	if err := n.DB.SetFact(ctx, db.FactLastBackup, now); err != nil {
		return err
	}
	return e.done(struct {
		LastBackupAt string `json:"last_backup_at"`
	}{now}, "noted that a backup was made now")
}

// savedArchive is a backup in progress.
type savedArchive struct {
	e          *env
	c          config.Config
	to         string // file name or URL of an object
	key        string // file name; if key is "", the archive contains no secret key
	passphrase string // if it is "", the archive is not encrypted
	force      bool

	manifest archive.Manifest
	dbSize   int64
}

// make writes the archive to its place, and then stores the time of the backup in the database.
func (b *savedArchive) make(ctx context.Context) (err error) {
	log := newLogger(b.c, b.e.errOut)
	d, err := openDB(ctx, b.c, log)
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
	_, noKey := node.OpenKeyring(ctx, d, b.c, false, log)
	if noKey != nil && b.key != "" {
		return noKey
	}
	if strings.HasPrefix(b.to, "s3://") {
		err = b.upload(ctx, d)
	} else {
		err = b.writeFile(ctx, d)
	}
	if err != nil {
		return err
	}
	if noKey != nil {
		fmt.Fprintf(b.e.errOut, "the backup is made, but look for the key: %v\n", noKey)
	}
	return d.SetFact(ctx, db.FactLastBackup, b.manifest.MadeAt.Format(time.RFC3339))
}

func (b *savedArchive) writeFile(ctx context.Context, d *db.DB) error {
	if _, err := os.Lstat(b.to); !b.force && err == nil {
		return fmt.Errorf("%s exists; choose another name, or use --force to replace it", b.to)
	}
	return writeWhole(b.to, func(f *os.File) error {
		return b.write(ctx, d, f, filepath.Dir(b.to))
	})
}

// upload writes the archive into a bucket. The bucket shows the object only when it is complete.
func (b *savedArchive) upload(ctx context.Context, d *db.DB) (err error) {
	bucket, key, err := blob.OpenObject(ctx, b.to)
	if err != nil {
		return err
	}
	defer bucket.Close()
	if !b.force {
		if found, err := bucket.Has(ctx, key); err != nil {
			return fmt.Errorf("look for %s in the bucket: %w", key, err)
		} else if found {
			return fmt.Errorf("the bucket has an object %s; choose another key, or use --force to replace it", key)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := b.write(ctx, d, w, b.c.DataDir)
		w.CloseWithError(err)
		written <- err
	}()
	_, err = bucket.PutLarge(ctx, key, r)
	r.CloseWithError(errors.New("the upload has ended"))
	if err != nil {
		cancel()
	}
	// If writing failed first, the upload failed because of it.
	if failed := <-written; failed != nil && (err == nil || errors.Is(err, failed)) {
		return failed
	}
	if err != nil {
		return fmt.Errorf("upload the backup: %w", err)
	}
	return nil
}

// write writes the archive to w. It creates temporary files in dir.
func (b *savedArchive) write(ctx context.Context, d *db.DB, w io.Writer, dir string) error {
	a, err := archive.NewWriter(w, b.passphrase, dir)
	if err != nil {
		return err
	}
	if err = b.fill(ctx, d, a, dir); err != nil {
		return errors.Join(fmt.Errorf("back up %s: %w", b.c.DataDir, err), a.Discard())
	}
	if err := a.Close(b.manifest); err != nil {
		return fmt.Errorf("finish the backup: %w", err)
	}
	return nil
}

// fill adds the key, the database and the blobs to the archive.
func (b *savedArchive) fill(ctx context.Context, d *db.DB, a *archive.Writer, dir string) (err error) {
	if b.key != "" {
		if _, err := a.Add(b.key, archive.Key); err != nil {
			return err
		}
	}
	blobs, err := blob.Open(ctx, b.c.BlobURL)
	if err != nil {
		return fmt.Errorf("open blob_url: %w", err)
	}
	defer blobs.Close()
	held, err := blobs.Hold(ctx)
	if errors.Is(err, blob.ErrNoFolder) {
		fmt.Fprintln(b.e.errOut, "the backup does not contain the blobs, because they are in a bucket; "+
			"copy them with the bucket's own tools")
		b.manifest.InBucket = true
		return b.addDatabase(ctx, d, a, dir)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Release()) }()
	if err := b.addDatabase(ctx, d, a, dir); err != nil {
		return err
	}
	return held.Each(ctx, func(file blob.File) error {
		size, err := a.Add(file.Path, archive.BlobFolder+file.Name)
		if errors.Is(err, fs.ErrNotExist) {
			return ctx.Err() // the blob was moved, so Each lists it again at its new path
		}
		if err != nil {
			return fmt.Errorf("copy blob %s: %w", file.Name, err)
		}
		b.manifest.Blobs++
		b.manifest.BlobSize += size
		return ctx.Err()
	})
}

// copyLife is the time after which the copy of a database is that of a backup that was killed.
const copyLife = 48 * time.Hour

// removeOldCopies deletes what backups that were killed have left: copies of the database, which are not encrypted.
func removeOldCopies(dir string) error {
	old, err := filepath.Glob(filepath.Join(dir, ".postrider-backup-*"))
	if err != nil {
		return err
	}
	for _, name := range old {
		info, err := os.Lstat(name)
		if err != nil || time.Since(info.ModTime()) < copyLife {
			continue // another backup may be using it
		}
		if err := os.Remove(name); err != nil {
			return fmt.Errorf("remove the copy of a backup that was killed: %w", err)
		}
	}
	return nil
}

// addDatabase adds a snapshot of the database to the archive, and describes the snapshot in the manifest.
func (b *savedArchive) addDatabase(ctx context.Context, d *db.DB, a *archive.Writer, dir string) (err error) {
	if err := removeOldCopies(dir); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".postrider-backup-*.db") // mode 0600
	if err != nil {
		return fmt.Errorf("create a file for the copy of the database: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	if err := f.Close(); err != nil {
		return err
	}
	m := &b.manifest
	m.Program, m.HasKey, m.MadeAt = Version, b.key != "", db.Now().Truncate(time.Second)
	if err := d.Snapshot(ctx, f.Name()); err != nil {
		return fmt.Errorf("copy the database: %w", err)
	}
	if m.Tables, err = db.CountRows(ctx, f.Name()); err != nil {
		return err
	}
	if m.KeyCheck, err = db.FactOfFile(ctx, f.Name(), db.FactKeyCheck); err != nil {
		return err
	}
	if m.Schema, err = d.Schema(ctx); err != nil {
		return err
	}
	b.dbSize, err = a.Add(f.Name(), archive.Database)
	return err
}

// report prints what the archive contains.
func (b *savedArchive) report() error {
	m, out := b.manifest, b.e.out
	if b.e.json {
		return encode(out, struct {
			To            string     `json:"to"`
			MadeAt        *time.Time `json:"made_at"`
			DatabaseBytes int64      `json:"database_bytes"`
			Blobs         int64      `json:"blobs"`
			BlobBytes     int64      `json:"blob_bytes"`
			InBucket      bool       `json:"blobs_in_bucket"` // and therefore not in the archive
			Encrypted     bool       `json:"encrypted"`
			HasKey        bool       `json:"has_secret_key"`
		}{withoutQuery(b.to), moment(m.MadeAt), b.dbSize, m.Blobs, m.BlobSize, m.InBucket, b.passphrase != "", b.key != ""})
	}
	fmt.Fprintf(out, "wrote %s: the database (%d bytes) and %d blobs (%d bytes), as of %s\n", withoutQuery(b.to), b.dbSize,
		m.Blobs, m.BlobSize, m.MadeAt.Format(time.RFC3339))
	if b.passphrase != "" {
		fmt.Fprintln(out, "it is encrypted: without the passphrase, it cannot be restored")
	}
	switch {
	case b.key != "" && b.passphrase == "":
		fmt.Fprintln(out, "the secret key is in it: anybody who has the file can decrypt the secrets in it")
	case b.key != "":
		fmt.Fprintln(out, "the secret key is in it")
	case b.c.SecretKey != "":
		fmt.Fprintf(out, keepKey, "the setting secret_key")
	default:
		fmt.Fprintf(out, keepKey, filepath.Join(b.c.DataDir, archive.Key))
	}
	return nil
}

// withoutQuery returns a URL without its parameters.
func withoutQuery(where string) string {
	short, _, _ := strings.Cut(where, "?")
	return cmp.Or(short, where)
}
