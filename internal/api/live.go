package api

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/live"
	"github.com/postrider/postrider/internal/teams"
	"github.com/postrider/postrider/internal/webhooks"
)

const (
	heartbeat = 15 * time.Second // unless Options say otherwise
	listenFor = 10 * time.Second // that a reader may take for what is sent at once
)

// Listen streams a team's events as server-sent events (HTML Living Standard, section 9.2): the id is that of the
// webhook message, the event its type, and the data its payload. The parameter events chooses types. With
// Last-Event-ID, a stream goes on where another was interrupted. An event named gap says that some may have been
// missed meanwhile.
//
// It is no operation like the others, because it does not end.
func (a *API) Listen(w http.ResponseWriter, r *http.Request) {
	rec := w.(*recorder)
	tail, err := a.openTail(rec, r)
	if err != nil {
		a.fail(rec, r, err)
		return
	}
	defer tail.Close()
	rec.keep, rec.streamed = false, true
	h := rec.Header()
	h["Content-Type"] = []string{"text/event-stream; charset=utf-8"}
	h["Cache-Control"] = []string{"no-store"}
	h["X-Accel-Buffering"] = []string{"no"} // proxies must pass on what comes at once
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
		// A key that was deleted meanwhile shows nothing more, nor does one of a team that was suspended or deleted. To
		// ask costs a look into memory, which is emptied when any of that happens.
		if a.mayListen(rec, r) != nil {
			return
		}
		switch {
		case errors.Is(err, live.ErrClosed), r.Context().Err() != nil:
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

func (a *API) openTail(w *recorder, r *http.Request) (*live.Tail, error) {
	if err := a.enter(w, r); err != nil {
		return nil, err
	}
	if w.principal.Permission != teams.FullAccess {
		return nil, fault.New(fault.Restricted, "", "This API key is restricted to only send emails. Use a key with full access.")
	}
	query, err := readURL(r.URL)
	if err != nil {
		return nil, err
	}
	names, err := listed(query, "events")
	if err != nil {
		return nil, err
	}
	var types []events.Type
	if len(names) > 0 {
		if types, err = webhooks.CheckEvents(names); err != nil {
			return nil, err
		}
	}
	return a.Services.Live.Open(r.Context(), w.principal.TeamID, types, r.Header.Get("Last-Event-ID"))
}

// mayListen asks again whether the key is good; unlike entering, this counts as no request.
func (a *API) mayListen(w *recorder, r *http.Request) error {
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	p, err := a.Services.Teams.Authenticate(r.Context(), strings.TrimSpace(token))
	if err == nil && (p.Suspended || p.Permission != teams.FullAccess || p.TeamID != w.principal.TeamID) {
		err = errors.New("the key may not do this any more")
	}
	return err
}

// push writes a part of the stream at once. A reader that does not take it in time is cut off.
func push(w http.ResponseWriter, text string) error {
	rc := http.NewResponseController(w)
	// A writer without deadlines, as in tests, is written to without.
	if err := rc.SetWriteDeadline(time.Now().Add(listenFor)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	return rc.Flush()
}
