package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// exportedContact holds the fields of an exported contact that an import reads.
type exportedContact struct {
	Email        string         `json:"email"`
	FirstName    *string        `json:"first_name"`
	LastName     *string        `json:"last_name"`
	Unsubscribed bool           `json:"unsubscribed"`
	Properties   map[string]any `json:"properties"`
}

// imported returns the contact as an import stores it, with trimmed strings and without empty values.
func (c exportedContact) imported() exportedContact {
	trim := func(name *string) *string {
		if name == nil || strings.TrimSpace(*name) == "" {
			return nil
		}
		return new(strings.TrimSpace(*name))
	}
	c.FirstName, c.LastName, c.Properties = trim(c.FirstName), trim(c.LastName), maps.Clone(c.Properties)
	for name, value := range c.Properties {
		text, isText := value.(string)
		if text = strings.TrimSpace(text); isText && text == "" {
			delete(c.Properties, name)
		} else if isText {
			c.Properties[name] = text
		}
	}
	return c
}

// exported exports the contacts selected by query, and returns the contacts sorted by address and the path of the
// exported CSV file.
func (n *started) exported(key, query string) (all []exportedContact, path string) {
	n.t.Helper()
	_, text := n.ask(key, http.MethodGet, "/contacts/export?format=ndjson"+query, "")
	for line := range strings.Lines(text) {
		var c exportedContact
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			n.t.Fatalf("read the export %q: %v", line, err)
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b exportedContact) int { return strings.Compare(a.Email, b.Email) })
	status, text := n.ask(key, http.MethodGet, "/contacts/export?format=csv"+query, "")
	if status != http.StatusOK {
		n.t.Fatalf("export contacts: %d %s", status, text)
	}
	path = filepath.Join(n.t.TempDir(), "contacts.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
	return all, path
}

// Another team can import an exported contacts file unchanged. The import creates the same contacts and values, except
// for leading and trailing white space in strings. A segment that is exported and then imported into another segment
// has the same members.
func TestExportIsImportedAgain(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key, other, third := p.key("Acme"), p.key("Other"),
			p.key("Third")
		n := p.start()
		n.made(key, "/contact-properties", `{"key":"plan","type":"string"}`)
		n.made(key, "/contact-properties", `{"key":"Plan","type":"string"}`)
		n.made(key, "/contact-properties", `{"key":"seats","type":"number"}`)
		n.made(key, "/contact-properties", `{"key":"nobody_has_it","type":"number"}`)
		segment := n.made(key, "/segments", `{"name":"=News, \"daily\""}`)
		topic := n.made(key, "/topics", `{"name":"News","default_subscription":"opt_in"}`)
		seats := []float64{0, -1, 0.1, 1e-7, 12.5, 1<<53 - 1, -(1<<53 - 1)}
		for i, text := range []string{"", " ", " a\t", "pro", "true", "a,b;c\td|e", `"`, `""a""`, "a\nb", "a\r\nb", "a\rb",
			"\\r\\n", "=1+1", "+49 30 1234", "'a", "sep=;", "\ufeffü\u202e😀", "\u0080\u00ff", "a\x01\x1b\x7fb",
			strings.Repeat("ж", 2000)} {
			name := strings.NewReplacer("\r", "", "\n", "").Replace(text)
			contact := map[string]any{"email": fmt.Sprintf("reader+%02d@example.org", i), "unsubscribed": i%3 == 0,
				"first_name": string([]rune(name)[:min(len([]rune(name)), 255)]), "last_name": "O'Neil \"O\", jr.",
				"properties": map[string]any{"plan": text, "Plan": strings.ToUpper(text), "seats": seats[i%len(seats)]}}
			if i%2 == 0 {
				contact["segments"] = []string{segment}
				contact["topics"] = []map[string]string{{"id": topic, "subscription": "opt_out"}}
			}
			body, err := json.Marshal(contact)
			if err != nil {
				t.Fatal(err)
			}
			n.made(key, "/contacts", string(body))
		}
		want, file := n.exported(key, "")
		for i, c := range want {
			want[i] = c.imported()
		}
		imported := func(key string, args ...string) {
			t.Helper()
			p.vars["RESEND_API_KEY"], p.vars["RESEND_BASE_URL"] = key, n.url
			args = append([]string{"contacts", "import"}, args...)
			if out, errOut, code := p.command(args...); code != 0 {
				t.Fatalf("%q: %d %s%s", args, code, out, errOut)
			}
		}
		byName := []string{"--map", "email=email", "--map", "first_name=first_name", "--map", "last_name=last_name",
			"--map", "unsubscribed=unsubscribed", "--property", "plan=plan", "--property", "Plan=Plan",
			"--property", "seats:number=seats", "--property", "nobody_has_it:number=nobody_has_it"}
		imported(other, append([]string{file}, byName...)...)
		got, _ := n.exported(other, "")
		if diff := cmp.Diff(want, got); diff != "" || len(want) != 20 {
			t.Errorf("%d contacts: %s", len(want), diff)
		}

		members, file := n.exported(key, "&segment_id="+segment)
		for i, c := range members {
			members[i] = c.imported()
		}
		theirs := n.made(other, "/segments", `{"name":"Theirs"}`)
		imported(other, append([]string{file, "--on-conflict", "upsert", "--segment", theirs}, byName...)...)
		got, _ = n.exported(other, "&segment_id="+theirs)
		if diff := cmp.Diff(members, got); diff != "" || len(members) != 10 {
			t.Errorf("%d contacts of the segment: %s", len(members), diff)
		}
		if got, _ = n.exported(other, ""); !cmp.Equal(want, got) {
			t.Errorf("imported again, the contacts are others: %s", cmp.Diff(want, got))
		}

		imported(third, file)
		for i := range members {
			members[i].Properties = map[string]any{}
		}
		if got, _ = n.exported(third, ""); !cmp.Equal(members, got) {
			t.Errorf("without a map: %s", cmp.Diff(members, got))
		}
	})
}
