package emails_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/sending/emails"
)

func composed(to ...message.Address) emails.Raw {
	return emails.Raw{Send: emails.Send{From: "hello@acme.example", Subject: "Hi"}, Recipients: to,
		Header: []byte("From: hello@acme.example\r\nSubject: Hi\r\n"), Body: []byte("\r\nHello.\r\n"),
		Trace: "by mx.test with ESMTPSA"}
}

func TestSweepSubmittedMessages(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		large := composed(message.Address{Local: "a", Domain: "one.example"})
		large.Body = []byte("\r\n" + strings.Repeat("Hello.\r\n", 10_000)) // a smaller message would be stored in a row
		sent, err := f.Emails.SendRaw(ctx, f.Acme, large, emails.Idempotency{})
		if err != nil {
			t.Fatal(err)
		}
		kept := f.keys(t)
		if _, err := f.Blobs.Put(ctx, "submitted/"+id.New(), strings.NewReader("stray")); err != nil {
			t.Fatal(err)
		}
		f.age(t)
		if err := f.Emails.SweepFiles(ctx); err != nil {
			t.Fatal(err)
		}
		if slices.Sort(kept); !slices.Equal(f.keys(t), kept) || len(kept) != 1 {
			t.Errorf("left are %v, want %v", f.keys(t), kept)
		}
		if text := f.compose(t, sent); !strings.Contains(text, " id "+sent+";") ||
			!strings.HasSuffix(text, string(large.Header)+string(large.Body)) {
			t.Errorf("the email has become %.300s", text)
		}
		if err := f.Emails.EraseTeam(ctx, f.Acme.TeamID); err != nil {
			t.Fatal(err)
		}
		if left := f.keys(t); len(left) != 0 {
			t.Errorf("left of a team that was erased are %v", left)
		}
	})
}

func (f *fixture) compose(t *testing.T, emailID string) string {
	t.Helper()
	o, err := f.Emails.Outgoing(t.Context(), emails.Delivery{TeamID: f.Acme.TeamID,
		EmailID: emailID, Domain: "one.example"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := f.Emails.Compose(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRawNeedsRecipients(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		if _, err := f.Emails.SendRaw(t.Context(), f.Acme, composed(), emails.Idempotency{}); fault.KindOf(
			err) != fault.Missing {
			t.Errorf("a message to nobody: %v", err)
		}
	})
}
