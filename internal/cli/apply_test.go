package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/postrider/postrider/client"
	"github.com/postrider/postrider/internal/cli/apply"
)

// wholeSetup has a resource of each kind, with references between them.
const wholeSetup = `
[domains."acme.net"]
tls = "enforced"
tracking_subdomain = "links"

[domains."acme.net".capabilities]
receiving = "enabled"

[contact_properties.plan]
type = "string"
fallback_value = "free"

[contact_properties.seats]
type = "number"

[topics.News]
default_subscription = "opt_in"
description = "What is new"
visibility = "public"

[segments."Beta testers"]

[segments.Customers]
filter = '''
{"type": "and", "rules": [
  {"type": "rule", "field": "contact.properties.plan", "operator": "in", "value": ["Pro", "team"]},
  {"type": "rule", "field": "contact.topics.${topics.News}", "operator": "eq", "value": "opt_in"},
  {"type": "rule", "field": "contact.segments", "operator": "in", "value": ["${segments.Beta testers}"]}
]}'''

[templates.order]
name = "Order confirmation"
from = "Acme <orders@acme.example>"
subject = "Order {{{NUMBER}}}"
html_file = "order.html"
reply_to = ["help@acme.example"]
variables = [{key = "NUMBER", type = "number", fallback_value = 7}, {key = "NAME", type = "string"}]

[templates.draft]
html = "<p>Later</p>"
publish = false

[webhooks."https://hooks.acme.example/postrider"]
events = ["email.delivered", "email.bounced"]
status = "disabled"

[api_keys.billing]
permission = "sending_access"
domain = "acme.net"

[api_keys.admin]
permission = "full_access"
`

// setup is a set-up that a test applies.
type setup struct {
	*installation
	n    *started
	dir  string
	file string
	key  string
	api  *client.Client
}

func newSetup(t *testing.T, p *installation, text string) *setup {
	t.Helper()
	p.t = t
	s := &setup{installation: p, dir: t.TempDir(), key: p.key("Acme")}
	s.n = p.start()
	s.file = filepath.Join(s.dir, "team.toml")
	s.write(text)
	if err := os.WriteFile(filepath.Join(s.dir, "order.html"), []byte("<p>Hello {{{NAME}}}</p>\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.api, err = client.New(s.n.url, s.key); err != nil {
		t.Fatal(err)
	}
	p.vars["POSTRIDER_API_KEY"] = s.key
	return s
}

func (s *setup) write(text string) {
	s.t.Helper()
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// apply runs the command with a file, and checks the exit code.
func (s *setup) apply(code int, flags ...string) string {
	s.t.Helper()
	out, errOut, got := s.command(append([]string{"apply", s.file, "--url", s.n.url}, flags...)...)
	if got != code {
		s.t.Fatalf("apply %q: exit code %d, want %d\n%s%s", flags, got, code, out, errOut)
	}
	return out + errOut
}

// counts returns how many resources of each kind the team has.
func (s *setup) counts() string {
	s.t.Helper()
	var all []string
	for _, path := range []string{"domains", "contact-properties", "topics", "segments", "templates", "webhooks",
		"api-keys"} {
		code, body := s.n.ask(s.key, http.MethodGet, "/"+path+"?limit=100", "")
		var list struct{ Data []any }
		if err := json.Unmarshal([]byte(body), &list); err != nil || code != 200 {
			s.t.Fatalf("%s: %d %s", path, code, body)
		}
		all = append(all, fmt.Sprintf("%s %d", path, len(list.Data)))
	}
	return strings.Join(all, ", ")
}

const (
	nothingMade = "domains 0, contact-properties 0, topics 0, segments 0, templates 0, webhooks 0, api-keys 1"
	allMade     = "domains 1, contact-properties 2, topics 1, segments 2, templates 2, webhooks 1, api-keys 3"
)

func TestApply(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		s, ctx := newSetup(t, p, wholeSetup), t.Context()
		if out := s.apply(0, "--plan"); !strings.Contains(out, "Plan: 11 to create, 0 to change") ||
			!strings.Contains(out, "+ topics News\n") || s.counts() != nothingMade {
			t.Errorf("the plan is\n%s\nand the team has %s", out, s.counts())
		}
		s.apply(1, "--drift")
		out := s.apply(0)
		secrets := regexp.MustCompile(`shown only once: (re_\S+|whsec_\S+)`).FindAllStringSubmatch(out, -1)
		if len(secrets) != 3 || !strings.Contains(out, "links.acme.net CNAME") || s.counts() != allMade {
			t.Errorf("applying printed\n%s\nand the team has %s", out, s.counts())
		}
		state, err := os.ReadFile(s.file + ".state.json")
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range secrets {
			if strings.Contains(string(state), secret[1]) {
				t.Errorf("the state file has a secret:\n%s", state)
			}
		}
		for _, flags := range [][]string{{"--drift"}, {"--plan"}, {}, {"--prune"}} {
			if out := s.apply(0, flags...); out != "No changes: the team matches the file.\n" {
				t.Errorf("apply %q again prints\n%s", flags, out)
			}
		}
		again, err := os.ReadFile(s.file + ".state.json")
		if err != nil || string(again) != string(state) {
			t.Errorf("the state file changed to %s, error %v", again, err)
		}
		if order, err := s.api.Templates.Get(ctx, "order"); err != nil || order.Status != "published" ||
			order.HTML != "<p>Hello {{{NAME}}}</p>\n" || len(order.Variables) != 2 || order.Name != "Order confirmation" {
			t.Errorf("the template is %+v, error %v", order, err)
		}
		if draft, err := s.api.Templates.Get(ctx, "draft"); err != nil || draft.Status != "draft" {
			t.Errorf("the draft is %+v, error %v", draft, err)
		}
		s.drift(t)
	})
}

// drift changes the team and the file, and applies the file.
func (s *setup) drift(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	topics, err := s.api.Topics.List(ctx, client.Page{})
	must(err)
	topic := topics.Data[0].ID
	_, err = s.api.Topics.Update(ctx, topic, client.UpdateTopic{Name: client.Set("Renamed"),
		Visibility: client.Set("private")})
	must(err)
	_, err = s.api.Templates.Update(ctx, "order", client.UpdateTemplate{Subject: client.Null[string]()})
	must(err)
	_, err = s.api.Topics.Create(ctx, client.CreateTopic{Name: "Made by hand", DefaultSubscription: "opt_out"})
	must(err)
	out := s.apply(1, "--drift")
	for _, line := range []string{"~ topics News\n", `    visibility: "private" → "public"`, `    name: "Renamed" → "News"`,
		`    subject: "" → "Order {{{NUMBER}}}"`, "    published: false → true", "Plan: 0 to create, 2 to change"} {
		if !strings.Contains(out, line) {
			t.Errorf("the drift lacks %q:\n%s", line, out)
		}
	}
	s.apply(0)
	s.apply(0, "--drift")
	got, err := s.api.Topics.Get(ctx, topic)
	if err != nil || got.Name != "News" || got.Visibility != "public" {
		t.Errorf("the topic is %+v, error %v", got, err)
	}
	_, before, _ := strings.Cut(wholeSetup, "[contact_properties.seats]")
	s.write("[contact_properties.seats]" + before)
	out = s.apply(0)
	for _, left := range []string{"? domains acme.net", "? contact_properties plan"} {
		if !strings.Contains(out, left+" is no longer in the file; --prune deletes it\n") {
			t.Errorf("applying a shorter file prints\n%s", out)
		}
	}
	rest, _, _ := strings.Cut(wholeSetup, "[api_keys.admin]")
	s.write(rest)
	out = s.apply(0, "--prune", "--json")
	var result applyResult
	if err := json.Unmarshal([]byte(out), &result); err != nil || len(result.Changes) != 1 || !result.Applied ||
		result.Changes[0].Action != apply.Delete || result.Changes[0].Name != "admin" {
		t.Errorf("--prune: %v\n%s", err, out)
	}
	want := "domains 1, contact-properties 2, topics 2, segments 2, templates 2, webhooks 1, api-keys 2"
	if got := s.counts(); got != want {
		t.Errorf("after --prune the team has %s", got)
	}
}

// All problems are reported at once with their lines, and nothing is changed.
func TestApplyProblems(t *testing.T) {
	t.Parallel()
	s := newSetup(t, migratedInstallation(t, "sqlite"), `[topics.News]
default_subscription = "maybe"

[topic.Old]
x = 1

[topics.Late]
default_subscription = "opt_in"
visability = "public"

[domains."not a domain"]
[domains."acme.net"]
capabilities = {sending = "on", recieving = "enabled"}

[segments.A]
filter = '{"type": "rule", "field": "contact.email", "operator": "equals", "value": "x"}'
[segments.B]
filter = '{"type": "rule", "field": "contact.topics.${topics.None}", "operator": "eq", "value": "opt_in"}'

[templates.t]
html_file = "missing.html"
[templates.u]
html = "{{{UNKNOWN}}}"

[webhooks."ftp://a"]
events = ["email.delivered", "email.lost"]

[api_keys.k]
permission = "all"
domain = "nobody.example"
[contact_properties.email]
type = "string"
`)
	out := s.apply(1)
	for _, want := range []string{":2: topics.News.default_subscription: ",
		":4: topic: this kind of resource is unknown; did you mean topics?",
		":9: topics.Late.visability: the field is unknown; did you mean visibility?", ":11: domains.\"not a domain\": ",
		":13: domains.\"acme.net\".capabilities.", ":16: segments.A.filter.operator: ", ":21: templates.t.html_file: ",
		":23: templates.u.html: ", ":25: webhooks.\"ftp://a\": ", ":26: webhooks.\"ftp://a\".events: ",
		":29: api_keys.k.permission: ",
		":31: contact_properties.email: "} {
		if !strings.Contains(out, "team.toml"+want) {
			t.Errorf("the problems lack %q:\n%s", want, out)
		}
	}
	if s.counts() != nothingMade {
		t.Errorf("the team has %s", s.counts())
	}
	const unknownTopic = `[segments.B]
filter = '{"type":"rule","field":"contact.topics.${topics.None}","operator":"eq","value":"opt_in"}'`
	for text, want := range map[string]string{"[topics": "team.toml:1: the file is not a set-up",
		"topics = 1": "team.toml:1: topics: write tables such as [topics.News]",
		"[topics.A]\ndefault_subscription = 1": "team.toml:2: topics.A.default_subscription: " +
			"the value must be a string, not a int64",
		unknownTopic: `the topic "None" is neither in the file nor in the team`,
		"[api_keys.k]\npermission = \"sending_access\"\ndomain = \"acme.net\"": "team.toml:3: api_keys.k.domain: the " +
			`domain "acme.net" is neither`} {
		s.write(text)
		if out := s.apply(1); !strings.Contains(out, want) {
			t.Errorf("%q: want %q in\n%s", text, want, out)
		}
	}
	s.write("[topics.A]\ndefault_subscription = \"opt_in\"\n")
	s.apply(0)
	s.write("[topics.A]\ndefault_subscription = \"opt_out\"\n")
	out = s.apply(1, "--json")
	var problems errorObject
	if err := json.Unmarshal([]byte(out), &problems); err != nil || problems.Kind != "invalid" ||
		len(problems.Wrong) != 1 || *problems.Wrong[0].Setting != "topics.A.default_subscription" ||
		!strings.HasSuffix(*problems.Wrong[0].Place, "team.toml:2") {
		t.Errorf("another default subscription: %v\n%s", err, out)
	}
	s.apply(2, "--drift", "--api-key", "re_unknown")
	folder := filepath.Join(s.dir, "team")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.toml", "b.toml"} {
		const rest = "]\ndefault_subscription = \"opt_in\"\n"
		text := "[topics.A" + rest + "[topics." + name[:1] + rest
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.file = folder
	if out := s.apply(1); !strings.Contains(out, "b.toml:1: topics.A: ") ||
		!strings.Contains(out, "a.toml:1 has the same topic") {
		t.Errorf("a topic in two files:\n%s", out)
	}
}

// crashing is a proxy that lets some requests through and then refuses all, as if the command had been killed. The last
// request that it lets through has its effect, and its response is lost.
func (s *setup) crashing(allowed int) (address string, passed *atomic.Int64) {
	s.t.Helper()
	target, err := url.Parse(s.n.url)
	if err != nil {
		s.t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	passed = new(atomic.Int64)
	p := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n := int(passed.Add(1)); {
		case n < allowed:
			forward.ServeHTTP(w, r)
			return
		case n == allowed:
			forward.ServeHTTP(httptest.NewRecorder(), r)
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	s.t.Cleanup(p.Close)
	return p.URL, passed
}

// A run that is interrupted after any request is completed by the next runs, and nothing is created twice.
func TestApplyInterrupted(t *testing.T) {
	t.Parallel()
	s := newSetup(t, migratedInstallation(t, "sqlite"), wholeSetup)
	secrets := filepath.Join(s.dir, "secrets.json")
	runs := 0
	for allowed := 1; ; allowed++ {
		address, passed := s.crashing(allowed)
		_, errOut, code := s.command("apply", s.file, "--url", address, "--secrets-file", secrets)
		if runs++; code == 0 {
			break
		}
		if passed.Load() < int64(allowed) || runs > 200 {
			t.Fatalf("run %d with %d requests: %s", runs, allowed, errOut)
		}
	}
	if runs < 15 || s.counts() != allMade {
		t.Errorf("after %d runs the team has %s", runs, s.counts())
	}
	if out := s.apply(0); !strings.Contains(out, "No changes") {
		t.Errorf("another run prints\n%s", out)
	}
	info, err := os.Stat(secrets)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file for secrets has mode %v, error %v", info.Mode(), err)
	}
	text, err := os.ReadFile(secrets)
	var all map[string]map[string]string
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil || len(all["api_keys"]) != 2 || len(all["webhooks"]) != 1 {
		t.Fatalf("the secrets are %s, error %v", text, err)
	}
	for name, token := range all["api_keys"] {
		if _, err := s.n.Teams.Authenticate(t.Context(), token); err != nil {
			t.Errorf("the token of %s: %v", name, err)
		}
	}
}

// Runs on several machines at the same time create each resource once. Runs with the same file exclude each other.
func TestApplyConcurrently(t *testing.T) {
	t.Parallel()
	s := newSetup(t, migratedInstallation(t, "sqlite"), wholeSetup)
	var wg sync.WaitGroup
	for i := range 3 {
		copied := filepath.Join(s.dir, fmt.Sprintf("copy%d.toml", i))
		if err := os.WriteFile(copied, []byte(wholeSetup), 0o600); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if out, errOut, code := s.command("apply", copied, "--url", s.n.url); code != 0 &&
				!strings.Contains(errOut, "409") && !strings.Contains(errOut, "404") {
				t.Errorf("exit code %d\n%s%s", code, out, errOut)
			}
		})
	}
	wg.Wait()
	s.apply(0)
	if got := s.counts(); got != allMade {
		t.Errorf("the team has %s", got)
	}
	unlock, err := apply.Lock(s.file)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if out := s.apply(1); !strings.Contains(out, apply.ErrLocked.Error()) {
		t.Errorf("a second run with the same file prints\n%s", out)
	}
	s.apply(0, "--plan")
}

// The key may be in a file. If the result is JSON, it has the secrets, and standard error has each of them at once.
func TestApplyJSON(t *testing.T) {
	t.Parallel()
	s := newSetup(t, migratedInstallation(t, "sqlite"), "[api_keys.billing]\npermission = \"sending_access\"\n")
	file := filepath.Join(s.dir, "key")
	if err := os.WriteFile(file, []byte(s.key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	delete(s.vars, "POSTRIDER_API_KEY")
	var result applyResult
	out, errOut, code := s.command("apply", s.file, "--url", s.n.url, "--json", "--api-key-file", file)
	if err := json.Unmarshal([]byte(out), &result); err != nil || code != 0 || len(result.Secrets) != 1 ||
		!strings.Contains(errOut, "shown only once: "+result.Secrets[0].Value) ||
		!strings.HasPrefix(result.Secrets[0].Value, "re_") || result.Changes[0].ID == "" ||
		!slices.Equal(result.Notes, []string{}) {
		t.Errorf("%d, %v\n%s%s", code, err, out, errOut)
	}
	if out := s.apply(2); !strings.Contains(out, "POSTRIDER_API_KEY") {
		t.Errorf("without a key: %s", out)
	}
	// The permission of a key cannot be changed, and the API does not show it.
	s.write("[api_keys.billing]\npermission = \"full_access\"\n")
	if out := s.apply(1, "--api-key-file", file); !strings.Contains(out, "team.toml:2: api_keys.billing.permission: ") {
		t.Errorf("another permission: %s", out)
	}
}

// The state file is next to the folder, however the folder is spelled. Each run finds what the first one noted.
func TestApplySpellings(t *testing.T) {
	s := newSetup(t, migratedInstallation(t, "sqlite"), "")
	folder := filepath.Join(s.dir, "team")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "a.toml")
	if err := os.WriteFile(file, []byte("[topics.A]\ndefault_subscription = \"opt_in\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.file = folder
	s.apply(0)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(folder)
	for _, spelling := range []string{".", "./", "../team", folder + "/", filepath.Join(folder, "..") + "/./team"} {
		s.file = spelling
		if out := s.apply(0); !strings.Contains(out, "? topics A is no longer in the file") {
			t.Errorf("apply %s prints\n%s", spelling, out)
		}
	}
}
