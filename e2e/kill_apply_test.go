package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// killedSetup has a resource of each kind, with references between them.
const killedSetup = `
[domains."acme.net"]
tls = "enforced"

[contact_properties.plan]
type = "string"
fallback_value = "free"

[topics.News]
default_subscription = "opt_in"

[segments."Beta testers"]

[segments.Customers]
filter = '''
{"type": "and", "rules": [
  {"type": "rule", "field": "contact.topics.${topics.News}", "operator": "eq", "value": "opt_in"},
  {"type": "rule", "field": "contact.segments", "operator": "in", "value": ["${segments.Beta testers}"]}
]}'''

[templates.order]
subject = "Order {{{NUMBER}}}"
html = "<p>Order {{{NUMBER}}}</p>"
variables = [{key = "NUMBER", type = "string"}]

[templates.draft]
html = "<p>Later</p>"
publish = false

[webhooks."https://hooks.acme.example/postrider"]
events = ["email.delivered", "email.bounced"]
status = "disabled"

[webhooks."https://hooks.acme.example/second"]
events = ["email.opened"]

[api_keys.billing]
permission = "sending_access"
domain = "acme.net"

[api_keys.admin]
permission = "full_access"
`

// killedNames are the names of the resources of killedSetup, by the path of their list.
var killedNames = map[string][]string{"/domains": {"acme.net"}, "/contact-properties": {"plan"}, "/topics": {"News"},
	"/segments": {"Beta testers", "Customers"}, "/templates": {"draft: draft", "order: published"},
	"/webhooks": {"https://hooks.acme.example/postrider: disabled", "https://hooks.acme.example/second: enabled"},
	"/api-keys": {"admin", "billing"}}

// moment is when a command is killed.
type moment int

// These are the moments. At the last one, the command writes its files or makes its next request.
const (
	beforeRequest  moment = iota // the request has no effect
	beforeResponse               // the request has its effect, and its response is lost
	afterResponse                // soon after the response
	moments
)

// applyKiller forwards the requests of a command to an installation, and kills the command at a chosen request.
type applyKiller struct {
	forward http.Handler

	mu      sync.Mutex
	process *os.Process
	when    moment
	left    int // number of requests until the kill
}

func (k *applyKiller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.left--
	kills := k.left == 0
	if kills && k.when == beforeRequest {
		k.process.Kill()
		return
	}
	answer := httptest.NewRecorder()
	k.forward.ServeHTTP(answer, r.WithContext(context.WithoutCancel(r.Context())))
	if kills && k.when == beforeResponse {
		k.process.Kill()
		return
	}
	if process := k.process; kills {
		time.AfterFunc(rand.N(3*time.Millisecond), func() { process.Kill() }) // fails if the command has exited
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	w.Write(answer.Body.Bytes())
}

// run starts a command, kills it at its request number left, and waits until it has exited. It returns false if the
// command succeeded before the kill.
func (k *applyKiller) run(t *testing.T, c *exec.Cmd, left int, when moment) (killed bool) {
	t.Helper()
	var out strings.Builder
	c.Stdout, c.Stderr = &out, &out
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	k.mu.Lock() // requests wait until the process is known
	err := c.Start()
	k.process, k.left, k.when = c.Process, left, when
	k.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	err = c.Wait()
	if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
		return true
	}
	if err != nil {
		t.Fatalf("the command was not killed: %v\n%s", err, &out)
	}
	return false
}

// TestKillApply kills the command apply at random moments while it creates and while it deletes the resources of a
// file. The next run completes the work. Then each resource exists once, the file for secrets has every secret, and a
// further run changes nothing.
func TestKillApply(t *testing.T) {
	t.Parallel()
	rounds := setting(t, "POSTRIDER_KILL_ROUNDS", 1)
	onEachEngine(t, func(t *testing.T, env []string) { killApply(t, start(t, env), rounds) })
}

// killedApply is a set-up in a file that a test applies.
type killedApply struct {
	*node
	k             *applyKiller
	args          []string // of the command
	file, secrets string
}

func killApply(t *testing.T, n *node, rounds int) {
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: n.addr})
	forward.ErrorLog = log.New(io.Discard, "", 0)
	k := &applyKiller{forward: forward}
	proxy := httptest.NewServer(k)
	defer proxy.Close()
	before := n.names()
	want := maps.Clone(before)
	for path, names := range killedNames {
		want[path] = slices.Sorted(slices.Values(slices.Concat(before[path], names)))
	}
	kills := 0
	for range rounds {
		dir := t.TempDir()
		a := &killedApply{node: n, k: k, file: filepath.Join(dir, "team.toml"), secrets: filepath.Join(dir, "secrets.json")}
		a.args = []string{"apply", a.file, "--url", proxy.URL, "--secrets-file", a.secrets}
		a.write(killedSetup)
		kills += a.killed(30)
		a.completes()
		if diff := cmp.Diff(want, n.names()); diff != "" {
			t.Fatalf("the resources after %d kills: %s", kills, diff)
		}
		a.checkSecrets()

		a.args = append(a.args, "--prune")
		a.write("")
		kills += a.killed(18)
		a.completes()
		if diff := cmp.Diff(before, n.names()); diff != "" {
			t.Fatalf("the resources after --prune and %d kills: %s", kills, diff)
		}
		a.checkFiles(dir)
	}
	if kills == 0 {
		t.Error("no run was killed: the test tested nothing")
	}
	t.Logf("%d kills", kills)
}

func (a *killedApply) write(text string) {
	a.t.Helper()
	if err := os.WriteFile(a.file, []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// killed runs the command once for each moment, kills it at a random one of its first requests, and returns the number of
// kills. A run that continues the one before it may have fewer requests.
func (a *killedApply) killed(requests int) (kills int) {
	a.t.Helper()
	for when := range moments {
		c := exec.CommandContext(a.t.Context(), binary, a.args...)
		c.Env = append(environ(), "POSTRIDER_API_KEY="+key)
		if a.k.run(a.t, c, 1+rand.N(requests), when) {
			kills++
		}
	}
	return kills
}

// completes runs the command to its end, and once more.
func (a *killedApply) completes() {
	a.t.Helper()
	a.k.mu.Lock()
	a.k.left = 0 // no further kill
	a.k.mu.Unlock()
	env := []string{"POSTRIDER_API_KEY=" + key}
	if out, errOut, err := command(a.t, env, a.args...); err != nil {
		a.t.Fatalf("the run after the kills: %v\n%s%s", err, out, errOut)
	}
	if out, errOut, err := command(a.t, env, a.args...); err != nil ||
		out != "No changes: the team matches the file.\n" {
		a.t.Fatalf("a further run: %v\n%s%s", err, out, errOut)
	}
}

// checkSecrets checks that the file for secrets has the token of each API key and the secret of each webhook.
func (a *killedApply) checkSecrets() {
	a.t.Helper()
	var have struct {
		Keys     map[string]string `json:"api_keys"`
		Webhooks map[string]string
	}
	text, err := os.ReadFile(a.secrets)
	if err == nil {
		err = json.Unmarshal(text, &have)
	}
	if err != nil || len(have.Keys) != 2 || len(have.Webhooks) != 2 {
		a.t.Fatalf("the file for secrets is %s, error %v", text, err)
	}
	for name, token := range have.Keys {
		r, err := http.NewRequestWithContext(a.t.Context(), http.MethodGet, "http://"+a.addr+"/domains", nil)
		if err != nil {
			a.t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			a.t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		// A key that may only send is known to the API, which refuses the list to it.
		if restricted := strings.Contains(string(body), `"restricted_api_key"`); err != nil ||
			answer.StatusCode != http.StatusOK && !restricted {
			a.t.Errorf("the token of %s is answered with %d %s", name, answer.StatusCode, body)
		}
	}
	var list struct {
		Data []struct{ ID, Endpoint string }
	}
	a.must(http.MethodGet, "/webhooks", "", &list)
	for _, w := range list.Data {
		var one struct {
			Secret string `json:"signing_secret"`
		}
		a.must(http.MethodGet, "/webhooks/"+w.ID, "", &one)
		if have.Webhooks[w.Endpoint] != one.Secret {
			a.t.Errorf("the file for secrets has %q for %s, want %q", have.Webhooks[w.Endpoint], w.Endpoint, one.Secret)
		}
	}
}

// checkFiles checks that the runs have left no temporary files.
func (a *killedApply) checkFiles(dir string) {
	a.t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		a.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"secrets.json", "team.toml", "team.toml.state.json"}; !slices.Equal(names, want) {
		a.t.Errorf("the folder has %q, want %q", names, want)
	}
}

// names returns the names of the team's resources in order, with the state of templates and webhooks, by the path of
// their list.
func (n *node) names() map[string][]string {
	n.t.Helper()
	all := map[string][]string{}
	for path := range killedNames {
		var list struct {
			Data []struct {
				Name, Key, Alias, Endpoint, Status string
			}
			More bool `json:"has_more"`
		}
		n.must(http.MethodGet, path+"?limit=100", "", &list)
		if list.More {
			n.t.Fatalf("%s has more than one page", path)
		}
		all[path] = []string{}
		for _, o := range list.Data {
			name := map[string]string{"/contact-properties": o.Key, "/templates": fmt.Sprintf("%s: %s", o.Alias, o.Status),
				"/webhooks": fmt.Sprintf("%s: %s", o.Endpoint, o.Status)}[path]
			if name == "" {
				name = o.Name
			}
			all[path] = append(all[path], name)
		}
		slices.Sort(all[path])
	}
	return all
}
