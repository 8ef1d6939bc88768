package receiving_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

// Attachments are listed in message order, and paging works in both directions.
func TestPagesOfAttachments(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		names := []string{"0", "1", "2", "3", "4"}
		text := "Subject: Files\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n"
		for _, n := range names {
			text += "--b\nContent-Disposition: attachment; filename=" + n + "\n\nx\n"
		}
		f.deliver(t, text+"--b--\n", "a@in.acme.example")
		e := f.list(t, f.Acme.TeamID)[0]
		if len(e.Files) != len(names) {
			t.Fatalf("%d files", len(e.Files))
		}
		for _, c := range []struct {
			page page.Page
			want string
			more bool
		}{
			{page.Page{}, "0 1 2 3 4", false},
			{page.Page{Limit: 5}, "0 1 2 3 4", false},
			{page.Page{Limit: 4}, "0 1 2 3", true},
			{page.Page{Limit: 2, After: e.Files[1].ID}, "2 3", true},
			{page.Page{Limit: 2, After: e.Files[2].ID}, "3 4", false},
			{page.Page{Limit: 2, After: e.Files[4].ID}, "", false},
			{page.Page{Limit: 2, Before: e.Files[3].ID}, "1 2", true},
			{page.Page{Limit: 2, Before: e.Files[2].ID}, "0 1", false},
			{page.Page{Before: e.Files[1].ID}, "0", false},
		} {
			got, more, err := f.Files(t.Context(), e.TeamID, e.ID, c.page)
			var shown []string
			for _, f := range got {
				shown = append(shown, f.Filename)
			}
			if err != nil || more != c.more || !slices.Equal(shown, strings.Fields(c.want)) {
				t.Errorf("%+v: %v, more %v, %v", c.page, shown, more, err)
			}
		}
	})
}

// Reading an email whose raw message is missing fails, instead of returning an email without content.
func TestContentIsGone(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.deliver(t, "Subject: Hello\n\nHello.\n", "a@in.acme.example")
		e := f.list(t, f.Acme.TeamID)[0]
		if err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `DELETE FROM received_raws WHERE email_id = $1`, db.ID(e.ID))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := f.Get(t.Context(), e.TeamID, e.ID, receiving.CID); err == nil {
			t.Error("it is shown without content")
		}
	})
}
