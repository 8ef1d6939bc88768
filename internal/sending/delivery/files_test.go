package delivery

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
)

// newFile calls send and returns the path of the blob that send has stored in a folder store.
func (f *fixture) newFile(blobs string, send func()) (path string) {
	f.T.Helper()
	list := func() []string {
		all, err := filepath.Glob(filepath.Join(blobs, "[0-9a-f][0-9a-f]", "*"))
		f.Must(err)
		return all
	}
	before := list()
	send()
	for _, path := range list() {
		if !slices.Contains(before, path) {
			return path
		}
	}
	f.T.Fatal("no blob was stored")
	return ""
}

// withFile sends an email with an attachment.
func (f *fixture) withFile(to string) string {
	f.T.Helper()
	e := testnode.Hello(to)
	e.Attachments = []emails.Upload{{Filename: "invoice.pdf", Content: []byte("content"), HasContent: true}}
	return f.Send(e)
}

// sendLarge sends a raw message that is too large for a row.
func (f *fixture) sendLarge(to string) string {
	f.T.Helper()
	a, err := message.ParseAddress(to)
	f.Must(err)
	id, err := f.Emails.SendRaw(f.T.Context(), f.Acme, emails.Raw{Send: emails.Send{From: "hello@" + from,
		To: []string{to}, Subject: "Hi", Text: new("Hello")}, Recipients: []message.Address{a},
		Header: []byte("From: hello@" + from + "\r\nTo: " + to + "\r\nSubject: Hi\r\n"),
		Body:   append([]byte("\r\n"), bytes.Repeat([]byte("Hello\r\n"), 20_000)...)}, emails.Idempotency{})
	f.Must(err)
	return id
}

// fileFailed changes the time at which the file of an email was first unreadable, and makes the job due.
func (f *fixture) fileFailed(emailID string, ago time.Duration) {
	f.T.Helper()
	testnode.Until(f.T, "the job waits", func() bool {
		return f.Count(`SELECT COUNT(*) FROM jobs WHERE payload LIKE $1 AND holder IS NULL AND run_at > 1`,
			"%"+emailID+"%") == 1
	})
	f.Update(func(tx *db.Tx) error {
		var payload, lane string
		err := tx.QueryRow(f.T.Context(), `SELECT payload, lane FROM jobs WHERE payload LIKE $1`,
			"%"+emailID+"%").Scan(&payload, &lane)
		if err != nil {
			return err
		}
		d, err := emails.DecodeDelivery(payload, lane)
		if err != nil {
			return err
		}
		if d.FileFailedAt == 0 {
			f.T.Error("the job does not wait for a file")
		}
		d.FileFailedAt = f.DB.Now().Add(-ago).UnixMicro()
		tx.Queue(f.T.Context(), `UPDATE jobs SET payload = $2 WHERE payload = $1`, payload, d.Encode())
		return nil
	})
	f.dueNow(emailID)
}

// If one file cannot be read although the blob store answers, the timeline shows the delay and its reason at once. The
// job is repeated soon, without a try. After an hour, or after ten minutes if the file is missing, the email fails with
// a reason that names the file. Emails with other files are delivered meanwhile.
func TestFilesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		mx := smtptest.NewServer(t, smtptest.Config{})
		n := one(mx.Addr)
		blobs := filepath.Join(t.TempDir(), "blobs")
		f := newFixtureIn(t, d, n.config(2), n.dns, blobs)
		directory := func(path string) {
			f.Must(os.Remove(path))
			f.Must(os.Mkdir(path, 0o700))
		}
		remove := func(path string) { f.Must(os.Remove(path)) }
		truncate := func(path string) { f.Must(os.Truncate(path, 3)) }
		type one struct {
			id, reason, file string
			longest          time.Duration
		}
		var all []one
		for i, c := range []struct {
			spoil        func(path string)
			send         func(to string) string
			reason, file string
			longest      time.Duration
		}{
			{directory, f.withFile, "attachment_unreadable", `"invoice.pdf"`, time.Hour},
			{truncate, f.withFile, "attachment_unreadable", `"invoice.pdf"`, time.Hour},
			{remove, f.withFile, "attachment_missing", `"invoice.pdf"`, 10 * time.Minute},
			{directory, f.sendLarge, "content_unreadable", "The message", time.Hour},
			{remove, f.sendLarge, "content_missing", "The message", 10 * time.Minute},
		} {
			var id string
			c.spoil(f.newFile(blobs, func() { id = c.send(address(i)) }))
			all = append(all, one{id, c.reason, c.file, c.longest})
		}
		f.run()
		good := f.withFile(address(9))
		f.wait(good, events.EmailDelivered)
		for _, c := range all {
			f.wait(c.id, events.EmailDelayed)
			why := f.event(c.id, events.EmailDelayed).Data.(*events.Delayed)
			if why.Reason != c.reason || !strings.Contains(why.Message, c.file) || !strings.Contains(why.Message, "until") {
				t.Errorf("%s: the email waits because of %+v", c.reason, why)
			}
			f.fileFailed(c.id, c.longest-time.Minute)
			testnode.Until(t, "the job waits again", func() bool {
				return f.Count(`SELECT COUNT(*) FROM jobs WHERE payload LIKE $1 AND holder IS NULL AND attempt > 1 AND tries = 0
					AND run_at > $2 AND run_at < $3`, "%"+c.id+"%", f.DB.Now().UnixMicro(),
					f.DB.Now().Add(30*time.Second).UnixMicro()) == 1
			})
			f.fileFailed(c.id, c.longest)
			got := f.wait(c.id, events.EmailFailed)
			if len(got) != 2 {
				t.Errorf("%s: the events are %q", c.reason, got)
			}
			over := f.event(c.id, events.EmailFailed).Data.(*events.Failed)
			if over.Reason != c.reason || !strings.Contains(over.Message, c.file) ||
				!strings.Contains(over.Message, "Send it again") {
				t.Errorf("%s: the email fails because of %+v", c.reason, over)
			}
			if f.state(c.id) != emails.Failed || len(f.attempts(c.id)) != 0 {
				t.Errorf("%s: the email is %s and has %d attempts", c.reason, f.state(c.id), len(f.attempts(c.id)))
			}
		}
		if n := f.jobsLeft(); n != 0 || len(mx.Messages()) != 1 {
			t.Errorf("%d jobs are left, and %d messages were sent", n, len(mx.Messages()))
		}
	})
}

// If the file can be read again, the email is delivered, and another failure after another try begins a new hour.
func TestFileThatCanBeReadAgain(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		var asked atomic.Int64
		mx := smtptest.NewServer(t, smtptest.Config{Rcpt: func(string, string) string {
			if asked.Add(1) == 1 {
				return "451 4.7.1 later"
			}
			return ""
		}})
		n := one(mx.Addr)
		blobs := filepath.Join(t.TempDir(), "blobs")
		cfg := n.config(2)
		cfg.Schedule = []time.Duration{time.Hour, time.Hour}
		f := newFixtureIn(t, d, cfg, n.dns, blobs)
		var id string
		path := f.newFile(blobs, func() { id = f.withFile(address(1)) })
		hide := func() { f.Must(os.Rename(path, path+".hidden")) }
		show := func() { f.Must(os.Rename(path+".hidden", path)) }
		hide()
		f.run()
		f.wait(id, events.EmailDelayed)
		show()
		f.fileFailed(id, 0)
		f.wait(id, events.EmailDelayed, events.EmailDelayed) // the second event is the host's answer
		hide()
		f.fileFailed(id, 2*time.Hour) // this failure is from before the host's answer
		f.wait(id, events.EmailDelayed, events.EmailDelayed, events.EmailDelayed)
		show()
		f.fileFailed(id, 0)
		f.wait(id, events.EmailDelivered)
	})
}
