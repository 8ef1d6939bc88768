package api

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/postrider/postrider/client"
	"github.com/postrider/postrider/internal/front/api/wire"
)

// testdataFile returns the absolute path of a file of testdata/examples.
func testdataFile(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs("testdata/examples/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// nodePackages returns the folder of the official clients for Node.js.
func nodePackages(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../../compat/node_modules")
	if err == nil {
		_, err = os.Stat(filepath.Join(path, "resend"))
	}
	if err != nil {
		t.Fatalf("the official clients are not installed (make deps installs them): %v", err)
	}
	return path
}

// Each example for Node.js makes the request that the reference shows for curl, and prints the response that the
// reference shows. It uses the official client where the client has a method.
func TestReferenceInNode(t *testing.T) {
	t.Parallel()
	s := newExampleServer(t, "node")
	folder, files := s.examplesFolder(".mjs")
	if err := os.Symlink(nodePackages(t), filepath.Join(folder, "node_modules")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", testdataFile(t, "node.mjs"))
	cmd.Dir, cmd.Env = folder, s.environment()
	p := startExamples(t, cmd, nil)
	s.compareAll(func(key string) (printed, problem string) {
		printed, problem = p.run(files[key])
		return printed, strings.TrimPrefix(problem, "ok")
	}, func(o *wire.ReferenceOperation, _, text string, response any) bool {
		return printedValues(o, text, response)
	})
}

// commandWords prints the words of the CLI's command in an example, as the shell sees them, and the variables that the
// example sets.
const commandWords = `resend() { printf '%s\0' "$RESEND_BASE_URL" "$RESEND_API_KEY" "$@"; }
`

// Each command of the official CLI makes the request that the reference shows for curl, and prints the response that
// the reference shows.
func TestReferenceInCLI(t *testing.T) {
	t.Parallel()
	s := newExampleServer(t, "cli")
	folder, files := s.examplesFolder(".sh")
	commands, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer commands.Close()
	cmd := exec.CommandContext(t.Context(), "node", testdataFile(t, "cli.cjs"))
	cmd.Dir, cmd.ExtraFiles = folder, []*os.File{commands}
	cmd.Env = s.environment("CLI="+filepath.Join(nodePackages(t), "resend-cli", "dist", "cli.cjs"), "HOME="+folder,
		"XDG_CONFIG_HOME="+folder, "RESEND_BASE_URL="+s.address, "RESEND_API_KEY="+s.keys["full"],
		"RESEND_TELEMETRY_DISABLED=1", "RESEND_NO_UPDATE_NOTIFIER=1", "NO_COLOR=1")
	p := startExamples(t, cmd, in)
	s.compareAll(func(key string) (printed, problem string) {
		text, err := os.ReadFile(files[key])
		if err != nil {
			t.Fatal(err)
		}
		sh := exec.CommandContext(t.Context(), "sh", "-euc", commandWords+string(text))
		sh.Dir, sh.Env = folder, s.environment()
		out, err := sh.Output()
		if err != nil {
			return "", "the shell does not understand the command: " + err.Error()
		}
		words := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		if len(words) < 3 || words[0] != s.address || words[1] != s.keys["full"] {
			return "", "the example does not set the address and the key"
		}
		line, err := json.Marshal(words[2:])
		if err != nil {
			t.Fatal(err)
		}
		printed, code := p.run(string(line))
		if code != "0" {
			problem = "exit code " + code + ": " + p.errs.String()
		}
		return printed, problem
	}, printedByCLI)
}

// printedByCLI reports whether the CLI printed a response. After a deletion it prints an object of its own, with the
// argument of the command.
func printedByCLI(o *wire.ReferenceOperation, code, text string, response any) bool {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return false
	}
	if shown, ok := v.(map[string]any); ok && o.Method == "DELETE" && shown["deleted"] == true {
		id, _ := shown["id"].(string)
		return id != "" && strings.Contains(code, id)
	}
	return reflect.DeepEqual(v, response) || reflect.DeepEqual(snakeKeys(v), response)
}

// goProgram is the program around the examples for Go. Each line of its input is the number of an example.
const goProgram = `package main

import (
	"bufio"
	"fmt"
	"os"
)

func run(example func()) (result any) {
	defer func() {
		if failed := recover(); failed != nil {
			result = failed
		}
	}()
	example()
	return "ok"
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Printf("\x1e%v\n", run(examples[lines.Text()]))
	}
}

var examples = map[string]func(){
`

var goID = regexp.MustCompile(`\bI[dD]:(\S+?)[ }]`)

// Each example for Go makes the request that the reference shows for curl. With Postrider's package client, it prints
// the values of the response. With the official client, it prints an object that has the ID of the response.
func TestReferenceInGo(t *testing.T) {
	t.Parallel()
	s := newExampleServer(t, "go")
	folder, files := s.examplesFolder(".go")
	list := goProgram
	sources := []string{filepath.Join(folder, "main.go")}
	for i, key := range s.order {
		file := files[key]
		if file == "" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := "example" + strconv.Itoa(i)
		list += "\t" + strconv.Quote(file) + ": " + name + ",\n"
		code := strings.Replace(string(text), "func main() {", "func "+name+"() {", 1)
		code = strings.ReplaceAll(code, "log.Fatal(err)", "log.Panic(err)")
		if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		sources = append(sources, file)
	}
	if err := os.WriteFile(sources[0], []byte(list+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(folder, "examples")
	if out, err := exec.CommandContext(t.Context(), "go", append([]string{"build", "-o", program}, sources...)...).
		CombinedOutput(); err != nil {
		t.Fatalf("build the examples: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Dir, cmd.Env = folder, s.environment()
	p := startExamples(t, cmd, nil)
	s.compareAll(func(key string) (printed, problem string) {
		printed, problem = p.run(files[key])
		return printed, strings.TrimPrefix(problem, "ok")
	}, func(_ *wire.ReferenceOperation, code, text string, response any) bool {
		if !strings.Contains(code, "resend.NewClient") {
			return printedByGoClient(text, response)
		}
		object, _ := response.(map[string]any)
		id, has := object["id"].(string)
		shown := goID.FindStringSubmatch(text)
		return strings.TrimSpace(text) != "" && (!has || shown == nil || shown[1] == id)
	})
}

// printedByGoClient reports whether an example with the package client printed a response: a file as it is, each row or
// event of a stream on a line, or the response as JSON.
func printedByGoClient(text string, response any) bool {
	shown, isText := response.(string)
	if !isText {
		var printed any
		return json.Unmarshal([]byte(text), &printed) == nil && sameData(printed, response)
	}
	if strings.TrimSpace(text) == strings.TrimSpace(shown) {
		return true
	}
	var rows []string
	for line := range strings.Lines(shown) {
		if data, isEvent := strings.CutPrefix(line, "data: "); isEvent || strings.HasPrefix(line, "{") {
			rows = append(rows, data)
		}
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return len(lines) == len(rows) && !slices.ContainsFunc(lines, func(line string) bool {
		row := rows[0]
		rows = rows[1:]
		var printed, want any
		return json.Unmarshal([]byte(line), &printed) != nil || json.Unmarshal([]byte(row), &want) != nil ||
			!sameData(printed, want)
	})
}

// sameData reports whether the package client has read a JSON value. It may write a time in another format, and leave
// out an empty value or write null for it.
func sameData(printed, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		object, ok := printed.(map[string]any)
		for name := range want {
			ok = ok && sameData(object[name], want[name])
		}
		for name, v := range object {
			_, has := want[name]
			ok = ok && (has || isEmpty(v))
		}
		return ok || isEmpty(printed) && isEmpty(want)
	case []any:
		list, ok := printed.([]any)
		ok = ok && len(list) == len(want)
		for i := range want {
			ok = ok && sameData(list[i], want[i])
		}
		return ok || isEmpty(printed) && isEmpty(want)
	case string:
		if text, ok := printed.(string); ok && text != want {
			var a, b client.Time
			return a.UnmarshalJSON([]byte(strconv.Quote(text))) == nil && b.UnmarshalJSON([]byte(strconv.Quote(want))) == nil &&
				a.Equal(b.Time)
		}
	}
	return reflect.DeepEqual(printed, want) || isEmpty(printed) && isEmpty(want)
}

// isEmpty reports whether a JSON value is null, zero, false, empty, or an object of empty values.
func isEmpty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, item := range v {
			if !isEmpty(item) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	}
	return v == nil || v == "" || v == 0.0 || v == false
}

// official says how the examples of a language with an official client are run, if its folder is known.
type official struct {
	language, extension, program string
	interpreter                  []string
	variable                     string // names the folder of the client
	sign                         string // occurs in examples that use the client
	variables                    func(folder string) []string
	link                         string // the client's folder that is linked into the folder of the examples, or ""
}

// The examples for Python, Ruby and PHP have no errors of syntax. Those without an official client make the request
// that the reference shows for curl and print the response that it shows. Those with an official client are run if a
// variable names the client's folder.
func TestReferenceInScripts(t *testing.T) {
	t.Parallel()
	for _, of := range []official{
		{"python", ".py", "python.py", []string{"python3", "-B"}, "POSTRIDER_PYTHON_CLIENT", "import resend",
			func(folder string) []string { return []string{"PYTHONPATH=" + folder} }, ""},
		{"ruby", ".rb", "ruby.rb", []string{"ruby"}, "POSTRIDER_RUBY_CLIENT", `require "resend"`,
			func(folder string) []string { return []string{"RUBYLIB=" + filepath.Join(folder, "lib")} }, ""},
		{"php", ".php", "php.php", []string{"php"}, "POSTRIDER_PHP_CLIENT", "Resend::client",
			func(string) []string { return nil }, "vendor"},
	} {
		t.Run(of.language, func(t *testing.T) {
			t.Parallel()
			of.test(t)
		})
	}
}

func (of official) test(t *testing.T) {
	s := newExampleServer(t, of.language)
	folder, files := s.examplesFolder(of.extension)
	client := os.Getenv(of.variable)
	env := s.environment()
	if client != "" {
		client, err := filepath.Abs(client)
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, of.variables(client)...)
		if of.link != "" {
			if err := os.Symlink(filepath.Join(client, of.link), filepath.Join(folder, of.link)); err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd := exec.CommandContext(t.Context(), of.interpreter[0],
		append(of.interpreter[1:len(of.interpreter):len(of.interpreter)], testdataFile(t, of.program))...)
	cmd.Dir, cmd.Env = folder, env
	p := startExamples(t, cmd, nil)
	for key, file := range files {
		if _, result := p.run("check " + file); result != "ok" {
			t.Errorf("%s in %s: %s\n%s", key, of.language, result, example(s.operations[key], of.language))
		}
	}
	uses := func(code string) bool { return strings.Contains(code, of.sign) }
	var left []string
	s.compareAll(func(key string) (printed, problem string) {
		if uses(example(s.operations[key], of.language)) && client == "" {
			left = append(left, key)
			return "", notRun
		}
		printed, result := p.run("run " + files[key])
		return printed, strings.TrimPrefix(result, "ok")
	}, func(o *wire.ReferenceOperation, code, text string, response any) bool {
		_, isText := response.(string)
		switch {
		case uses(code): // the client decides in which form it returns a response
			return strings.TrimSpace(text) != ""
		case of.language == "php":
			return sameText(text, !isText, response)
		}
		return printedValues(o, text, response)
	})
	if len(left) > 0 {
		t.Logf("%d examples in %s were checked for syntax and not run, because %s names no folder of the official client: %s",
			len(left), of.language, of.variable, strings.Join(left, ", "))
	}
}
