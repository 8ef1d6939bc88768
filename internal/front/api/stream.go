package api

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

// Limits of streams. A place is held for as long as a stream takes, by a slow reader for longer: a team that has all
// of its own waits for itself alone.
const (
	streamsMax     = 64               // exports at once, on this node
	streamsOfTeam  = 4                // and for one team
	streamsGreed   = 1                // of a team for them, see package fair
	longListsMax   = 128              // long lists at once, on this node; each has a chunk in memory
	longListWait   = 10 * time.Second // of a long list for a place, before the client is asked to try again
	watchersMax    = 256              // streams of events at once, on this node
	watchersOfTeam = 10               // and for one team
	streamPiece    = 32 << 10         // octets that are written at once
	streamPatience = 30 * time.Second // that a reader may take to receive a piece
)

// kind is what a stream is for, which decides of what it must have a place.
type kind int

const (
	exporting kind = iota
	listing        // a list that clients expect as one answer
	watching       // events, as they happen
)

// stream is an answer that is written while it is made, such as an export, because it may be larger than memory.
type stream struct {
	media string // media type
	file  string // name that browsers give the file; "" for none
	kind  kind
	// parts are the answer. A part is valid until the next one is asked for. An error of the first part is answered like
	// that of any operation; a later one cuts the answer.
	parts iter.Seq2[[]byte, error]
}

// streamed makes an operation of a function whose answer is a stream. Row is what the document describes: of
// application/x-ndjson a line, of text/event-stream the data of an event, of application/json all. The operation has
// no input.
func streamed[Row any](f func(ctx context.Context, c *Call) (stream, error), media ...string) bound {
	b := endpoint(func(ctx context.Context, c *Call, _ none) (stream, error) { return f(ctx, c) })
	b.out, b.media = reflect.TypeFor[Row](), media
	return b
}

// errGone says that the client no longer receives what is written.
var errGone = errors.New("the client went away, or receives too slowly")

// stream writes an answer part by part. While the client is slow, nothing is held but its connection and the part. An
// answer that cannot be written to its end is cut: the connection is closed within the body, so that no client takes
// it for whole. It is cut too when the actor may no longer have it.
func (a *API) stream(w *recorder, r *http.Request, o *op, s stream) {
	leave, err := a.place(r.Context(), w.actor.TeamID, &s)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	defer leave()
	w.keep, w.measured, w.streamed = false, w.keep && s.kind == listing, s.kind == watching
	begun := false
	for part, err := range s.parts {
		if err == nil && begun {
			err = a.still(w, r, o.scope)
		}
		if err != nil && !begun {
			a.fail(w, r, err)
			return
		}
		if err == nil {
			if !begun {
				begin(w, o.status, s)
			}
			if begun = true; w.head {
				return
			}
			err = writePaced(w, part)
		}
		if err != nil {
			a.cut(w, r, err)
			return
		}
	}
}

// place takes a place for a stream, which leave gives back.
func (a *API) place(ctx context.Context, team string, s *stream) (leave func(), err error) {
	switch s.kind {
	case watching:
		return a.watcher(team)
	case listing:
		wait, cancel := context.WithTimeout(ctx, longListWait)
		defer cancel()
		if err := a.longLists.Acquire(wait, team, 1); err != nil {
			return nil, fault.New(fault.TooFast, "", "Too many long lists are being read. Try again in a moment, or ask for "+
				"pages with the parameter `limit`.").Because(err)
		}
		return func() { a.longLists.Release(team, 1) }, nil
	}
	if a.streams.Held(team) >= streamsOfTeam || !a.streams.TryAcquire(team, 1) {
		return nil, fault.New(fault.TooFast, "", "This team has as many exports under way as it may, which is %d at most. "+
			"Wait until one has ended.", streamsOfTeam)
	}
	return func() { a.streams.Release(team, 1) }, nil
}

// watcher takes a place for a stream of events.
func (a *API) watcher(team string) (leave func(), err error) {
	if a.watchers.Held(team) >= watchersOfTeam || !a.watchers.TryAcquire(team, 1) {
		return nil, fault.New(fault.TooFast, "", "This team has as many streams of events open as it may, which is %d at "+
			"most. Close one and try again.", watchersOfTeam)
	}
	return func() { a.watchers.Release(team, 1) }, nil
}

func begin(w http.ResponseWriter, status int, s stream) {
	h := w.Header()
	h["Content-Type"] = []string{s.media}
	h["X-Accel-Buffering"] = []string{"no"} // A proxy that stores the answer would hide that it is cut.
	if s.kind != listing {
		h["Cache-Control"] = []string{"no-store"}
	}
	if s.file != "" {
		h["Content-Disposition"] = []string{fmt.Sprintf("attachment; filename=%q", s.file)}
		h["X-Content-Type-Options"] = []string{"nosniff"}
	}
	w.WriteHeader(status)
}

// writePaced writes a part in pieces, each of which the client must receive in time, and sends it.
func writePaced(w http.ResponseWriter, part []byte) error {
	rc := http.NewResponseController(w)
	for len(part) > 0 {
		// A writer without deadlines, as in tests, is used without one.
		err := rc.SetWriteDeadline(time.Now().Add(streamPatience))
		if err != nil && !errors.Is(err, http.ErrNotSupported) {
			return fmt.Errorf("%w: %w", errGone, err)
		}
		piece := part[:min(len(part), streamPiece)]
		part = part[len(piece):]
		if _, err := w.Write(piece); err != nil {
			return fmt.Errorf("%w: %w", errGone, err)
		}
	}
	if err := rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}

// cut ends a request within its answer. In the logs it has the status that its answer would have had.
func (a *API) cut(w *recorder, r *http.Request, err error) {
	w.cut = true
	if errors.Is(err, errGone) || r.Context().Err() != nil {
		return
	}
	e := judge(w, r, err)
	w.status = answers[e.Kind].status
}
