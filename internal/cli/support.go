package cli

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
)

const supportIntroduction = `This archive describes an installation of Postrider, for somebody who helps to find a problem.

versions.txt  the program and the machine
settings.txt  the settings; a secret is only shown as set
database.txt  the database and its migrations
queue.txt     the number of waiting jobs by kind
errors.txt    the last errors of parked jobs
storage.txt   the sizes of tables, files and disks
log.txt       the last warnings and errors of the log, if a log was given

Secrets, email addresses and IP addresses are replaced. Read the files before you send the archive: texts of
other programs, such as the replies of mail hosts, may contain names.
`

// maxParked is the maximum number of parked jobs whose errors the archive has.
const maxParked = 200

func supportCommand() command {
	return command{use: "support FILE", group: groupInspect, source: ofNode,
		short: "collect what a report of a problem needs, without secrets",
		long: "Writes an archive that describes the installation: versions, settings, the queue, the last errors and " +
			"the sizes. Secrets and addresses are replaced. Read the archive before you send it.",
		example: "journalctl -u postrider -o cat | postrider support support.tar.gz --log -",
		define: func(flags *pflag.FlagSet) runner {
			logFile := flags.String("log", "", "`file` with the node's log, or - for the standard input, such as the output "+
				"of journalctl -u postrider -o cat")
			force := flags.Bool("force", false, "replace FILE if it exists")
			return withSettings(func(ctx context.Context, e *env, c config.Config, words []string) error {
				return support(ctx, e, c, words[0], *logFile, *force)
			})
		}}
}

// support writes an archive that describes the installation, without secrets and addresses. It works even if parts of
// the installation do not: the file of a part that cannot be read contains the error. support changes nothing, and
// needs no secret key.
func support(ctx context.Context, e *env, c config.Config, file, logFile string, force bool) error {
	if _, err := os.Lstat(file); !force && err == nil {
		return fmt.Errorf("%s exists; choose another name, or use --force to replace it", file)
	}
	r := newReport(c)
	r.files = append(r.files, reportFile{"versions.txt", versions()})
	r.files = append(r.files, reportFile{"settings.txt", []byte(r.mask.settings(settingsText(c)))})
	r.addDatabase(ctx, c, e)
	r.add("log.txt", func(w io.Writer) error { return writeLog(w, logFile) })
	if err := writeWhole(file, r.write); err != nil {
		return err
	}
	line := fmt.Sprintf("wrote %s: read it before you send it", file)
	if logFile == "" {
		line += "\nthe log is not in it: add --log FILE, or pipe the log to --log -"
	}
	return e.done(struct {
		File   string `json:"file"`
		HasLog bool   `json:"has_log"`
	}{file, logFile != ""}, line)
}

// report collects the files of the archive.
type report struct {
	mask  *masker
	files []reportFile
}

type reportFile struct {
	name string
	text []byte
}

func newReport(c config.Config) *report {
	r := &report{mask: newMasker(c)}
	r.files = []reportFile{{"README.txt", []byte(supportIntroduction)}}
	return r
}

// add adds a file. The file of a part that fails ends with the error.
func (r *report) add(name string, write func(io.Writer) error) {
	var text bytes.Buffer
	if err := write(&text); err != nil {
		fmt.Fprintf(&text, "\ncannot be read: %v\n", err)
	}
	r.files = append(r.files, reportFile{name, []byte(r.mask.text(text.String()))})
}

// write writes the archive.
func (r *report) write(f *os.File) error {
	z := gzip.NewWriter(f)
	t := tar.NewWriter(z)
	now := time.Now().Truncate(time.Second)
	for _, file := range r.files {
		h := &tar.Header{Name: "postrider-support/" + file.name, Mode: 0o600, Size: int64(len(file.text)), ModTime: now}
		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("write %s: %w", file.name, err)
		}
		if _, err := t.Write(file.text); err != nil {
			return fmt.Errorf("write %s: %w", file.name, err)
		}
	}
	if err := errors.Join(t.Close(), z.Close()); err != nil {
		return fmt.Errorf("finish the archive: %w", err)
	}
	return nil
}

// versions describes the program and the machine. The commit would look like a secret to the masker.
func versions() []byte {
	var w bytes.Buffer
	rsa := dkim.ChosenRSA()
	fmt.Fprintf(&w, "%s\nCPUs: %d, used: %d\nuser id: %d\nRSA signatures: %s (Go %v, libcrypto %v)\ntime: %s\n",
		readBuild(debug.ReadBuildInfo()), runtime.NumCPU(), runtime.GOMAXPROCS(0), os.Geteuid(), rsa.Implementation,
		rsa.Go, rsa.Libcrypto, time.Now().UTC().Format(time.RFC3339))
	for _, name := range []string{"/etc/os-release", "/proc/version", "/proc/meminfo", "/proc/loadavg", "/proc/uptime"} {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // on other systems than Linux
		}
		lines := strings.SplitN(string(text), "\n", 8)
		fmt.Fprintf(&w, "\n%s\n%s\n", name, strings.Join(lines[:min(len(lines), 7)], "\n"))
	}
	return w.Bytes()
}

func settingsText(c config.Config) string {
	var w strings.Builder
	for _, v := range config.Values(c) {
		fmt.Fprintf(&w, "%s = %s\n", v.Key, v.Text)
	}
	for _, label := range slices.Sorted(maps.Keys(c.Regions)) {
		fmt.Fprintf(&w, "regions.%s = %+v\n", label, c.Regions[label])
	}
	return w.String()
}

// addDatabase adds the files for which the database is read.
func (r *report) addDatabase(ctx context.Context, c config.Config, e *env) {
	var d *db.DB
	err := findSQLite(c)
	if err == nil {
		d, err = openDB(ctx, c, newLogger(c, e.errOut))
	}
	if err == nil {
		defer d.Close()
	}
	read := func(name string, write func(io.Writer) error) {
		r.add(name, func(w io.Writer) error {
			if err != nil {
				return err
			}
			return write(w)
		})
	}
	read("database.txt", func(w io.Writer) error { return writeDatabase(ctx, w, d) })
	read("queue.txt", func(w io.Writer) error { return writeQueue(ctx, w, d) })
	read("errors.txt", func(w io.Writer) error { return writeParked(ctx, w, d) })
	r.add("storage.txt", func(w io.Writer) error {
		writeDisks(w, c)
		if err != nil {
			return err
		}
		return writeSizes(ctx, w, d)
	})
}

func findSQLite(c config.Config) error {
	if c.DatabaseURL != "" {
		return nil
	}
	return findDatabase(c)
}

func writeDatabase(ctx context.Context, w io.Writer, d *db.DB) error {
	version, err := d.ServerVersion(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(w, version)
	applied, err := d.AppliedMigrations(ctx)
	if err != nil {
		return fmt.Errorf("read the applied migrations: %w", err)
	}
	for _, m := range applied {
		fmt.Fprintf(w, "%s  applied %s\n", m.Name, m.AppliedAt.UTC().Format(time.RFC3339))
	}
	return nil
}

func writeQueue(ctx context.Context, w io.Writer, d *db.DB) error {
	stats, err := jobs.Stats(ctx, d.Reader)
	if err != nil {
		return fmt.Errorf("count the jobs: %w", err)
	}
	printStats(w, stats)
	return nil
}

func writeParked(ctx context.Context, w io.Writer, d *db.DB) error {
	parked, err := jobs.LastParked(ctx, d.Reader, maxParked)
	if err != nil {
		return fmt.Errorf("read the parked jobs: %w", err)
	}
	for _, p := range parked {
		fmt.Fprintf(w, "%s  %s, created %s, %d consecutive failures\n  %s\n", p.ID, p.Kind,
			p.CreatedAt.UTC().Format(time.RFC3339), p.Failures, p.LastError)
	}
	return nil
}

func writeSizes(ctx context.Context, w io.Writer, d *db.DB) error {
	sizes, err := d.Sizes(ctx)
	if err != nil {
		return fmt.Errorf("read the sizes of the tables: %w", err)
	}
	fmt.Fprintln(w)
	for _, table := range slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		return cmp.Or(cmp.Compare(sizes[b], sizes[a]), cmp.Compare(a, b))
	}) {
		fmt.Fprintf(w, "%-32s %s\n", table, inBytes(sizes[table]))
	}
	return nil
}
