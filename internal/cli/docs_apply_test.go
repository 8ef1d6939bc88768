package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docBlocks returns the code blocks of a page in a language.
func docBlocks(t *testing.T, page, language string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllSubmatch(text, -1) {
		blocks = append(blocks, string(m[1]))
	}
	return blocks
}

// The commands in the page about a set-up in a file work with the files in this page. Afterwards, nothing is left to do.
func TestDocExampleOfApply(t *testing.T) {
	t.Parallel()
	n, _ := docsNode(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for language, name := range map[string]string{"toml": "team.toml", "html": "order.html"} {
		text := strings.Join(docBlocks(t, "apply.md", language), "")
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(block string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), "sh", "-euc", `postrider() { "$PROGRAM" "$@"; }`+"\n"+block)
		c.Dir = dir
		c.Env = []string{"PATH=" + os.Getenv("PATH"), "PROGRAM=" + program, asProgram + "=1", "URL=" + n.url,
			"KEY=" + devTestKey, "POSTRIDER_API_KEY=" + devTestKey}
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, block, out)
		}
		return string(out)
	}
	ran := 0
	for _, block := range docBlocks(t, "apply.md", "sh") {
		if !strings.Contains(block, "postrider ") {
			continue
		}
		ran++
		out := run(block)
		if strings.Count(out, "Plan: ") != 2 || strings.Count(out, "Changes made: ") != 1 ||
			!strings.Contains(out, "+ templates order-confirmation\n") {
			t.Errorf("the commands print\n%s", out)
		}
	}
	if ran != 1 {
		t.Errorf("%d blocks were run, want 1", ran)
	}
	if out := run(`postrider apply team.toml --drift --url $URL`); out != "No changes: the team matches the file.\n" {
		t.Errorf("after the commands of the page, the drift is\n%s", out)
	}
}

// fragments is a program with the fragments of the page about the Go client.
const fragments = `package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/postrider/postrider/client"
)

func list(ctx context.Context, c *client.Client) error {
LIST	return nil
}

func explain(err error) {
EXPLAIN}

func main() {
	ctx := context.Background()
	c, err := client.New(os.Getenv("URL"), os.Getenv("KEY"))
	if err == nil {
		err = list(ctx, c)
	}
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.Domains.Get(ctx, "00000000-0000-7000-8000-000000000000")
	explain(err)
}
`

// The program and the fragments in the page about the Go client work.
func TestDocProgramsOfGoClient(t *testing.T) {
	t.Parallel()
	n, _ := docsNode(t)
	blocks := programBlocks(t, "go-client.md")
	if len(blocks) != 3 {
		t.Fatalf("the page has %d programs, want one program and two fragments", len(blocks))
	}
	rest := programBlock{"go", strings.NewReplacer("LIST", blocks[1].text, "EXPLAIN", blocks[2].text).Replace(fragments)}
	for _, x := range []struct {
		program programBlock
		prints  string
	}{{blocks[0], `^[0-9a-f-]{36}\n$`}, {rest, `^acme\.example verified\n404 not_found \n$`}} {
		out, err := x.program.prepare(t, n).CombinedOutput()
		if err != nil || !regexp.MustCompile(x.prints).Match(out) {
			t.Errorf("%v, and the output is %q\n%s", err, out, x.program.text)
		}
	}
}
