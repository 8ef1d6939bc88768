package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// `contacts import` imports a file through a running node and prints the result.
func TestContactsImport(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		p.vars["RESEND_API_KEY"] = p.key("Acme")
		n := p.start()
		defer n.end()
		p.vars["RESEND_BASE_URL"] = n.url + "/"
		d := &driver{started: n, key: p.vars["RESEND_API_KEY"]}
		segmentID := d.do("POST", "/segments", `{"name":"News"}`)
		topicID := d.do("POST", "/topics", `{"name":"T","default_subscription":"opt_out"}`)
		dir, files := t.TempDir(), 0
		write := func(text string) string {
			t.Helper()
			files++
			path := filepath.Join(dir, fmt.Sprintf("people%d.csv", files))
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}
		out := p.must("contacts", "import", write("email,first_name\n"+strings.Repeat("a@example.org,A\n", 5000)))
		if out != "5000 rows: 1 created, 0 updated, 4999 skipped, 0 failed" {
			t.Errorf("%s", out)
		}
		failures := filepath.Join(dir, "failures.csv")
		out, errOut, code := p.command("contacts", "import", write("Mail,Name,Plan,Seats\nb@example.org,B,pro,1\nc,,,\n"),
			"--map", "email=Mail", "--map", "first_name=Name", "--property", "plan=Plan", "--property", "seats:number=Seats",
			"--segment", segmentID, "--topic", topicID+"=opt_in", "--on-conflict", "upsert", "--failures", failures)
		if code != 1 || out != "2 rows: 1 created, 0 updated, 0 skipped, 1 failed\n" ||
			!strings.Contains(errOut, "100%  2 rows, 1 failed\n") || !strings.Contains(errOut, failures+" says why") {
			t.Errorf("%d %s%s", code, out, errOut)
		}
		if text, err := os.ReadFile(failures); err != nil ||
			!strings.HasPrefix(string(text), "line,reason,Mail,Name,Plan,Seats\n3,Invalid") {
			t.Errorf("%s, %v", text, err)
		}
		status, text := n.ask(d.key, "GET", "/segments/"+segmentID+"/contacts", "")
		if status != 200 || !strings.Contains(text, "b@example.org") {
			t.Errorf("%d %s", status, text)
		}
		for says, args := range map[string][]string{
			"`column_map.email`":     {write("email\n"), "--map", "email=Mail"},
			"not CSV":                {write("%PDF-1.7"), "--on-conflict", "skip"},
			"no such file":           {filepath.Join(dir, "nothing.csv")},
			"API key is invalid":     {write("email\n"), "--api-key", "re_x"},
			"write FIELD=COLUMN":     {write("email\n"), "--map", "phone=Mail"},
			"must be a URL":          {write("email\n"), "--url", "x"},
			"unexpected":             {write("email\n"), "more"},
			"--property needs --map": {write("email\n"), "--property", "a=b"},
			"1 rows failed; see GET": {write("email\nx\n")},
			"connection refused":     {write("email\n"), "--url", "http://127.0.0.1:1"},
		} {
			if _, errOut, code := p.command(append([]string{"contacts", "import"}, args...)...); code == 0 ||
				!strings.Contains(errOut, says) {
				t.Errorf("%q: %d %s", args, code, errOut)
			}
		}
	})
}
