package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/client"
)

// loses applies a file and interrupts the run when it has created a resource and waits for the response.
func (s *setup) loses(text string) {
	s.t.Helper()
	s.write(text)
	before := s.counts()
	for allowed := 1; s.counts() == before; allowed++ {
		address, _ := s.crashing(allowed)
		if out, errOut, code := s.command("apply", s.file, "--url", address); code == 0 {
			s.t.Fatalf("the run was not interrupted\n%s%s", out, errOut)
		}
	}
}

const (
	billingKey = "[api_keys.billing]\npermission = \"sending_access\"\n"
	adminKey   = "[api_keys.admin]\npermission = \"full_access\"\n"
)

// If runs are interrupted while they create different API keys, the next run replaces all of these keys.
func TestApplyLosesSeveralTokens(t *testing.T) {
	t.Parallel()
	s := newSetup(t, migratedInstallation(t, "sqlite"), "")
	s.loses(billingKey)
	s.loses(billingKey + adminKey)
	secrets := filepath.Join(s.dir, "secrets.json")
	if out := s.apply(0, "--secrets-file", secrets); !strings.Contains(out, "± api_keys admin (nobody saw its token") ||
		!strings.Contains(out, "± api_keys billing (nobody saw its token") {
		t.Errorf("the plan is\n%s", out)
	}
	var all map[string]map[string]string
	text, err := os.ReadFile(secrets)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil || len(all["api_keys"]) != 2 {
		t.Fatalf("the secrets are %s, error %v", text, err)
	}
	for name, token := range all["api_keys"] {
		if _, err := s.n.Teams.Authenticate(t.Context(), token); err != nil {
			t.Errorf("the token of %s: %v", name, err)
		}
	}
	s.apply(0, "--drift")
}

// A key that an interrupted run has created can be deleted after its table was removed from the file.
func TestApplyPrunesInterruptedCreation(t *testing.T) {
	t.Parallel()
	s := newSetup(t, migratedInstallation(t, "sqlite"), "")
	before := s.counts()
	s.loses(billingKey)
	s.write("")
	if out := s.apply(0); !strings.Contains(out, "? api_keys billing is no longer in the file; --prune deletes it\n") {
		t.Errorf("applying the file without the key prints\n%s", out)
	}
	s.write(billingKey)
	if out := s.apply(0, "--plan"); !strings.Contains(out, "± api_keys billing") {
		t.Errorf("the plan for the file with the key is\n%s", out)
	}
	s.write("")
	s.apply(0, "--prune")
	if got := s.counts(); got != before {
		t.Errorf("after --prune the team has %s, want %s", got, before)
	}
	s.apply(0, "--drift", "--prune")
}

// The next run shows the signing secret of a webhook that an interrupted run has created.
func TestApplyShowsSecretOfInterruptedCreation(t *testing.T) {
	t.Parallel()
	s := newSetup(t, migratedInstallation(t, "sqlite"), "")
	s.loses("[webhooks.\"https://hooks.acme.example/\"]\nevents = [\"email.sent\"]\n")
	for i, want := range []bool{true, false} {
		if out := s.apply(0); strings.Contains(out, "whsec_") != want ||
			!strings.Contains(out, "No changes: the team matches the file.\n") {
			t.Errorf("run %d after the interruption prints\n%s", i+1, out)
		}
	}
}

// readOnly starts a proxy that refuses all requests that would change something, and returns its URL. The body is that
// of its responses.
func (s *setup) readOnly(body string) string {
	s.t.Helper()
	target, err := url.Parse(s.n.url)
	if err != nil {
		s.t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	p := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, body)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	s.t.Cleanup(p.Close)
	return p.URL
}

// state returns the state file.
func (s *setup) state() string {
	s.t.Helper()
	text, err := os.ReadFile(s.file + ".state.json")
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// A creation that the API refused, or that stayed in doubt long ago, is not that of a resource that somebody creates
// under its name by hand: a key is not replaced, the secret of a webhook is not shown, and --prune deletes neither.
func TestApplyLeavesResourcesOfOthers(t *testing.T) {
	t.Parallel()
	const hook = "[webhooks.\"https://hooks.acme.example/\"]\nevents = [\"email.sent\"]\n"
	aTime := regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)
	for name, body := range map[string]string{"in doubt": "",
		"refused": `{"statusCode":403,"name":"restricted_api_key","message":"This key may not do this."}`} {
		s, ctx := newSetup(t, migratedInstallation(t, "sqlite"), ""), t.Context()
		for _, text := range []string{billingKey, billingKey + hook} {
			s.write(text)
			if _, errOut, code := s.command("apply", s.file, "--url", s.readOnly(body)); code != 1 {
				t.Fatalf("%s: exit code %d\n%s", name, code, errOut)
			}
			state := s.state()
			if strings.Contains(state, "unshown") != (body == "") {
				t.Errorf("%s: the state is %s", name, state)
			}
			old := aTime.ReplaceAllString(state, "2020-01-01T00:00:00Z")
			if err := os.WriteFile(s.file+".state.json", []byte(old), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := s.api.APIKeys.Create(ctx, client.CreateKey{Name: "billing", Permission: "sending_access"})
		if err == nil {
			_, err = s.api.Webhooks.Create(ctx, client.CreateWebhook{Endpoint: "https://hooks.acme.example/",
				Events: []string{"email.sent"}})
		}
		if err != nil {
			t.Fatal(err)
		}
		before, state := s.counts(), s.state()
		s.write("")
		s.apply(0, "--prune")
		if got := s.counts(); got != before {
			t.Errorf("%s: --prune leaves %s, want %s", name, got, before)
		}
		if err := os.WriteFile(s.file+".state.json", []byte(state), 0o600); err != nil {
			t.Fatal(err)
		}
		s.write(billingKey + hook)
		if out := s.apply(0); strings.Contains(out, "±") || strings.Contains(out, "whsec_") {
			t.Errorf("%s: the next run prints\n%s", name, out)
		}
		if state := s.state(); strings.Contains(state, "unshown") || strings.Contains(state, "begun_at") {
			t.Errorf("%s: the state at the end is %s", name, state)
		}
	}
}

// A resource that an interrupted run created is noted once. If somebody deletes it and creates another one of its name,
// --prune keeps the other one.
func TestApplyNotesInterruptedCreationOnce(t *testing.T) {
	t.Parallel()
	s, ctx := newSetup(t, migratedInstallation(t, "sqlite"), ""), t.Context()
	s.loses("[segments.Customers]\n")
	s.write("")
	s.apply(0)
	for g, err := range s.api.Segments.All(ctx, client.Page{}) {
		if err == nil {
			_, err = s.api.Segments.Delete(ctx, g.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.api.Segments.Create(ctx, client.CreateSegment{Name: "Customers"}); err != nil {
		t.Fatal(err)
	}
	before := s.counts()
	s.apply(0, "--prune")
	if got := s.counts(); got != before {
		t.Errorf("--prune leaves %s, want %s", got, before)
	}
}

// Resources of all kinds that an interrupted run has created can be deleted after their tables left the file. A
// creation that the API refused is forgotten: --prune keeps what somebody creates by hand under its name.
func TestApplyPrunesInterruptedCreations(t *testing.T) {
	t.Parallel()
	s := newSetup(t, migratedInstallation(t, "sqlite"), "")
	before := s.counts()
	for table, text := range map[string]string{
		"domains":            "[domains.\"acme.net\"]\n",
		"contact_properties": "[contact_properties.plan]\ntype = \"string\"\n",
		"topics":             "[topics.News]\ndefault_subscription = \"opt_in\"\n",
		"segments":           "[segments.Customers]\n",
		"templates":          "[templates.order]\nhtml = \"<p>Hello</p>\"\nsubject = \"Hello\"\n",
	} {
		s.loses(text)
		s.write("")
		if out := s.apply(0); !strings.Contains(out, "? "+table+" ") {
			t.Errorf("applying the file without %s prints\n%s", table, out)
		}
		s.apply(0, "--prune")
		if got := s.counts(); got != before {
			t.Errorf("after --prune the team has %s, want %s", got, before)
		}
	}
	s.write("[topics.News]\ndefault_subscription = \"opt_in\"\n")
	if _, errOut, code := s.command("apply", s.file, "--url", s.readOnly("")); code != 1 || !strings.Contains(errOut, "403") {
		t.Fatalf("exit code %d\n%s", code, errOut)
	}
	if got := s.counts(); got != before {
		t.Fatalf("the team has %s, want %s", got, before)
	}
	s.write("")
	s.apply(0)
	if _, err := s.api.Topics.Create(t.Context(), client.CreateTopic{Name: "News",
		DefaultSubscription: "opt_in"}); err != nil {
		t.Fatal(err)
	}
	after := s.counts()
	s.apply(0, "--prune")
	if got := s.counts(); got != after {
		t.Errorf("--prune deletes a topic that was created by hand: %s, want %s", got, after)
	}
}

// A resource that was renamed to the name of another table belongs to its own table only. It gets its name back before
// the other one is created.
func TestApplyRenamedToAnotherTable(t *testing.T) {
	t.Parallel()
	s, ctx := newSetup(t, migratedInstallation(t, "sqlite"), ""), t.Context()
	const order = "[templates.order]\nname = \"Order\"\nhtml = \"<p>Order</p>\"\n"
	s.write(order)
	s.apply(0)
	made, err := s.api.Templates.Get(ctx, "order")
	if err == nil {
		_, err = s.api.Templates.Update(ctx, made.ID, client.UpdateTemplate{Alias: client.Set("invoice")})
	}
	if err != nil {
		t.Fatal(err)
	}
	s.write(order + "[templates.invoice]\nname = \"Invoice\"\nhtml = \"<p>Invoice</p>\"\n")
	if out := s.apply(0); !strings.Contains(out, "Plan: 1 to create, 1 to change") {
		t.Errorf("applying both tables prints\n%s", out)
	}
	s.apply(0, "--drift")
	for alias, want := range map[string]string{"order": "Order", "invoice": "Invoice"} {
		got, err := s.api.Templates.Get(ctx, alias)
		if err != nil || got.Name != want || (got.ID == made.ID) != (alias == "order") {
			t.Errorf("the template %s is %+v, error %v", alias, got, err)
		}
	}
	other, err := s.api.Templates.Get(ctx, "invoice")
	if err != nil {
		t.Fatal(err)
	}
	twice := strings.ReplaceAll(s.state(), other.ID, made.ID)
	if err := os.WriteFile(s.file+".state.json", []byte(twice), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := s.apply(1); !strings.Contains(out, "has the same template for this table and for templates.") {
		t.Errorf("a state file with one template for two tables: %s", out)
	}
}
