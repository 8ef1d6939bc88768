package blob

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
)

// failures counts the operations that failed because the store was not available.
type failures struct{ puts, gets, deletes atomic.Int64 }

// count adds an error to a counter if the error is an outage, and returns the error.
func (f *failures) count(of *atomic.Int64, err error) error {
	if _, ok := errors.AsType[*outage](err); ok {
		of.Add(1)
	}
	return err
}

// Failures returns how many operations failed because the store was not available, by the name of the operation.
// Errors that occur while a blob is read, after Get, are not counted.
func (s *Store) Failures() map[string]int64 {
	f := &s.failures
	return map[string]int64{"put": f.puts.Load(), "get": f.gets.Load(), "delete": f.deletes.Load()}
}

// outage is the error of a store that is not available.
type outage struct{ err error }

func (o *outage) Error() string { return o.err.Error() }
func (o *outage) Unwrap() error { return o.err }

// Outage reports that the store failed, and not the caller (see fault.IsOutage).
func (o *outage) Outage() bool { return true }

// unavailable marks an error of a backend as an outage. Missing blobs, errors of the reader that was passed to Put, and
// the end of the caller's context are not outages.
func unavailable(ctx context.Context, err error) error {
	_, theirs := errors.AsType[*sourceError](err)
	if err == nil || theirs || ctx.Err() != nil || errors.Is(err, ErrNotFound) {
		return err
	}
	return &outage{err}
}

// reader reads a blob and marks errors of its backend as outages.
type reader struct {
	io.ReadCloser
	ctx context.Context
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = unavailable(r.ctx, err)
	}
	return n, err
}

// seekable is a reader of a file. Callers may assert that a reader is an io.Seeker.
type seekable struct {
	reader
	io.Seeker
}

func newReader(ctx context.Context, rc io.ReadCloser) io.ReadCloser {
	r := reader{rc, ctx}
	if s, ok := rc.(io.Seeker); ok {
		return &seekable{r, s}
	}
	return &r
}
