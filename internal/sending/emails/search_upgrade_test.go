package emails_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/partitions"
	"github.com/postrider/postrider/internal/sending/emails"
)

// applyOld applies migrations to an empty PostgreSQL database, as the program did that had only these.
func applyOld(t *testing.T, d *db.DB, names ...string) {
	t.Helper()
	err := d.Update(t.Context(), func(tx *db.Tx) error {
		tx.Queue(t.Context(), `CREATE TABLE migrations (name TEXT PRIMARY KEY, checksum TEXT NOT NULL,
			applied_at BIGINT NOT NULL)`)
		for _, name := range names {
			text, err := os.ReadFile("../../platform/db/migrations/postgres/" + name + ".sql")
			if err != nil {
				return err
			}
			for statement := range strings.SplitSeq(string(text), ";\n") {
				if strings.TrimSpace(statement) == "" {
					continue
				}
				if _, err := tx.Exec(t.Context(), statement); err != nil {
					return err
				}
			}
			sum := sha256.Sum256(text)
			tx.Queue(t.Context(), `INSERT INTO migrations (name, checksum, applied_at) VALUES ($1, $2, 1)`, name,
				hex.EncodeToString(sum[:]))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A PostgreSQL database that had emails and partitions before there was a search index gets one. Its emails are found
// before and after the index is made.
func TestSearchAfterUpgrade(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.EmptyPostgresURL(t))
	// The program that adds the rows needs the columns of domains, and the addresses for reports, of today.
	applyOld(t, d, "0001_first", "0002_evidence", "0012_domain_setups", "0013_domain_keys", "0015_received_reports",
		"0023_chosen_records", "0024_policy_since", "0025_dmarc_inherited")
	today := time.Now().UTC().Truncate(24 * time.Hour)
	var days []time.Time
	for n := -9; n <= 7; n++ {
		if n != -5 { // the rows of this day are in the default partition
			days = append(days, today.AddDate(0, 0, n))
		}
	}
	f := newFixture(t, d)
	for _, day := range days {
		for _, table := range partitions.Emails.Tables {
			if table.Name != "email_terms" {
				f.change(fmt.Sprintf(`CREATE TABLE %[1]s_%[2]s PARTITION OF %[1]s FOR VALUES FROM ('%[3]s') TO ('%[4]s')`,
					table.Name, day.Format("20060102"), id.First(day), id.First(day.AddDate(0, 0, 1))))
			}
		}
	}
	all := searchables(11, 400, today.AddDate(0, 0, -9), today.AddDate(0, 0, -3))
	f.insertSearchable(f.Acme.TeamID, all)

	applied, err := d.Migrate(t.Context())
	if err != nil || !slices.Contains(applied, "0003_email_search") {
		t.Fatalf("%q are applied, %v", applied, err)
	}
	service := partitions.New(d, "day", slog.New(slog.DiscardHandler))
	parts, err := service.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	spans := map[string][]partitions.Span{}
	for _, p := range parts {
		spans[p.Table] = append(spans[p.Table], p.Span)
	}
	if len(spans["emails"]) != len(days)+1 || !slices.Equal(spans["emails"], spans["email_terms"]) {
		t.Errorf("email_terms has the partitions %v, want %v", spans["email_terms"], spans["emails"])
	}
	f.checkSearches(t, "after an upgrade", all)
	f.index()
	f.checkSearches(t, "again with an index", all)
	if n := f.Count(`SELECT COUNT(*) FROM email_terms WHERE from_id IS NOT NULL`); n != 6 {
		t.Errorf("%d segments, want one for each day", n)
	}
	if n := f.Count(`SELECT COUNT(*) FROM email_terms_default WHERE from_id IS NOT NULL`); n != 1 {
		t.Errorf("%d segments are in the default partition, want that of the day without a partition", n)
	}

	// The day that had no partition gets one, and a day's partition is dropped with its part of the index.
	if err := service.Make(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := service.Empty(t.Context(), partitions.Emails, days[0]); err != nil {
		t.Fatal(err)
	}
	if n := f.Count(`SELECT COUNT(*) FROM email_terms_default`); n > 0 {
		t.Errorf("%d rows are left in the default partition", n)
	}
	err = service.Drop(t.Context(), partitions.Emails, partitions.Span{From: days[0], To: days[1]},
		func(*db.Tx, string, string) ([]partitions.Kept, error) { return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	f.checkSearches(t, "again without the oldest day", slices.DeleteFunc(all, func(e searchable) bool {
		return e.at.Before(days[1])
	}))
	if found := f.searchAll(emails.Filter{CreatedBefore: days[1]}, 10, false); len(found) > 0 {
		t.Errorf("emails of the dropped day are found: %q", found)
	}
}
