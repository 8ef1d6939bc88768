package wire

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
)

const (
	// DefaultHeartbeat is the time between comment lines in an idle event stream.
	DefaultHeartbeat = 15 * time.Second

	liveWriteTimeout = 10 * time.Second // time limit for the client to receive one write
)

// LiveStream is an endless stream of server-sent events (HTML Living Standard, section 9.2). A LiveStream is not an
// [Operation] and does not appear in the OpenAPI document.
type LiveStream struct {
	Path  string
	Scope teams.Scope // scope that the actor needs
	// Prepare checks the request and returns a function that opens the source. The server calls the returned function once
	// it has capacity for the stream.
	Prepare func(c *Call) (open func(ctx context.Context) (LiveSource, error), err error)
}

// LiveSource yields the events of a live stream.
type LiveSource interface {
	// First returns the text to send at the start of the stream.
	First() string
	// Next returns the next text to send, or "" if there is none before the wait time has passed. When the stream ends,
	// the error is io.EOF.
	Next(ctx context.Context, wait time.Duration) (string, error)
	Close()
}

// serveLive serves a live stream until the client disconnects, the source ends, or the actor loses its rights.
func (s *Server) serveLive(w *recorder, r *http.Request, l *LiveStream,
	authenticate func(*recorder, *http.Request) error) {
	err := authenticate(w, r)
	if err == nil {
		err = checkSuspended(&w.actor)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	source, release, err := s.openLive(w, r, l)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer release()
	defer source.Close()
	w.recordResponse, w.streamed = false, true
	h := w.Header()
	h["Content-Type"] = []string{MediaEvents + "; charset=utf-8"}
	h["Cache-Control"] = []string{"no-store"}
	h["X-Accel-Buffering"] = []string{"no"} // proxies must not buffer the stream
	if writeLive(w, source.First()) != nil {
		return
	}
	heartbeat := cmp.Or(s.opts.Heartbeat, DefaultHeartbeat)
	for {
		text, err := source.Next(r.Context(), heartbeat)
		if s.reauthenticate(w, r, &Operation{Scope: l.Scope}) != nil {
			return
		}
		switch {
		case errors.Is(err, io.EOF), r.Context().Err() != nil:
			return
		case err != nil:
			w.cause = err
			return
		}
		if writeLive(w, cmp.Or(text, ": still there\n\n")) != nil {
			return
		}
	}
}

// openLive opens the source of a live stream. The returned function release frees the capacity that the stream
// occupies.
func (s *Server) openLive(w *recorder, r *http.Request, l *LiveStream) (source LiveSource, release func(), err error) {
	if err := w.actor.Require(l.Scope); err != nil {
		return nil, nil, err
	}
	query, err := readURL(r.URL)
	if err != nil {
		return nil, nil, err
	}
	open, err := l.Prepare(&Call{Actor: w.actor, Request: r, Header: w.Header(), server: s, w: w, query: query})
	if err != nil {
		return nil, nil, err
	}
	if release, err = s.acquireEventStream(w.actor.TeamID); err != nil {
		return nil, nil, err
	}
	if source, err = open(r.Context()); err != nil {
		release()
	}
	return source, release, err
}

// writeLive writes and flushes a piece of text, which the client must receive within liveWriteTimeout.
func writeLive(w http.ResponseWriter, text string) error {
	rc := http.NewResponseController(w)
	// Response writers in tests do not support deadlines.
	err := rc.SetWriteDeadline(time.Now().Add(liveWriteTimeout))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	return rc.Flush()
}
