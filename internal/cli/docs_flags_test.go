package cli

import (
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/lib/config"
)

// documents returns the README and all documents by their path in the repository.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	files := os.DirFS("../..")
	read := func(name string) {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	read("README.md")
	err := fs.WalkDir(files, "docs", func(name string, _ fs.DirEntry, err error) error {
		if err == nil && path.Ext(name) == ".md" {
			read(name)
		}
		return err
	})
	if err != nil || len(all) < 50 {
		t.Fatalf("%d documents, error %v", len(all), err)
	}
	return all
}

var (
	fencedCode = regexp.MustCompile("(?ms)^ *```(\\w*)\n(.*?)^ *```$")
	inlineCode = regexp.MustCompile("`([^`]+)`")
)

// codeIn returns the lines of the code blocks for shells in a document, and the texts in code style. A line that ends
// with a backslash is joined with the next one.
func codeIn(text string) (lines, styled []string) {
	text = fencedCode.ReplaceAllStringFunc(text, func(block string) string {
		m := fencedCode.FindStringSubmatch(block)
		if m[1] == "sh" || m[1] == "" {
			lines = append(lines, strings.Split(strings.ReplaceAll(m[2], "\\\n", " "), "\n")...)
		}
		return ""
	})
	for paragraph := range strings.SplitSeq(text, "\n\n") { // so that a single backtick spoils no other paragraph
		for _, m := range inlineCode.FindAllStringSubmatch(paragraph, -1) {
			styled = append(styled, strings.Join(strings.Fields(m[1]), " "))
		}
	}
	return lines, styled
}

// flagIn matches a flag in a word of a command, such as [--role.
var flagIn = regexp.MustCompile(`^\[?--([a-z][a-z0-9-]*)`)

// commandEnds are the words that end a command.
var commandEnds = []string{"|", "||", "&&", ";", ">", ">>", "<", "#", "&"}

// checkCommands checks the flags of all commands of the program in a line. It returns the number of these flags.
func (p *program) checkCommands(t *testing.T, document, line string) (checked int) {
	t.Helper()
	var c *cobra.Command // nil outside of a command
	named := false       // whether all words of the command's name were read
	for i, word := range strings.Fields(line) {
		bare := strings.Trim(word, "`'\"()[],.;")
		switch {
		case path.Base(bare) == "postrider" && !strings.HasPrefix(word, "-"):
			c, named = p.root, false
			continue
		case c == nil:
			continue
		case slices.Contains(commandEnds, word):
			c = nil
			continue
		}
		if m := flagIn.FindStringSubmatch(word); m != nil {
			if named = true; c == p.root {
				c = nil // such as an argument of another program whose last argument is called postrider
				continue
			}
			p.prepare(c)
			checked++
			if c.Flags().Lookup(m[1]) == nil && p.root.PersistentFlags().Lookup(m[1]) == nil {
				t.Errorf("%s: %s has no flag --%s: %s", document, c.CommandPath(), m[1], line)
			}
		} else if !named {
			child := childOf(c, bare)
			switch {
			case child != nil:
				c = child
			case c == p.root && i > 1:
				c = nil // such as the name of a user
			default:
				named = true
				if c == p.root && regexp.MustCompile(`^[a-z][a-z-]+$`).MatchString(word) {
					t.Errorf("%s: the program has no command %s: %s", document, word, line)
				}
			}
		}
		if strings.HasSuffix(word, ";") || strings.HasSuffix(word, ")") {
			c = nil
		}
	}
	return checked
}

// childOf returns the subcommand with a name, or nil.
func childOf(c *cobra.Command, name string) *cobra.Command {
	for _, child := range c.Commands() {
		if child.Name() == name {
			return child
		}
	}
	return nil
}

// flags returns the names of the flags of all commands.
func (p *program) flags() map[string]bool {
	all := map[string]bool{"help": true, "all": true, "version": true}
	for c := range p.known {
		p.prepare(c)
		c.Flags().VisitAll(func(f *pflag.Flag) { all[f.Name] = true })
	}
	return all
}

// Each command in the documents exists and has the flags with which the documents show it. A flag in code style without
// a command is a flag of some command.
func TestDocumentedFlags(t *testing.T) {
	t.Parallel()
	p := newProgram(newEnv(nil, io.Discard, io.Discard))
	flags := p.flags()
	checked := 0
	for document, text := range documents(t) {
		lines, styled := codeIn(text)
		for _, line := range slices.Concat(lines, styled) {
			checked += p.checkCommands(t, document, line)
		}
		for _, code := range styled {
			if m := flagIn.FindStringSubmatch(code); m != nil && !flags[m[1]] {
				t.Errorf("%s: no command has the flag --%s: %s", document, m[1], code)
			}
		}
	}
	if checked < 90 {
		t.Errorf("only %d flags were checked", checked)
	}
}

// readBy names the files that read variables in the documents that are no settings. The variables in placeholders look
// the same.
var readBy = map[string]string{
	"POSTRIDER_API_KEY":           "internal/cli/cli.go",
	"POSTRIDER_BACKUP_PASSPHRASE": "internal/cli/backup.go",
	"POSTRIDER_DUE_RECIPIENTS":    "e2e/automation_due_test.go",
	"POSTRIDER_FROM_KEY":          "internal/cli/doctor.go",
	"POSTRIDER_IMPORT_KEY":        "internal/cli/import_from.go",
	"POSTRIDER_PROMOTE_TO":        "internal/cli/promote.go",
	"POSTRIDER_TEST_POSTGRES":     "internal/platform/db/dbtest/postgres.go",
	"POSTRIDER_UNSUBSCRIBE_URL":   "internal/sending/render/render.go",
	"POSTRIDER_URL":               "docs/testing-emails.md", // read by the programs in this document
	"POSTRIDER_VERSION":           "deploy/compose/one/compose.yaml",
	"POSTRIDER_WAITING_JOBS":      "internal/platform/jobs/bench_test.go",
}

// ofRelay matches the variable with the password of a relay. Its name contains that of the relay.
var ofRelay = regexp.MustCompile(`^POSTRIDER_RELAY_[A-Z0-9_]+_PASSWORD$`)

// Each variable in the documents is a setting, or something reads it.
func TestDocumentedVariables(t *testing.T) {
	t.Parallel()
	settings := map[string]bool{}
	for _, f := range (config.Source{}).Flags() {
		settings["POSTRIDER_"+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))] = true
	}
	found := map[string]bool{}
	for document, text := range documents(t) {
		for _, name := range regexp.MustCompile(`POSTRIDER_[A-Z0-9_]*[A-Z0-9]`).FindAllString(text, -1) {
			found[name] = true
			if !settings[name] && readBy[name] == "" && !ofRelay.MatchString(name) {
				t.Errorf("%s: nothing reads the variable %s", document, name)
			}
		}
	}
	for name, file := range readBy {
		text, err := os.ReadFile(filepath.Join("../..", file))
		if err != nil || !strings.Contains(string(text), name) {
			t.Errorf("%s does not read %s, error %v", file, name, err)
		}
		if !found[name] {
			t.Errorf("no document has the variable %s", name)
		}
	}
}
