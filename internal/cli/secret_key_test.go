package cli

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// An installation works only with the secret key with which it began. A restore that forgets the key does not get a new
// one, with which the emails of all domains would stay in the queue.
func TestSecretKeyOfTheInstallation(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		p.start().end()
		file := filepath.Join(p.dir, "secret.key")
		right, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		commands := [][]string{{"serve", "--http-listen", "127.0.0.1:0"}, {"teams", "list"}}
		if p.vars["POSTRIDER_DATABASE_URL"] == "" {
			commands = append(commands, []string{"backup", t.TempDir() + "/b.tar", "--with-key"})
			defer func() {
				os.Remove(file)
				if _, said, code := p.command("migrate"); code == 0 || !strings.Contains(said, "is missing") {
					t.Errorf("migrate without the key: %d, %s", code, said)
				}
			}()
		} else {
			defer func() {
				os.Remove(file)
				p.must("migrate") // it may run on a machine without the key
			}()
		}

		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		for _, command := range commands {
			p.refused("the secret key of this installation is missing: put the key", command...)
		}
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a new key was made: %v", err)
		}

		if err := os.WriteFile(file, []byte(strings.Repeat("a", 64)), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, command := range commands {
			p.refused("the secret key in "+file+" is not the one", command...)
		}

		p.vars["POSTRIDER_SECRET_KEY"] = strings.TrimSpace(string(right))
		p.must("teams", "list")
		p.vars["POSTRIDER_SECRET_KEY"] = strings.Repeat("b", 64)
		p.refused("the setting secret_key is not the one", "teams", "list")

		delete(p.vars, "POSTRIDER_SECRET_KEY")
		if err := os.WriteFile(file, right, 0o600); err != nil {
			t.Fatal(err)
		}
		p.start().end()
		p.must("teams", "list")
	})
}

// The database of an installation that has teams but no check value yet, as after the restore of an older backup, gets
// no new key. A command decides on no key, because it may run in a wrong folder.
func TestNoKeyForAnInstallationWithTeams(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		file := filepath.Join(p.dir, "secret.key")
		p.key("Acme")
		d := dbtest.Open(t, node.DatabaseURL(p.config()))
		if kept, err := d.Fact(t.Context(), db.FactKeyCheck); kept != "" || err != nil {
			t.Errorf("a command has stored the check value %q, %v", kept, err)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		for _, command := range [][]string{{"teams", "list"}, {"serve", "--http-listen", "127.0.0.1:0"}} {
			p.refused("the secret key of this installation is missing", command...)
		}
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a new key was made: %v", err)
		}
	})
}

// The first start logs where it created the secret key, and that the operator must back it up. Later starts do not.
func TestCreatedKeyIsLogged(t *testing.T) {
	t.Parallel()
	p := emptyInstallation(t)
	var log bytes.Buffer
	p.log, p.vars["POSTRIDER_LOG_LEVEL"] = &log, "info"
	for _, want := range []int{1, 0} {
		log.Reset()
		p.start().end()
		if n := strings.Count(log.String(), "created the secret key of this installation; back it up"); n != want ||
			n > 0 && !strings.Contains(log.String(), "path="+filepath.Join(p.dir, "secret.key")) {
			t.Errorf("want %d such lines:\n%s", want, log.String())
		}
	}
	_, said, _ := emptyInstallation(t).command("migrate")
	if !strings.Contains(said, "back it up") {
		t.Errorf("migrate says %s", said)
	}
}
