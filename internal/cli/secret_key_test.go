package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An installation works only with the secret key with which it began. A restore that forgets the key does not get a new
// one, with which the emails of all domains would stay in the queue.
func TestSecretKeyOfTheInstallation(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		p.must("migrate")
		file := filepath.Join(p.dir, "secret.key")
		right, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		commands := [][]string{{"serve", "--http-listen", "127.0.0.1:0"}, {"teams", "list"}, {"migrate"}}

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
