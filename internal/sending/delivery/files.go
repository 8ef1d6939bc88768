package delivery

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/emails"
)

const (
	// unreadableMax is how long an email waits for a file that cannot be read although the blob store answers.
	unreadableMax = time.Hour
	// missingMax is how long an email waits for a file that the blob store does not have. Missing files seldom come back,
	// but a shared folder or a bucket may show a new file late, and another volume may be mounted by mistake.
	missingMax = 10 * time.Minute
	// fileWait is the wait between two attempts to read a file.
	fileWait = 24 * time.Second
	// probeAge is how long a node remembers that the blob store did not answer.
	probeAge = 10 * time.Second
)

// These are reasons in email.failed and email.delivery_delayed events, which also have a message.
const (
	reasonFileMissing       = "attachment_missing"
	reasonFileUnreadable    = "attachment_unreadable"
	reasonMessageUnreadable = "content_unreadable" // the file contains the whole message; see also reasonLost
)

// blobProbe probes the blob store for all jobs of a node.
type blobProbe struct {
	mu       sync.Mutex
	failedAt time.Time
}

// concernsFile reports whether a file cannot be read although the blob store answers. Otherwise, the whole store is
// away, and the queue repeats the job.
func (s *Service) concernsFile(ctx context.Context, f *emails.FileError) bool {
	if !fault.IsOutage(f) { // the store has answered
		return true
	}
	p := &s.blobs
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.failedAt) < probeAge {
		return false
	}
	if err := s.p.Blobs.Probe(ctx); err != nil {
		p.failedAt = time.Now()
		return false
	}
	return true
}

// waitForFile handles a job whose email has a file that cannot be read. The job is repeated soon, without a try. One
// event reports the delay. If the file still cannot be read after unreadableMax or missingMax, the email fails.
func (s *Service) waitForFile(ctx context.Context, t *try, f *emails.FileError) error {
	now, since, again := s.p.DB.Now(), db.Time(t.d.FileFailedAt), true
	if t.d.FileFailedAt == 0 || t.d.FileTries != t.job.Tries {
		since, again = now, false
	}
	until := since.Add(unreadableMax)
	if f.Missing() {
		until = since.Add(missingMax)
	}
	over := !until.After(now)
	s.p.Log.Error("a file of an email cannot be read", "email", t.o.ID, "team", t.o.TeamID, "file", f.Name,
		"fails", over, "until", until, "error", f)
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		why := describe(f)
		if over {
			why.Message += " The email was not sent to these recipients. Send it again, with the file."
			return s.failBecause(ctx, tx, t, &why)
		}
		j, d := t.job, t.d
		d.FileFailedAt, d.FileTries = since.UnixMicro(), j.Tries
		j.Payload = d.Encode()
		s.p.Queue.HoldUntil(ctx, tx, j, "", tx.Now().Add(jobs.Jitter(fileWait)), f.Error())
		all := t.skipped
		if !again {
			why.Message += fmt.Sprintf(" Postrider tries again until %s, and then the email fails.",
				until.UTC().Format(time.RFC3339))
			all = t.forAll(events.EmailDelayed, &events.Delayed{Reason: why.Reason, Message: why.Message})
		}
		return s.p.Recorder.Record(ctx, tx, all...)
	})
}

// describe returns the reason for which a file cannot be sent, with the first sentence of its message.
func describe(f *emails.FileError) events.Failed {
	file, missing, unreadable := fmt.Sprintf("The attachment %q", f.Name), reasonFileMissing, reasonFileUnreadable
	if f.Name == "" {
		file, missing, unreadable = "The message", reasonLost, reasonMessageUnreadable
	}
	if f.Missing() {
		return events.Failed{Reason: missing, Message: file + " is missing in the server's blob store."}
	}
	return events.Failed{Reason: unreadable, Message: file + " cannot be read from the server's blob store."}
}
