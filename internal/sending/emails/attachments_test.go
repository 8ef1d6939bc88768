package emails_test

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

func TestAttachments(t *testing.T) {
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w,
			"fetched")
	}))
	defer files.Close()
	each(t, func(t *testing.T, f *fixture) {
		s := hello("a@one.example")
		s.Attachments = []emails.Upload{{Filename: "a.txt", Content: []byte("given"), HasContent: true},
			{Path: files.URL + "/b.pdf", Filename: "b.pdf"}}
		id := f.Send(s)
		f.release(t, func() bool { return f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'delivery'`) == 1 })
		all, _, err := f.Emails.Attachments(t.Context(), f.Acme.TeamID, id, page.Page{})
		if err != nil || len(all) != 2 {
			t.Fatalf("attachments %+v, %v", all, err)
		}
		o, err := f.Emails.Outgoing(t.Context(), emails.Delivery{TeamID: f.Acme.TeamID, EmailID: id, Domain: "one.example"})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := f.Emails.Compose(t.Context(), o)
		if err != nil || !strings.Contains(string(raw), "Z2l2ZW4=") || !strings.Contains(string(raw), "ZmV0Y2hlZA==") {
			t.Errorf("composed %v\n%s", err, raw)
		}
		link, expires := f.Emails.DownloadURL(&all[0], time.Now())
		if d := time.Until(expires); d < 59*time.Minute || d > time.Hour {
			t.Errorf("the link lives for %v", d)
		}
		token := strings.TrimPrefix(link, testnode.PublicURL+"/download/")
		a, content, err := f.Emails.Download(t.Context(), token)
		if err != nil {
			t.Fatal(err)
		}
		content.Close()
		if a.ID != all[0].ID {
			t.Errorf("downloaded %s", a.Filename)
		}
		old, _ := f.Emails.DownloadURL(&all[0], time.Now().Add(-2*time.Hour))
		oldToken := strings.TrimPrefix(old, testnode.PublicURL+"/download/")
		if _, _, err := f.Emails.Download(t.Context(), oldToken); fault.KindOf(err) != fault.Forbidden {
			t.Errorf("an expired link: %v", err)
		}
		if _, _, err := f.Emails.Download(t.Context(), token+"x"); fault.KindOf(err) != fault.NotFound {
			t.Errorf("a forged link: %v", err)
		}
	})
}

func TestSweepFiles(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		s := hello("a@one.example")
		s.Attachments = []emails.Upload{{Filename: "a.txt", Content: []byte("kept"), HasContent: true}}
		f.Send(s)
		kept := f.keys(t)
		// The attachment's blob key is changed to the form used by older releases, which contains the email's id.
		old := f.Send(s)
		for _, key := range f.keys(t) {
			if slices.Contains(kept, key) {
				continue
			}
			kept = append(kept, f.rename(t, key, "attachments/"+old+"/"+id.New()))
		}
		kept = append(kept, "attachments/"+id.New()+"new", "other/stays")
		for _, key := range append([]string{"attachments/" + id.New(), "attachments/" + id.New() + "/" + id.New()},
			kept[2:]...) {
			if _, err := f.Blobs.Put(ctx, key, strings.NewReader("stray")); err != nil {
				t.Fatal(err)
			}
		}
		f.age(t)
		if err := f.Emails.SweepFiles(ctx); err != nil {
			t.Fatal(err)
		}
		if slices.Sort(kept); !slices.Equal(f.keys(t), kept) {
			t.Errorf("left are %v, want %v", f.keys(t), kept)
		}
		if err := f.Emails.EraseTeam(ctx, f.Acme.TeamID); err != nil {
			t.Fatal(err)
		}
		if left := f.keys(t); len(left) != 2 {
			t.Errorf("left of a team that was erased are %v", left)
		}
	})
}

// keys returns the keys of all blobs, sorted.
func (f *fixture) keys(t *testing.T) (all []string) {
	t.Helper()
	if err := f.Blobs.List(t.Context(), "", func(f blob.Info) error { all = append(all, f.Key); return nil }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// age makes all blobs two hours old, except those whose key ends in "new".
func (f *fixture) age(t *testing.T) {
	t.Helper()
	old := time.Now().Add(-2 * time.Hour)
	err := filepath.WalkDir(f.folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasSuffix(path, "new") {
			return err
		}
		return os.Chtimes(path, old, old)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// rename moves an attachment's blob to another key and returns the new key.
func (f *fixture) rename(t *testing.T, from, to string) string {
	t.Helper()
	ctx := t.Context()
	r, err := f.Blobs.Get(ctx, from)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := f.Blobs.Put(ctx, to, r); err != nil {
		t.Fatal(err)
	}
	if err := f.Blobs.Delete(ctx, from); err != nil {
		t.Fatal(err)
	}
	if err := f.DB.Update(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE email_attachments SET blob_key = $2 WHERE blob_key = $1`, from, to)
		if err == nil && n != 1 {
			err = fmt.Errorf("%d attachments have the key %s", n, from)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return to
}

func TestFetchThatFailsEndsTheEmail(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	defer gone.Close()
	each(t, func(t *testing.T, f *fixture) {
		s := hello("a@one.example")
		s.Attachments = []emails.Upload{{Path: gone.URL + "/x"}}
		id := f.Send(s)
		// All attempts to fetch the file fail; the test skips the waits between them.
		f.release(t, func() bool {
			if err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
				_, err := f.Queue.Move(t.Context(), tx, emails.FetchKind, f.Acme.TeamID, f.Acme.TeamID, id,
					time.Now().Add(-time.Second))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return f.state(id) == emails.Failed
		})
	})
}
