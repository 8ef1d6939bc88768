package wire

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
)

// These constants limit the streamed responses on this node. A slow client occupies a stream for longer, but delays
// only its own team's streams.
const (
	exportsMax             = 64               // concurrent exports
	exportsPerTeamMax      = 4                // maximum number of concurrent exports per team
	streamsGreed           = 1                // greed of the pool for each kind of stream; see package fairshare
	longListsMax           = 128              // maximum number of concurrent long lists; each has one chunk in memory
	longListWait           = 10 * time.Second // maximum time that a long list waits for capacity
	eventStreamsMax        = 256              // open event streams
	eventStreamsPerTeamMax = 10               // maximum number of open event streams per team
	streamPiece            = 32 << 10         // bytes per write
	streamPieceTimeout     = 30 * time.Second // time limit for the client to receive one write
)

// StreamKind is a kind of streamed response. Each kind of stream has a separate limit.
type StreamKind int

// These are the kinds of streamed responses.
const (
	Export      StreamKind = iota // a file
	EventStream                   // events that are sent as they happen
	longList                      // a list that clients expect as one response
)

// Stream is a response that is generated while it is sent, because it may be larger than memory.
type Stream struct {
	MediaType string
	FileName  string // for browsers that save the response; "" for none
	Kind      StreamKind
	// Parts yields the response in parts. Each part is valid only until the next part is requested. An error before the
	// first part causes an error response. An error after the first part truncates the response.
	Parts iter.Seq2[[]byte, error]
}

// Streaming returns a handler for a function that has no input and returns a stream. In the OpenAPI document, the type
// Row describes a line of NDJSON, the data of an event, or a whole JSON response. Which of these it describes depends
// on the media type.
func Streaming[Row any](f func(ctx context.Context, c *Call) (Stream, error), media ...string) Handler {
	h := Endpoint(func(ctx context.Context, c *Call, _ None) (Stream, error) { return f(ctx, c) })
	h.out, h.media = reflect.TypeFor[Row](), media
	return h
}

// errClientGone means that the client is no longer receiving the response.
var errClientGone = errors.New("the client disconnected or receives too slowly")

// writeStream writes a response in parts. While writeStream waits for a slow client, the server keeps only the
// connection and one part in memory. If the response cannot be completed, or the actor loses its rights, the server
// closes the connection before the end of the body. The client therefore detects the truncation.
func (s *Server) writeStream(w *recorder, r *http.Request, o *Operation, stream Stream) {
	release, err := s.acquireStream(r.Context(), w.actor.TeamID, stream.Kind)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer release()
	w.recordResponse, w.countResponse, w.streamed = false, w.recordResponse && stream.Kind == longList,
		stream.Kind == EventStream
	begun := false
	for part, err := range stream.Parts {
		if err == nil && begun {
			err = s.reauthenticate(w, r, o)
		}
		if err != nil && !begun {
			s.fail(w, r, err)
			return
		}
		if err == nil {
			if !begun {
				writeStreamHeader(w, o.Status, stream)
			}
			if begun = true; w.head {
				return
			}
			err = writePart(w, part)
		}
		if err != nil {
			s.truncate(w, r, err)
			return
		}
	}
}

// acquireStream reserves a slot for a stream of the given kind. Only long lists wait for a free slot. The returned
// function release frees the slot.
func (s *Server) acquireStream(ctx context.Context, team string, kind StreamKind) (release func(), err error) {
	switch kind {
	case EventStream:
		return s.acquireEventStream(team)
	case longList:
		wait, cancel := context.WithTimeout(ctx, longListWait)
		defer cancel()
		if err := s.Capacity.LongLists.Acquire(wait, team, 1); err != nil {
			return nil, fault.New(fault.TooFast, "", "Too many long lists are being read. Try again in a moment, or ask for "+
				"pages with the parameter `limit`.").Because(err)
		}
		return func() { s.Capacity.LongLists.Release(team, 1) }, nil
	}
	return s.AcquireExport(team)
}

// AcquireExport reserves a slot for an export without waiting. The returned function release frees the slot.
func (s *Server) AcquireExport(team string) (release func(), err error) {
	if s.Capacity.Exports.Held(team) >= exportsPerTeamMax || !s.Capacity.Exports.TryAcquire(team, 1) {
		return nil, fault.New(fault.TooFast, "", "This team has as many exports under way as it may, which is %d at most. "+
			"Wait until one has ended.", exportsPerTeamMax)
	}
	return func() { s.Capacity.Exports.Release(team, 1) }, nil
}

// acquireEventStream reserves a slot for an event stream without waiting. The returned function release frees the slot.
func (s *Server) acquireEventStream(team string) (release func(), err error) {
	if s.Capacity.EventStreams.Held(team) >= eventStreamsPerTeamMax || !s.Capacity.EventStreams.TryAcquire(team, 1) {
		return nil, fault.New(fault.TooFast, "", "This team has as many streams of events open as it may, which is %d at "+
			"most. Close one and try again.", eventStreamsPerTeamMax)
	}
	return func() { s.Capacity.EventStreams.Release(team, 1) }, nil
}

func writeStreamHeader(w http.ResponseWriter, status int, s Stream) {
	h := w.Header()
	h["Content-Type"] = []string{s.MediaType}
	h["X-Accel-Buffering"] = []string{"no"} // a buffering proxy could hide the truncation of a response
	if s.Kind != longList {
		h["Cache-Control"] = []string{"no-store"}
	}
	if s.FileName != "" {
		h["Content-Disposition"] = []string{fmt.Sprintf("attachment; filename=%q", s.FileName)}
		h["X-Content-Type-Options"] = []string{"nosniff"}
	}
	w.WriteHeader(status)
}

// writePart writes and flushes a part of the response. The client must receive each write of streamPiece bytes within
// streamPieceTimeout.
func writePart(w http.ResponseWriter, part []byte) error {
	rc := http.NewResponseController(w)
	for len(part) > 0 {
		// Response writers in tests do not support deadlines.
		err := rc.SetWriteDeadline(time.Now().Add(streamPieceTimeout))
		if err != nil && !errors.Is(err, http.ErrNotSupported) {
			return fmt.Errorf("%w: %w", errClientGone, err)
		}
		piece := part[:min(len(part), streamPiece)]
		part = part[len(piece):]
		if _, err := w.Write(piece); err != nil {
			return fmt.Errorf("%w: %w", errClientGone, err)
		}
	}
	if err := rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("%w: %w", errClientGone, err)
	}
	return nil
}

// truncate ends a request before the response is complete. The log contains the status code for err instead of the
// status code that was sent.
func (s *Server) truncate(w *recorder, r *http.Request, err error) {
	w.truncated = true
	if errors.Is(err, errClientGone) || r.Context().Err() != nil {
		return
	}
	e := faultOf(w, r, err)
	w.status = errorNames[e.Kind].status
}
