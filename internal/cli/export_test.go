package cli

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The export command writes the same data as an export through the API. After a failed export, no incomplete file
// remains.
func TestExport(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key, other := p.key("Acme"), p.key("Other")
		p.vars["POSTRIDER_ROLES"] = "api,jobs"
		n := p.start()
		n.made(key, "/emails", hello)
		n.made(key, "/suppressions", `{"email":"=a@one.example"}`)
		n.made(other, "/suppressions", `{"email":"b@one.example"}`)
		n.made(key, "/contacts", `{"email":"ann@one.example"}`)
		n.made(other, "/contacts", `{"email":"b@one.example"}`)
		segment := n.made(key, "/segments", `{"name":"nobody"}`)
		eventually(t, "all is logged", func() bool { return n.count(`SELECT COUNT(*) FROM request_logs`) == 6 })
		for list, lines := range map[string]int{"emails": 2, "suppressions": 2, "logs": 5, "contacts": 2} {
			said := p.must("export", list, "--team", "Acme")
			rows, err := csv.NewReader(strings.NewReader(said)).ReadAll()
			if err != nil || len(rows) != lines || strings.Contains(said, "b@one.example") && list != "emails" {
				t.Errorf("%s: %q, %v", list, rows, err)
			}
			file := filepath.Join(t.TempDir(), "out")
			p.must("export", list, "--team", "Acme", "--format", "ndjson", "--output", file)
			written, err := os.ReadFile(file)
			if err != nil || strings.Count(string(written), "\n") != lines-1 {
				t.Errorf("%s: %q, %v", list, written, err)
			}
			for line := range strings.Lines(string(written)) {
				var row map[string]any
				if err := json.Unmarshal([]byte(line), &row); err != nil || row["id"] == "" {
					t.Errorf("%s: %q, %v", list, line, err)
				}
			}
			if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", info, err)
			}
			p.refused("exists", "export", list, "--team", "Acme", "--output", file)
			p.must("export", list, "--team", "Other", "--force", "--output", file)
			if now, err := os.ReadFile(file); err != nil || string(now) == string(written) {
				t.Errorf("%q was not replaced, %v", now, err)
			}
		}
		if said := p.must("export", "suppressions", "--team", "Acme", "--formulas", "quote"); !strings.Contains(said,
			"\n'=a@one.example,") {
			t.Error(said)
		}
		if said := p.must("export", "logs", "--team", "Acme", "--endpoint", "/supp", "--from", "2020-01-01", "--to",
			"2090-01-01T00:00:00Z", "--method", "post", "--status", "2xx"); strings.Count(said, "POST,/suppressions,201,") != 1 {
			t.Error(said)
		}
		for filter, rows := range map[string]int{"--to=b@one.example": 1, "--status=bounced,failed": 0,
			"--from=resend.dev": 1, "--created-before=2020-01-01": 0} {
			if said := p.must("export", "emails", "--team", "Acme", filter); strings.Count(said, ",b@one.example,to,") != rows {
				t.Errorf("%s: %s", filter, said)
			}
		}
		of := []string{"export", "contacts", "--team", "Acme", "--segment", strings.ToUpper(segment)}
		if said := p.must(of...); !strings.HasPrefix(said, "email,") || strings.Contains(said, "@") {
			t.Error(said)
		}
		dir := t.TempDir()
		file := filepath.Join(dir, "out")
		for _, x := range []struct {
			say  string
			args []string
		}{
			{"the subcommand is missing", nil},
			{"use one of contacts, emails", []string{"nonsense"}},
			{"--team is missing", []string{"emails"}},
			{"no team with the name", []string{"emails", "--team", "Nobody"}},
			{"`csv` or `ndjson`", []string{"emails", "--team", "Acme", "--format", "xml"}},
			{"`keep` or `quote`", []string{"emails", "--team", "Acme", "--formulas", "no"}},
			{"a date such as", []string{"emails", "--team", "Acme", "--created-after", "yesterday"}},
			{"--created-after", []string{"emails", "--team", "Acme", "--from", "2026-01-01"}},
			{"an email address or a domain", []string{"emails", "--team", "Acme", "--to", "no one", "--output", file}},
			{"a date such as", []string{"logs", "--team", "Acme", "--from", "yesterday"}},
			{"Audience not found", []string{"contacts", "--team", "Other", "--segment", segment, "--output", file}},
			{"`origin` parameter", []string{"suppressions", "--team", "Acme", "--origin", "x", "--output", file}},
			{"no such file or directory", []string{"emails", "--team", "Acme", "--output", filepath.Join(dir, "x", "y")}},
			{"unexpected argument", []string{"emails", "--team", "Acme", "file"}},
		} {
			p.refused(x.say, append([]string{"export"}, x.args...)...)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("what failed left %v, %v", left, err)
		}
	})
}
