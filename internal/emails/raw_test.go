package emails_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/blob"
	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/id"
	"github.com/postrider/postrider/internal/mail/message"
)

func composed(to ...message.Address) emails.Raw {
	return emails.Raw{Send: emails.Send{From: "hello@acme.example", Subject: "Hi"}, Recipients: to,
		Header: []byte("From: hello@acme.example\r\nSubject: Hi\r\n"), Body: []byte("\r\nHello.\r\n"), Trace: "by mx.test with ESMTPSA"}
}

func TestSweepSubmittedMessages(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		large := composed(message.Address{Local: "a", Domain: "one.example"})
		large.Body = []byte("\r\n" + strings.Repeat("Hello.\r\n", 10_000)) // A small one would be kept in a row.
		sent, err := w.emails.SendRaw(ctx, w.who, large, emails.Idempotency{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.blobs.Put(ctx, "submitted/"+id.New(), strings.NewReader("stray")); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-2 * time.Hour)
		err = filepath.WalkDir(w.folder, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			return os.Chtimes(path, old, old)
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.emails.SweepFiles(ctx); err != nil {
			t.Fatal(err)
		}
		var left []string
		if err := w.blobs.List(ctx, "submitted/", func(f blob.Info) error { left = append(left, f.Key); return nil }); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(left, []string{"submitted/" + sent}) {
			t.Errorf("left are %v, want that of email %s", left, sent)
		}
	})
}

func TestRawNeedsRecipients(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		if _, err := w.emails.SendRaw(t.Context(), w.who, composed(), emails.Idempotency{}); fault.KindOf(err) != fault.Missing {
			t.Errorf("a message to nobody: %v", err)
		}
	})
}
