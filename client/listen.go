package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	silence     = 45 * time.Second // a stream of events without data for this long is opened again
	rememberMax = 10_000           // maximum number of event IDs to remember
)

// Gap is the type of a [LiveEvent] that means that earlier events may be missing.
const Gap = "gap"

// LiveEvent is an event that the team's webhook endpoints also receive.
type LiveEvent struct {
	ID      string          // the svix-id of the webhook message; empty for a gap
	Type    string          // such as email.delivered, or [Gap]
	Payload json.RawMessage // the same JSON as in a webhook
}

// Listen returns an iterator over the team's events as they happen. Without types, it yields events of all types. If
// the connection breaks, Listen connects again and continues after the last event; if the server no longer has all
// events in between, Listen yields an event of type [Gap]. The iterator ends with an error when ctx ends, or when the
// server refuses the request, redirects it or answers without a stream of events. Otherwise it ends with the loop.
//
// GET /webhooks/listen
func (s *WebhooksService) Listen(ctx context.Context, types ...string) iter.Seq2[LiveEvent, error] {
	return func(yield func(LiveEvent, error) bool) {
		l := &listener{client: s.client, yield: yield, seen: map[string]bool{}, query: url.Values{}}
		if len(types) > 0 {
			l.query.Set("events", strings.Join(types, ","))
		}
		for wait := time.Second; !l.stopped; wait = min(2*wait, maxWait) {
			connected, err := l.stream(ctx)
			if isFinal(err) {
				yield(LiveEvent{}, err)
				return
			}
			if connected {
				wait = time.Second
			}
			if l.stopped {
				return
			}
			select {
			case <-ctx.Done():
				yield(LiveEvent{}, ctx.Err())
				return
			case <-time.After(wait):
			}
		}
	}
}

// isFinal reports whether a further connection would fail for the same reason. A redirect and most answers about the
// request do not change by themselves.
func isFinal(err error) bool {
	if errors.Is(err, errNoEvents) {
		return true
	}
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Status == http.StatusRequestTimeout || e.Status == http.StatusTooManyRequests {
		return false
	}
	return e.Status/100 == 3 || e.Status/100 == 4
}

// errNoEvents means that the response is not a stream of events, for example because the URL is that of a website.
var errNoEvents = errors.New("the response is not a stream of events: check the URL of the API")

// listener reads the stream of events, one connection after another.
type listener struct {
	client  *Client
	query   url.Values
	yield   func(LiveEvent, error) bool
	stopped bool // the caller needs no further events

	last  string // highest ID of a yielded event
	seen  map[string]bool
	order []string // IDs in seen, oldest first
}

// stream connects and yields events until the connection ends.
func (l *listener) stream(ctx context.Context) (connected bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	o := operation{method: http.MethodGet, path: "/webhooks/listen", query: l.query, accept: "text/event-stream"}
	if l.last != "" {
		o.header = http.Header{"Last-Event-Id": {l.last}}
	}
	response, err := l.client.send(ctx, &o, nil)
	if err != nil {
		return false, err
	}
	body := response.Body
	defer body.Close()
	if media, _, err := mime.ParseMediaType(response.Header.Get("Content-Type")); err != nil || media != o.accept {
		return false, fmt.Errorf("%s %s: %w", o.method, o.path, errNoEvents)
	}
	alive := time.AfterFunc(silence, func() { cancel(errors.New("the server sent nothing for too long")) })
	defer alive.Stop()
	for m, err := range readMessages(body) {
		if err != nil {
			return true, fmt.Errorf("read the events: %w", err)
		}
		alive.Stop() // the caller may take long
		if !m.comment && !l.pass(m) {
			l.stopped = true
			return true, nil
		}
		alive.Reset(silence)
	}
	return true, nil
}

// pass yields an event that was not yielded before. It returns false if the caller needs no further events.
func (l *listener) pass(m message) bool {
	if m.event == Gap {
		return l.yield(LiveEvent{Type: Gap}, nil)
	}
	if m.id == "" || l.seen[m.id] {
		return true
	}
	l.last = max(l.last, m.id)
	l.seen[m.id] = true
	if l.order = append(l.order, m.id); len(l.order) > rememberMax {
		delete(l.seen, l.order[0])
		l.order = l.order[1:]
	}
	return l.yield(LiveEvent{ID: m.id, Type: m.event, Payload: json.RawMessage(m.data)}, nil)
}
