package imports

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/csvfile"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// Kind is the kind of job that imports a file.
const Kind = "imports.run"

const (
	maxRunTime   = time.Minute     // time limit for an attempt, to let other teams' imports run
	recheckAfter = 2 * time.Second // how often an import checks whether the team's earlier imports have ended
	// maxRows is the maximum number of rows that one transaction writes, over all tables. On SQLite, writing 4,000 rows
	// takes about 50 ms, while all other writing transactions wait. Smaller transactions rewrite the same index pages
	// more often: with half as many rows, 40% more bytes were written to disk.
	maxRows  = 4000
	minBatch = 20 // minimum number of rows in a batch, even if each row is written to many tables
)

// retryDelays are the delays before retries after errors in the database or the file store. If the file is invalid, the
// import fails immediately.
var retryDelays = []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}

// errMoved means that the import's stored position is no longer where the batch began. The import was canceled or
// deleted, or another node is running it.
var errMoved = errors.New("the import has ended, or another node continues it")

// JobKind returns the kind of job that imports a file.
func (s *Service) JobKind() jobs.Kind {
	return jobs.Kind{Name: Kind, Handle: s.handle, Workers: 2, PerLane: 1, Lease: 5 * time.Minute, Schedule: retryDelays,
		Endless: true}
}

// handle continues an import from its stored position. If the import cannot continue, handle stores a reason that the
// team can see, because the team's later imports have to wait.
func (s *Service) handle(ctx context.Context, j jobs.Job) error {
	err := s.attempt(ctx, j)
	if err == nil || ctx.Err() != nil || errors.Is(err, errMoved) || errors.Is(err, jobs.ErrLost) {
		return err
	}
	noted := s.DB.Update(ctx, func(tx *db.Tx) error { return setHoldReason(ctx, tx, j.TeamID, j.Payload) })
	return errors.Join(err, noted)
}

func (s *Service) attempt(ctx context.Context, j jobs.Job) error {
	i, p, err := planOf(ctx, s.DB.Reader, j.TeamID, j.Payload)
	if fault.KindOf(err) == fault.NotFound || err == nil && i.Done() {
		s.deleteFile(ctx, j.Payload)
		return s.Queue.End(ctx, j)
	}
	if err != nil {
		return err
	}
	_, first, err := waiting(ctx, s.DB.Reader, j.TeamID, 1)
	if err != nil {
		return err
	}
	if first != "" && first < i.ID {
		return s.reschedule(ctx, j, recheckAfter)
	}
	file, err := s.open(ctx, &i)
	if errors.Is(err, blob.ErrNotFound) {
		return s.end(ctx, j, &i, Failed, "Its file is not stored any more. Import it again.")
	}
	if err != nil {
		return err
	}
	defer file.Close()
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		startImport(ctx, tx, &i)
		return nil
	})
	if err != nil {
		return fmt.Errorf("start import %s: %w", i.ID, err)
	}
	r := &run{s: s, i: i, p: p, b: p.bulk(), rows: csvfile.NewReader(file, p.Form, i.Position, i.lines)}
	return r.batches(ctx, j)
}

// reschedule schedules the job to run again after the given delay.
func (s *Service) reschedule(ctx context.Context, j jobs.Job, after time.Duration) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		s.Queue.Wait(ctx, tx, j, tx.Now().Add(after), "")
		return nil
	})
}

// end sets the import's final status, finishes its job, and deletes the file.
func (s *Service) end(ctx context.Context, j jobs.Job, i *Import, status Status, reason string) error {
	err := s.DB.Update(ctx, func(tx *db.Tx) error {
		if _, err := end(ctx, tx, i.TeamID, i.ID, status, reason); err != nil {
			return err
		}
		s.Queue.Finish(ctx, tx, j)
		return nil
	})
	if err == nil {
		s.deleteFile(ctx, i.ID)
	}
	return err
}

// open opens an import's file and skips to the stored position.
func (s *Service) open(ctx context.Context, i *Import) (io.ReadCloser, error) {
	file, err := s.Blobs.Get(ctx, fileKey(i.ID))
	if err != nil {
		return nil, err
	}
	if seeker, ok := file.(io.Seeker); ok {
		_, err = seeker.Seek(i.Position, io.SeekStart)
	} else {
		_, err = io.CopyN(io.Discard, file, i.Position)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("go to byte %d of a file to import: %w", i.Position, err)
	}
	return file, nil
}

// run is one attempt at running the job.
type run struct {
	s    *Service
	i    Import // the import as stored in the database
	p    plan
	b    *contacts.Bulk
	rows *csvfile.Reader
}

// batches imports batches until the end of the file or until maxRunTime has passed.
func (r *run) batches(ctx context.Context, j jobs.Job) error {
	for began := time.Now(); ; {
		if err := j.Sure(ctx); err != nil {
			return err
		}
		some, err := r.read()
		if err != nil {
			return fmt.Errorf("read the file of import %s: %w", r.i.ID, err)
		}
		start := time.Now()
		err = r.write(ctx, some)
		switch {
		case errors.Is(err, errMoved):
			return r.checkMoved(ctx, j)
		case err != nil && !fault.Ours(err):
			return r.s.end(ctx, j, &r.i, Failed, "What it refers to changed while it ran. "+err.Error())
		case err != nil:
			return fmt.Errorf("import %s: %w", r.i.ID, err)
		case some.last:
			return r.s.end(ctx, j, &r.i, Completed, "")
		case time.Since(began) > maxRunTime:
			return r.s.reschedule(ctx, j, 0)
		}
		if r.s.DB.Alone() { // lets other transactions use SQLite's only writer
			if err := pause(ctx, time.Since(start)/4); err != nil {
				return err
			}
		}
	}
}

// checkMoved handles errMoved. If the import has ended, checkMoved ends the job; if another node is running the import,
// checkMoved returns an error.
func (r *run) checkMoved(ctx context.Context, j jobs.Job) error {
	i, err := r.s.Get(ctx, r.i.TeamID, r.i.ID)
	if fault.KindOf(err) == fault.NotFound || err == nil && i.Done() {
		r.s.deleteFile(ctx, r.i.ID)
		return r.s.Queue.End(ctx, j)
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("import %s: %w", i.ID, errMoved)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// batch contains the rows that one transaction writes.
type batch struct {
	rows   []contacts.BulkRow
	failed failures
	end    int64 // position in the file after the batch
	lines  int64
	last   bool // the file ends with this batch
}

// size returns the number of rows in a batch. The more tables each row is written to, the fewer rows are in a batch, so
// that a batch takes only tens of milliseconds.
func (r *run) size() int {
	tables := 1 + len(r.b.Properties) + len(r.b.Segments) + len(r.b.Topics)
	return min(r.s.c.Batch, max(minBatch, maxRows/tables))
}

// read reads the next batch from the file.
func (r *run) read() (b batch, err error) {
	b.end, b.lines = r.i.Position, r.i.lines
	for most := r.size(); len(b.rows)+len(b.failed.lines) < most; {
		rec, err := r.rows.Read()
		if errors.Is(err, io.EOF) {
			b.last = true
			return b, nil
		}
		broken, isBroken := errors.AsType[*csvfile.RecordError](err)
		if err != nil && !isBroken {
			return b, err
		}
		if !isBroken && r.p.hasRows(rec.Fields) {
			broken = r.rows.Reject(&rec)
			isBroken = broken != nil
		}
		b.end, b.lines = rec.End, rec.Lines
		switch {
		case isBroken:
			b.failed.add(rec.Line, broken.Error(), nil)
		case rec.Blank():
		default:
			row, err := r.p.row(r.b, rec.Fields)
			if err != nil {
				b.failed.add(rec.Line, err.Error(), rec.Fields)
			} else {
				b.rows = append(b.rows, row)
			}
		}
	}
	return b, nil
}

// write writes a batch and the import's new position.
func (r *run) write(ctx context.Context, b batch) error {
	if b.end == r.i.Position {
		return nil // only the end of the file was read
	}
	var next Import
	err := r.s.DB.Update(ctx, func(tx *db.Tx) error {
		next = r.i
		next.Position, next.lines, next.Reason = b.end, b.lines, ""
		next.Failed += int64(len(b.failed.lines))
		kept := min(int64(len(b.failed.lines)), MaxKept-next.Kept)
		next.Kept += kept
		n, err := r.s.Contacts.WriteBulk(ctx, tx, next.TeamID, r.b, b.rows)
		if err != nil {
			return err
		}
		next.Created += int64(n.Created)
		next.Updated += int64(n.Updated)
		next.Skipped += int64(n.Skipped)
		insertFailures(ctx, tx, &next, &b.failed, int(kept))
		advance(ctx, tx, r.i.Position, &next)
		return nil
	})
	if err == nil {
		r.i = next
	}
	return err
}
