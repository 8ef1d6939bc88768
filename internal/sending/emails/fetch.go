package emails

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/netguard"
)

// FetchKind is the kind of jobs that fetch an email's attachments if they are specified by path, and then enqueue the
// email's delivery jobs. Fetch jobs are separate from release jobs, so that scheduled emails do not wait for slow
// hosts.
const FetchKind = "emails.fetch"

const (
	// An email fails if its attachments cannot be fetched in fetchTries tries. If the last try fetched at least one file,
	// another try follows.
	fetchTries = 3
	// fetchersMax is the maximum number of emails whose attachments are fetched concurrently. All teams share the limit
	// fetchersMax.
	fetchersMax = 64
	// fetchTime is the time limit for one try to fetch the attachments of one email. Files fetched within the time limit
	// are kept for later tries.
	fetchTime = 5 * time.Minute
	// busyMax is the maximum time that an email waits while attachments of other emails are fetched from the same hosts.
	busyMax = 6 * time.Hour
	// fetchMemory is the maximum number of bytes that are being fetched and stored at the same time. The limit is needed
	// because a bucket client may hold a whole file in memory until the file is stored. Each team must leave as much of
	// the memory for fetched files free as it uses.
	fetchMemory = 128 << 20
)

// fetchWaits lists the waits between the tries to fetch attachments.
var fetchWaits = [fetchTries - 1]time.Duration{10 * time.Second, time.Minute}

// fetchJob returns the job that fetches an email's attachments and then enqueues its delivery jobs.
func fetchJob(e *Email) jobs.New {
	return jobs.New{Kind: FetchKind, Lane: e.TeamID, TeamID: e.TeamID, Dedupe: e.ID, Payload: e.ID}
}

// fetchAndRelease handles a fetch job.
func (s *Service) fetchAndRelease(ctx context.Context, j jobs.Job) error {
	e, err := readEmail(ctx, s.DB.Reader, j.TeamID, j.Payload)
	if fault.KindOf(err) == fault.NotFound || err == nil && e.LastEvent != Queued {
		return s.Queue.End(ctx, j)
	}
	if err != nil {
		return err
	}
	files, err := attachmentsOf(ctx, s.DB.Reader, e.TeamID, e.ID)
	if err != nil {
		return fmt.Errorf("look up the attachments of email %s: %w", e.ID, err)
	}
	fetched, err := s.fetch(ctx, &e, files)
	if _, ours := errors.AsType[*storeError](err); ours || fault.IsOutage(err) {
		s.discardFiles(ctx, fetched...) // otherwise each try would leave more files in a full store
		return err
	}
	if err != nil {
		return s.retryFetch(ctx, j, &e, fetched, err)
	}
	var size int64
	for _, a := range fetched {
		size += a.Size
	}
	return s.enqueueDeliveries(ctx, j, &e, size, func(tx *db.Tx) {
		for _, a := range fetched {
			setFetched(ctx, tx, a)
		}
	})
}

// needsFetch reports whether the attachment still has to be fetched from its path.
func (a *Attachment) needsFetch() bool { return a.path != "" && a.blobKey == "" }

// fetch downloads the attachments that were specified by path and stores them, so that all delivery attempts send the
// same content. Each path is fetched once. If fetch returns an error, it also returns the attachments fetched so far.
func (s *Service) fetch(ctx context.Context, e *Email, files []Attachment) (fetched []*Attachment, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	left := s.c.MaxSize
	same := map[string]*Attachment{} // by path
	for i := range files {
		left -= files[i].Size / 57 * 78
		if files[i].path != "" && files[i].blobKey != "" {
			same[files[i].path] = &files[i]
		}
	}
	for i := range files {
		a := &files[i]
		if !a.needsFetch() {
			continue
		}
		if from := same[a.path]; from != nil {
			err = s.copyFetched(ctx, a, from, max(left, 0)/78*57)
		} else {
			err = s.fetchOne(ctx, a, max(left, 0)/78*57)
		}
		if err != nil {
			return fetched, fmt.Errorf("fetch the attachment %s: %w", a.Filename, err)
		}
		left -= a.Size / 57 * 78
		same[a.path] = a
		fetched = append(fetched, a)
	}
	return fetched, nil
}

// fetchOne downloads one attachment, of at most limit bytes, into the file store.
func (s *Service) fetchOne(ctx context.Context, a *Attachment, limit int64) error {
	f, err := s.Guard.Fetch(ctx, a.TeamID, a.path, limit)
	if err != nil {
		return err
	}
	defer f.Close()
	size := limit
	if f.Length >= 0 {
		size = f.Length
	}
	if err := s.fetching.Acquire(ctx, a.TeamID, size); err != nil {
		return fmt.Errorf("%w: %w", netguard.ErrBusy, err)
	}
	defer s.fetching.Release(a.TeamID, size)
	if a.ContentType == "" {
		a.ContentType = f.Type
	}
	return s.storeFetched(ctx, a, f)
}

// copyFetched stores a copy of the content that was fetched for another attachment with the same path.
func (s *Service) copyFetched(ctx context.Context, a, from *Attachment, limit int64) error {
	if from.Size > limit {
		return fmt.Errorf("%w: %d bytes, at most %d are taken", netguard.ErrTooLarge, from.Size, limit)
	}
	if err := s.fetching.Acquire(ctx, a.TeamID, from.Size); err != nil {
		return fmt.Errorf("%w: %w", netguard.ErrBusy, err)
	}
	defer s.fetching.Release(a.TeamID, from.Size)
	r, err := s.Blobs.Get(ctx, from.blobKey)
	if err != nil {
		return &storeError{err}
	}
	defer r.Close()
	if a.ContentType == "" {
		a.ContentType = from.ContentType
	}
	if err := s.storeFetched(ctx, a, r); err != nil {
		return &storeError{err} // the content is read from the file store, so the file store has failed
	}
	return nil
}

// storeError is an error from the file store. A try that fails with a storeError does not count.
type storeError struct{ err error }

func (e *storeError) Error() string { return "store it: " + e.err.Error() }
func (e *storeError) Unwrap() error { return e.err }

// errorReader records errors from the wrapped reader, so that read errors can be distinguished from storage errors.
type errorReader struct {
	io.Reader
	err error
}

func (r *errorReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

func (s *Service) storeFetched(ctx context.Context, a *Attachment, content io.Reader) error {
	key := newFileKey()
	from := &errorReader{Reader: content}
	n, err := s.Blobs.Put(ctx, key, from)
	if err != nil && from.err == nil {
		return &storeError{err}
	}
	if err != nil {
		return err
	}
	a.Size, a.blobKey = n, key
	return nil
}

// retryFetch records the fetched files and schedules another try. After the last try, retryFetch marks the email as
// failed. A try does not count if the host is busy with other emails, or if this server crashes or has an internal
// error.
func (s *Service) retryFetch(ctx context.Context, j jobs.Job, e *Email, fetched []*Attachment, cause error) error {
	if ctx.Err() != nil {
		s.discardFiles(ctx, fetched...)
		return ctx.Err()
	}
	wait := fetchWaits[min(j.Tries, len(fetchWaits)-1)]
	last, again := j.Tries+1 >= fetchTries && len(fetched) == 0, s.Queue.Retry
	if errors.Is(cause, netguard.ErrBusy) {
		last, again = s.DB.Now().Sub(j.CreatedAt) > busyMax, s.Queue.Wait
	}
	if last {
		s.discardFiles(ctx, fetched...)
		s.Log.Warn("an attachment could not be fetched, and its email fails", "email", e.ID, "team", e.TeamID,
			"tries", j.Tries+1, "error", cause)
		return s.fail(ctx, j, e, "attachment_fetch_failed")
	}
	s.Log.Info("an attachment could not be fetched and will be tried again", "email", e.ID, "team", e.TeamID,
		"tries", j.Tries, "error", cause)
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		for _, a := range fetched {
			setFetched(ctx, tx, a)
		}
		again(ctx, tx, j, tx.Now().Add(jobs.Jitter(wait)), cause.Error())
		return nil
	})
}

// scheduleFetch finishes a release job and enqueues the fetch job for the same email. When the fetch job is enqueued,
// all recipients of the email count against the team's quota. Suppressions are looked up only after the files have been
// fetched.
func (s *Service) scheduleFetch(ctx context.Context, j jobs.Job, e *Email) error {
	to, err := pending(ctx, s.DB.Reader, e, "")
	if err != nil {
		return err
	}
	return s.beginCounted(ctx, j, e, len(to), func(tx *db.Tx) error {
		s.Queue.Insert(ctx, tx, fetchJob(e))
		if e.LastEvent != Scheduled {
			return nil
		}
		return s.Recorder.Record(ctx, tx, queuedEvent(e))
	})
}

// queuedEvent returns the event for a scheduled email that is queued because its scheduled time has come.
func queuedEvent(e *Email) events.Event {
	return events.Event{TeamID: e.TeamID, EmailID: e.ID, DomainID: e.DomainID, BroadcastID: e.BroadcastID,
		Type: events.EmailQueued}
}
