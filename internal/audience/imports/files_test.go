package imports_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/imports"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/page"
)

// TestFiles imports files in the formats that common programs write, and files with some invalid rows.
func TestFiles(t *testing.T) {
	t.Parallel()
	wide := make([]byte, 0, 200)
	for _, u := range utf16.Encode([]rune("\ufeffemail;first_name\r\nzoë@example.org;\"Zoë; 😀\"\r\n")) {
		wide = append(wide, byte(u), byte(u>>8))
	}
	each(t, imports.Config{}, func(t *testing.T, w *world) {
		for name, c := range map[string]struct{ file, counts, contact string }{
			"UTF-16": {string(wide), "completed 1=1+0+0+0", `zoë@example.org "Zoë; 😀" "" false`},
			"Latin-1": {
				"email\tfirst_name\rren\xe9@example.org\tRen\xe9\r", "completed 1=1+0+0+0", `rené@example.org "René" "" false`,
			},
			"a long line": {"email,first_name\n" + strings.Repeat("x", 3<<20) + "\n\"a\"b,c\nlong@example.org,\n,,\n",
				"completed 3=1+0+0+2", `long@example.org "" "" false`},
			"a NUL": {"email,first_name\n" + strings.Repeat("nul@example.org,N\n", 5000) +
				"a\x00@example.org,\nb@example.org,a\x00\n",
				"completed 5002=1+0+4999+2", `nul@example.org "N" "" false`},
			"a short row": {"first_name,email\nX,short@example.org\nY\n",
				"completed 2=1+0+0+1", `short@example.org "X" "" false`},
			"no rows": {"email\n\n,\n", "completed 0=0+0+0+0", ""},
			"a line break": {"email,first_name\nx@example.org,\"a\nb\"\ny@example.org," + strings.Repeat("y", 256) + "\n",
				"completed 2=0+0+0+2", ""},
			"an unclosed quote that the next quote closes": {"email,first_name\nq@example.org,\"open\n" +
				strings.Repeat("inch@example.org,I\n", 3000) + "screen@example.org,19\"\nafter@example.org,A\n",
				"completed 3003=3+0+2999+1", `screen@example.org "19\"" "" false`},
			"notes that look like rows": {"email,first_name,notes\nnotes@example.org,N,\"Call\nx@example.org,y,z\nsoon\"\n",
				"completed 1=1+0+0+0", `notes@example.org "N" "" false`},
		} {
			i := w.imported(c.file, imports.NewImport{})
			if counts(i) != c.counts || i.Position != i.Size || int(i.Kept) != len(w.failures(i.ID)) || i.Kept != i.Failed {
				t.Errorf("%s: %s %+v %+v", name, counts(i), i, w.failures(i.ID))
			}
			if found := strings.Contains(strings.Join(w.contacts(), "\n"), c.contact); !found {
				t.Errorf("%s: %q", name, w.contacts())
			}
		}
	})
}

// If contacts are changed while they are being imported, no row is lost or counted twice.
func TestBesideOthers(t *testing.T) {
	t.Parallel()
	each(t, imports.Config{Batch: 10}, func(t *testing.T, w *world) {
		const people = 100
		file := "email,last_name\n"
		for n := range people {
			file += fmt.Sprintf("p%d@example.org,Imported\n", n)
		}
		i, err := w.create(file, imports.NewImport{OnConflict: "upsert"})
		w.Must(err)
		created := 0
		var wg sync.WaitGroup
		wg.Go(func() {
			for n := range people {
				_, made, err := w.Contacts.Upsert(t.Context(), w.team, fmt.Sprintf("p%d@example.org", people-1-n),
					contacts.Change{FirstName: new("Written")})
				if err != nil {
					t.Error(err)
				}
				if made {
					created++
				}
			}
		})
		i = w.await(i.ID)
		wg.Wait()
		if i.Status != imports.Completed || i.Created+i.Updated != people || int(i.Created)+created != people {
			t.Errorf("%s, and others created %d", counts(i), created)
		}
		want := `"Written" "Imported" false`
		for _, c := range w.contacts() {
			if !strings.HasSuffix(c, want) {
				t.Errorf("%s, want %s", c, want)
			}
		}
	})
}

// If another transaction creates a contact after a batch has looked it up and before the batch inserts it, the batch
// updates the contact.
func TestCreatedMeanwhile(t *testing.T) {
	t.Parallel()
	d := dbtest.Postgres(t) // not on SQLite, which has only one writer
	w := newWorld(t, testnode.New(t, d, testnode.Options{}), imports.Config{})
	ctx := t.Context()
	for _, skip := range []bool{false, true} {
		address := fmt.Sprintf("race%v@example.org", skip)
		var n contacts.BulkCount
		done := make(chan error, 1)
		w.Update(func(tx *db.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO contacts (id, team_id, address, first_name, last_name, unsubscribed,
				source_id, created_at, updated_at) VALUES ($1, $2, $3, 'Other', '', FALSE, NULL, 1, 1)`, db.ID(id.New()),
				db.ID(w.team), address); err != nil {
				return err
			}
			go func() {
				done <- d.Update(ctx, func(tx *db.Tx) (err error) {
					n, err = w.Contacts.WriteBulk(ctx, tx, w.team, &contacts.Bulk{Skip: skip},
						[]contacts.BulkRow{{Address: address, LastName: "L"}, {Address: "new" + address}})
					return err
				})
			}()
			testnode.Until(t, "the insertion waits for this transaction", func() bool {
				return w.Count(`SELECT COUNT(*) FROM pg_locks l JOIN pg_database b ON b.datname = current_database()
					JOIN pg_stat_activity a ON a.pid = l.pid AND a.datid = b.oid WHERE NOT l.granted`) > 0
			})
			return nil
		})
		want := contacts.BulkCount{Created: 1, Updated: 1}
		if skip {
			want = contacts.BulkCount{Created: 1, Skipped: 1}
		}
		if err := <-done; err != nil || n != want {
			t.Errorf("%+v, %v", n, err)
		}
		at, err := w.Contacts.Get(ctx, w.team, address)
		if err != nil || at.FirstName != "Other" || (at.LastName == "L") == skip {
			t.Errorf("%+v, %v", at, err)
		}
	}
}

// Other transactions create a contact before a batch inserts it, and delete it before the batch looks it up again. The
// batch then creates the contact.
func TestCreatedAndDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	d := dbtest.Postgres(t) // not on SQLite, which has only one writer
	w := newWorld(t, testnode.New(t, d, testnode.Options{}), imports.Config{})
	ctx := t.Context()
	w.Must(func() error {
		_, _, err := w.Contacts.Upsert(ctx, w.team, "first@example.org", contacts.Change{})
		return err
	}())
	plan, err := w.Contacts.CreateProperty(ctx, w.team, contacts.NewProperty{Name: "plan", Type: scalar.String})
	w.Must(err)
	// waits waits until one of the batch's statements is blocked by another transaction.
	waits := func(statement string) {
		testnode.Until(t, statement+" waits", func() bool {
			return w.Count(`SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()
				AND wait_event_type = 'Lock' AND query LIKE $1`, statement+"%") > 0
		})
	}
	var n contacts.BulkCount
	done := make(chan error, 1)
	b := &contacts.Bulk{Properties: []contacts.Property{plan}}
	row := func(address string) contacts.BulkRow {
		return contacts.BulkRow{Address: address, Values: []string{"pro"}}
	}
	w.Update(func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO contacts (id, team_id, address, first_name, last_name, unsubscribed,
			source_id, created_at, updated_at) VALUES ($1, $2, 'last@example.org', '', '', FALSE, NULL, 1, 1)`,
			db.ID(id.New()), db.ID(w.team))
		if err != nil {
			return err
		}
		w.Update(func(tx *db.Tx) error {
			if _, err := tx.Exec(ctx, `UPDATE contacts SET updated_at = updated_at WHERE team_id = $1
				AND address = 'first@example.org'`, db.ID(w.team)); err != nil {
				return err
			}
			go func() {
				done <- d.Update(ctx, func(tx *db.Tx) (err error) {
					n, err = w.Contacts.WriteBulk(ctx, tx, w.team, b, []contacts.BulkRow{row("first@example.org"),
						row("gone@example.org"), row("last@example.org")})
					return err
				})
			}()
			waits("SELECT") // the batch waits for the first contact; its snapshot is older than the next change
			_, _, err := w.Contacts.Upsert(ctx, w.team, "gone@example.org", contacts.Change{})
			return err
		})
		waits("INSERT") // the batch waits for the last contact, having found the contact that is deleted next
		_, err = w.Contacts.Delete(ctx, w.team, "gone@example.org")
		return err
	})
	if err := <-done; err != nil || n != (contacts.BulkCount{Created: 1, Updated: 2}) {
		t.Errorf("%+v, %v", n, err)
	}
	want := []string{"first@example.org", "gone@example.org", "last@example.org"}
	for i, c := range w.contacts() {
		if i >= len(want) || c != want[i]+` "" "" false plan=pro` {
			t.Errorf("%s", c)
		}
	}
	if texts := w.Count(`SELECT COUNT(*) FROM contact_texts`); len(w.contacts()) != 3 || texts != 3 {
		t.Errorf("%d contacts, %d values", len(w.contacts()), texts)
	}
}

// EraseAddress finds an address even if an import has more failed rows than one step reads.
func TestEraseInManyFailures(t *testing.T) {
	t.Parallel()
	each(t, imports.Config{}, func(t *testing.T, w *world) {
		w.imported("email\n"+strings.Repeat("wrong\n", 1100)+"jo smith@example.org\n", imports.NewImport{})
		a, err := erasure.Parse("SMITH@example.org")
		w.Must(err)
		found, err := imports.EraseAddress(t.Context(), w.DB, a, erasure.Scope{Teams: []string{w.team}})
		if err != nil || len(found) != 1 || found[0].N != 1 {
			t.Errorf("%+v, %v", found, err)
		}
		if n := w.Count(`SELECT COUNT(*) FROM contact_import_failures WHERE fields LIKE '%smith%'`); n != 0 {
			t.Errorf("%d rows still name it", n)
		}
	})
}

// Sweep deletes files and failed rows that are no longer needed, and EraseTeam deletes a team's files and failed rows.
func TestSweepAndErase(t *testing.T) {
	t.Parallel()
	const retention = 48 * time.Hour
	each(t, imports.Config{Retention: retention}, func(t *testing.T, w *world) {
		ctx := t.Context()
		kept := w.imported("email\nwrong\nann smith@example.org\n", imports.NewImport{})
		_, err := w.create("email\n", imports.NewImport{})
		w.Must(err)
		_, err = w.imports.Store(ctx, strings.NewReader("email\n")) // as if the process had been killed at this point
		w.Must(err)
		w.Must(w.imports.Sweep(ctx))
		if n := w.files(); n != 2 || len(w.failures(kept.ID)) != 2 {
			t.Errorf("%d files, %d failed rows: too young to go", n, len(w.failures(kept.ID)))
		}

		a, err := erasure.Parse("smith@example.org")
		w.Must(err)
		for _, dry := range []bool{true, false} {
			found, err := imports.EraseAddress(ctx, w.DB, a,
				erasure.Scope{Teams: []string{w.Other.TeamID, w.team}, DryRun: dry})
			if err != nil || len(found) != 1 {
				t.Errorf("%+v, %v", found, err)
			}
			if f := w.failures(kept.ID)[1]; strings.Contains(f.Reason+f.Fields[0], "smith") != dry {
				t.Errorf("erased %v: %+v", !dry, f)
			}
		}

		young := w.imported("email\nwrong\n", imports.NewImport{})
		ended := func(i imports.Import, ago time.Duration) {
			w.Update(func(tx *db.Tx) error {
				tx.Queue(ctx, `UPDATE contact_imports SET finished_at = $1 WHERE id = $2`,
					w.DB.Now().Add(-ago).UnixMicro(), db.ID(i.ID))
				return nil
			})
		}
		ended(kept, retention+time.Hour)
		ended(young, retention-time.Hour)
		w.Must(w.imports.Sweep(ctx))
		if _, err := w.imports.Get(ctx, w.team, kept.ID); fault.KindOf(err) != fault.NotFound {
			t.Errorf("an import that ended long ago: %v", err)
		}
		if n := w.Count(`SELECT COUNT(*) FROM contact_import_failures`); n != 1 || len(w.failures(young.ID)) != 1 {
			t.Errorf("%d failed rows, of which 1 is young", n)
		}

		w.imported("email\nwrong\n", imports.NewImport{})
		waits, err := w.create("email\n", imports.NewImport{})
		w.Must(err)
		for range 2 {
			w.Must(w.imports.EraseTeam(ctx, w.team))
		}
		for _, table := range []string{"contact_imports", "contact_import_failures"} {
			if n := w.Count(`SELECT COUNT(*) FROM ` + table); n != 0 {
				t.Errorf("%d rows of %s are left", n, table)
			}
		}
		if n := w.files(); n != 1 { // the stored file that belongs to no import
			t.Errorf("%d files are left", n)
		}
		w.Must(w.handle(waits.ID)) // the job must end without an error
	})
}

// A team cannot see another team's imports.
func TestOthersImports(t *testing.T) {
	t.Parallel()
	each(t, imports.Config{}, func(t *testing.T, w *world) {
		ctx := t.Context()
		i, err := w.create("email\nwrong\n", imports.NewImport{})
		w.Must(err)
		_, err1 := w.imports.Get(ctx, w.Other.TeamID, i.ID)
		_, err2 := w.imports.Cancel(ctx, w.Other.TeamID, i.ID)
		_, _, err3 := w.imports.Failures(ctx, w.Other.TeamID, i.ID)
		for _, err := range []error{err1, err2, err3} {
			if fault.KindOf(err) != fault.NotFound {
				t.Errorf("%v", err)
			}
		}
		all, _, err := w.imports.List(ctx, w.Other.TeamID, "", page.Page{})
		if err != nil || len(all) != 0 || w.done(i.ID) {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

func TestWatch(t *testing.T) {
	t.Parallel()
	each(t, imports.Config{}, func(t *testing.T, w *world) {
		ctx := t.Context()
		i, err := w.create("email\n", imports.NewImport{})
		w.Must(err)
		i = w.get(i.ID)
		if same, err := w.imports.Watch(ctx, i, time.Nanosecond); err != nil || same != i {
			t.Errorf("%+v, %v", same, err)
		}
		_, err = w.imports.Cancel(ctx, w.team, i.ID)
		w.Must(err)
		changed, err := w.imports.Watch(ctx, i, time.Hour)
		if err != nil || !changed.Done() || changed.Reason == "" {
			t.Errorf("%+v, %v", changed, err)
		}
		canceled, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := w.imports.Watch(canceled, changed, time.Hour); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		w.Must(w.imports.EraseTeam(ctx, w.team))
		if _, err := w.imports.Watch(ctx, changed, time.Hour); fault.KindOf(err) != fault.NotFound {
			t.Errorf("%v", err)
		}
		waits, err := w.create("email\n", imports.NewImport{})
		w.Must(err)
		waits = w.get(waits.ID)
		w.imports.Close()
		if _, err := w.imports.Watch(ctx, waits, time.Hour); !errors.Is(err, imports.ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}
