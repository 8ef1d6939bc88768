package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// officialCLI is the official CLI, installed in the folder compat and run with its own home folder.
type officialCLI struct {
	t    *testing.T
	env  []string
	asks string // path of the file to which the fake browser writes the opened URL
}

func newOfficialCLI(t *testing.T, n *node) *officialCLI {
	t.Helper()
	if _, err := os.Stat(officialProgram); err != nil {
		t.Fatalf("the official command-line program is not there (make deps installs it): %v", err)
	}
	home := t.TempDir()
	c := &officialCLI{t: t, asks: filepath.Join(home, "opened")}
	// Fake xdg-open and open commands, which open a browser on Linux and macOS, write the URL to a file.
	opener := "#!/bin/sh\nprintf '%s' \"$1\" >'" + c.asks + ".part' && mv '" + c.asks + ".part' '" + c.asks + "'\n"
	for _, name := range []string{"xdg-open", "open"} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(opener), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	c.env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+filepath.Join(home, "config"),
		"PATH="+home+string(os.PathListSeparator)+os.Getenv("PATH"), "RESEND_BASE_URL="+n.localhost(),
		"RESEND_API_KEY=", "RESEND_TELEMETRY_DISABLED=1", // tests connect to this machine only
		"DBUS_SESSION_BUS_ADDRESS=", "NO_COLOR=1",
		"CI=", "GITHUB_ACTIONS=", "TERM=xterm") // if CI is set, the CLI asks no questions, even in a terminal
	return c
}

const officialProgram = "../compat/node_modules/resend-cli/dist/cli.cjs"

func (c *officialCLI) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(c.t.Context(), "node", append([]string{officialProgram}, args...)...)
	cmd.Env = c.env
	return cmd
}

// logIn runs the CLI's login command in a terminal and gives consent in the browser.
func (c *officialCLI) logIn(consent func(address string)) {
	c.t.Helper()
	cmd := c.command("login", "--insecure-storage")
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: 200})
	if err != nil {
		c.t.Fatalf("run the official command-line program at a terminal: %v", err)
	}
	defer terminal.Close()
	said := &said{}
	read := make(chan struct{})
	go func() {
		defer close(read)
		io.Copy(said, terminal) // returns an error when the program exits
	}()
	defer func() {
		if c.t.Failed() {
			c.t.Logf("the official program said: %s", said)
		}
	}()
	eventually(c.t, 30*time.Second, "it asks how to log in", func() bool {
		return strings.Contains(said.String(), "opens browser")
	})
	if _, err := terminal.WriteString("\r"); err != nil {
		c.t.Fatal(err)
	}
	var address []byte
	eventually(c.t, 30*time.Second, "it opens the browser", func() bool {
		address, err = os.ReadFile(c.asks)
		return err == nil
	})
	consent(string(address))
	if err := cmd.Wait(); err != nil {
		c.t.Errorf("the official program failed to log in: %v", err)
	}
	<-read
}

// run runs a CLI command without a terminal, fails the test if the command fails, and decodes its JSON output.
func (c *officialCLI) run(out any, args ...string) {
	c.t.Helper()
	cmd := c.command(append(args, "--json")...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	text, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("resend %v: %v\n%s%s", args, err, text, &errs)
	}
	if err := json.Unmarshal(text, out); err != nil {
		c.t.Fatalf("resend %v said %s: %v", args, text, err)
	}
}

var authority = regexp.MustCompile(`^http://[^/]+`)

// TestOfficialCLI: the official CLI logs in with OAuth through a browser and then uses the granted tokens.
func TestOfficialCLI(t *testing.T) {
	t.Parallel()
	n := start(t, nil, "--domain", "acme.example")
	c := newOfficialCLI(t, n)
	c.logIn(func(address string) {
		r := &reader{t: t, url: n.localhost(), tab: chromium(t)}
		r.signsIn(n)
		r.open(authority.ReplaceAllString(address, ""))
		r.sees("Let Resend CLI act for Development?")
		r.presses("Allow")
	})

	var sent struct{ ID string }
	c.run(&sent, "emails", "send", "--from", "Acme <hello@acme.example>", "--to", "ann@example.org", "--subject", "Hello",
		"--text", "It works.")
	if text := n.captured("ann@example.org").Text(); !strings.Contains(text, "It works.") {
		t.Errorf("ann was sent %q", text)
	}
	var email struct{ ID, Subject string }
	if c.run(&email, "emails", "get", sent.ID); email.ID != sent.ID || email.Subject != "Hello" {
		t.Errorf("the email is %+v", email)
	}
	var list struct {
		Data []struct{ ID, Name, Email string }
	}
	if c.run(&list, "domains", "list"); len(list.Data) != 1 || list.Data[0].Name != "acme.example" {
		t.Errorf("the domains are %+v", list)
	}
	var made struct{ ID, Token string }
	if c.run(&made, "api-keys", "create", "--name", "From the CLI"); !strings.HasPrefix(made.Token, "re_") {
		t.Errorf("the key is %+v", made)
	}
	c.run(&made, "contacts", "create", "--email", "ann@example.org")
	if c.run(&list, "contacts", "list"); len(list.Data) != 1 || list.Data[0].Email != "ann@example.org" {
		t.Errorf("the contacts are %+v", list)
	}
	var who struct{ Authenticated bool }
	if c.run(&who, "whoami"); !who.Authenticated {
		t.Error("it does not know who it is")
	}
	c.run(new(any), "logout")
	if err := c.command("domains", "list", "--json").Run(); err == nil {
		t.Error("it works after it has logged out")
	}
}
