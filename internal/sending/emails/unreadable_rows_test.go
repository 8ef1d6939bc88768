package emails_test

import (
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

// If the row of an email is corrupt, reading it returns an internal error, not an email without recipients, tags or
// headers.
func TestRowsThatCannotBeRead(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		if err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
			tx.Queue(t.Context(), `INSERT INTO contents (id, team_id, kept, used_at, created_at, parts, sender, subject,
				reply_to, headers, html, body_text, from_id)
				VALUES ($2, $1, TRUE, 0, 0, 0, '', '', '', '{', '', '', $2)`, db.ID(f.Acme.TeamID), db.ID(dbtest.ID("broken")))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"recipients": `UPDATE emails SET recipients = '{' WHERE id = $1`,
			"tags":      `UPDATE emails SET tags = '{' WHERE id = $1`,
			"variables": `UPDATE emails SET variables = '{' WHERE id = $1`,
			"content":   `UPDATE emails SET content_id = (SELECT id FROM contents WHERE headers = '{') WHERE id = $1`,
			"headers":   `UPDATE email_bodies SET headers = '{' WHERE email_id = $1`} {
			id := f.Send(hello("ann@one.example"))
			if err := f.DB.Update(t.Context(),
				func(tx *db.Tx) error { tx.Queue(t.Context(), text, db.ID(id)); return nil }); err != nil {
				t.Fatal(err)
			}
			if _, err := emails.EventSummary(t.Context(), f.DB.Reader, f.Acme.TeamID, id); !fault.Ours(err) {
				t.Errorf("%s: brief: %v", name, err)
			}
			if name == "headers" {
				continue
			}
			if _, err := f.Emails.Get(t.Context(), f.Acme.TeamID, id); !fault.Ours(err) {
				t.Errorf("%s: %v", name, err)
			}
			if name == "variables" || name == "content" {
				continue // lists show neither
			}
			if _, _, err := f.Emails.List(t.Context(), f.Acme.TeamID, page.Page{}); !fault.Ours(err) {
				t.Errorf("%s: list: %v", name, err)
			}
		}
	})
}
