package gather

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/postrider/postrider/internal/lib/fileperm"
	"github.com/postrider/postrider/internal/node/doctor"
	"github.com/postrider/postrider/internal/platform/db"
)

// machine measures the disks, and examines the folder of the secret key.
func (c *collector) machine(context.Context) {
	for _, f := range c.Folders {
		d := doctor.Disk{Setting: f.Setting, Folder: f.Path}
		var s syscall.Statfs_t
		if err := syscall.Statfs(f.Path, &s); err != nil {
			d.Err = err
		} else {
			block := uint64(s.Bsize)
			d.Free, d.Size, d.FreeFiles, d.Files = s.Bavail*block, s.Blocks*block, s.Ffree, s.Files
		}
		c.f.Disks = append(c.f.Disks, d)
	}
	if file := c.Config.DestinationsFile; file != "" && c.Destinations != nil {
		c.f.Destinations = &doctor.Destinations{File: file, Err: c.Destinations()}
	}
	for _, f := range c.Config.SecretFiles() {
		c.f.Secrets = append(c.f.Secrets, doctor.SecretFile{Setting: f.Setting, Path: f.Path, Mode: fileperm.Exposed(f.Path)})
	}
	k := &c.f.Key
	k.Place, k.Err = c.KeyPlace, c.KeyErr
	if c.Config.SecretKey != "" {
		return
	}
	if info, err := os.Stat(k.Place); err == nil && info.Mode().Perm()&0o077 != 0 {
		k.FileMode = info.Mode()
	}
	k.Folder = filepath.Clean(c.Config.DataDir)
	info, err := os.Stat(k.Folder)
	if k.FolderErr = err; err == nil {
		k.Mode = info.Mode()
	}
}

// key finds out whether the database has a value with which the secret key was compared.
func (c *collector) key(ctx context.Context) {
	c.f.Key.Unknown = true
	if c.DB == nil {
		return
	}
	check, err := c.DB.Fact(ctx, db.FactKeyCheck)
	c.f.Key.Unknown = err != nil || check == ""
}

// blobs stores and reads a small blob.
func (c *collector) blobs(ctx context.Context) {
	if c.Blobs == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, blobTime)
	defer cancel()
	c.f.Blobs = &doctor.Blobs{Place: c.BlobPlace, Err: c.Blobs(ctx)}
}

// database examines the database, and measures the time of a commit.
func (c *collector) database(ctx context.Context) {
	d, b := &c.f.Database, &doctor.Backup{MaxAge: c.Config.AlertBackupAge}
	d.Place = c.Place
	if c.DB == nil {
		d.Err, d.Damaged = c.DBErr, db.IsDamaged(c.DBErr)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, databaseTime)
	defer cancel()
	b.Alone = c.DB.Alone()
	var err error
	if d.Version, err = c.DB.ServerVersion(ctx); err != nil {
		d.Err, d.Damaged = err, db.IsDamaged(err)
		return
	}
	if !b.Alone {
		d.Version, d.Major = serverVersion(d.Version)
	}
	d.Schema = c.DB.CheckProgram(ctx)
	if d.Moved, err = c.DB.Fact(ctx, db.FactMovedTo); err != nil {
		d.Err = err
		return
	}
	if d.Moved == "" && d.Schema == nil {
		d.Commit, d.Commits = c.commit(ctx)
	}
	if text, err := c.DB.Fact(ctx, db.FactLastBackup); err == nil {
		b.Last, _ = time.Parse(time.RFC3339, text)
		b.Began, _ = c.DB.Began(ctx)
		c.f.Backup = b
	}
}

// serverVersion shortens what PostgreSQL says of its version, and returns its major number.
func serverVersion(text string) (short string, major int) {
	words := strings.Fields(text)
	if len(words) < 2 {
		return text, 0
	}
	number, _, _ := strings.Cut(words[1], ".")
	major, _ = strconv.Atoi(number)
	return words[0] + " " + words[1], major
}

// commit returns the shortest time of a few small commits.
func (c *collector) commit(ctx context.Context) (best time.Duration, err error) {
	for i := range commits {
		began := time.Now()
		if err := c.DB.SetFact(ctx, db.FactCommitTest, strconv.FormatInt(began.UnixNano(), 10)); err != nil {
			if cause := db.Cause(err); cause != "" {
				err = errors.New(cause) // the text of the error itself is for users
			}
			return 0, err
		}
		if took := time.Since(began); i == 0 || took < best {
			best = took
		}
	}
	return best, nil
}
