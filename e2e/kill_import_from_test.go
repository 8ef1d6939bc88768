package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// killer forwards requests to an installation, and sends SIGKILL to a process at the beginning of a request.
type killer struct {
	mu      sync.Mutex
	process *exec.Cmd
	left    int // number of requests until the kill
	killed  int // number of kills
}

func (k *killer) arm(process *exec.Cmd, left int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.process, k.left = process, left
}

// count counts a request, and kills the process if it was the last one.
func (k *killer) count() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left--; k.left == 0 && k.process != nil {
		k.process.Process.Kill()
		k.killed++
	}
}

// TestKillImportFrom imports a second installation, and kills the command at random requests. In the end, each contact,
// segment and suppression exists once, with the data of the source, and is counted once.
func TestKillImportFrom(t *testing.T) {
	t.Parallel()
	people, kills := setting(t, "POSTRIDER_KILL_ROWS", 1500), setting(t, "POSTRIDER_KILL_ROUNDS", 8)
	source := start(t, nil)
	ctx := t.Context()
	segments := []string{source.made(ctx, "/segments", map[string]any{"name": "Readers"}),
		source.made(ctx, "/segments", map[string]any{"name": "Readers"})}
	for _, segment := range segments {
		var file strings.Builder
		file.WriteString("email,first_name\n")
		for i := range people {
			fmt.Fprintf(&file, "person%d@example.net,Name %d\n", i, i)
		}
		id := source.importFile(ctx, []byte(file.String()), map[string]string{"on_conflict": "upsert",
			"segments": `[{"id":"` + segment + `"}]`})
		eventually(t, commandLimit, "the contacts are in the source", func() bool {
			var i struct{ Status string }
			source.must(http.MethodGet, "/contacts/imports/"+id, "", &i)
			return i.Status == "completed"
		})
	}
	for i := range 10 {
		var emails []string
		for k := range 100 {
			emails = append(emails, fmt.Sprintf("gone%d@example.net", 100*i+k))
		}
		body, err := json.Marshal(map[string]any{"emails": emails})
		if err != nil {
			t.Fatal(err)
		}
		source.must(http.MethodPost, "/suppressions/batch/add", string(body), nil)
	}
	onEachEngine(t, func(t *testing.T, env []string) {
		killImportFrom(t, append(env, "POSTRIDER_DATA_DIR="+filepath.Join(t.TempDir(), "data"), "POSTRIDER_IMPORT_KEY="+key,
			"POSTRIDER_SECRET_KEY="+strings.Repeat("5e", 32)),
			source, people, kills)
	})
}

func killImportFrom(t *testing.T, env []string, source *node, people, kills int) {
	if out, errOut, err := command(t, env, "migrate"); err != nil {
		t.Fatalf("migrate: %s%s%v", out, errOut, err)
	}
	if out, errOut, err := command(t, env, "keys", "create", "--create-team", "--team", "Acme"); err != nil {
		t.Fatalf("keys create: %s%s%v", out, errOut, err)
	}
	k := &killer{}
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: source.addr})
	forward.ErrorLog = log.New(io.Discard, "", 0) // the command is killed while a request is being answered
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.count()
		forward.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	state := filepath.Join(t.TempDir(), "state.json")
	args := []string{"import-from", "resend", "--team", "Acme", "--from-url", proxy.URL, "--state", state, "--json"}
	pages := (3*people + 1000) / 100
	for range kills {
		c := exec.CommandContext(t.Context(), binary, args...)
		c.Env = append(environ(), env...)
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		k.arm(c, 1+rand.N(2*pages/kills))
		c.Wait()
	}
	if k.killed != kills {
		t.Errorf("%d of %d runs were killed", k.killed, kills)
	}
	k.arm(nil, 0)
	out, errOut, err := command(t, env, args...)
	var r struct {
		Counts map[string]struct{ Created, Completed, Kept, Differing, Refused int }
	}
	if err != nil || json.Unmarshal([]byte(out), &r) != nil {
		t.Fatalf("the last run: %s%s%v", out, errOut, err)
	}
	got := fmt.Sprint(r.Counts["segments"], r.Counts["suppressions"], r.Counts["contacts"])
	if want := fmt.Sprintf("{2 0 0 0 0} {1000 0 0 0 0} {%d 0 0 0 0}", people); got != want {
		t.Errorf("counted as %s, want %s", got, want)
	}
	if m := r.Counts["members"]; m.Completed+m.Kept != 2*people || m.Created+m.Differing+m.Refused > 0 {
		t.Errorf("members: %+v", m)
	}
	exported := func(list string, extra ...string) string {
		t.Helper()
		out, errOut, err := command(t, env, append([]string{"export", list, "--team", "Acme", "--format", "ndjson"},
			extra...)...)
		if err != nil {
			t.Fatalf("export: %s%v", errOut, err)
		}
		return out
	}
	var want string
	source.must(http.MethodGet, "/contacts/export?format=ndjson", "", &want)
	if diff := cmp.Diff(namesOf(want), namesOf(exported("contacts"))); diff != "" {
		t.Errorf("contacts: %s", diff)
	}
	if n := strings.Count(exported("suppressions"), "\n"); n != 1000 {
		t.Errorf("%d suppressions", n)
	}
	t.Logf("%d kills; %s", k.killed, got)
}

// changing matches what differs between two installations: ids, times, and the number of a second segment of a name.
var changing = regexp.MustCompile(`"(id|created_at|updated_at)":"[^"]*",?| \(2\)`)

// namesOf returns how many contacts have which data.
func namesOf(ndjson string) map[string]int {
	all := map[string]int{}
	for line := range strings.Lines(ndjson) {
		all[changing.ReplaceAllString(line, "")]++
	}
	return all
}
