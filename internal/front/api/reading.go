package api

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

// Limits of the memory for bodies. Memory is reserved for what has arrived, not for what is announced. Nothing is
// counted below bodyIsLarge. A larger body first gets memory for an eighth of it, out of a pool of its own, and, when
// the eighth has arrived, memory for all of it. So a request never holds memory of the pool that it waits for, and
// requests cannot block each other. Bodies of medium size have a pool of their own. Teams share the pools, and a body
// must arrive at a minimum rate, or the request ends.
const (
	bodyMax     = 64 << 20  // a message of 40 MB, its attachments encoded in base64 again, and a margin
	bodiesMax   = 768 << 20 // octets of memory for large bodies and what is made of them, in all
	bodiesGreed = 1         // greed of a team for them: what stays free is enough for other teams' largest bodies
	mediumsMax  = 128 << 20 // and for those of at most bodyIsMedium, which do not wait behind larger ones
	bodyCost    = 3         // memory for one octet of a body: as it came, decoded, and on its way to the database
	begunMax    = 64 << 20  // and for bodies of which less than an eighth has arrived
	bodyIsLarge = 256 << 10 // smaller ones are not counted

	bodyIsMedium = 2 << 20 // the largest that need not wait behind larger ones
	bodyEighth   = 8       // the part of a body that must arrive before memory is reserved for all of it

	bodyWait  = 10 * time.Second // for memory, before the client is asked to try again
	bodyGrace = 15 * time.Second // for a body, plus the time that bodyPace gives for what has arrived
	bodyPace  = 256 << 10        // octets a second
	bodyPause = 10 * time.Second // between two pieces
)

// read reads the body within its limit. Large bodies wait until there is memory for them, which they keep until done
// is called.
func (a *API) read(w *recorder, r *http.Request) (body []byte, done func(), err error) {
	n := r.ContentLength
	switch {
	case n == 0 || r.Body == nil:
		return nil, func() {}, nil
	case n > a.BodyMax:
		return nil, func() {}, a.tooLarge()
	}
	b := &incomingBody{a: a, team: w.actor.TeamID, known: n > 0, src: paced{r: http.MaxBytesReader(w, r.Body, a.BodyMax),
		rc: http.NewResponseController(w), start: time.Now()}}
	if !b.known {
		n = a.BodyMax
	}
	if err = b.read(r.Context(), n); err == nil {
		b.src.lift() // After an error the deadline stays, because the server reads on to find the next request.
	}
	return b.octets, b.release, a.brokenBody(err)
}

// incomingBody is a body that is being read.
type incomingBody struct {
	a      *API
	team   string
	known  bool // the length is known
	src    paced
	octets []byte
	free   func() // gives back its memory; nil when it has none
}

// read reads a body of n octets, or of at most n if the length is not known.
func (b *incomingBody) read(ctx context.Context, n int64) error {
	pool := b.a.bodies
	if n <= bodyIsMedium {
		pool = b.a.mediums
	}
	for _, step := range []struct {
		size, cost int64
		pool       *fairshare.Pool
	}{{min(n, bodyIsLarge), 0, nil}, {n / bodyEighth, 1, b.a.begun}, {n, bodyCost, pool}} {
		if int64(len(b.octets)) >= step.size {
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
	// The body has its largest size, so it must end here.
	_, err := io.ReadFull(&b.src, make([]byte, 1))
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}

// reserve reserves memory for size octets in place of what the body has. Waiting for it does not count as the
// client's time.
func (b *incomingBody) reserve(ctx context.Context, pool *fairshare.Pool, size int64) error {
	began := time.Now()
	wait, cancel := context.WithTimeout(ctx, bodyWait)
	defer cancel()
	if err := pool.Acquire(wait, b.team, size); err != nil {
		return fault.New(fault.Unavailable, "",
			"Too many large requests are being carried out. Try again in a moment.").
			Because(fmt.Errorf("%w: %w", errFull, err))
	}
	b.src.start = b.src.start.Add(time.Since(began))
	b.release()
	b.free = func() { pool.Release(b.team, size) }
	return nil
}

// release gives the body's memory back.
func (b *incomingBody) release() {
	if free := b.free; free != nil {
		b.free = nil
		free()
	}
}

// fill reads until there are size octets, or to the end of a body whose length is not known.
func (b *incomingBody) fill(size int) error {
	for len(b.octets) < size {
		if len(b.octets) == cap(b.octets) {
			next := size
			if !b.known {
				next = min(max(2*cap(b.octets), 4<<10), size)
			}
			b.octets = append(make([]byte, 0, next), b.octets...)
		}
		n, err := b.src.Read(b.octets[len(b.octets):min(cap(b.octets), size)])
		b.octets = b.octets[:len(b.octets)+n]
		switch {
		case errors.Is(err, io.EOF) && !b.known:
			b.src.ended = true
			return nil
		case errors.Is(err, io.EOF) && len(b.octets) < size:
			return io.ErrUnexpectedEOF
		case err != nil && !errors.Is(err, io.EOF):
			return err
		}
	}
	return nil
}

// paced is a body that must arrive at a minimum rate: a client may pause, and may be slow, but neither for long. If
// the connection has no deadlines, as in tests, there is no minimum.
type paced struct {
	r     io.Reader
	rc    *http.ResponseController
	start time.Time
	count int64
	set   time.Time // the deadline
	ended bool
}

// Read implements io.Reader.
func (p *paced) Read(b []byte) (int, error) {
	until := time.Now().Add(bodyPause)
	if whole := p.start.Add(bodyGrace + time.Duration(p.count)*time.Second/bodyPace); whole.Before(until) {
		until = whole
	}
	if until.Sub(p.set) > time.Second { // Not for each of many small pieces.
		p.rc.SetReadDeadline(until)
		p.set = until
	}
	n, err := p.r.Read(b)
	p.count += int64(n)
	return n, err
}

// lift removes the deadline, for the next request on the connection.
func (p *paced) lift() { p.rc.SetReadDeadline(time.Time{}) }

func (a *API) brokenBody(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return a.tooLarge()
	}
	return fault.New(fault.Malformed, "",
		"The request body could not be read to its end: it broke off or came too slowly.").Because(err)
}

func (a *API) tooLarge() error {
	return fault.Invalidf("", "The request body is larger than %d bytes. Link to large files instead of attaching them.",
		a.BodyMax)
}
