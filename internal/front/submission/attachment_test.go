package submission_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
)

// If the stored message lacks the MIME part for an attachment, only the download of that attachment fails.
func TestAttachmentWithoutItsPart(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		id := f.mustSubmit("From: me@acme.example\nMIME-Version: 1.0\nContent-Type: multipart/mixed; "+
			"boundary=b\n\n--b\n\nHello.\n"+
			"--b\nContent-Disposition: attachment; filename=a.txt\n\nfile\n--b--\n", "ann@one.example")
		files, _, err := f.Emails.Attachments(t.Context(), f.Acme.TeamID, id, page.Page{Limit: 10})
		if err != nil || len(files) != 1 {
			t.Fatalf("%d files, %v", len(files), err)
		}
		link, _ := f.Emails.DownloadURL(&files[0], time.Now())
		token := link[strings.LastIndexByte(link, '/')+1:]
		for index, there := range map[string]bool{"0": true, "1": false, "x": false} {
			if err := d.Update(t.Context(), func(tx *db.Tx) error {
				tx.Queue(t.Context(), `UPDATE email_attachments SET blob_key = SUBSTR(blob_key, 1, LENGTH(blob_key) - 1) || $2
					WHERE email_id = $1`,
					db.ID(id), index)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if _, content, err := f.Emails.Download(t.Context(), token); (err == nil) != there {
				t.Errorf("part %s: %v", index, err)
			} else if err == nil {
				content.Close()
			}
		}
	})
}
