package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestHelp asks each command and subcommand for help. Help goes to standard output, names the command, and needs
// neither an API key nor a data folder.
func TestHelp(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "none")
	p := &installation{t: t, dir: dir, vars: map[string]string{"GOGC": "100", "POSTRIDER_DATA_DIR": dir}}
	help := func(args ...string) string {
		t.Helper()
		out, errOut, code := p.command(args...)
		if code != 0 || errOut != "" || !strings.Contains(out, args[0]) || strings.Contains(out, "unknown command") ||
			!strings.Contains(strings.ToLower(out), "use") {
			t.Errorf("postrider %q: exit code %d, printed\n%s\nand said\n%s", args, code, out, errOut)
		}
		return out
	}
	found := 0
	for _, c := range commands() {
		text := help(c.name, "--help")
		for _, flag := range []string{"-h", "-help", "help"} {
			if c.name == "backup" && flag == "help" {
				continue // the name of a file
			}
			if again := help(c.name, flag); again != text {
				t.Errorf("postrider %s %s differs from --help:\n%s", c.name, flag, again)
			}
		}
		var verbs []string
		for _, of := range regexp.MustCompile(`postrider `+c.name+` +([a-z]+)\b`).FindAllStringSubmatch(text, -1) {
			verbs = append(verbs, of[1])
		}
		slices.Sort(verbs)
		for _, verb := range slices.Compact(verbs) {
			found++
			for _, flag := range []string{"--help", "-h"} {
				if text := help(c.name, verb, flag); !strings.Contains(text, "postrider "+c.name+" "+verb) {
					t.Errorf("the help of %s %s does not say how to use it:\n%s", c.name, verb, text)
				}
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d subcommands were found", found)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("help creates the data folder")
	}
	p.refused("give FILE directly after import", "contacts", "import")
	p.refused("give FILE directly after import", "contacts", "import", "--segment", "x", "a.csv")
}
