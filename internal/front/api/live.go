package api

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/outbound/eventstream"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/events"
)

const (
	heartbeat = 15 * time.Second // unless Options say otherwise
	listenFor = 10 * time.Second // how long a reader may take to receive one write

	listenScope = teams.WebhooksRead // the scope that an actor needs to listen
)

// Listen streams a team's events as server-sent events (HTML Living Standard, section 9.2): the id is that of the
// webhook message, the event its type, and the data its payload. The parameter events selects types. With
// Last-Event-ID, a stream goes on where another was interrupted. An event named gap means that some may have been
// missed meanwhile.
//
// It is not an operation like the others, because it does not end.
func (a *API) Listen(w http.ResponseWriter, r *http.Request) {
	rec := w.(*recorder)
	if err := a.enter(rec, r); err != nil {
		a.fail(rec, r, err)
		return
	}
	a.listen(rec, r)
}

// listen streams the events of the authenticated actor's team.
func (a *API) listen(rec *recorder, r *http.Request) {
	tail, leave, err := a.openTail(rec, r)
	if err != nil {
		a.fail(rec, r, err)
		return
	}
	defer leave()
	defer tail.Close()
	rec.keep, rec.streamed = false, true
	h := rec.Header()
	h["Content-Type"] = []string{"text/event-stream; charset=utf-8"}
	h["Cache-Control"] = []string{"no-store"}
	h["X-Accel-Buffering"] = []string{"no"} // proxies must not buffer the stream
	first := ": watching\n\n"
	if tail.Missed() {
		first = "event: gap\ndata: {}\n\n"
	}
	if push(rec, first) != nil {
		return
	}
	every := cmp.Or(a.Heartbeat, heartbeat)
	for {
		all, err := tail.Next(r.Context(), every)
		// An actor that may no longer listen receives nothing more.
		if a.still(rec, r, listenScope) != nil {
			return
		}
		switch {
		case errors.Is(err, eventstream.ErrClosed), r.Context().Err() != nil:
			return
		case err != nil:
			rec.cause = err
			return
		case len(all) == 0:
			if push(rec, ": still there\n\n") != nil {
				return
			}
			continue
		}
		var b strings.Builder
		for _, m := range all {
			fmt.Fprintf(&b, "id: %s\nevent: %s\ndata: %s\n\n", m.ID, m.Type, strings.ReplaceAll(m.Payload, "\n", " "))
		}
		if push(rec, b.String()) != nil {
			return
		}
	}
}

// openTail returns a tail with a place for its stream, which leave gives back.
func (a *API) openTail(w *recorder, r *http.Request) (t *eventstream.Tail, leave func(), err error) {
	if err := w.actor.Require(listenScope); err != nil {
		return nil, nil, err
	}
	query, err := readURL(r.URL)
	if err != nil {
		return nil, nil, err
	}
	names, err := listed(query, "events")
	if err != nil {
		return nil, nil, err
	}
	var types []events.Type
	if len(names) > 0 {
		if types, err = webhooks.CheckEvents(names); err != nil {
			return nil, nil, err
		}
	}
	if leave, err = a.watcher(w.actor.TeamID); err != nil {
		return nil, nil, err
	}
	if t, err = a.Services.Live.Open(r.Context(), w.actor.TeamID, types, r.Header.Get("Last-Event-ID")); err != nil {
		leave()
	}
	return t, leave, err
}

// push writes a part of the stream at once. A reader that does not receive it in time is disconnected.
func push(w http.ResponseWriter, text string) error {
	rc := http.NewResponseController(w)
	// A writer without deadlines, as in tests, is used without one.
	if err := rc.SetWriteDeadline(time.Now().Add(listenFor)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	return rc.Flush()
}
