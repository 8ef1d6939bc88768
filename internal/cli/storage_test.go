package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// `storage` prints the sizes of tables, and on PostgreSQL the partitions, those that are missing, and the next drop.
func TestStorage(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.key("Acme")
		n := p.start()
		n.made(key, "/emails", hello)
		n.end()
		out := p.must("storage")
		if !strings.Contains(out, "\nemails ") || strings.Contains(out, "0 TB") {
			t.Errorf("it prints\n%s", out)
		}
		url := p.vars["POSTRIDER_DATABASE_URL"]
		if url == "" {
			if strings.Contains(out, "partition") {
				t.Errorf("on SQLite, it prints\n%s", out)
			}
			return
		}
		month := time.Now().UTC().Format("200601")
		for _, want := range []string{"emails_" + month + "01 ", "email_events_default ", "forever (email_retention)"} {
			if !strings.Contains(out, want) {
				t.Errorf("it does not print %q:\n%s", want, out)
			}
		}
		if strings.Contains(out, "MISSING") || strings.Contains(out, "has rows") {
			t.Errorf("it prints\n%s", out)
		}
		p.vars["POSTRIDER_EMAIL_RETENTION"] = "720h"
		if out := p.must("storage"); !strings.Contains(out, "The next drop of emails: those of ") ||
			!strings.Contains(out, "is 720h0m0s") {
			t.Errorf("with a retention, it prints\n%s", out)
		}
		dbtest.DropPartitions(t, dbtest.Open(t, url))
		out = p.must("storage")
		if !strings.Contains(out, "MISSING: the partitions of emails of ") ||
			!strings.Contains(out, "there are only default partitions") {
			t.Errorf("without partitions, it prints\n%s", out)
		}
		if out := p.must("migrate"); !strings.Contains(out, "up to date") {
			t.Errorf("migrate prints\n%s", out)
		}
		if out = p.must("storage"); strings.Contains(out, "MISSING") {
			t.Errorf("after migrate, it prints\n%s", out)
		}
	})
}
