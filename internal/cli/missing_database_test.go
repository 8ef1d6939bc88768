package cli

import (
	"os"
	"strings"
	"testing"
)

// A command that needs an installation does not create one if data_dir is wrong. Otherwise, an erasure would report
// that it found nothing.
func TestMissingDatabase(t *testing.T) {
	t.Parallel()
	p := &installation{t: t, dir: t.TempDir(), vars: map[string]string{}}
	p.vars["POSTRIDER_DATA_DIR"] = p.dir
	for _, command := range []string{"storage", "jobs", "audit list", "teams list", "teams delete Acme --yes",
		"keys list --team Acme", "users list", "emails erase a@one.example",
		"emails delete 0190f6a1-0000-7000-8000-00000000000a --team Acme", "export contacts --team Acme"} {
		p.refused("set data_dir to the directory of the node", strings.Fields(command)...)
	}
	p.refused("", "backup", t.TempDir()+"/backup.tar")
	if made, err := os.ReadDir(p.dir); err != nil || len(made) > 0 {
		t.Errorf("the directory has %v, %v", made, err)
	}
	p.must("keys", "create", "--team", "Acme")
	p.must("teams", "list")
}
