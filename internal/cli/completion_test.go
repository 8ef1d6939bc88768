package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The shells complete commands, flags and values.
func TestCompletion(t *testing.T) {
	t.Parallel()
	p := &installation{t: t, vars: map[string]string{}}
	for _, c := range []struct {
		words []string // the last one is not complete
		want  []string
		not   string
	}{
		{[]string{"se"}, []string{"serve"}, "teams"},
		{[]string{"teams", ""}, []string{"create", "list", "delete"}, "serve"},
		{[]string{"serve", "--databa"}, []string{"--database-url", "--database-direct-url"}, "--data-dir"},
		{[]string{"serve", "--transport", ""}, []string{"direct", "relay", "capture"}, "day"},
		{[]string{"serve", "--roles", "api,"}, []string{"api,delivery", "api,jobs"}, "api,api"},
		{[]string{"users", "invite", "--role", ""}, []string{"owner", "viewer"}, ""},
		{[]string{"help", ""}, []string{"serve", "teams"}, ""},
		{[]string{"completion", ""}, []string{"bash", "zsh", "fish"}, ""},
	} {
		out, _, code := p.command(append([]string{"__complete"}, c.words...)...)
		var got []string
		for line := range strings.Lines(out) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			got = append(got, word)
		}
		for _, want := range c.want {
			if !slices.Contains(got, want) {
				t.Errorf("%q: %s is not among %q, exit code %d", c.words, want, got, code)
			}
		}
		if c.not != "" && slices.Contains(got, c.not) {
			t.Errorf("%q: %s is among %q", c.words, c.not, got)
		}
	}
}

// The scripts are valid for their shells. Bash is part of each machine that runs the tests.
func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	p := &installation{t: t, vars: map[string]string{}}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script := p.must("completion", shell)
		if !strings.Contains(script, "__complete") {
			t.Errorf("the script for %s does not ask the program:\n%.200s", shell, script)
		}
		program, err := exec.LookPath(shell)
		if err != nil && shell != "bash" {
			continue
		}
		file := filepath.Join(t.TempDir(), "script")
		if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(program, "-n", file).CombinedOutput(); err != nil {
			t.Errorf("%s -n: %v\n%s", shell, err, out)
		}
	}
}
