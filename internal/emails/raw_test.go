package emails_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/id"
	"github.com/postrider/postrider/internal/mail/message"
)

func composed(to ...message.Address) emails.Raw {
	return emails.Raw{Send: emails.Send{From: "hello@acme.example", Subject: "Hi"}, Recipients: to,
		Header: []byte("From: hello@acme.example\r\nSubject: Hi\r\n"), Body: []byte("\r\nHello.\r\n"),
		Trace: "by mx.test with ESMTPSA"}
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
		kept := w.keys(t)
		old := w.oldRaw(t, large)
		kept = append(kept, "submitted/"+old)
		if _, err := w.blobs.Put(ctx, "submitted/"+id.New(), strings.NewReader("stray")); err != nil {
			t.Fatal(err)
		}
		w.age(t)
		if err := w.emails.SweepFiles(ctx); err != nil {
			t.Fatal(err)
		}
		if slices.Sort(kept); !slices.Equal(w.keys(t), kept) || len(kept) != 2 {
			t.Errorf("left are %v, want %v", w.keys(t), kept)
		}
		for _, emailID := range []string{sent, old} {
			if text := w.compose(t, emailID); !strings.Contains(text, " id "+emailID+";") ||
				!strings.HasSuffix(text, string(large.Header)+string(large.Body)) {
				t.Errorf("email %s has become %.300s", emailID, text)
			}
		}
		if err := w.emails.EraseTeam(ctx, w.who.TeamID); err != nil {
			t.Fatal(err)
		}
		if left := w.keys(t); len(left) != 0 {
			t.Errorf("left of a team that was erased are %v", left)
		}
	})
}

// oldRaw sends a large message, and stores it as it was before blobs had keys of their own: whole, under the email's
// id.
func (w *world) oldRaw(t *testing.T, in emails.Raw) string {
	t.Helper()
	ctx := t.Context()
	before := w.keys(t)
	sent, err := w.emails.SendRaw(ctx, w.who, in, emails.Idempotency{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.blobs.Put(ctx, "submitted/"+sent, strings.NewReader(w.compose(t, sent))); err != nil {
		t.Fatal(err)
	}
	for _, key := range w.keys(t) {
		if key == "submitted/"+sent || slices.Contains(before, key) {
			continue
		}
		if err := w.blobs.Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.d.Update(ctx, func(tx *db.Tx) error {
		tx.Queue(ctx, `DELETE FROM email_messages WHERE email_id = $1`, sent)
		tx.Queue(ctx, `UPDATE email_attachments SET blob_key = $2 || blob_key WHERE email_id = $1`, sent, "submitted/"+sent)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return sent
}

func (w *world) compose(t *testing.T, emailID string) string {
	t.Helper()
	o, err := w.emails.Outgoing(t.Context(), emails.Delivery{EmailID: emailID, Domain: "one.example"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := w.emails.Compose(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRawNeedsRecipients(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		if _, err := w.emails.SendRaw(t.Context(), w.who, composed(), emails.Idempotency{}); fault.KindOf(
			err) != fault.Missing {
			t.Errorf("a message to nobody: %v", err)
		}
	})
}
