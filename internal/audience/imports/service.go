package imports

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/csvfile"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
)

// Deps are the dependencies of a Service.
type Deps struct {
	DB       *db.DB
	Queue    *jobs.Queue
	Blobs    *blob.Store
	Contacts *contacts.Service
	Log      *slog.Logger
}

// Config contains the settings of the service.
type Config struct {
	MaxSize   int64         // maximum size of a file, in bytes; 0 means 50 MB
	Batch     int           // maximum number of rows per transaction; 0 means 1,000
	Look      time.Duration // how often Watch reads an import; 0 means every half second
	Retention time.Duration // retention of ended imports and their failed rows; 0 means 30 days
}

// Service implements the operations on imports.
type Service struct {
	Deps
	c         Config
	retention atomic.Int64 // a duration
	closed    chan struct{}
	close     func()
}

// New returns a Service, or an error if a dependency is missing.
func New(c Config, d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	c.MaxSize = cmp.Or(c.MaxSize, 50<<20)
	c.Batch = cmp.Or(c.Batch, 1000)
	c.Look = cmp.Or(c.Look, time.Second/2)
	c.Retention = cmp.Or(c.Retention, 30*24*time.Hour)
	closed := make(chan struct{})
	s := &Service{Deps: d, c: c, closed: closed, close: sync.OnceFunc(func() { close(closed) })}
	s.SetRetention(c.Retention)
	return s, nil
}

// SetRetention replaces the retention period.
func (s *Service) SetRetention(retention time.Duration) { s.retention.Store(int64(retention)) }

// MaxSize returns the maximum size of a file, in bytes.
func (s *Service) MaxSize() int64 { return s.c.MaxSize }

// File is a stored file that does not belong to an import yet.
type File struct {
	id     string
	size   int64
	form   csvfile.Form
	header csvfile.Record
}

// Store reads a CSV file from r and stores it. If the file is invalid, Store returns an Invalid fault for the `file`
// field. Store wraps errors from r. The caller must pass the file to Create or Discard. If the process is killed before
// it calls Create or Discard, Sweep deletes the file later.
func (s *Service) Store(ctx context.Context, r io.Reader) (*File, error) {
	buffered := bufio.NewReaderSize(r, csvfile.HeadSize)
	head, err := buffered.Peek(csvfile.HeadSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the beginning of a file to import: %w", err)
	}
	f := &File{id: id.New()}
	if f.form, f.header, err = csvfile.Sniff(head); err != nil {
		return nil, err
	}
	if f.size, err = s.Blobs.Put(ctx, fileKey(f.id), io.LimitReader(buffered, s.c.MaxSize+1)); err != nil {
		if errors.Is(err, blob.ErrFull) {
			return nil, fault.New(fault.Unavailable, "",
				"There is no room for the file at present. Try again later.").Because(err)
		}
		return nil, fmt.Errorf("store a file to import: %w", err)
	}
	if f.size > s.c.MaxSize {
		s.Discard(ctx, f)
		return nil, fault.Invalidf("file", "The `file` is larger than %d bytes. Split it, or ask the operator to raise "+
			"import_max_size.", s.c.MaxSize)
	}
	return f, nil
}

// Discard deletes a stored file that is not going to be imported. The parameter f may be nil.
func (s *Service) Discard(ctx context.Context, f *File) {
	if f != nil {
		s.deleteFile(context.WithoutCancel(ctx), f.id)
	}
}

// deleteFile deletes an import's file. If the deletion fails, Sweep deletes the file later.
func (s *Service) deleteFile(ctx context.Context, importID string) {
	if err := s.Blobs.Delete(ctx, fileKey(importID)); err != nil {
		s.Log.Warn("could not delete an imported file; it is tried again", "import", importID, "error", err)
	}
}

// NewImport describes an import to create.
type NewImport struct {
	Filename   string
	Map        *Map   // if nil, the columns must have the same names as the fields
	OnConflict string // upsert or skip; "" means skip
	Segments   []string
	Topics     []contacts.Choice
}

// CheckCapacity returns a fault if the team has too many queued and running imports. Create checks the same limit, but
// CheckCapacity lets callers check it before they receive a large file.
func (s *Service) CheckCapacity(ctx context.Context, teamID string) error {
	return checkCapacity(ctx, s.DB.Reader, teamID)
}

func checkCapacity(ctx context.Context, r db.Reader, teamID string) error {
	n, _, err := waiting(ctx, r, teamID, MaxWaiting)
	if err == nil && n >= MaxWaiting {
		err = fault.Invalidf("", "%d imports of this team have not ended. Try again when some have.", n)
	}
	return err
}

// Create creates an import of a stored file. If Create returns a fault, the file is deleted.
func (s *Service) Create(ctx context.Context, teamID string, f *File, n NewImport) (Import, error) {
	i := Import{TeamID: teamID, ID: f.id, Status: Queued, Size: f.size, Position: f.header.End, lines: f.header.Lines}
	for _, c := range n.Filename {
		if i.Filename += string(c); len(i.Filename) >= maxFilename {
			break
		}
	}
	i.Filename = db.Text(i.Filename, maxFilename)
	p := plan{Form: f.form, Header: f.header.Fields, Skip: n.OnConflict != "upsert"}
	needed, err := p.check(&n)
	if err == nil {
		err = s.DB.Update(ctx, func(tx *db.Tx) error { return s.create(ctx, tx, &i, p, &n, needed) })
	}
	if err != nil && !errors.Is(err, db.ErrUnknown) { // if the commit may have succeeded, leave the file to Sweep
		s.Discard(ctx, f)
	}
	return i, err
}

// check validates everything that can be validated without the database, and finds the columns.
func (p *plan) check(n *NewImport) (needed []contacts.BulkProperty, err error) {
	if n.OnConflict != "" && n.OnConflict != "upsert" && n.OnConflict != "skip" {
		return nil, fault.Invalidf("on_conflict", "The `on_conflict` field must be `upsert` or `skip`.")
	}
	if len(n.Segments) > MaxSegments {
		return nil, fault.Invalidf("segments", "The `segments` field names more than %d segments.", MaxSegments)
	}
	if len(n.Topics) > MaxTopics {
		return nil, fault.Invalidf("topics", "The `topics` field names more than %d topics.", MaxTopics)
	}
	p.Columns, needed, err = n.Map.resolve(p.Header)
	return needed, err
}

func (s *Service) create(ctx context.Context, tx *db.Tx, i *Import, p plan, n *NewImport,
	needed []contacts.BulkProperty) error {
	if err := checkCapacity(ctx, tx.Reader, i.TeamID); err != nil {
		return err
	}
	b := &contacts.Bulk{Segments: n.Segments, Topics: n.Topics}
	if err := s.Contacts.PrepareBulk(ctx, tx, i.TeamID, b, needed); err != nil {
		return err
	}
	p.Segments, p.Topics = b.Segments, nil
	for _, t := range b.Topics {
		p.Topics = append(p.Topics, choice{t.TopicID, t.Subscription})
	}
	for k, made := range b.Properties {
		p.Columns.Properties[k].ID = made.ID
	}
	i.CreatedAt = tx.Now()
	if err := insertImport(ctx, tx, i, &p); err != nil {
		return err
	}
	audit.Target(ctx, i.ID)
	s.Queue.Insert(ctx, tx, jobs.New{Kind: Kind, Lane: i.TeamID, TeamID: i.TeamID, Dedupe: i.ID, Payload: i.ID})
	return nil
}

// Get returns an import.
func (s *Service) Get(ctx context.Context, teamID, importID string) (Import, error) {
	return importByID(ctx, s.DB.Reader, teamID, importID)
}

// List returns a page of a team's imports with the given status, newest first. If status is "", List returns imports of
// any status.
func (s *Service) List(ctx context.Context, teamID string, status Status, p page.Page) ([]Import, bool, error) {
	if status != "" {
		if err := status.Check(); err != nil {
			return nil, false, err
		}
	}
	return listImports(ctx, s.DB.Reader, teamID, status, p)
}

// Cancel ends an import. Contacts that the import had already written are not removed. If the import has already ended,
// Cancel returns it unchanged.
func (s *Service) Cancel(ctx context.Context, teamID, importID string) (i Import, err error) {
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		if i, err = importByID(ctx, tx.Reader, teamID, importID); err != nil || i.Done() {
			return err
		}
		if _, err := end(ctx, tx, teamID, importID, Failed, canceledText); err != nil {
			return err
		}
		_, err := s.Queue.Remove(ctx, tx, Kind, teamID, importID) // a running job ends when it writes its next batch
		if err != nil {
			return fmt.Errorf("remove the job of an import: %w", err)
		}
		i, err = importByID(ctx, tx.Reader, teamID, importID)
		return err
	})
	if err == nil && i.Done() {
		s.deleteFile(ctx, importID)
	}
	return i, err
}

// ErrClosed means that the service has been closed.
var ErrClosed = errors.New("the imports are not watched any more")

// Close makes all calls to Watch return. Close is called when the node stops.
func (s *Service) Close() { s.close() }

// Watch waits until an import differs from the version in seen, and returns it. If the import has not changed after the
// given maximum time, Watch returns seen. If the service is closed, Watch returns ErrClosed. Watch reads the import
// twice a second, no matter how often Watch is called.
func (s *Service) Watch(ctx context.Context, seen Import, most time.Duration) (Import, error) {
	over := time.NewTimer(most)
	defer over.Stop()
	tick := time.NewTicker(s.c.Look)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-over.C:
			return seen, nil
		case <-s.closed:
			return seen, ErrClosed
		case <-ctx.Done():
			return seen, ctx.Err()
		}
		now, err := s.Get(ctx, seen.TeamID, seen.ID)
		if err != nil || now != seen {
			return now, err
		}
	}
}

// Failures returns an import's column names and its failed rows, in the order of the file. The iterator reads the
// failed rows page by page.
func (s *Service) Failures(ctx context.Context, teamID, importID string) (header []string,
	all iter.Seq2[Failure, error], err error) {
	const most = 500
	_, p, err := planOf(ctx, s.DB.Reader, teamID, importID)
	if err != nil {
		return nil, nil, err
	}
	return p.Header, func(yield func(Failure, error) bool) {
		for after := int64(0); ; {
			some, err := listFailures(ctx, s.DB.Reader, teamID, importID, after, most)
			if err != nil {
				yield(Failure{}, fmt.Errorf("read the failed rows of an import: %w", err))
				return
			}
			for _, f := range some {
				if !yield(f, nil) {
					return
				}
				after = f.Line
			}
			if len(some) < most {
				return
			}
		}
	}, nil
}
