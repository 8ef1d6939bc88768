package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// parsers has the commands that read programs without running them. The paths of the programs follow.
var parsers = map[string][]string{
	"python": {"python3", "-c", "import ast, sys\nfor path in sys.argv[1:]: ast.parse(open(path).read(), path)"},
	"ruby":   {"ruby", "-e", "ARGV.each { |path| RubyVM::InstructionSequence.compile_file(path) }"},
	"php": {"php", "-r", "foreach (array_slice($argv, 1) as $path) token_get_all(file_get_contents($path), TOKEN_PARSE);",
		"--"},
}

var scriptBlock = regexp.MustCompile("(?ms)^```(python|ruby|php)\n(.*?)^```$")

// All programs in Python, Ruby and PHP in the documents have no errors of syntax, including those that are not run.
func TestDocScripts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := map[string][]string{}
	for _, page := range append(docPages(t), "../README.md") {
		text, err := os.ReadFile(filepath.Join("../../docs", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range scriptBlock.FindAllStringSubmatch(string(text), -1) {
			name := strings.ReplaceAll(page, "/", "-") + "." + strconv.Itoa(len(files[m[1]])) + "." + m[1]
			file := filepath.Join(dir, name)
			if err := os.WriteFile(file, []byte(m[2]), 0o600); err != nil {
				t.Fatal(err)
			}
			files[m[1]] = append(files[m[1]], file)
		}
	}
	for language, parser := range parsers {
		if len(files[language]) == 0 {
			t.Errorf("the documents have no program in %s", language)
			continue
		}
		args := append(parser[1:len(parser):len(parser)], files[language]...)
		if out, err := exec.CommandContext(t.Context(), parser[0], args...).CombinedOutput(); err != nil {
			t.Errorf("programs in %s (make deps installs the interpreter): %v\n%s", language, err, out)
		}
	}
}

// scriptClients has the official clients of languages whose packages the tests do not install: what occurs in a program
// that needs the client, and the variable that names the client's folder.
var scriptClients = map[string]struct{ sign, variable string }{
	"python": {"import resend", "POSTRIDER_PYTHON_CLIENT"},
	"ruby":   {`require "resend"`, "POSTRIDER_RUBY_CLIENT"},
	"php":    {"Resend::client", "POSTRIDER_PHP_CLIENT"},
}

// missingClient returns the variable that would name the folder of the official client that a program needs. It returns
// "" if the program needs none, or if the variable is set.
func (b programBlock) missingClient() (variable string) {
	client := scriptClients[b.language]
	if client.sign == "" || !strings.Contains(b.text, client.sign) || os.Getenv(client.variable) != "" {
		return ""
	}
	return client.variable
}

// addLibraries lets a command in a folder find the libraries of its program, and returns the variables that it needs.
func (b programBlock) addLibraries(t *testing.T, c *exec.Cmd, dir string) (variables []string) {
	t.Helper()
	client := os.Getenv(scriptClients[b.language].variable)
	if client != "" {
		var err error
		if client, err = filepath.Abs(client); err != nil {
			t.Fatal(err)
		}
	}
	switch b.language {
	case "python":
		if strings.Contains(b.text, "django") {
			c.Path = pythonWithDjango(t)
		}
		if client != "" {
			variables = append(variables, "PYTHONPATH="+client)
		}
	case "ruby":
		c.Dir = dir // Rails writes files there
		if client != "" {
			variables = append(variables, "RUBYLIB="+filepath.Join(client, "lib"))
		}
	case "php":
		c.Dir = dir // where PHP looks for the folder vendor, which Composer makes
		vendor := filepath.Join(dir, "vendor")
		if strings.Contains(b.text, "Resend::client") {
			if err := os.Symlink(filepath.Join(client, "vendor"), vendor); err != nil {
				t.Fatal(err)
			}
			break
		}
		if err := os.Mkdir(vendor, 0o700); err != nil {
			t.Fatal(err)
		}
		const load = "<?php require 'libphp-phpmailer/autoload.php';\n" // Debian's package, in PHP's include path
		if err := os.WriteFile(filepath.Join(vendor, "autoload.php"), []byte(load), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return variables
}

// pythonWithDjango returns the path of an interpreter that has Django. Debian's package is for Debian's interpreter,
// but PATH may name another one first.
func pythonWithDjango(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		path, err := exec.LookPath(name)
		if err == nil && exec.CommandContext(t.Context(), path, "-c", "import django").Run() == nil {
			return path
		}
	}
	t.Fatal("no interpreter of Python has Django (make deps installs it)")
	return ""
}
