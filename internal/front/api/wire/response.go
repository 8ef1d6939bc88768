package wire

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
)

// LargeResponse is the maximum size, in bytes, of a response that does not need a memory reservation.
const LargeResponse = 256 << 10

// These constants limit the memory that all teams share for large responses. An operation that expects a large response
// reserves memory before it reads the rows. After encoding, the reservation shrinks to the length of the response. The
// reservation lasts until the client has received the response. The client must receive it at a minimum rate. A slow
// client therefore delays only its own team's large responses.
const (
	responsesMax   = 512 << 20        // memory for all large responses, in bytes
	responsesGreed = 1                // greed of the pool for that memory; see package fairshare
	responseCost   = 3                // memory per byte of a response: row, string and encoded JSON
	responseGrace  = 15 * time.Second // time limit for receiving a response, in addition to its time at responsePace
	responsePace   = 128 << 10        // bytes per second
)

// ReserveMemory reserves memory for a response of the given size in bytes. If not enough memory becomes free within 10
// seconds, the error is an Unavailable fault.
func (c *Call) ReserveMemory(ctx context.Context, bytes int64) error {
	return c.reserve(ctx, bytes*responseCost)
}

func (c *Call) reserve(ctx context.Context, bytes int64) error {
	bytes = min(bytes, responsesMax)
	if _, err := c.server.ReserveMemory(ctx, c.TeamID, bytes); err != nil {
		return err
	}
	c.responseBytes += bytes
	return nil
}

// ReserveMemory reserves a number of bytes of the memory that all teams share for large responses, for a response that
// another package writes. The caller must call release. If not enough memory becomes free within 10 seconds, the error
// is an Unavailable fault.
func (s *Server) ReserveMemory(ctx context.Context, team string, bytes int64) (release func(), err error) {
	wait, cancel := context.WithTimeout(ctx, memoryWait)
	defer cancel()
	bytes = min(bytes, responsesMax)
	if err := s.Capacity.Responses.Acquire(wait, team, bytes); err != nil {
		return nil, fault.New(fault.Unavailable, "",
			"Too many large answers are being received. Try again in a moment.").
			Because(fmt.Errorf("%w: %w", errNoMemory, err))
	}
	return func() { s.Capacity.Responses.Release(team, bytes) }, nil
}

// shrinkReservation releases the reserved memory that exceeds the given number of bytes.
func (c *Call) shrinkReservation(bytes int64) {
	if bytes < c.responseBytes {
		c.server.Capacity.Responses.Release(c.TeamID, c.responseBytes-bytes)
		c.responseBytes = bytes
	}
}

// ReleaseSource sets a function that releases the memory for the data that the response is built from. The function is
// called after the response has been encoded.
func (c *Call) ReleaseSource(release func()) { c.source = release }

func (c *Call) releaseSource() {
	if release := c.source; release != nil {
		c.source = nil
		release()
	}
}

// writeResponse writes an encoded response. The client must receive a large response at a minimum rate.
func (s *Server) writeResponse(w *recorder, r *http.Request, c *Call, response []byte) {
	if len(response) <= LargeResponse {
		write(w, c.Status, response)
		return
	}
	if c.responseBytes == 0 {
		if err := c.reserve(r.Context(), int64(len(response))); err != nil {
			s.fail(w, r, err)
			return
		}
	}
	c.shrinkReservation(int64(len(response)))
	c.releaseSource()
	if w.recordResponse {
		w.recordResponse, w.response = false, response // recorded without copying, which would use twice as much memory
	}
	h := w.Header()
	h["Content-Type"] = []string{MediaJSON + "; charset=utf-8"}
	h["Content-Length"] = []string{strconv.Itoa(len(response))}
	w.WriteHeader(c.Status)
	if err := writeAtPace(w, response); err != nil {
		s.truncate(w, r, err)
	}
}

// writeAtPace writes a response in several pieces, which the client must receive at a minimum rate.
func writeAtPace(w http.ResponseWriter, response []byte) error {
	rc := http.NewResponseController(w)
	deadline := time.Now().Add(responseGrace)
	for len(response) > 0 {
		piece := response[:min(len(response), responsePace)]
		response = response[len(piece):]
		deadline = deadline.Add(time.Duration(len(piece)) * time.Second / responsePace)
		// Response writers in tests do not support deadlines.
		if err := rc.SetWriteDeadline(deadline); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return errClientGone
		}
		if _, err := w.Write(piece); err != nil {
			return errClientGone
		}
	}
	return nil
}
