package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// Limits of what is good enough.
const (
	clockWarning  = 5 * time.Second
	clockFailure  = time.Minute
	diskWarning   = 0.1
	diskFailure   = 0.03
	diskFull      = 32 << 20 // bytes; a node accepts no emails if less is free
	commitWarning = 200 * time.Millisecond
	oldestServer  = 15 // major version of PostgreSQL; version 14 had its last release in November 2026
)

// Clock compares the clock of this machine with others.
type Clock struct {
	Database *time.Duration // the clock of PostgreSQL minus that of this machine; nil with SQLite, or if it is unknown
	World    *time.Duration // the clock of another server minus that of this machine; nil if it is unknown
	URL      string         // of the other server
	Problem  string         // why World is unknown
}

// Disk is the file system of a folder of this node.
type Disk struct {
	Setting          string // data_dir or blob_url
	Folder           string
	Err              error
	Free, Size       uint64 // bytes
	FreeFiles, Files uint64 // inodes; Files is 0 if the file system has no fixed number of them
}

// Database is the state of the database.
type Database struct {
	Place   string // where it is, without a password
	Err     error  // it cannot be opened or read
	Damaged bool   // whether Err means that SQLite's file is damaged
	Version string // of the server, or of SQLite
	Major   int    // major version of PostgreSQL; 0 for SQLite
	Schema  error  // the program and the migrations do not belong together
	Moved   string // the database to which the installation was moved; "" if it was not
	Commit  time.Duration
	Commits error // no change can be committed
}

// Key is the state of the secret key.
type Key struct {
	Place     string      // the file, or the setting secret_key
	Err       error       // the key is missing, cannot be used, or is another one
	FileMode  fs.FileMode // permissions of the file if other users can read or change it; otherwise 0
	Unknown   bool        // the database has no value to compare the key with, or cannot be read
	Folder    string      // of the file; "" if the key is in the setting
	FolderErr error
	Mode      fs.FileMode // permissions of the folder
}

// SecretFile is a file of the operator with a secret.
type SecretFile struct {
	Setting, Path string
	Mode          fs.FileMode // permissions of the file if other users can read or change it; otherwise 0
}

// Backup is what is known of backups.
type Backup struct {
	Last   time.Time // zero if no backup was recorded
	Began  time.Time // of the installation; zero if unknown
	Alone  bool      // with SQLite, whose backups this program makes
	MaxAge time.Duration
}

func checkClock(f *Facts) []Finding {
	database, world := one{id: "clock.database"}, one{id: "clock.world"}
	if d := f.Clock.Database; d != nil {
		database.checkOffset("PostgreSQL", *d)
	}
	switch {
	case f.Clock.World != nil:
		world.checkOffset(f.Clock.URL, *f.Clock.World)
	case f.Clock.URL != "":
		world.add(NotChecked, f.Clock.URL, "The clock of another server is not known: "+f.Clock.Problem+".",
			"Set doctor_clock_url to a web server that this machine can reach.")
	}
	return append(database.all, world.all...)
}

// checkOffset judges by how much the clock of this machine differs from another one.
func (o *one) checkOffset(from string, offset time.Duration) {
	way := "behind"
	if offset < 0 {
		way = "ahead of"
	}
	text := fmt.Sprintf("The clock of this machine is %s %s that of %s.", offset.Abs().Round(time.Second), way, from)
	effect := " Signatures, links, one-time codes and certificates contain times, so others may refuse them."
	advice := "Synchronize the clock, for example with chrony or systemd-timesyncd."
	switch {
	case offset.Abs() >= clockFailure:
		o.add(Failure, from, text+effect, advice)
	case offset.Abs() > clockWarning:
		o.add(Warning, from, text+effect, advice)
	default:
		o.ok(from, "The clocks differ by less than %s.", clockWarning)
	}
}

func checkDisks(f *Facts) []Finding {
	space, files := one{id: "disk.space"}, one{id: "disk.files"}
	for _, d := range f.Disks {
		subject := d.Setting + " " + d.Folder
		if errors.Is(d.Err, fs.ErrNotExist) && d.Setting == "blob_url" && f.Blobs != nil {
			continue // the finding blobs is about it
		}
		if d.Err != nil {
			space.add(Failure, subject, "The disk cannot be measured: "+d.Err.Error()+".", "Check that the folder exists, "+
				"and run doctor as the user of the node.")
			continue
		}
		space.checkShare(subject, "bytes", d.Free, d.Size, "Free some space, enlarge the disk, or keep data for a shorter "+
			"time (email_retention).", d.Free < diskFull)
		if d.Files > 0 {
			files.checkShare(subject, "inodes", d.FreeFiles, d.Files, "Delete files on this disk, or create a file system "+
				"with more inodes.", false)
		}
	}
	return append(space.all, files.all...)
}

// checkShare judges how much of a disk is free.
func (o *one) checkShare(subject, unit string, free, size uint64, advice string, full bool) {
	share := float64(free) / float64(max(size, 1))
	text := fmt.Sprintf("%.1f %% of the %s are free", 100*share, unit)
	if unit == "bytes" {
		text += fmt.Sprintf(" (%d MB)", free>>20)
	}
	effect := ". When the disk is full, the node accepts no emails and cannot record deliveries."
	switch {
	case full || share < diskFailure:
		o.add(Failure, subject, text+effect, advice)
	case share < diskWarning:
		o.add(Warning, subject, text+effect, advice)
	default:
		o.ok(subject, "%s.", text)
	}
}

// Blobs is the store of raw messages and attachments.
type Blobs struct {
	Place string // blob_url without its parameters
	Err   error  // no blob can be stored and read
}

func checkBlobs(f *Facts) []Finding {
	o := one{id: "blobs"}
	switch b := f.Blobs; {
	case b == nil:
		return nil
	case b.Err != nil:
		o.add(Failure, b.Place, "The files of emails cannot be stored and read: "+sentence(b.Err)+" Emails with attachments "+
			"wait or are refused.", "Check blob_url, that the folder or the bucket exists, and that the user of the node may "+
			"write there.")
	default:
		o.ok(b.Place, "A blob can be stored and read.")
	}
	return o.all
}

func checkDatabase(f *Facts) []Finding {
	version, schema, commit := one{id: "database.version"}, one{id: "database.schema"}, one{id: "database.commit"}
	d := &f.Database
	if d.Err != nil && d.Damaged {
		version.add(Failure, d.Place, "The file of the database is damaged: "+sentence(d.Err)+" The node does not start with it.",
			"Stop the node, move postrider.db, postrider.db-wal and postrider.db-shm to another folder, and restore the last "+
				"backup. Without one, `sqlite3 postrider.db .recover` saves what can be read (docs/operating/backup-and-restore.md).")
		return version.all
	}
	if d.Err != nil {
		version.add(Failure, d.Place, "The database cannot be used: "+sentence(d.Err), "Check the settings data_dir and "+
			"database_url, and that the database runs.")
		return version.all
	}
	if d.Major > 0 && d.Major < oldestServer {
		version.add(Warning, d.Place, d.Version+" gets no more security fixes.",
			fmt.Sprintf("Upgrade PostgreSQL to version %d or later.", oldestServer))
	} else {
		version.ok(d.Place, "%s answers.", d.Version)
	}
	if d.Schema != nil {
		schema.add(Warning, d.Place, "The tables are not those of this program: "+d.Schema.Error()+".",
			"Run `postrider migrate`, or start the node with this program.")
	} else {
		schema.ok(d.Place, "The tables are those of this program.")
	}
	switch {
	case d.Moved != "":
		commit.add(NotChecked, d.Place, "This installation was moved to "+d.Moved+", so nothing is written here.",
			"Set database_url to that database.")
	case d.Schema != nil:
		commit.add(NotChecked, d.Place, "Nothing is written to tables of another program.", "See the finding "+
			"database.schema.")
	case d.Commits != nil:
		commit.add(Failure, d.Place, "No change can be committed: "+sentence(d.Commits)+" The node accepts no emails.",
			"If the database is a standby, set database_url to the primary. Otherwise, check its disk and its log.")
	case d.Commit > commitWarning:
		commit.add(Warning, d.Place, fmt.Sprintf("A commit takes %s. Each email waits for a few commits.",
			d.Commit.Round(time.Millisecond)), "Use a disk with a faster fsync, or a database in the same data center.")
	default:
		commit.ok(d.Place, "A commit takes %s.", d.Commit.Round(10*time.Microsecond))
	}
	return append(append(version.all, schema.all...), commit.all...)
}

func checkKey(f *Facts) []Finding {
	key, folder := one{id: "secret_key"}, one{id: "secret_key.folder"}
	k := &f.Key
	switch {
	case k.FileMode != 0:
		key.add(Failure, k.Place, fmt.Sprintf("Other users of this machine can read or change the file (mode %04o). Somebody "+
			"who has read the key can decrypt the secrets in the database.", k.FileMode.Perm()), "Run `chmod 600 "+k.Place+
			"`; the next start of the node does so too. If somebody may have read the key, replace it with `postrider keys "+
			"rotate-master`.")
	case k.Err != nil:
		text := k.Err.Error()
		key.add(Failure, k.Place, "The secret key cannot be used: "+strings.TrimSuffix(text, ".")+". The node does not "+
			"start, and its emails stay queued.", "Put the key of this installation there. Your copy of the key, another "+
			"node, or an archive of `postrider backup --with-key` has it.")
	case k.Unknown && f.Database.Err != nil:
		key.add(NotChecked, k.Place, "The database cannot be used, so the key cannot be compared with its value.",
			"See the finding database.version.")
	case k.Unknown:
		key.add(NotChecked, k.Place, "The database has no value to compare the key with.", "Start the node once.")
	default:
		key.ok(k.Place, "The secret key is the one of this installation.")
	}
	switch {
	case k.Folder == "":
	case k.FolderErr != nil:
		folder.add(NotChecked, k.Folder, "The folder of the key cannot be examined.", "Run doctor as the user of the node.")
	case k.Mode.Perm()&0o077 != 0:
		folder.add(Warning, k.Folder, fmt.Sprintf("Other users of this machine can read or change the folder (mode %04o).",
			k.Mode.Perm()), "Run `chmod 700 "+k.Folder+"`.")
	default:
		folder.ok(k.Folder, "Only its owner can read the folder.")
	}
	return append(key.all, folder.all...)
}

func checkSecretFiles(f *Facts) []Finding {
	o := one{id: "secret_files"}
	for _, s := range f.Secrets {
		if subject := s.Setting + " " + s.Path; s.Mode != 0 {
			o.add(Warning, subject, fmt.Sprintf("Other users of this machine can read or change the file (mode %04o).",
				s.Mode.Perm()), "Run `chmod g-w,o= "+s.Path+"`. If somebody may have read the secret in it, replace the secret.")
		} else {
			o.ok(subject, "No other users can read or change the file, except that its group may read it.")
		}
	}
	return o.all
}

func checkBackup(f *Facts) []Finding {
	o := one{id: "backup"}
	b := f.Backup
	const subject = "last backup"
	advice := "Run `postrider backup` regularly. After a backup by another program, run `postrider backup " +
		"--done-elsewhere`."
	switch {
	case b == nil:
		return nil
	case b.MaxAge == 0:
		o.add(NotChecked, subject, "alert_backup_age is 0s.", "")
	case b.Last.IsZero() && !b.Alone:
		o.add(NotChecked, subject, "PostgreSQL's own programs make the backups, and none was recorded.", advice)
	case b.Last.IsZero() && !b.Began.IsZero() && f.Now.Sub(b.Began) <= b.MaxAge:
		o.add(NotChecked, subject, "The installation is new and has no backup yet.", advice)
	case b.Last.IsZero():
		o.add(Failure, subject, "There is no backup of this installation. If the disk fails, all data is lost.", advice)
	case f.Now.Sub(b.Last) > b.MaxAge:
		o.add(Failure, subject, fmt.Sprintf("The last backup was made %s ago; alert_backup_age is %s.",
			ago(f.Now.Sub(b.Last)), b.MaxAge), "Look at the program that should make backups. "+advice)
	default:
		o.ok(subject, "The last backup was made %s ago.", ago(f.Now.Sub(b.Last)))
	}
	return o.all
}
