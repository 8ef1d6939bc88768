package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/fairshare"
)

// These constants limit the memory that all teams share for request bodies. Memory is reserved as the bytes arrive,
// because a client can announce any Content-Length. Bodies up to smallBody are not counted. A larger body first
// reserves memory for an eighth of its size from Capacity.BodyStarts. After that eighth has arrived, memory for the
// whole body is reserved from another pool. A request therefore never holds memory from the pool that it is waiting
// for, so requests cannot deadlock. A body must arrive at a minimum rate.
const (
	bodyMax         = 64 << 20  // enough for a message of 40 MB with base64 attachments, plus a margin
	bodiesMax       = 768 << 20 // memory for all large bodies and their decoded values, in bytes
	bodiesGreed     = 1         // a team may reserve at most as much memory as remains free for other teams
	mediumBodiesMax = 128 << 20 // memory for all bodies up to mediumBody, in bytes
	bodyStartsMax   = 64 << 20  // memory for bodies of which less than an eighth has arrived, in bytes
	bodyCost        = 3         // memory per byte of a body: received, decoded, and as SQL parameters
	smallBody       = 256 << 10 // bodies up to this size are not counted
	mediumBody      = 2 << 20   // bodies up to this size do not wait for larger bodies
	bodyStart       = 8         // a body reserves all of its memory once 1/bodyStart of it has arrived

	memoryWait = 10 * time.Second // maximum time that a request waits for memory
	bodyGrace  = 15 * time.Second // time limit for a body, extended as bytes arrive, at bodyPace
	bodyPace   = 256 << 10        // bytes per second
	bodyPause  = 10 * time.Second // maximum time between two reads
)

// readBody reads a request body of at most BodyMax bytes. A large body waits for memory, which stays reserved until
// release is called.
func (s *Server) readBody(w *recorder, r *http.Request) (body []byte, release func(), err error) {
	n := r.ContentLength
	switch {
	case n == 0 || r.Body == nil:
		return nil, func() {}, nil
	case n > s.opts.BodyMax:
		return nil, func() {}, s.bodyTooLarge()
	}
	b := &bodyReader{capacity: &s.Capacity, team: w.actor.TeamID, known: n > 0,
		src: pacedReader{r: http.MaxBytesReader(w, r.Body, s.opts.BodyMax), rc: http.NewResponseController(w),
			start: time.Now()}}
	if !b.known {
		n = s.opts.BodyMax
	}
	if err = b.read(r.Context(), n); err == nil {
		b.src.clearDeadline() // not after an error, because net/http then reads the rest of the body
	}
	return b.bytes, b.release, s.bodyError(err)
}

// bodyReader reads a body and reserves memory for it.
type bodyReader struct {
	capacity *Capacity
	team     string
	known    bool // whether the length is known
	src      pacedReader
	bytes    []byte
	free     func() // releases the memory reserved for the body; nil if there is none
}

// read reads a body of n bytes, or of at most n bytes if the length is unknown.
func (b *bodyReader) read(ctx context.Context, n int64) error {
	pool := b.capacity.Bodies
	if n <= mediumBody {
		pool = b.capacity.MediumBodies
	}
	for _, step := range []struct {
		size, cost int64
		pool       *fairshare.Pool
	}{{min(n, smallBody), 0, nil}, {n / bodyStart, 1, b.capacity.BodyStarts}, {n, bodyCost, pool}} {
		if int64(len(b.bytes)) >= step.size {
			continue
		}
		if step.pool != nil {
			if err := b.reserve(ctx, step.pool, step.size*step.cost); err != nil {
				return err
			}
		}
		if err := b.fill(int(step.size)); err != nil || b.src.ended {
			return err
		}
	}
	if b.known {
		return nil
	}
	// The body has reached the maximum size, so no more bytes may follow.
	_, err := io.ReadFull(&b.src, make([]byte, 1))
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}

// reserve reserves size bytes from the pool, and then releases the memory that was previously reserved for the body.
// Time spent waiting for memory does not count towards the client's time limit.
func (b *bodyReader) reserve(ctx context.Context, pool *fairshare.Pool, size int64) error {
	began := time.Now()
	wait, cancel := context.WithTimeout(ctx, memoryWait)
	defer cancel()
	if err := pool.Acquire(wait, b.team, size); err != nil {
		return fault.New(fault.Unavailable, "",
			"Too many large requests are being carried out. Try again in a moment.").
			Because(fmt.Errorf("%w: %w", errNoMemory, err))
	}
	b.src.start = b.src.start.Add(time.Since(began))
	b.release()
	b.free = func() { pool.Release(b.team, size) }
	return nil
}

// release releases the memory that is reserved for the body.
func (b *bodyReader) release() {
	if free := b.free; free != nil {
		b.free = nil
		free()
	}
}

// fill reads until size bytes have arrived or, if the length is unknown, until the end of the body.
func (b *bodyReader) fill(size int) error {
	for len(b.bytes) < size {
		if len(b.bytes) == cap(b.bytes) {
			next := size
			if !b.known {
				next = min(max(2*cap(b.bytes), 4<<10), size)
			}
			b.bytes = append(make([]byte, 0, next), b.bytes...)
		}
		n, err := b.src.Read(b.bytes[len(b.bytes):min(cap(b.bytes), size)])
		b.bytes = b.bytes[:len(b.bytes)+n]
		switch {
		case errors.Is(err, io.EOF) && !b.known:
			b.src.ended = true
			return nil
		case errors.Is(err, io.EOF) && len(b.bytes) < size:
			return io.ErrUnexpectedEOF
		case err != nil && !errors.Is(err, io.EOF):
			return err
		}
	}
	return nil
}

// pacedReader reads a body that must arrive at a minimum rate and without long pauses. There is no minimum rate for
// test connections that do not support deadlines.
type pacedReader struct {
	r        io.Reader
	rc       *http.ResponseController
	start    time.Time
	count    int64
	deadline time.Time
	ended    bool
}

// Read implements io.Reader.
func (p *pacedReader) Read(b []byte) (int, error) {
	deadline := time.Now().Add(bodyPause)
	if total := p.start.Add(bodyGrace + time.Duration(p.count)*time.Second/bodyPace); total.Before(deadline) {
		deadline = total
	}
	if deadline.Sub(p.deadline) > time.Second { // deadlines are set at most once per second
		p.rc.SetReadDeadline(deadline)
		p.deadline = deadline
	}
	n, err := p.r.Read(b)
	p.count += int64(n)
	return n, err
}

// clearDeadline removes the read deadline, which must not apply to the next request on the connection.
func (p *pacedReader) clearDeadline() { p.rc.SetReadDeadline(time.Time{}) }

// bodyError returns the fault for an error that occurred while reading a body.
func (s *Server) bodyError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return s.bodyTooLarge()
	}
	return fault.New(fault.Malformed, "",
		"The request body could not be read to its end: it broke off or came too slowly.").Because(err)
}

func (s *Server) bodyTooLarge() error {
	return fault.Invalidf("", "The request body is larger than %d bytes. Link to large files instead of attaching them.",
		s.opts.BodyMax)
}
