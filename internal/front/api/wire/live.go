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
	// DefaultHeartbeat is the time between comment lines in an idle stream of events.
	DefaultHeartbeat = 15 * time.Second

	liveWriteTimeout = 10 * time.Second // time for the client to receive one write
)

// LiveStream is a stream of server-sent events that has no end of its own (HTML Living Standard, section 9.2). It is
// not an [Operation], and the document does not show it.
type LiveStream struct {
	Path  string
	Scope teams.Scope // scope that the actor needs
	// Prepare checks the request and returns a function that opens the source. The server calls that function once it
	// has capacity for the stream.
	Prepare func(c *Call) (open func(ctx context.Context) (LiveSource, error), err error)
}

// LiveSource yields the events of a live stream.
type LiveSource interface {
	// First returns the text that the stream begins with.
	First() string
	// Next returns the next text, or "" if there is none within the given time. The error is io.EOF when the stream
	// ends.
	Next(ctx context.Context, wait time.Duration) (string, error)
	Close()
}

// serveLive answers a request to a live stream. The stream ends when the client disconnects, when the source ends, and
// when the actor loses its rights.
func (s *Server) serveLive(w *recorder, r *http.Request, l *LiveStream,
	authenticate func(*recorder, *http.Request) error) {
	if err := authenticate(w, r); err != nil {
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
		if s.reauthenticate(w, r, l.Scope) != nil {
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

// openLive opens the source of a live stream. release gives back the capacity of the stream.
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

// writeLive writes and flushes a text. The client must receive it within liveWriteTimeout.
func writeLive(w http.ResponseWriter, text string) error {
	rc := http.NewResponseController(w)
	// Response writers of tests do not support deadlines.
	err := rc.SetWriteDeadline(time.Now().Add(liveWriteTimeout))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	return rc.Flush()
}
