package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/node/importfrom"
	"github.com/postrider/postrider/internal/platform/page"
)

// filledSource starts a second installation with data of each kind, and returns its node and API key.
func filledSource(t *testing.T, people int) (*started, string) {
	t.Helper()
	q := sqliteInstallation(t)
	q.vars["POSTRIDER_RATE_LIMIT"] = "0"
	key := q.key("Source")
	n := q.start()
	n.made(key, "/domains", `{"name":"source.example","custom_return_path":"bounce"}`)
	n.made(key, "/contact-properties", `{"key":"plan","type":"string","fallback_value":"free"}`)
	segment := n.made(key, "/segments", `{"name":"Readers"}`)
	topic := n.made(key, "/topics", `{"name":"News","default_subscription":"opt_in","visibility":"public"}`)
	n.made(key, "/templates", `{"name":"Order","alias":"order","subject":"{{{ITEM}}}","html":"<p>{{{ITEM}}}</p>",
		"variables":[{"key":"ITEM","type":"string"}]}`)
	n.must(key, http.MethodPost, "/templates/order/publish", "")
	n.must(key, http.MethodPost, "/suppressions/batch/add", `{"emails":["gone@example.net"]}`)
	n.made(key, "/webhooks", `{"endpoint":"https://hooks.example.com/in","events":["email.sent"]}`)
	for i := range people {
		topics, segments := "", ""
		if i%3 == 0 {
			topics = fmt.Sprintf(`,"topics":[{"id":%q,"subscription":"opt_out"}]`, topic)
		}
		if i%2 == 0 {
			segments = fmt.Sprintf(`,"segments":[%q]`, segment)
		}
		n.made(key, "/contacts", fmt.Sprintf(`{"email":"person%d@example.net","first_name":"Name %d","unsubscribed":%v,
			"properties":{"plan":"plan %d"}%s%s}`, i, i, i%5 == 0, i%4, topics, segments))
	}
	return n, key
}

// must makes a request that has to succeed.
func (n *started) must(key, method, path, body string) string {
	n.t.Helper()
	status, text := n.ask(key, method, path, body)
	if status/100 != 2 {
		n.t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	return text
}

// movable holds the data of a contact that an import takes over, by address.
func movable(t *testing.T, n *started, key string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for line := range strings.Lines(n.must(key, http.MethodGet, "/contacts/export?format=ndjson", "")) {
		var c struct {
			exportedContact
			Segments []struct{ Name string }
			Topics   []struct{ Name, Subscription string }
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		if _, twice := all[c.Email]; twice {
			t.Errorf("%s is there twice", c.Email)
		}
		c.Topics = slices.DeleteFunc(c.Topics, func(x struct{ Name, Subscription string }) bool {
			return x.Subscription == "opt_in" // the topic's default
		})
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		all[c.Email] = string(text)
	}
	return all
}

// TestImportFromPostrider imports a second installation while the target's node runs. The product fails in the middle;
// the next command continues. All data arrives once, the key is shown and stored nowhere, and nothing is sent.
func TestImportFromPostrider(t *testing.T) {
	t.Parallel()
	source, sourceKey := filledSource(t, 230)
	eachEngine(t, func(t *testing.T, p *installation) {
		p.vars["POSTRIDER_HOSTNAME"], p.vars["POSTRIDER_PUBLIC_URL"] = "mail.acme.example", "https://mail.acme.example"
		p.vars["POSTRIDER_TRUST_DOMAINS"] = "false"
		key := p.key("Acme")
		n := p.start()
		keyFile := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(keyFile, []byte(sourceKey+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		left := atomic.Int64{}
		left.Store(1 << 40)
		to, err := url.Parse(source.url)
		if err != nil {
			t.Fatal(err)
		}
		forward := httputil.NewSingleHostReverseProxy(to)
		forward.ErrorLog = log.New(io.Discard, "", 0) // the command ends while a request is being answered
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				t.Errorf("the source was asked for %s %s", r.Method, r.URL)
			}
			if left.Add(-1) < 0 {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			forward.ServeHTTP(w, r)
		}))
		defer proxy.Close()
		args := []string{"import-from", "resend", "--team", "Acme", "--key-file", keyFile, "--from-url", proxy.URL}
		counts := func(out string) map[importfrom.Kind]string {
			t.Helper()
			var r importfrom.Report
			var o map[string]any
			if err := errors.Join(json.Unmarshal([]byte(out), &r), json.Unmarshal([]byte(out), &o)); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if bad := badNames(o); bad != nil {
				t.Errorf("the report names %q", bad)
			}
			all := map[importfrom.Kind]string{}
			for kind, c := range r.Counts {
				all[kind] = fmt.Sprintf("%d+%d+%d, %d kept", c.Created, c.Completed, c.Differing+c.Refused, c.Kept)
			}
			return all
		}
		want := map[importfrom.Kind]string{importfrom.Domains: "1+0+0, 0 kept", importfrom.Properties: "1+0+0, 0 kept",
			importfrom.Segments: "1+0+0, 0 kept", importfrom.Topics: "1+0+0, 0 kept", importfrom.Templates: "1+0+0, 0 kept",
			importfrom.Suppressions: "1+0+0, 0 kept", importfrom.Contacts: "230+0+0, 0 kept",
			importfrom.Members: "0+115+0, 0 kept", importfrom.Webhooks: "1+0+0, 0 kept"}
		planned := maps.Clone(want)
		planned[importfrom.Members] = "115+0+0, 0 kept" // the contacts are not there yet
		out := p.must(append(args, "--dry-run", "--json")...)
		if diff := cmp.Diff(planned, counts(out)); diff != "" {
			t.Errorf("dry run: %s", diff)
		}
		if n.count(`SELECT COUNT(*) FROM contacts`) != 0 {
			t.Error("a dry run created contacts")
		}

		left.Store(300) // in the middle of the contacts
		out, errOut, code := p.command(args...)
		if code != 1 || !strings.Contains(errOut, "run the command again to continue") {
			t.Errorf("an import that fails: %d %s%s", code, out, errOut)
		}
		state, err := filepath.Glob(filepath.Join(p.dir, "import-from-resend-*.json"))
		if err != nil || len(state) != 1 {
			t.Fatalf("state files: %v, %v", state, err)
		}
		stored, err := os.ReadFile(state[0])
		if err != nil || strings.Contains(string(stored), sourceKey) || strings.Contains(out+errOut, sourceKey) {
			t.Errorf("the key is shown or stored, or %v", err)
		}
		if created := n.count(`SELECT COUNT(*) FROM contacts`); created == 0 || created == 230 {
			t.Errorf("%d contacts were created before the failure", created)
		}
		left.Store(1 << 40)
		if diff := cmp.Diff(want, counts(p.must(append(args, "--json")...))); diff != "" {
			t.Errorf("continued: %s", diff)
		}
		checkImported(t, p, n, key, movable(t, source, sourceKey))
		p.must(args...)
		if again := counts(p.must(append(args, "--json")...)); again[importfrom.Contacts] != "0+0+0, 230 kept" {
			t.Errorf("again: %v", again)
		}
	})
}

// checkImported checks the data of the target after an import.
func checkImported(t *testing.T, p *installation, n *started, key string, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, movable(t, n, key)); diff != "" {
		t.Errorf("contacts: %s", diff)
	}
	var list struct {
		Data []struct{ Name, Status string }
	}
	if err := json.Unmarshal([]byte(n.must(key, http.MethodGet, "/domains", "")), &list); err != nil ||
		len(list.Data) != 1 || list.Data[0].Status != "not_started" {
		t.Errorf("domains: %+v, %v", list, err)
	}
	if text := n.must(key, http.MethodGet, "/webhooks", ""); !strings.Contains(text, `"disabled"`) {
		t.Errorf("webhooks: %s", text)
	}
	if text := n.must(key, http.MethodGet, "/templates/order", ""); !strings.Contains(text, `"published"`) {
		t.Errorf("template: %s", text)
	}
	for _, table := range []string{"emails", "webhook_messages"} {
		if found := n.count(`SELECT COUNT(*) FROM ` + table); found > 0 {
			t.Errorf("the import added %d %s", found, table)
		}
	}
	var keys struct{ Data []struct{ Name string } }
	if err := json.Unmarshal([]byte(n.must(key, http.MethodGet, "/api-keys", "")), &keys); err != nil || len(keys.Data) != 1 {
		t.Errorf("keys: %+v, %v", keys, err)
	}
	team, err := n.Teams.Find(t.Context(), "Acme")
	if err != nil {
		t.Fatal(err)
	}
	all, _, err := n.Contacts.Topics(t.Context(), team.ID, page.Page{})
	if err != nil || len(all) != 1 || all[0].Visibility != "public" {
		t.Errorf("topics: %+v, %v", all, err)
	}
	if out := p.must("audit", "list", "--team", "Acme", "--action", "team.imported"); !strings.Contains(out, "resend ") {
		t.Errorf("the audit log:\n%s", out)
	}
}

// A command without a usable key, team or URL says what is missing.
func TestImportFromRefuses(t *testing.T) {
	t.Parallel()
	p := sqliteInstallation(t)
	p.key("Acme")
	source, _ := filledSource(t, 0)
	p.refused("--team", "import-from", "resend")
	p.refused("the key of the product is missing", "import-from", "resend", "--team", "Acme")
	p.vars["POSTRIDER_IMPORT_KEY"] = "re_wrong"
	p.refused("without encryption", "import-from", "resend", "--team", "Acme", "--from-url", "http://api.example.com")
	p.refused(`"emails" is not a kind`, "import-from", "resend", "--team", "Acme", "--only", "emails")
	p.refused("check the key", "import-from", "resend", "--team", "Acme", "--from-url", source.url, "--dry-run")
	p.refused("--account-key-file", "import-from", "postmark", "--team", "Acme", "--account-key-file", "absent")
	p.refused("--key-file", "import-from", "postmark", "--team", "Acme", "--key-file", "absent")
	p.refused("unknown subcommand", "import-from", "hotmail")
}

// listmonkAnswers are those of https://listmonk.app/docs/apis/lists/, /templates/, /bounces/ and /subscribers/.
var listmonkAnswers = map[string]string{
	"/api/lists": `{"data":{"results":[{"id":1,"name":"News","type":"public","optin":"single"}],"total":1}}`,
	"/api/templates": `{"data":[{"id":2,"name":"Welcome","type":"tx","subject":"Hi","body":"<p>{{ .Tx.Data.code }}</p>"},
		{"id":1,"name":"Layout","type":"campaign","body":"{{ template \"content\" . }}"}]}`,
	"/api/bounces": `{"data":{"results":[{"id":1,"type":"hard","email":"gone@example.net"}],"total":1}}`,
	"/api/subscribers": `{"data":{"results":[
		{"id":1,"email":"ann@example.net","name":"Ann Lee","attribs":{"city":"Graz"},"status":"enabled",
		"lists":[{"id":1,"subscription_status":"confirmed"}]},
		{"id":2,"email":"bob@example.net","name":"Bob","attribs":{},"status":"blocklisted",
		"lists":[{"id":1,"subscription_status":"unsubscribed"}]}],"total":2}}`,
}

// An import from listmonk brings the consent of each subscriber. A contact that the team has as subscribed is
// unsubscribed if it is blocklisted there. A refused record makes the command fail after the report.
func TestImportFromListmonk(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.key("Acme")
		n := p.start()
		n.made(key, "/contacts", `{"email":"bob@example.net","first_name":"Robert"}`)
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, token, _ := r.BasicAuth(); user != "api" || token != "secret" {
				t.Errorf("the user is %q", user)
			}
			io.WriteString(w, listmonkAnswers[r.URL.Path])
		}))
		defer api.Close()
		p.refused("--from-url is missing", "import-from", "listmonk", "--team", "Acme")
		p.refused("the key of the product is missing", "import-from", "listmonk", "--team", "Acme", "--from-url", api.URL)
		p.vars["POSTRIDER_IMPORT_KEY"] = "secret"
		p.refused("user:token", "import-from", "listmonk", "--team", "Acme", "--from-url", api.URL)
		p.vars["POSTRIDER_IMPORT_KEY"] = "api:secret"
		out, errOut, code := p.command("import-from", "listmonk", "--team", "Acme", "--from-url", api.URL)
		if code != 1 || !strings.Contains(errOut, "1 records were refused") ||
			!strings.Contains(out, "templates Layout: refused (it is a layout") || strings.Contains(out+errOut, "secret") {
			t.Errorf("%d %s%s", code, out, errOut)
		}
		want := map[string]string{
			"ann@example.net": `{"email":"ann@example.net","first_name":"Ann","last_name":"Lee","unsubscribed":false,` +
				`"properties":{"city":"Graz"},"Segments":[{"Name":"News"}],"Topics":[]}`,
			"bob@example.net": `{"email":"bob@example.net","first_name":"Robert","last_name":null,"unsubscribed":true,` +
				`"properties":{},"Segments":[],"Topics":[{"Name":"News","Subscription":"opt_out"}]}`,
		}
		if diff := cmp.Diff(want, movable(t, n, key)); diff != "" {
			t.Error(diff)
		}
		text := n.must(key, http.MethodGet, "/suppressions", "")
		if !strings.Contains(text, "gone@example.net") || !strings.Contains(text, "bob@example.net") {
			t.Errorf("suppressions: %s", text)
		}
	})
}
