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

// The help of dev shows the defaults of dev, and the help of the other commands those of serve.
func TestHelpShowsTheDefaultsOfTheCommand(t *testing.T) {
	t.Parallel()
	p := &installation{t: t, dir: t.TempDir(), vars: map[string]string{"GOGC": "100"}}
	shown := func(command string) map[string]string {
		out, _, _ := p.command(command, "--help")
		all := map[string]string{}
		def := regexp.MustCompile(`(?m)^  -([a-z0-9-]+).*\n.*\(default ([^()]*)\)$`)
		for _, m := range def.FindAllStringSubmatch(out, -1) {
			all[strings.ReplaceAll(m[1], "-", "_")] = m[2]
		}
		return all
	}
	ofServe, ofDev := shown("serve"), shown("dev")
	if len(ofServe) < 50 {
		t.Fatalf("only %d defaults were found", len(ofServe))
	}
	for key, want := range devDefaults {
		if want == "" && ofServe[key] != "" {
			want = "empty"
		}
		if ofDev[key] != want {
			t.Errorf("dev --help says that %s is %q, want %q", key, ofDev[key], want)
		}
	}
	if got := ofDev["tracking_url"]; got != "public_url" {
		t.Errorf("dev --help says that tracking_url is %q", got)
	}
	for _, command := range []string{"serve", "migrate"} {
		for key, want := range map[string]string{"http_listen": ":8080", "data_dir": "data", "rate_limit": "10",
			"allow_loopback": "false", "smtp_submits_listen": ":465", "tracking_url": ""} {
			if got := shown(command)[key]; got != want {
				t.Errorf("%s --help says that %s is %q, want %q", command, key, got, want)
			}
		}
	}
}
