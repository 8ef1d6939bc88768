package emails_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/sending/emails"
)

// readsForIndex reports whether a statement reads what the job writes into the search index. These statements are not
// part of a transaction.
func readsForIndex(sql string) bool {
	return strings.Contains(sql, "FROM emails e WHERE e.team_id = $1 AND e.id > $2 AND e.id < $3") ||
		strings.HasPrefix(sql, "SELECT term, data FROM email_terms")
}

// The emails of searchRaces, and their address that is erased.
const (
	racePieces  = 2
	pieceEmails = 520
	zebra       = "zebra@erased.example"
)

// raceEmails returns emails of a day that is over, in two pieces. Each piece has an email to the address zebra alone,
// and one to zebra and others.
func raceEmails(seed uint64) (pieces [racePieces][]searchable) {
	day := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -3)
	for i := range pieces {
		from := day.Add(time.Duration(6*i) * time.Hour)
		pieces[i] = searchables(seed+uint64(i), pieceEmails, from, from.Add(5*time.Hour))
		pieces[i][3].to, pieces[i][3].recipients = zebra, ""
		pieces[i][5].to, pieces[i][5].recipients = "", fmt.Sprintf(`{"to":["%s","kept%d@two.example"]}`, zebra, i)
	}
	return pieces
}

// insertPiece inserts the emails of a piece, and the recipients of the one with two recipients.
func (f *fixture) insertPiece(piece []searchable) {
	f.T.Helper()
	f.insertSearchable(f.Acme.TeamID, piece)
	f.Update(func(tx *db.Tx) error {
		_, err := tx.InsertRows(f.T.Context(), `email_recipients (updated_at, email_id, team_id, position, rank, kind, state,
			address, domain)`, "", int64(1), db.ID(piece[5].id), db.ID(f.Acme.TeamID), []int64{0, 1}, int64(40), int64(1),
			int64(5), []string{zebra, "kept@two.example"}, []string{"erased.example", "two.example"})
		return err
	})
}

// eraseZebra erases the address zebra from all emails.
func (f *fixture) eraseZebra() {
	a, err := erasure.Parse(zebra)
	if err == nil {
		err = f.Metrics.RollUp(context.Background())
	}
	if err == nil {
		_, err = f.Emails.EraseAddress(context.Background(), a, erasure.Scope{Teams: []string{f.Acme.TeamID}})
	}
	if err != nil {
		f.T.Error(err)
	}
	if n := f.Count(`SELECT (SELECT COUNT(*) FROM emails WHERE recipient = $1 OR recipients LIKE '%zebra%')
		+ (SELECT COUNT(*) FROM email_recipients WHERE address = $1)`, zebra); n > 0 {
		f.T.Errorf("the address is in %d rows after its erasure", n)
	}
}

// searchRaces runs a job of the search index again and again. Each time, it calls act before a later one of the job's
// reads. Before the job, one piece of the emails is in the index. The function begin prepares the job, and check runs
// after it.
func searchRaces(t *testing.T, begin, job func(f *fixture) error, act func(f *fixture),
	check func(t *testing.T, f *fixture, all []searchable)) {
	t.Parallel()
	eachArmedAt(t, readsForIndex, func(t *testing.T, f *fixture, arm func(func()) func() bool) {
		for n := 1; ; n++ {
			for _, table := range []string{"emails", "email_recipients", "email_terms"} {
				f.change(`DELETE FROM ` + table)
			}
			pieces := raceEmails(uint64(n))
			f.insertPiece(pieces[0])
			f.index()
			f.insertPiece(pieces[1])
			if err := begin(f); err != nil {
				t.Fatal(err)
			}
			left, fired := n, false
			var step func()
			step = func() {
				if left--; left > 0 {
					arm(step)
					return
				}
				fired = true
				act(f)
			}
			arm(step)
			if err := job(f); err != nil {
				t.Errorf("before read %d: %v", n, err)
			}
			arm(func() {})
			check(t, f, slices.Concat(pieces[0], pieces[1]))
			if t.Failed() {
				t.Fatalf("with act before read %d", n)
			}
			if !fired {
				if n < 4 {
					t.Fatalf("the job reads only %d times", n)
				}
				return
			}
		}
	})
}

// checkIndex checks that the index covers all emails once, and has nothing else.
func (f *fixture) checkIndex(t *testing.T, all []searchable) {
	t.Helper()
	f.index()
	want, have := f.Count(`SELECT COUNT(*) FROM emails`), f.Count(`SELECT COALESCE(SUM(emails), 0) FROM email_terms`)
	if have != want {
		t.Errorf("the index has %d emails of %d", have, want)
	}
	if n := f.Count(`SELECT COUNT(*) FROM email_terms WHERE from_id IS NOT NULL`); n != 1 {
		t.Errorf("%d segments, want one for the day", n)
	}
	if n := f.Count(`SELECT COUNT(*) FROM email_terms t WHERE NOT EXISTS (SELECT 1 FROM email_terms h
		WHERE h.from_id IS NOT NULL AND h.last_id = t.last_id AND h.gen = t.gen)`); n > 0 {
		t.Errorf("%d rows belong to no segment", n)
	}
	for i := range racePieces {
		want := all[i*pieceEmails+5].id
		if ids := f.searchAll(emails.Filter{To: fmt.Sprintf("kept%d@two.example", i)}, 10, false); !slices.Equal(ids, []string{want}) {
			t.Errorf("the other recipient is found in %q, want %s", ids, want)
		}
	}
}

func nothing(*fixture) error { return nil }

func indexAll(f *fixture) error { return f.Emails.Index.Update(context.Background()) }

// breakAll makes all segments broken, so that the job builds them again.
func breakAll(f *fixture) error {
	f.change(`UPDATE email_terms SET state = 2 WHERE from_id IS NOT NULL`)
	return nil
}

// An address that is erased while the index is written does not get into the index, at whatever point that happens.
func TestErasureWhileIndexing(t *testing.T) {
	for name, begin := range map[string]func(*fixture) error{"append and merge": nothing, "build again": breakAll} {
		t.Run(name, func(t *testing.T) {
			searchRaces(t, begin, indexAll, (*fixture).eraseZebra, func(t *testing.T, f *fixture, all []searchable) {
				if f.Count(`SELECT COUNT(*) FROM emails`) == len(all) { // act was not called
					f.eraseZebra()
				}
				if n := f.named("zebra"); n > 0 {
					t.Errorf("%d rows of the index have an erased address", n)
				}
				f.checkIndex(t, all)
				if n := f.named("zebra"); n > 0 {
					t.Errorf("%d rows of the index have an erased address after the next job", n)
				}
			})
		})
	}
}

// The index of a team can be made again beside nodes that write it, and the other way round.
func TestIndexBesideNode(t *testing.T) {
	rebuild := func(f *fixture) error { return f.Emails.Index.Rebuild(context.Background(), f.Acme.TeamID) }
	must := func(job func(*fixture) error) func(*fixture) {
		return func(f *fixture) {
			if err := job(f); err != nil {
				f.T.Error(err)
			}
		}
	}
	for name, c := range map[string]struct {
		begin, job func(*fixture) error
		act        func(*fixture)
	}{
		"job, command":         {nothing, indexAll, must(rebuild)},
		"job of broken":        {breakAll, indexAll, must(rebuild)},
		"command, job":         {nothing, rebuild, must(indexAll)},
		"command, command":     {nothing, rebuild, must(rebuild)},
		"job, job":             {nothing, indexAll, must(indexAll)},
		"job of broken, twice": {breakAll, indexAll, must(indexAll)},
	} {
		t.Run(name, func(t *testing.T) {
			searchRaces(t, c.begin, c.job, c.act, func(t *testing.T, f *fixture, all []searchable) { f.checkIndex(t, all) })
		})
	}
}

// A job that reads emails before an erasure is committed does not write the old address afterwards.
func TestErasureUncommitted(t *testing.T) {
	t.Parallel()
	eachArmed(t, "UPDATE email_terms SET state = CASE", func(t *testing.T, f *fixture, arm func(func()) func() bool) {
		if f.DB.Alone() {
			return // no job begins a segment during a transaction
		}
		pieces := raceEmails(1)
		f.insertPiece(pieces[0])
		indexed := make(chan error, 1)
		arm(func() {
			go func() { indexed <- indexAll(f) }()
			testnode.Until(t, "the job is finished or waits for the erasure", func() bool {
				return len(indexed) > 0 || f.Count(`SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
					AND database = (SELECT oid FROM pg_database WHERE datname = CURRENT_DATABASE())`) > 0
			})
		})
		f.eraseZebra()
		if err := <-indexed; err != nil {
			t.Error(err)
		}
		if n := f.named("zebra"); n > 0 {
			t.Errorf("%d rows of the index have an erased address", n)
		}
	})
}
