package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// eachCommand calls f for each command and subcommand with its words, such as "teams create".
func eachCommand(f func(path []string, d *command)) {
	var visit func(before []string, list []command)
	visit = func(before []string, list []command) {
		for i := range list {
			path := append(slices.Clone(before), list[i].name())
			f(path, &list[i])
			visit(path, list[i].sub)
		}
	}
	visit(nil, newProgram(newEnv(nil, nil, nil)).commands)
}

// TestHelp asks each command and subcommand for help. Help goes to standard output, says what the command does and how
// to use it with an example, and needs neither an API key nor a data folder.
func TestHelp(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "none")
	p := &installation{t: t, dir: dir, vars: map[string]string{"GOGC": "100", "POSTRIDER_DATA_DIR": dir}}
	help := func(args ...string) string {
		t.Helper()
		out, errOut, code := p.command(args...)
		if code != 0 || errOut != "" {
			t.Errorf("postrider %q: exit code %d, printed\n%s\nand said\n%s", args, code, out, errOut)
		}
		return out
	}
	found := 0
	overview := help()
	for _, args := range [][]string{{"help"}, {"--help"}, {"-h"}} {
		if again := help(args...); again != overview {
			t.Errorf("%q differs from no argument:\n%s", args, again)
		}
	}
	eachCommand(func(path []string, d *command) {
		found++
		name := "postrider " + strings.Join(path, " ")
		text := help(append(path, "--help")...)
		for _, args := range [][]string{append(slices.Clone(path), "-h"), append([]string{"help"}, path...)} {
			if again := help(args...); again != text {
				t.Errorf("postrider %q differs from %s --help:\n%s", args, name, again)
			}
		}
		if names, _ := d.words(); len(names) == 0 {
			if again := help(append(slices.Clone(path), "help")...); again != text {
				t.Errorf("%s help differs from --help:\n%s", name, again)
			}
		}
		if !strings.HasPrefix(text, wrapText(d.long, helpWidth)) || !strings.Contains(text, "\nUse: "+name) ||
			!strings.Contains(text, "\nExample:\n  ") || strings.Contains(text, "true|false") {
			t.Errorf("the help of %s lacks a part:\n%s", name, text)
		}
		if !strings.HasSuffix(d.long, ".") || d.short == "" || strings.HasSuffix(d.short, ".") {
			t.Errorf("%s: %q, %q", name, d.short, d.long)
		}
		for line := range strings.Lines(d.example) {
			if !strings.Contains(strings.TrimSpace(line)+" ", name+" ") {
				t.Errorf("the example %q is not of %s", line, name)
			}
		}
		if len(path) == 1 && !strings.Contains(overview, "\n  "+path[0]+" ") {
			t.Errorf("the overview lacks %s", path[0])
		}
		for line := range strings.Lines(text) {
			if len(line) > 121 {
				t.Errorf("the help of %s has a line of %d columns: %s", name, len(line), line)
			}
		}
	})
	if found < 50 {
		t.Errorf("only %d commands were found", found)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("help creates the data folder")
	}
}

// The help shows about ten settings, and all of them with --all.
func TestHelpShowsFewSettings(t *testing.T) {
	t.Parallel()
	p := &installation{t: t, vars: map[string]string{}}
	settings := regexp.MustCompile(`(?m)^      --[a-z0-9-]+`)
	eachCommand(func(path []string, d *command) {
		if d.source == nil || d.define == nil {
			return
		}
		_, few, ok := strings.Cut(p.must(append([]string{"help"}, path...)...), "\nSettings")
		n := len(settings.FindAllString(few, -1))
		if usual := d.usual; usual == nil && n != len(usualFlags) || usual != nil && n != len(usual) || !ok || n > 12 {
			t.Errorf("the help of %q shows %d settings:\n%s", path, n, few)
		}
		for _, args := range [][]string{append([]string{"help", "--all"}, path...), append(slices.Clone(path), "--all", "-h")} {
			if n := len(settings.FindAllString(p.must(args...), -1)); n < 80 {
				t.Errorf("%q shows %d flags", args, n)
			}
		}
	})
}

// The help of dev shows the defaults of dev, and the help of the other commands those of serve.
func TestHelpShowsTheDefaultsOfTheCommand(t *testing.T) {
	t.Parallel()
	p := &installation{t: t, dir: t.TempDir(), vars: map[string]string{"GOGC": "100"}}
	shown := func(command string) map[string]string {
		out := regexp.MustCompile(`\n {15,}`).ReplaceAllString(p.must(command, "--help", "--all"), " ")
		all := map[string]string{}
		def := regexp.MustCompile(`(?m)^ +--([a-z0-9-]+) .*\(default ([^()]*)\)$`)
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

// An error in the arguments is one line on standard error and one that names the help, with exit code 2.
func TestUsageErrors(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "none")
	p := &installation{t: t, dir: dir, vars: map[string]string{"POSTRIDER_DATA_DIR": dir}}
	for _, c := range []struct{ args, want string }{
		{"sevre", `postrider: unknown command "sevre"; did you mean serve?`},
		{"quux", `postrider: unknown command "quux"`},
		{"serve --databse-url x", "postrider serve: unknown flag --databse-url; did you mean --database-url?"},
		{"serve --databse-url=x", "postrider serve: unknown flag --databse-url; did you mean --database-url?"},
		{"serve -data-dir x", "postrider serve: unknown flag -data-dir; did you mean --data-dir?"},
		{"serve --quux", "postrider serve: unknown flag --quux"},
		{"serve now", `postrider serve: unexpected argument "now": put values with spaces in quotes`},
		{"serve --data-dir", "postrider serve: --data-dir needs a value"},
		{"serve --acme true", `postrider serve: unexpected argument "true": write --acme=true`},
		{"teams delete Acme --yes false", `postrider teams delete: unexpected argument "false": write --yes=false`},
		{"serve --acme now", `postrider serve: unexpected argument "now": put values with spaces in quotes`},
		{"serve --all", "postrider serve: --all belongs to the help: postrider serve --help --all"},
		{"teams", "postrider teams: the subcommand is missing: create, list, show, members, rename, suspend, resume, " +
			"limit, retention, delete"},
		{"teams craete", `postrider teams: unknown subcommand "craete"; did you mean create?`},
		{"jobs retri", `postrider jobs: unknown subcommand "retri"; did you mean retry?`},
		{"teams rename", "postrider teams rename: TEAM and NAME are missing"},
		{"teams rename Acme", "postrider teams rename: NAME is missing"},
		{"teams create Acme Ltd", `postrider teams create: unexpected argument "Ltd": put values with spaces in quotes`},
		{"teams limit Acme --rate many", `postrider teams limit: --rate: "many" is not a whole number; write it as --rate 10`},
		{"keys create --sending=maybe", `postrider keys create: --sending: "maybe" is neither true nor false`},
		{"keys create --tam Acme", "postrider keys create: unknown flag --tam; did you mean --team?"},
		{"backup", "postrider backup: FILE is missing"},
		{"help teams craete", `postrider help: unknown subcommand "craete"; did you mean create?`},
		{"help serve now", `postrider help: serve has no subcommands`},
		{"help sevre", `postrider help: unknown command "sevre"; did you mean serve?`},
		{"completion bsh", `postrider completion: the shell "bsh" is not known; use bash, zsh or fish`},
	} {
		out, errOut, code := p.command(strings.Fields(c.args)...)
		said, hint, _ := strings.Cut(errOut, "\n")
		if code != 2 || out != "" || said != c.want || !strings.HasPrefix(hint, "For help: postrider help") ||
			strings.Count(errOut, "\n") != 2 {
			t.Errorf("postrider %s: exit code %d, printed %q, and said\n%swant\n%s", c.args, code, out, errOut, c.want)
		}
	}
	if _, errOut, _ := p.command("help", "sevre"); !strings.HasSuffix(errOut, "\nFor help: postrider help\n") {
		t.Errorf("of an unknown command, help says %q", errOut)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a usage error creates the data folder")
	}
}
