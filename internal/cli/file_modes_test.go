package cli

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Files that a node and commands create in data_dir are readable only by their owner, even if data_dir already existed
// and was accessible to all users.
func TestDataIsPrivate(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(os.Chmod(p.dir, 0o755))
		check := func(when string) {
			t.Helper()
			seen := 0
			err := filepath.WalkDir(p.dir, func(path string, e fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				info, err := e.Info()
				if err != nil {
					return err
				}
				if seen++; info.Mode().Perm()&0o077 != 0 {
					t.Errorf("%s, %s has mode %v", when, strings.TrimPrefix(path, p.dir), info.Mode())
				}
				return nil
			})
			if err != nil || seen < 2 && p.vars["POSTRIDER_DATABASE_URL"] == "" {
				t.Errorf("%d files, %v", seen, err)
			}
		}
		key := p.key("Acme")
		check("after a command")
		n := p.start()
		email := strings.TrimSuffix(hello, "}") + `,"attachments":[{"filename":"a.txt","content":"aGVsbG8="}]}`
		if status, body := n.ask(key, http.MethodPost, "/emails", email); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		eventually(t, "the email is captured", func() bool {
			all, err := n.Outbox.All(t.Context())
			return err == nil &&
				len(all) == 1
		})
		check("while the node runs")

		// Files in data_dir may be readable by other users if an older version or a copy command created them.
		open := func() {
			t.Helper()
			must(filepath.WalkDir(p.dir, func(path string, e fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				mode := os.FileMode(0o644)
				if e.IsDir() {
					mode = 0o755
				}
				if strings.Contains(e.Name(), "=") || e.Name() == "probe" {
					return nil // a blob, protected by its folder's mode
				}
				return os.Chmod(path, mode)
			}))
		}
		open()
		p.must("teams", "list")
		for _, name := range []string{"", "postrider.db", "postrider.db-wal", "postrider.db-shm", "secret.key"} {
			info, err := os.Stat(filepath.Join(p.dir, name))
			if err == nil && info.Mode().Perm()&0o077 != 0 {
				t.Errorf("after a command, %q has mode %v", name, info.Mode())
			}
		}
		n.end()
		open()
		p.start()
		check("after a new start")
	})
}
