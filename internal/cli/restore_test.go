package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/blob/blobtest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// sqliteInstallation returns an installation with SQLite in a new folder.
func sqliteInstallation(t *testing.T) *installation {
	t.Helper()
	p := emptyInstallation(t)
	dbtest.WriteSQLite(t, filepath.Join(p.dir, "postrider.db"))
	p.secretKey()
	return p
}

// emptyInstallation returns a folder without a database.
func emptyInstallation(t *testing.T) *installation {
	t.Helper()
	p := &installation{t: t, dir: filepath.Join(t.TempDir(), "data")}
	p.vars = map[string]string{"GOGC": "100", "POSTRIDER_DATA_DIR": p.dir}
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return p
}

// withFile sends an email with an attachment, and returns its id.
func (n *started) withFile(key string) string {
	n.t.Helper()
	return n.made(key, "/emails", `{"from":"onboarding@resend.dev","to":"bob@example.net","subject":"s","text":"t",
		"attachments":[{"filename":"a.txt","content":"aGVsbG8="}]}`)
}

// file returns the content of the email's attachment.
func (n *started) file(key, id string) string {
	n.t.Helper()
	var list struct {
		Data []struct {
			DownloadURL string `json:"download_url"`
		}
	}
	_, text := n.ask(key, http.MethodGet, "/emails/"+id+"/attachments", "")
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list.Data) != 1 {
		n.t.Fatalf("the files of email %s: %s", id, text)
	}
	r, err := http.Get(list.Data[0].DownloadURL)
	if err != nil {
		n.t.Fatal(err)
	}
	defer r.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r.Body); err != nil {
		n.t.Fatal(err)
	}
	return b.String()
}

// An archive in a file or in a bucket, encrypted or not, contains a running installation.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	p := sqliteInstallation(t)
	n := p.start()
	key := p.key("Acme")
	id := n.withFile(key)
	bucket := strings.Replace(blobtest.New(t).URL, "s3://mail?", "s3://mail/nightly/one.tar?", 1)
	plain := filepath.Join(t.TempDir(), "plain.tar")
	secret := filepath.Join(t.TempDir(), "secret.tar.age")
	phrase := filepath.Join(t.TempDir(), "phrase")
	if err := os.WriteFile(phrase, []byte("correct horse\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := time.Now().Truncate(time.Second)
	p.must("backup", plain)
	if at, err := time.Parse(time.RFC3339, p.fact(db.FactLastBackup)); err != nil || at.Before(before) {
		t.Errorf("the last backup was at %v, %v", at, err)
	}
	p.must("backup", "--with-key", "--passphrase-file", phrase, secret)
	p.must("backup", bucket)
	p.refused("choose another key", "backup", bucket)
	p.must("backup", "--force", bucket)
	if left, err := filepath.Glob(filepath.Join(p.dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("the backups left %v, %v", left, err)
	}
	n.end()

	for _, from := range []string{plain, secret, bucket} {
		q := emptyInstallation(t)
		if from != secret {
			q.refused("the secret key of this installation is missing", "restore", from)
			q.secretKey()
		}
		if from == secret {
			q.vars["POSTRIDER_BACKUP_PASSPHRASE"] = "correct horse"
		}
		if out := q.must("restore", from); !strings.Contains(out, " blobs (") {
			t.Errorf("restore of %s says %s", from, out)
		}
		if text, err := os.ReadFile(filepath.Join(q.dir, "secret.key")); err != nil || string(text) != testSecretKey {
			t.Errorf("the secret key is %q, %v", text, err)
		}
		if log := q.logOfOpening(); strings.Contains(log, "not closed in order") {
			t.Errorf("the restored database is checked again: %s", log)
		}
		q.refused("is not empty", "restore", from)
		n := q.start()
		if got := n.file(key, id); got != "hello" {
			t.Errorf("the file restored from %s is %q", from, got)
		}
		n.end()
	}
}

// logOfOpening opens and closes the database, and returns what the database logs.
func (p *installation) logOfOpening() string {
	p.t.Helper()
	var log bytes.Buffer
	d, err := db.Open(p.t.Context(), db.Options{URL: node.DatabaseURL(p.config()),
		Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		p.t.Fatal(err)
	}
	d.Close()
	return log.String()
}

// A key file that others may read is corrected. If another key is given than the one of the backup, and the backup has
// the right one, the error says so.
func TestRestoreWithKey(t *testing.T) {
	t.Parallel()
	p := sqliteInstallation(t)
	p.must("migrate") // stores the check value of the key
	saved := filepath.Join(t.TempDir(), "saved.tar")
	p.must("backup", "--with-key", saved)
	q := emptyInstallation(t)
	file := filepath.Join(q.dir, "secret.key")
	if err := os.WriteFile(file, []byte(strings.Repeat("6f", 32)), 0o644); err != nil {
		t.Fatal(err)
	}
	q.refused("which contains the right key: move "+file+" to another place", "restore", saved)
	q.vars["POSTRIDER_SECRET_KEY"] = strings.Repeat("6f", 32)
	q.refused("which contains the right key: remove the setting secret_key", "restore", saved)
	delete(q.vars, "POSTRIDER_SECRET_KEY")
	if err := errors.Join(os.WriteFile(file, []byte(testSecretKey), 0o600), os.Chmod(file, 0o644)); err != nil {
		t.Fatal(err)
	}
	q.must("restore", saved)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode of the key is %v, %v", info.Mode(), err)
	}
}

// fact returns a fact about the installation.
func (p *installation) fact(name string) string {
	p.t.Helper()
	value, err := dbtest.Open(p.t, node.DatabaseURL(p.config())).Fact(p.t.Context(), name)
	if err != nil {
		p.t.Fatal(err)
	}
	return value
}

func TestBackupDoneElsewhere(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		p.must("backup", "--done-elsewhere")
		if _, err := time.Parse(time.RFC3339, p.fact(db.FactLastBackup)); err != nil {
			t.Error(err)
		}
		p.refused("takes no file", "backup", "--done-elsewhere", "x.tar")
	})
}

// A restore that cannot succeed changes nothing, and says why.
func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	p := sqliteInstallation(t)
	key := p.key("Acme")
	n := p.start()
	n.withFile(key)
	n.end()
	saved := filepath.Join(t.TempDir(), "saved.tar")
	p.vars["POSTRIDER_BACKUP_PASSPHRASE"] = "correct horse"
	p.must("backup", saved+".age")
	delete(p.vars, "POSTRIDER_BACKUP_PASSPHRASE")
	p.must("backup", saved)
	whole, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(whole)
	at := bytes.LastIndex(damaged, []byte("hello"))
	copy(damaged[at:], "HELLO")
	for name, text := range map[string][]byte{"cut": whole[:len(whole)*2/3], "damaged": damaged, "none": []byte("no tar")} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(saved), name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	q := emptyInstallation(t)
	q.secretKey()
	in := func(name string) string { return filepath.Join(filepath.Dir(saved), name) }
	q.refused("--passphrase-file", "restore", saved+".age")
	q.vars["POSTRIDER_BACKUP_PASSPHRASE"] = "wrong horse"
	q.refused("the passphrase is not the one", "restore", saved+".age")
	q.refused("is not encrypted, although a passphrase was given", "restore", saved)
	delete(q.vars, "POSTRIDER_BACKUP_PASSPHRASE")
	q.refused("incomplete", "restore", in("cut"))
	q.refused("is damaged", "restore", in("damaged"))
	q.refused("nothing was restored", "restore", in("none"))
	q.refused("no such file", "restore", in("missing"))
	q.vars["POSTRIDER_SECRET_KEY"] = strings.Repeat("6f", 32)
	q.refused("is not the one of this installation", "restore", saved)
	delete(q.vars, "POSTRIDER_SECRET_KEY")
	if left, err := os.ReadDir(q.dir); err != nil || len(left) != 2 { // secret.key and lock
		t.Errorf("left are %v, %v", left, err)
	}
	q.vars["POSTRIDER_DATABASE_URL"] = "postgres://nobody@127.0.0.1:1/none"
	q.refused("pg_restore", "restore", saved)
	delete(q.vars, "POSTRIDER_DATABASE_URL")
	q.must("restore", saved)
}

// A node does not start with a half-done restore, and the restore can be repeated.
func TestHalfDoneRestore(t *testing.T) {
	t.Parallel()
	p := sqliteInstallation(t)
	saved := filepath.Join(t.TempDir(), "saved.tar")
	p.must("backup", saved)
	q := emptyInstallation(t)
	q.secretKey()
	for _, left := range []string{node.RestoreFolder + "/blobs/aa", "blobs/aa"} {
		if err := os.MkdirAll(filepath.Join(q.dir, left), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(q.dir, node.RestoreFolder, "postrider.db"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"serve", "--http-listen", "127.0.0.1:0"}, {"migrate"}} {
		q.refused("was not finished", command...)
	}
	q.must("restore", saved)
	if _, err := os.Stat(filepath.Join(q.dir, node.RestoreFolder)); err == nil {
		t.Error("the folder of the restore remains")
	}
	q.start()
	q.refused("another node uses the folder", "restore", saved)
}
