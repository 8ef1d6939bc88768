package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/lib/fileperm"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/archive"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/keyring"
)

func restoreCommand() command {
	return command{use: "restore FILE", group: groupSafety, source: ofNode,
		short: "unpack a backup into an empty data_dir",
		long: "Unpacks a backup into the data folder (data_dir), which must be empty, but may contain secret.key. It " +
			"refuses a backup whose secret key is missing, and checks the database and every file. FILE is a file, or an " +
			"object such as s3://BUCKET/KEY?region=REGION.",
		example: "postrider restore /var/backups/postrider-2026-01-31.tar",
		usual:   []string{"config", "data-dir", "blob-url", "secret-key", "log-level"},
		define: func(flags *pflag.FlagSet) runner {
			secret := flags.String(passphraseFlag, "",
				"`file` whose first line is the passphrase of the backup (default: "+passphraseVariable+")")
			return withSettings(func(ctx context.Context, e *env, c config.Config, words []string) error {
				return restore(ctx, e, c, words[0], *secret)
			})
		}}
}

// restore unpacks a backup into an empty data folder.
//
// The files first go into a folder within data_dir, which keeps nodes from starting. When the archive was read whole,
// and its database and checksums were found right, the files are moved to their places, the database last. A restore
// that was killed at any instant can therefore be run again.
func restore(ctx context.Context, e *env, c config.Config, from, passphraseFile string) (err error) {
	if c.DatabaseURL != "" {
		return errors.New("database_url: this command restores SQLite only; restore PostgreSQL with the tool that made its " +
			"backup, such as pg_restore or pgBackRest")
	}
	r := &restoration{e: e, c: c, from: from, parts: filepath.Join(c.DataDir, node.RestoreFolder)}
	if r.passphrase, err = e.passphrase(passphraseFile); err != nil {
		return err
	}
	if err := r.prepare(); errors.Is(err, errRestored) {
		return e.done(struct {
			Earlier bool   `json:"earlier_restore_complete"`
			DataDir string `json:"data_dir"`
		}{true, c.DataDir}, "the earlier restore was complete but for the removal of its folder, which is removed now")
	} else if err != nil {
		return err
	}
	defer r.lock.Close()
	if err := r.run(ctx); err != nil {
		return r.explain(err)
	}
	return r.report()
}

// restoration is a restore in progress.
type restoration struct {
	e          *env
	c          config.Config
	from       string // file name or URL of an object
	passphrase string
	parts      string // folder of the files until they are complete
	lock       *node.Lock

	blobs    *blob.Store
	hasKey   bool // whether the archive contains a key
	moving   bool // whether the files are complete and being moved to their places
	counted  int64
	manifest archive.Manifest
}

// prepare checks that data_dir is empty, and locks it. It removes what an earlier restore has left.
func (r *restoration) prepare() error {
	if err := fileperm.Dir(r.c.DataDir); err != nil {
		return fmt.Errorf("prepare data_dir: %w", err)
	}
	if err := r.mendKey(); err != nil {
		return err
	}
	lock, err := node.LockFolder(r.c)
	if err != nil {
		return err
	}
	r.lock = lock
	if err := r.checkEmpty(); err != nil {
		lock.Close()
		return err
	}
	return nil
}

// mendKey makes the secret key readable only by its owner. A copy often has the mode of the place that it comes from.
func (r *restoration) mendKey() error {
	key := filepath.Join(r.c.DataDir, archive.Key)
	info, err := os.Stat(key)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return nil // a key that is needed and cannot be read is reported later
	}
	if err := fileperm.Mend(key); err != nil {
		return fmt.Errorf("prepare data_dir: %w", err)
	}
	fmt.Fprintf(r.e.errOut, "other users of this machine could read or change %s until now (mode %04o)\n", key,
		info.Mode().Perm())
	return nil
}

// errRestored means that an earlier restore was killed after its last step but one, the removal of its folder.
var errRestored = errors.New("the earlier restore was complete")

func (r *restoration) checkEmpty() error {
	if fileperm.Exists(filepath.Join(r.c.DataDir, archive.Database)) && fileperm.Exists(r.parts) &&
		!fileperm.Exists(filepath.Join(r.parts, archive.Database)) {
		if err := os.RemoveAll(r.parts); err != nil {
			return fmt.Errorf("remove the folder of the earlier restore: %w", err)
		}
		return errRestored
	}
	left, err := os.ReadDir(r.c.DataDir)
	if err != nil {
		return fmt.Errorf("read data_dir: %w", err)
	}
	var names []string
	for _, f := range left {
		names = append(names, f.Name())
	}
	mine := []string{"lock", archive.Key, "lost+found", filepath.Base(config.DefaultFile)}
	if slices.Contains(names, node.RestoreFolder) && !slices.Contains(names, archive.Database) {
		// The blobs are of the earlier restore, because a restore begins only in an empty folder.
		mine = append(mine, node.RestoreFolder, "blobs")
	}
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(mine, name) })
	if len(names) > 0 {
		return fmt.Errorf("data_dir: the folder %s is not empty (it has %s): restore into an empty folder, or move what is "+
			"there to another place; only %s may be in it", r.c.DataDir, strings.Join(names, ", "), archive.Key)
	}
	return nil
}

func (r *restoration) run(ctx context.Context) (err error) {
	if err := r.begin(ctx); err != nil {
		return err
	}
	defer r.blobs.Close()
	in, closeIn, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer closeIn()
	if r.manifest, err = archive.Read(in, r.passphrase, r.parts, func(name string, size int64, in io.Reader) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return r.unpack(ctx, name, size, in)
	}); err != nil {
		return err
	}
	if err := r.check(ctx); err != nil {
		return err
	}
	return r.finish()
}

// begin makes an empty folder for the files. Its presence keeps nodes from starting.
func (r *restoration) begin(ctx context.Context) (err error) {
	if r.ownBlobs() { // from an earlier restore that was killed while it moved them
		if err := os.RemoveAll(filepath.Join(r.c.DataDir, "blobs")); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(r.parts); err != nil {
		return fmt.Errorf("remove what an earlier restore has left: %w", err)
	}
	if err := os.Mkdir(r.parts, 0o700); err != nil {
		return fmt.Errorf("create a folder for the restore: %w", err)
	}
	if err := syncFolder(r.c.DataDir); err != nil {
		return err
	}
	where := r.c.BlobURL
	if r.ownBlobs() {
		where = filepath.Join(r.parts, "blobs")
	}
	if r.blobs, err = blob.Open(ctx, where); err != nil {
		return fmt.Errorf("open blob_url: %w", err)
	}
	return nil
}

// ownBlobs reports whether the blobs are in data_dir. Blobs for another place are stored there at once, because their
// keys do not collide with others.
func (r *restoration) ownBlobs() bool {
	place, err := filepath.Abs(strings.TrimPrefix(r.c.BlobURL, "file://"))
	own, err2 := filepath.Abs(filepath.Join(r.c.DataDir, "blobs"))
	return err == nil && err2 == nil && place == own
}

// open opens the archive.
func (r *restoration) open(ctx context.Context) (io.Reader, func(), error) {
	if !strings.HasPrefix(r.from, "s3://") {
		f, err := os.Open(r.from)
		if err != nil {
			return nil, nil, fmt.Errorf("open the backup: %w", err)
		}
		return f, func() { f.Close() }, nil
	}
	bucket, key, err := blob.OpenObject(ctx, r.from)
	if err != nil {
		return nil, nil, err
	}
	in, err := bucket.Get(ctx, key)
	if err != nil {
		bucket.Close()
		return nil, nil, fmt.Errorf("open the backup: %w", err)
	}
	return in, func() { in.Close(); bucket.Close() }, nil
}

// unpack stores a file of the archive.
func (r *restoration) unpack(ctx context.Context, name string, size int64, in io.Reader) error {
	switch {
	case name == archive.Key:
		r.hasKey = true
		return r.writeFile(name, size, in)
	case name == archive.Database:
		if err := r.writeFile(name, size, in); err != nil {
			return err
		}
		// The key is checked before the blobs, which may take hours.
		return r.checkKey(ctx)
	case strings.HasPrefix(name, archive.BlobFolder):
		key, err := blob.KeyOf(strings.TrimPrefix(name, archive.BlobFolder))
		if err != nil {
			return fmt.Errorf("the backup has the file %q, which is no blob: %w", name, err)
		}
		n, err := r.blobs.Put(ctx, key, in)
		if err == nil && n != size {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("restore %s: %w", name, err)
		}
		r.counted++
		return nil
	}
	return fmt.Errorf("the backup has a file %q, which no backup of Postrider contains", name)
}

// writeFile writes a file of the archive into the folder of the restore.
func (r *restoration) writeFile(name string, size int64, in io.Reader) (err error) {
	f, err := os.OpenFile(filepath.Join(r.parts, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, in)
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("restore %s: %w", name, err)
	}
	return nil
}

// checkKey returns an error unless the secret key of the database is in the archive, or is configured.
func (r *restoration) checkKey(ctx context.Context) error {
	path := filepath.Join(r.parts, archive.Database)
	want, err := db.FactOfFile(ctx, path, db.FactKeyCheck)
	if err != nil {
		return fmt.Errorf("read the database of the backup: %w", err)
	}
	if moved, err := db.FactOfFile(ctx, path, db.FactMovedTo); err != nil {
		return err
	} else if moved != "" {
		return fmt.Errorf("the backup was made after the installation had been moved to %s, so it does not start any more: "+
			"restore an earlier backup, or use that database", moved)
	}
	given := filepath.Join(r.c.DataDir, archive.Key)
	_, err = os.Stat(given)
	if r.hasKey && r.c.SecretKey == "" && errors.Is(err, fs.ErrNotExist) {
		given = filepath.Join(r.parts, archive.Key)
		if k, err := keyring.Load(given); err != nil || want != "" && !k.Matches(want) {
			return errors.Join(errors.New("the secret key in the backup is not the one of its database"), err)
		}
		return nil
	}
	err = node.CheckKey(r.c, want)
	own, noKey := keyring.Load(filepath.Join(r.parts, archive.Key))
	if err != nil && noKey == nil && (want == "" || own.Matches(want)) {
		remedy := "remove the setting secret_key"
		if r.c.SecretKey == "" {
			remedy = "move " + given + " to another place"
		}
		return fmt.Errorf("the given secret key is not the one of this backup, which contains the right key: %s, and run "+
			"the command again", remedy)
	}
	return err
}

// check compares the database with the manifest, and checks it for damage.
func (r *restoration) check(ctx context.Context) error {
	path := filepath.Join(r.parts, archive.Database)
	if _, err := os.Stat(path); err != nil {
		return errors.New("the backup has no database")
	}
	if err := db.CheckFile(ctx, path); err != nil {
		return err
	}
	counts, err := db.CountRows(ctx, path)
	if err != nil {
		return err
	}
	for table, n := range r.manifest.Tables {
		if counts[table] != n {
			return fmt.Errorf("the database is damaged: its table %s has %d rows, and the manifest says %d", table,
				counts[table], n)
		}
	}
	if r.counted != r.manifest.Blobs {
		return fmt.Errorf("the backup is damaged: it has %d blobs, and its manifest says %d", r.counted, r.manifest.Blobs)
	}
	return db.CheckFileProgram(ctx, path)
}

// finish moves the files to their places. A folder with the database and without the folder of the restore is a whole
// installation.
func (r *restoration) finish() error {
	move := []string{archive.Database}
	if _, err := os.Stat(filepath.Join(r.c.DataDir, archive.Key)); r.hasKey && r.c.SecretKey == "" &&
		errors.Is(err, fs.ErrNotExist) {
		move = slices.Insert(move, 0, archive.Key)
	}
	if r.ownBlobs() {
		move = slices.Insert(move, 0, "blobs")
	}
	if err := syncFolder(r.parts); err != nil {
		return err
	}
	r.moving = true
	for _, name := range move {
		if err := os.Rename(filepath.Join(r.parts, name), filepath.Join(r.c.DataDir, name)); err != nil {
			return fmt.Errorf("move %s to its place: %w", name, err)
		}
		if err := syncFolder(r.c.DataDir); err != nil {
			return err
		}
	}
	db.MarkChecked(filepath.Join(r.c.DataDir, archive.Database))
	if err := os.RemoveAll(r.parts); err != nil {
		return fmt.Errorf("the restore is complete, but its folder remains; delete %s: %w", r.parts, err)
	}
	return syncFolder(r.c.DataDir)
}

// explain adds what to do to an error, and removes the files of the failed restore.
func (r *restoration) explain(err error) error {
	if r.moving {
		return fmt.Errorf("%w; run the command again, which begins anew", err)
	}
	what := "nothing was restored"
	if e := os.RemoveAll(r.parts); e != nil {
		what = fmt.Sprintf("nothing was restored; delete %s, which could not be removed (%v)", r.parts, e)
	}
	switch {
	case errors.Is(err, blob.ErrFull), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		what += ": free space, or restore to a larger disk"
	case errors.Is(err, archive.ErrNeedsPassphrase):
		what += fmt.Sprintf(": give its passphrase with --%s or %s", passphraseFlag, passphraseVariable)
	case errors.Is(err, archive.ErrNotEncrypted):
		what += ": if you know that this is your backup, run the command without the passphrase"
	case errors.Is(err, archive.ErrNoManifest):
		what += ": a backup of an older release has none; unpack it with `tar -xf`, as that release's manual describes"
	}
	return fmt.Errorf("%w; %s", err, what)
}

// report prints what was restored, and what will happen to it.
func (r *restoration) report() error {
	m, out := r.manifest, r.e.out
	if r.e.json {
		return encode(out, struct {
			MadeAt    *time.Time `json:"made_at"`
			Program   string     `json:"program"`
			DataDir   string     `json:"data_dir"`
			Blobs     int64      `json:"blobs"`
			BlobBytes int64      `json:"blob_bytes"`
			InBucket  bool       `json:"blobs_in_bucket"` // and therefore not restored
		}{moment(m.MadeAt), m.Program, r.c.DataDir, m.Blobs, m.BlobSize, m.InBucket})
	}
	fmt.Fprintf(out, "restored the backup of %s (Postrider %s) to %s: the database is intact, and %d blobs (%d bytes) are "+
		"as they were\n", m.MadeAt.Format(time.RFC3339), m.Program, r.c.DataDir, m.Blobs, m.BlobSize)
	if m.InBucket {
		fmt.Fprintln(out, "the backup has no blobs, because they are in a bucket: blob_url must name that bucket or a copy")
	}
	fmt.Fprintln(out, "emails that were waiting will be sent when a node starts with the role delivery; "+
		"docs/operating/backup-and-restore.md says what to consider first")
	return nil
}

// syncFolder syncs a folder, so that the names in it survive a power failure.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
