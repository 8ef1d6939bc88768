package e2e

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// releaseData is the folder with the data of each tagged release. `make release-data` makes the folder of a release.
const releaseData = "../testdata/upgrade"

// savedNames are the files with the data: an archive of `postrider backup`, and an output of pg_dump.
var savedNames = map[string]string{"sqlite": "sqlite.tar.gz", "postgres": "postgres.sql.gz"}

const (
	expectedSuffix = ".expected.json" // end of the name of the file with the objects that the API returned

	// releaseSecret is the secret key of the saved data.
	releaseSecret = "72656c656173652072656c656173652072656c656173652072656c656173652e"
)

// TestReleaseData starts this program with the data of each tagged release, and with data that this program has saved.
// make release-data names a folder in which the data stays, and an older program that saves it.
func TestReleaseData(t *testing.T) {
	t.Parallel()
	tagged, err := filepath.Glob(filepath.Join(releaseData, "v*"))
	if err != nil {
		t.Fatal(err)
	}
	program, own := cmp.Or(os.Getenv("POSTRIDER_OLD_PROGRAM"), binary), os.Getenv("POSTRIDER_SAVE_RELEASE")
	if own == "" {
		own = t.TempDir()
	}
	if err := os.MkdirAll(own, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, engine := range []string{"sqlite", "postgres"} {
		saveRelease(t, program, engine, own)
		for _, dir := range append(slices.Clone(tagged), own) {
			t.Run(engine+" of "+filepath.Base(dir), func(t *testing.T) { upgradeRelease(t, engine, dir) })
		}
	}
}

// saveRelease creates objects of every kind with a program, and saves its data.
func saveRelease(t *testing.T, program, engine, dir string) {
	t.Helper()
	env := []string{"POSTRIDER_SECRET_KEY=" + releaseSecret}
	url := ""
	if engine == "postgres" {
		url = dbtest.EmptyPostgresURL(t)
		env = append(env, "POSTRIDER_DATABASE_URL="+url)
	}
	n := prepare(t, program, env, "--data-dir", filepath.Join(t.TempDir(), "data"))
	n.launch()
	text, err := json.MarshalIndent(n.fill(), "", "\t")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, engine+expectedSuffix), text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	n.stop()
	var saved []byte
	if engine == "postgres" {
		saved, err = exec.Command("pg_dump", "--no-owner", "--no-privileges", url).Output()
	} else {
		file := filepath.Join(t.TempDir(), "saved.tar")
		c := exec.Command(program, "backup", file)
		c.Env = append(environ(), append(env, "POSTRIDER_DATA_DIR="+n.dir())...)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		saved, err = os.ReadFile(file)
	}
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	w.Write(saved)
	w.Close()
	if err := os.WriteFile(filepath.Join(dir, savedNames[engine]), packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// upgradeRelease starts this program with saved data, and checks that the API returns the saved objects.
func upgradeRelease(t *testing.T, engine, dir string) {
	packed, err := os.Open(filepath.Join(dir, savedNames[engine]))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	r, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	saved, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, engine+expectedSuffix))
	var b before
	if err == nil {
		err = json.Unmarshal(text, &b)
	}
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"POSTRIDER_SECRET_KEY=" + releaseSecret}
	data := filepath.Join(t.TempDir(), "data")
	if engine == "postgres" {
		url := dbtest.EmptyPostgresURL(t)
		env = append(env, "POSTRIDER_DATABASE_URL="+url)
		load := exec.Command("psql", "--quiet", "--set", "ON_ERROR_STOP=1", url)
		load.Stdin = bytes.NewReader(saved)
		if out, err := load.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	} else {
		file := filepath.Join(t.TempDir(), "saved.tar")
		if err := os.WriteFile(file, saved, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, errOut, err := command(t, slices.Concat(env, []string{"POSTRIDER_DATA_DIR=" + data}), "restore",
			file); err != nil {
			t.Fatalf("%v\n%s", err, errOut)
		}
	}
	n := prepare(t, binary, env, "--data-dir", data)
	n.launch()
	n.has(b)
}
