package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// dir returns the node's data folder, taken from its command-line arguments.
func (n *node) dir() (dir string) {
	for i, a := range n.args {
		if a == "--data-dir" {
			dir = n.args[i+1]
		}
	}
	return dir
}

// in starts a node in an existing folder.
func in(t *testing.T, dir string, env ...string) *node {
	t.Helper()
	return start(t, env, "--data-dir", dir)
}

// stop interrupts the program with SIGINT and waits until it exits.
func (n *node) stop() {
	n.t.Helper()
	if err := n.cmd.Process.Signal(os.Interrupt); err != nil {
		n.t.Fatal(err)
	}
	if err := n.cmd.Wait(); err != nil {
		n.t.Errorf("the program ended with %v\n%s", err, n.out)
	}
}

// TestBackupAndRestore backs up a busy node and restores it as docs/operating/backup-and-restore.md describes. The
// restored node contains everything that was accepted before the backup, and its waiting jobs continue.
func TestBackupAndRestore(t *testing.T) {
	n := in(t, filepath.Join(t.TempDir(), "data"))
	n.addDomain("acme.example")
	const file = `"attachments":[{"filename":"a.txt","content":"aGVsbG8="}]`
	accepted := map[string]bool{}
	send := func(more string) {
		var sent struct{ ID string }
		n.must(http.MethodPost, "/emails", `{"from":"a@acme.example","to":"b@one.example","subject":"s","text":"t",`+more+`}`,
			&sent)
		accepted[sent.ID] = true
	}
	for range 20 {
		send(file)
	}
	send(file + `,"scheduled_at":"in 1 hour"`)

	saved := filepath.Join(t.TempDir(), "backup.tar")
	env := []string{"POSTRIDER_DATA_DIR=" + n.dir()}
	n.backsUpWhileSending(t, env, saved, file)
	restored := filepath.Join(t.TempDir(), "data")
	restoreBackup(t, saved, restored, filepath.Join(n.dir(), "secret.key"))
	n.kill()
	r := in(t, restored, "POSTRIDER_LOG_LEVEL=info")
	states := map[string]string{}
	for email := range accepted {
		var got struct {
			ID        string
			LastEvent string `json:"last_event"`
		}
		r.must(http.MethodGet, "/emails/"+email, "", &got)
		states[got.ID] = got.LastEvent
		var files struct {
			Data []struct {
				DownloadURL string `json:"download_url"`
			}
		}
		r.must(http.MethodGet, "/emails/"+email+"/attachments", "", &files)
		if len(files.Data) != 1 {
			t.Fatalf("email %s has %d files", email, len(files.Data))
		}
		if content, _ := get(t, files.Data[0].DownloadURL, http.StatusOK); content != "hello" {
			t.Errorf("the file of %s is %q", email, content)
		}
	}
	scheduled := 0
	for email, state := range states {
		if state != "scheduled" {
			continue
		}
		scheduled++
		r.must(http.MethodPatch, "/emails/"+email, `{"scheduled_at":"`+time.Now().Add(time.Second).UTC().Format(time.RFC3339)+
			`"}`, nil)
	}
	if scheduled != 1 {
		t.Errorf("%d emails wait for their time", scheduled)
	}
	eventually(t, 30*time.Second, "all is delivered", func() bool {
		for email := range accepted {
			var got struct {
				LastEvent string `json:"last_event"`
			}
			if r.must(http.MethodGet, "/emails/"+email, "", &got); got.LastEvent != "delivered" {
				return false
			}
		}
		return true
	})
	if strings.Contains(r.out.String(), "not closed in order") {
		t.Error("the node checks the database again that restore has checked")
	}
	if _, errOut, err := command(t, []string{"POSTRIDER_DATA_DIR=" + restored}, "backup", "--with-key", saved+
		"2"); err != nil {
		t.Errorf("a backup with the key: %s%v", errOut, err)
	}
	if out, err := exec.Command("tar", "-tf", saved+"2").CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "secret.key") {
		t.Errorf("a backup with the key has %s, %v", out, err)
	}
}

// backsUpWhileSending runs a backup while the node accepts more emails, and checks the command's error messages.
func (n *node) backsUpWhileSending(t *testing.T, env []string, saved, file string) {
	t.Helper()
	done := make(chan error)
	go func() {
		_, errOut, err := command(t, env, "backup", saved)
		if err != nil {
			err = fmt.Errorf("%w: %s", err, errOut)
		}
		done <- err
	}()
	var err error
	for working := true; working; {
		select {
		case err = <-done:
			working = false
		default:
			var sent struct{ ID string }
			n.must(http.MethodPost, "/emails", `{"from":"a@acme.example","to":"b@one.example","subject":"s","text":"t",`+file+
				`}`, &sent)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(saved)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the backup has mode %v, %v", info.Mode(), err)
	}
	if _, errOut, err := command(t, env, "backup", saved); err == nil || !strings.Contains(errOut, "exists") {
		t.Errorf("a backup over another: %s%v", errOut, err)
	}
	if out, errOut, err := command(t, env, "backup", "--force", saved); err != nil ||
		!strings.Contains(out, "secret key is not in it") {
		t.Errorf("a backup over another, by force: %s%s%v", out, errOut, err)
	}
	if names, err := filepath.Glob(filepath.Join(filepath.Dir(saved), "*")); err != nil || len(names) != 1 {
		t.Errorf("beside the backup: %v, %v", names, err)
	}
}

// restoreBackup restores a backup into a new folder, as docs/operating/backup-and-restore.md describes. Before, it kills some restores.
func restoreBackup(t *testing.T, saved, restored, key string) {
	t.Helper()
	run := func(name string, args ...string) {
		t.Helper()
		c := exec.Command(name, args...)
		c.Env = environ()
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	run("mkdir", "-m", "700", restored)
	run("cp", key, restored)
	args := []string{"restore", saved, "--data-dir", restored}
	start := time.Now()
	run(binary, args...)
	took := time.Since(start)
	const kills = 6
	for i := range kills {
		run("rm", "-r", restored)
		run("mkdir", "-m", "700", restored)
		run("cp", key, restored)
		c := exec.Command(binary, args...)
		c.Env = environ()
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(took*time.Duration(i+1)/kills, func() { c.Process.Kill() })
		if c.Wait() == nil {
			continue // the restore was faster than the kill
		}
		if _, err := os.Stat(filepath.Join(restored, "restoring")); err == nil {
			_, errOut, err := command(t, nil, "serve", "--data-dir", restored, "--http-listen", "127.0.0.1:0")
			if err == nil || !strings.Contains(errOut, "was not finished") {
				t.Errorf("a node starts on a half-done restore: %s%v", errOut, err)
			}
		}
		if _, err := os.Stat(filepath.Join(restored, "postrider.db")); err == nil {
			continue // the kill was later than the last step
		}
		run(binary, args...)
	}
}

// TestRestoreToAFullDisk: a restore for which the disk is too small says so, and leaves nothing. The small disk is in a
// name space of mounts, so that the test needs no root.
func TestRestoreToAFullDisk(t *testing.T) {
	n := in(t, filepath.Join(t.TempDir(), "data"))
	n.addDomain("acme.example")
	for range 3 {
		n.must(http.MethodPost, "/emails", `{"from":"a@acme.example","to":"b@one.example","subject":"s","text":"t",
			"attachments":[{"filename":"a.txt","content":"`+strings.Repeat("aGVsbG8h", 100_000)+`"}]}`, nil)
	}
	saved := filepath.Join(t.TempDir(), "backup.tar")
	if _, errOut, err := command(t, []string{"POSTRIDER_DATA_DIR=" + n.dir()}, "backup", "--with-key", saved); err != nil {
		t.Fatalf("%s%v", errOut, err)
	}
	const within = `mount -t tmpfs -o size="$1",mode=0700 tmpfs "$2" || exit 1
		"$3" restore "$4" --data-dir "$2" && echo restored
		echo "left: $(ls -A "$2")"`
	for _, size := range []string{"512k", "3m"} { // too small for the database, and for the blobs
		out, err := exec.CommandContext(t.Context(), "unshare", "--map-root-user", "--mount", "sh", "-c", within, "sh", size,
			t.TempDir(), binary, saved).CombinedOutput()
		if err != nil {
			t.Fatalf("mount a small file system, for which the test needs a name space of its own: %v\n%s", err, out)
		}
		if !strings.Contains(string(out), "free space, or restore to a larger disk") ||
			!strings.HasSuffix(string(out), "left: lock\n") {
			t.Errorf("a restore to a disk of %s: %s", size, out)
		}
	}
}

// TestStartLooksAtTheDatabase: a node checks its database when it starts after a kill, but not after a clean stop. A
// node refuses to start with a damaged database.
func TestStartLooksAtTheDatabase(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	n := in(t, dir, "POSTRIDER_LOG_LEVEL=info")
	n.addDomain("acme.example")
	for i := range 100 {
		n.must(http.MethodPost, "/emails",
			fmt.Sprintf(`{"from":"a@acme.example","to":"b%d@one.example","subject":"s","text":"%s"}`, i,
				strings.Repeat("x", 4000)), nil)
	}
	looked := func() bool { return strings.Contains(n.out.String(), "checking it for damage") }
	if looked() {
		t.Error("the first start looks")
	}
	n.kill()
	n.launch()
	eventually(t, 20*time.Second, "a start after a kill looks", looked) // what it logs may be read after its first answer
	n.stop()
	if n.launch(); looked() {
		t.Errorf("a start after a stop looks\n%s", n.out)
	}
	n.stop()
	path := filepath.Join(dir, "postrider.db")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const page = 8192 // a damaged half of a page may be a text, of which any bytes are valid
	for i := range page {
		whole[len(whole)/2/page*page+i] ^= 0x5a
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	_, errOut, err := command(t, nil, n.args...)
	if err == nil || !strings.Contains(errOut, "is damaged") || !strings.Contains(errOut, "restore the last backup") {
		t.Errorf("a node starts on a damaged database: %s%v", errOut, err)
	}
	n.cmd = nil
}

// TestBackupOfPostgreSQL: with PostgreSQL, `postrider backup` fails and its error names the right tools.
func TestBackupOfPostgreSQL(t *testing.T) {
	to := filepath.Join(t.TempDir(), "x.tar")
	_, errOut, err := command(t, []string{"POSTRIDER_DATABASE_URL=postgres://nobody@127.0.0.1:1/none"}, "backup", to)
	if err == nil || !strings.Contains(errOut, "pg_dump") {
		t.Errorf("it says %s%v", errOut, err)
	}
	if _, err := os.Stat(to); err == nil {
		t.Error("it has made a file")
	}
	_, errOut, err = command(t, []string{"POSTRIDER_DATA_DIR=" + t.TempDir()}, "backup", to)
	if err == nil || !strings.Contains(errOut, "create an installation") {
		t.Errorf("of an empty folder it says %s%v", errOut, err)
	}
}
