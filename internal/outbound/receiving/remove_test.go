package receiving_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
)

// later returns a time at which all emails of a test are old enough to be deleted.
func later() time.Time { return time.Now().Add(48 * time.Hour) }

const plain = "Message-ID: <%d@x.example>\nSubject: x\n%s\nHello.\n"

// Deleting old received emails removes all their data. A raw message that another team's email uses is kept, and the
// remaining emails of a conversation keep their thread id.
func TestRemoveReceived(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx, team := t.Context(), f.Acme.TeamID
		large := strings.Repeat("Hello.\n", 20_000)
		first := f.deliver(t, fmt.Sprintf(plain, 1, ""), "a@in.acme.example")
		shared := f.deliver(t, fmt.Sprintf(plain, 2, "In-Reply-To: <1@x.example>\n")+large, "a@in.acme.example",
			"a@other.example")
		own := f.deliver(t, fmt.Sprintf(plain, 3, "")+large, "a@in.acme.example")
		raw, _ := f.RawURL(team, first, time.Now())
		link, err := f.Share(ctx, team, first, "")
		if err != nil {
			t.Fatal(err)
		}
		remove := func(before time.Time) {
			t.Helper()
			for after := ""; ; {
				var err error
				if after, err = f.RemoveBefore(ctx, team, before, after); err != nil {
					t.Fatal(err)
				}
				if after == "" {
					return
				}
			}
		}
		remove(later())
		if n := len(f.list(t, team)); n != 3 {
			t.Errorf("%d are left of which nothing was counted yet", n)
		}
		f.Counted(later())
		remove(time.Now().Add(-time.Minute))
		if n := len(f.list(t, team)); n != 3 {
			t.Errorf("%d are left of those that are young", n)
		}
		if err := f.Delete(ctx, f.Other.TeamID, own); fault.KindOf(err) != fault.NotFound {
			t.Errorf("another team deletes it: %v", err)
		}
		if err := f.Delete(ctx, team, own); err != nil {
			t.Fatal(err)
		}
		if err := f.Delete(ctx, team, own); fault.KindOf(err) != fault.NotFound {
			t.Errorf("deleted twice: %v", err)
		}
		if err := f.Delete(ctx, team, first); err != nil {
			t.Fatal(err)
		}
		// A reply to one of the remaining emails joins their conversation.
		reply := f.deliver(t, fmt.Sprintf(plain, 4, "In-Reply-To: <2@x.example>\nReferences: <1@x.example> <2@x.example>\n"),
			"a@in.acme.example")
		all, _, err := f.List(ctx, team, first, page.Page{})
		if err != nil || len(all) != 2 || all[0].ID != reply || all[1].ID != shared {
			t.Errorf("the conversation has %+v, %v", all, err)
		}
		if _, err := f.OpenRaw(ctx, raw[strings.LastIndexByte(raw, '/')+1:]); fault.KindOf(err) != fault.NotFound {
			t.Errorf("the raw message of one that is deleted: %v", err)
		}
		if _, err := f.Shared(ctx, link[strings.IndexByte(link, '=')+1:]); fault.KindOf(err) != fault.NotFound {
			t.Errorf("a link to one that is deleted: %v", err)
		}
		remove(later())
		if n := len(f.list(t, team)); n != 0 {
			t.Errorf("%d are left", n)
		}
		if rows := f.Count(`SELECT COUNT(*) FROM received_raws`); rows != 0 {
			t.Errorf("%d raw messages are left", rows)
		}
		others := f.list(t, f.Other.TeamID)
		if len(others) != 1 {
			t.Fatalf("the other team has %d", len(others))
		}
		if _, content, err := f.Get(ctx, f.Other.TeamID, others[0].ID, "cid"); err != nil || !strings.Contains(*content.Text,
			"Hello.") {
			t.Errorf("what the other team received cannot be read: %v", err)
		} else {
			content.Close()
		}
		if n := f.blobCount(t); n != 1 {
			t.Errorf("%d files are left", n)
		}
		if err := f.EraseTeam(ctx, f.Other.TeamID); err != nil {
			t.Fatal(err)
		}
		if n := f.blobCount(t); n != 0 {
			t.Errorf("%d files are left after the last team", n)
		}
	})
}

// Deleting a batch needs the same number of statements for any number of received emails.
func TestBatchesOfReceived(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		f := newFixture(t, d)
		f.Counted(later())
		var statements []int
		for _, left := range []int{10, 30} {
			for f.Count(`SELECT COUNT(*) FROM received_emails`) < 100+left {
				f.deliver(t, fmt.Sprintf(plain, 1, ""), "a@in.acme.example")
			}
			trace.Take()
			next, err := f.RemoveBefore(t.Context(), f.Acme.TeamID, later(), "")
			if next == "" || err != nil {
				t.Fatalf("it goes on at %q, %v", next, err)
			}
			statements = append(statements, len(trace.Take()))
			if n := f.Count(`SELECT COUNT(*) FROM received_emails`); n != left {
				t.Errorf("%d are left, want %d", n, left)
			}
		}
		if statements[0] != statements[1] || statements[0] > 15 {
			t.Errorf("%v statements", statements)
		}
	})
}
