package forwards_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// Forwarded emails are deleted with the received emails that they copy, with their files, but not before they are
// delivered. Emails that were deleted for another reason leave nothing.
func TestCopiesAreDeleted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.rule("*", "bob@target.example")
		f.exec(`DELETE FROM emails`)
		f.exec(`INSERT INTO email_counts_until (team_id, until, version) VALUES ($1, $2, 1)`, db.ID(f.Acme.TeamID),
			f.DB.Now().Add(time.Hour).UnixMicro())
		f.deliver(f.signed("")+strings.Repeat("0123456789\r\n", 10_000), "ann@author.example", "a@in.acme.example")
		f.run(0)
		f.setReply("450 4.2.1 later")
		f.deliver(f.signed(""), "ann@author.example", "b@in.acme.example")
		f.run(1)
		f.remove(f.DB.Now().Add(-time.Hour))
		if n := f.Count(`SELECT COUNT(*) FROM emails`); n != 2 {
			t.Fatalf("%d emails before the time", n)
		}
		later := f.DB.Now().Add(time.Hour)
		f.remove(later)
		if emails, files, copies := f.Count(`SELECT COUNT(*) FROM emails`),
			f.Count(`SELECT COUNT(*) FROM email_messages WHERE blob_key <> ''`),
			f.Count(`SELECT COUNT(*) FROM forwarded_copies`); emails != 1 || files != 0 || copies != 1 {
			t.Errorf("%d emails, %d files and %d copies, while one email waits", emails, files, copies)
		}
		f.setReply("")
		f.exec(`UPDATE jobs SET run_at = 0`)
		f.run(0)
		f.remove(later)
		if emails, copies := f.Count(`SELECT COUNT(*) FROM emails`),
			f.Count(`SELECT COUNT(*) FROM forwarded_copies`); emails != 0 || copies != 0 {
			t.Errorf("%d emails and %d copies in the end", emails, copies)
		}
		for range 25 { // more than one step
			f.deliver(f.signed(""), "ann@author.example", "c@in.acme.example")
		}
		f.run(0)
		f.exec(`DELETE FROM emails`)
		f.remove(later)
		if n := f.Count(`SELECT COUNT(*) FROM forwarded_copies`); n != 0 {
			t.Errorf("%d copies of emails that were deleted before", n)
		}
		f.deliver(f.signed(""), "ann@author.example", "d@in.acme.example")
		f.run(0)
		f.Must(f.rules.EraseTeam(t.Context(), f.Acme.TeamID))
		if n := f.Count(`SELECT COUNT(*) FROM forwarded_copies`); n != 0 {
			t.Errorf("%d copies of a deleted team", n)
		}
	})
}

// remove deletes the copies of emails that Acme received before a time.
func (f *fixture) remove(before time.Time) {
	f.t.Helper()
	for after := ""; ; {
		next, err := f.rules.RemoveBefore(f.t.Context(), f.Acme.TeamID, before, after)
		f.Must(err)
		if next == "" {
			return
		}
		if next == after {
			f.t.Fatal("RemoveBefore makes no progress")
		}
		after = next
	}
}
