package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// The archive of the command support describes the installation. It has no secret and no address, wherever they occur.
func TestSupport(t *testing.T) {
	t.Parallel()
	secrets := []string{testSecretKey, "relay-pass!word", "relay-user", "oidc-client-secret-1", "ada@example.com",
		"ada%40example.com", "bounce-7@return.example", "ada.lovelace", "203.0.113.9", "2001:db8::77",
		"re_AbCdEfGh_0123456789abcdefghijklmn", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "hunter2hunter2",
		"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0", "ops@acme.example", "AHBvc3RyaWRlcgBzZWNyZXQ="}
	const said = `550 5.1.1 <ada@example.com>: no such user; ada%40example.com, ada.lovelace@example.com at 203.0.113.9:25 ` +
		`and [2001:db8::77]:25`
	log := `time=2026-11-30T10:00:00Z level=INFO msg="a quiet line"
time=2026-11-30T10:00:01Z level=WARN msg="refused" from=bounce-7@return.example key=re_AbCdEfGh_0123456789abcdefghijklmn
time=2026-11-30T10:00:02Z level=ERROR msg="call" secret=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw password="hunter2hunter2"
{"level":"ERROR","msg":"dial postgres://postrider:hunter2hunter2@db.example.com/x","key":"` + testSecretKey + `"}
Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0
AUTH PLAIN AHBvc3RyaWRlcgBzZWNyZXQ=
panic: the relay answers relay-user with relay-pass!word
`
	eachEngine(t, func(t *testing.T, p *installation) {
		p.vars["POSTRIDER_RELAY_PASSWORD"], p.vars["POSTRIDER_RELAY_USERNAME"] = "relay-pass!word", "relay-user"
		p.vars["POSTRIDER_OIDC_CLIENT_SECRET"] = "oidc-client-secret-1"
		p.vars["POSTRIDER_FEEDBACK_ADDRESS"] = "ops@acme.example"
		n := p.start()
		if err := n.DB.Update(t.Context(), func(tx *db.Tx) error {
			n.Queue.Insert(t.Context(), tx, jobs.New{Kind: "none"})
			_, err := tx.Exec(t.Context(), `UPDATE jobs SET parked = $1, last_error = $2, failures = 8 WHERE kind = 'none'`,
				true, said)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		n.end()
		logFile, file := filepath.Join(p.dir, "log"), filepath.Join(t.TempDir(), "support.tar.gz")
		if err := os.WriteFile(logFile, []byte(log), 0o600); err != nil {
			t.Fatal(err)
		}
		p.must("support", file, "--log", logFile)
		p.refused("exists; choose another name", "support", file)
		p.refused("FILE is missing", "support")
		files := supportFiles(t, file)
		whole := ""
		for _, text := range files {
			whole += text
		}
		for _, secret := range secrets {
			if strings.Contains(whole, secret) {
				t.Errorf("the archive contains %q", secret)
			}
		}
		for name, words := range map[string][]string{
			"README.txt":   {"queue.txt"},
			"versions.txt": {"postrider ", "RSA signatures: "},
			"settings.txt": {"relay_password = (set)", "feedback_address = <address>", "rate_limit = 10\n"},
			"database.txt": {"0001_first  applied 20", map[string]string{"": "SQLite 3."}[p.vars["POSTRIDER_DATABASE_URL"]]},
			"queue.txt":    {"none                            1        1"},
			"errors.txt":   {"none, created 20", "8 consecutive failures", "550 5.1.1 <<address>>: no such user"},
			"storage.txt":  {"emails ", " files, ", "inodes are free"},
			"log.txt":      {"msg=\"refused\"", "panic: the relay answers", "level\":\"ERROR\"", "postgres://<secret>@db.example.com"},
		} {
			for _, word := range words {
				if !strings.Contains(files[name], word) {
					t.Errorf("%s does not contain %q:\n%s", name, word, files[name])
				}
			}
		}
		if strings.Contains(files["log.txt"], "a quiet line") {
			t.Errorf("the log has lines of the level info:\n%s", files["log.txt"])
		}
	})
}

// supportFiles returns the texts of the archive by name.
func supportFiles(t *testing.T, name string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(h.Name, "postrider-support/")] = string(text)
	}
}

// The archive is made even without a database, and then contains the reason.
func TestSupportWithoutDatabase(t *testing.T) {
	t.Parallel()
	p := &installation{t: t, dir: t.TempDir(), vars: map[string]string{}}
	p.vars["POSTRIDER_DATA_DIR"] = p.dir
	file := filepath.Join(t.TempDir(), "support.tar.gz")
	p.must("support", file)
	files := supportFiles(t, file)
	if text := files["queue.txt"]; !strings.Contains(text, "cannot be read: find the database") {
		t.Errorf("queue.txt has %q", text)
	}
	if text := files["settings.txt"]; !strings.Contains(text, "data_dir = "+p.dir) {
		t.Errorf("settings.txt has %q", text)
	}
	if left, err := os.ReadDir(p.dir); err != nil || len(left) > 0 {
		t.Errorf("the data folder has %v, %v", left, err)
	}
}

// A long log is read to its end, and its last lines are kept.
func TestSupportOfALongLog(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "log")
	text := strings.Repeat("level=WARN msg=early\n", 5*maxLogLines) + strings.Repeat("x", 3*maxLogLine) + "\nlevel=ERROR msg=last\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var w bytes.Buffer
	if err := writeLog(&w, name); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(w.String()), "\n")
	if len(lines) != maxLogLines || lines[len(lines)-1] != "level=ERROR msg=last" ||
		len(lines[len(lines)-2]) != maxLogLine {
		t.Errorf("%d lines, which end with %.80q", len(lines), lines[len(lines)-2:])
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	info := &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123abcd"}, {Key: "vcs.time", Value: "2026-11-30T03:32:06Z"},
		{Key: "vcs.modified", Value: "false"}}}
	if got := readBuild(info, true).String(); !strings.HasPrefix(got,
		"postrider v0.1.0 (commit 0123abcd, date 2026-11-30T03:32:06Z, go1.") {
		t.Errorf("printed %q", got)
	}
	info.Settings[2].Value = "true"
	if got := readBuild(info, true).commit; got != "0123abcd with changes" {
		t.Errorf("commit %q", got)
	}
	if got := readBuild(nil, false).String(); !strings.HasPrefix(got, "postrider dev (commit unknown, date unknown, ") {
		t.Errorf("printed %q", got)
	}
	p := &installation{t: t, vars: map[string]string{}}
	if first, second := p.must("--version"), p.must("version"); first != second || !strings.HasPrefix(first, "postrider ") {
		t.Errorf("%q and %q", first, second)
	}
}
